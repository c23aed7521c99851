//! The keeper: one process's supervisor. Spawns the command, captures its output, waits, and commits the
//! exit record. It needs no daemon to be alive.
//!
//! Invariants that live here, each with a test of its name:
//! - K1 a fact is written to the record before it is told.
//! - K2 the leader is reaped last: its pid and session stay reserved while the tree is signalled.
//! - K3 nothing the daemon does or fails to do reaches the process: sends never block, the loss of the link
//!   changes nothing.
//! - K4 a keeper whose tree is empty may keep another process; one at a time.
//!
//! `nursery` is the small parent from which keepers are forked, `keeper` one of them, `system` what it asks of the operating system,
//! `linux` the real one and the loop, `orders` what the daemon asks, `driver` one process's life, `pump` its output, `feed` its input, `launch` its start, `missing` why one found nothing to start, `watch` what it uses of its limits and `limits` what becomes of it
//! there, `tally` what it used, `signals` what clients send it, `link` the daemon's end, `visitors` who else
//! connects, `daemon` how a daemon is started from here, `inside` how a kept
//! program asks for that.

mod daemon;
pub mod driver;
mod feed;
pub mod inside;
pub mod keeper;
mod launch;
mod limits;
mod link;
mod linux;
mod missing;
pub mod nursery;
mod orders;
mod pump;
mod signals;
pub mod system;
mod tally;
mod visitors;
mod watch;
