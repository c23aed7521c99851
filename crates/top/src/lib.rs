//! `pinfold top`: everything that pinfold keeps on one terminal screen, live, with one key to stop it.
//!
//! A client of `/v1` like any other: nothing that it shows is known to it alone. `update` decides and `draw` paints, both
//! pure; `io` reads keys and talks to the daemon beside them, so that neither a slow daemon nor a fast process stops the
//! screen. Must not reach around the api client, and invents no value: what the daemon does not say is not shown.

mod attached_terminal;
mod command;
mod describe;
mod draw;
mod io;
mod list;
mod log;
mod message;
mod processes;
mod prompt;
mod quantity;
mod state;
#[cfg(test)]
mod testing;
mod text;
mod update;

pub use io::own_terminal::OwnTerminal;
pub use io::{Ended, Options, run};
