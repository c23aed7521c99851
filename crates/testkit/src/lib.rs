//! Dev only: a real daemon in a home of its own, a blocking client, the command line, waiting with a deadline; the
//! grounds (user and containment) that daemons run on, and every known way to escape a stop.
//!
//! A [`Pinfold`] leaves nothing behind: when dropped it stops every process, stops the daemon, checks that the keepers
//! and their trees have exited, and removes its home. Tests kill only what they started.

pub mod carriers;
mod cut;
pub mod environments;
pub mod escapes;
mod harness;
pub mod hung;
mod place;
mod procs;
mod terminal;

pub use cut::{connections_of, cut_connections};
pub use harness::{Cli, Pinfold, Setup};
pub use place::{place_copy, place_program, place_text};
pub use procs::{DEADLINE, Pidfd, alive, children_of, command_line, cpu_ms, parent_of, until, until_some};
pub use terminal::Terminal;
