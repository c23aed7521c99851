//! What clients do with processes: start, act, attach, write input, list, and remove old ones.
//!
//! `start` starts one, after `admission`; `start_timeout` gives up on a keeper that does not decide a start; `actions` stops,
//! signals, pauses and resumes; `input` writes to stdin; `attach` is the WebSocket of one observer; `list` makes pages; `retention` removes what ended long ago.
//!
//! May use: registry, waits, access, events, output, services, keepers; by exception: agents.

mod actions;
mod admission;
pub(crate) mod attach;
mod input;
pub(crate) mod list;
pub(crate) mod retention;
pub(crate) mod start;
mod start_timeout;
