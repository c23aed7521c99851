//! The daemon: admission, views, waits, events, reconnecting to keepers. Owns no process: each has its keeper.
//!
//! Invariants that live here, each with a test of its name:
//! - D1 an acknowledged start survives the daemon: the answer is sent after the keeper wrote its record.
//! - D2 one idempotency key, one process.
//! - D3 nothing is announced before it is durable: waits end on facts that the keeper has written, and events are shown
//!   once the index has committed them.
//! - D4 every wait, list, body and queue has a bound.
//! - D5 a view never widens (`registry::view`, `access::caller`; where a connection comes from: `access::origin`).
//! - D6 a port is leased to one process at a time (`services::ports`).
//! - D7 no end has two successors, and no restart that is due is lost (`services::restarts`).
//! - D8 the daemon touches no path that a request names (`processes::start_timeout`).
//! - D9 only an ended session's processes are shown to another session (`owners::sessions`).
//! - D10 only the dashboard's own page acts through the dashboard (`dashboard`).
//! - D11 and D12, about turns of hosted agents, are in `agents`.
//!
//! `run` starts it and `core` is the state that all tasks share. Each folder is a room; its `mod.rs` says what it owns,
//! and ARCHITECTURE.md which rooms it may use. Files beside the folders are used by all.

mod access;
mod agents;
mod clock;
mod coder;
pub mod config;
mod core;
mod dashboard;
mod diagnostics;
mod emulator;
mod events;
mod extract;
#[doc(hidden)]
pub mod fuzz_entry;
mod home;
mod http_client;
mod inbox;
mod json;
mod keepers;
mod log;
mod metrics;
mod mutex;
mod output;
mod owners;
mod processes;
mod query;
mod recovery;
mod registry;
mod request_error;
mod run;
pub mod running;
mod server;
mod services;
mod telemetry;
mod threads;
mod waits;

pub use diagnostics::doctor;
pub use processes::check_start;
pub use run::{Mount, Options, RunError, run};
