//! The daemon: admission, views, waits, events, re-attachment. Owns no process: each has its keeper.
//!
//! Invariants that live here, each with a test of its name:
//! - D1 an acknowledged start survives the daemon: the answer comes after the keeper's record.
//! - D2 one idempotency key, one process.
//! - D3 nothing is announced before it is durable: waits end on facts that the keeper has written, events are
//!   shown when the index has committed them.
//! - D4 every wait, list, body and queue has a bound.
//! - D5 a view never widens (`registry::view`, `access::caller`; where a connection comes from: `access::origin`).
//! - D6 a port is lent to one process at a time (`services::ports`).
//! - D7 no end has two successors, and none that is owed is lost (`services::restarts`).
//! - D8 no path that a request names is touched by the daemon (`processes::start_timeout`).
//! - D9 only an ended session's processes are shown to another session (`owners::sessions`).
//!
//! `run` composes it and `core` is the state that all tasks share. Each folder is a room; its `mod.rs` says what it owns, and
//! ARCHITECTURE.md which rooms it may use. Files beside the folders are used by all.

mod access;
mod agents;
mod clock;
mod coder;
pub mod config;
mod core;
mod diagnostics;
mod emulator;
mod events;
mod extract;
#[doc(hidden)]
pub mod fuzz_entry;
mod home;
mod json;
mod keepers;
mod lock;
mod log;
mod metrics;
mod output;
mod owners;
mod processes;
mod recovery;
mod refusal;
mod registry;
mod run;
mod server;
mod services;
mod threads;
mod waits;

pub use diagnostics::doctor;
pub use run::{Mount, Options, RunError, run};
