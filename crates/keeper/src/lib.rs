//! The keeper: supervises one process at a time. It spawns the command, copies its output to disk, waits for it and
//! writes the exit record. It works without a daemon.
//!
//! Invariants, each with a test of its name:
//! - K1 a fact is written to the record before it is sent to the daemon.
//! - K2 the leader is reaped last: its pid and session stay reserved while the tree is signalled.
//! - K3 nothing the daemon does or fails to do affects the process: sends never block, and losing the link
//!   changes nothing.
//! - K4 a keeper runs one process at a time; when its tree is empty, it may take the next one.
//!
//! Modules: `nursery` is the small parent process from which keepers are forked; `keeper` is one of them; `system` is
//! its interface to the operating system, and `linux` implements that and the event loop. `orders` dispatches the
//! daemon's orders; `driver` runs one process, `launch` starts it, `not_found` explains a missing directory or
//! program, `pump` copies its output, `stdin` writes its input, `signals` handles signal and pause orders,
//! `limit_watch` measures resource use, `limits` acts on it, `usage` adds up what is reported at the end. `link` is
//! the connection to the daemon, `visitors` are all other connections, `daemon` starts a daemon from a keeper, and
//! `ancestor` is how a program inside a process asks for that.

pub mod ancestor;
mod daemon;
mod daemon_link;
pub mod driver;
pub mod keeper;
mod launch;
mod limit_watch;
mod limits;
mod linux;
mod not_found;
pub mod nursery;
mod orders;
mod other_connections;
mod pump;
mod sandbox;
mod signals;
mod stdin;
pub mod system;
mod usage;
