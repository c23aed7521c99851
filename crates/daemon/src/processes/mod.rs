//! What clients do with processes: start, act, attach, write input, list, and remove old ones.
//!
//! `start_request` makes a spec of a request and `sandbox` its sandbox, and `repeat_request` a request of a spec; `start`
//! starts it, after `admission`; `start_timeout` gives up on a keeper
//! that does not decide a start; `actions` stops, signals, pauses and resumes, and `stop_commands` stops a part of a tree; `input` writes to stdin; `attach` is the
//! WebSocket of one observer; `list` makes pages; `search` finds lines in the output of many processes; `samples` measures
//! what live ones use; `remove` removes an ended one, and `retention` those that ended long ago.
//!
//! May use: registry, telemetry, waits, access, events, output, services, keepers; by exception: agents, owners.

mod actions;
mod admission;
pub(crate) mod attach;
mod input;
pub(crate) mod list;
mod remove;
mod repeat_request;
pub(crate) mod retention;
pub(crate) mod samples;
pub(crate) mod sandbox;
pub(crate) mod search;
pub(crate) mod start;
pub(crate) mod start_request;
mod start_timeout;
pub(crate) mod stop_commands;

pub use start_request::check_start;
