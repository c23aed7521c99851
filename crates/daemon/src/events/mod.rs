//! The event log, and everything that sends events to owners.
//!
//! `compose` makes the event of a fact; `index_writer` is the only writer of the index and the log; `log` reads events,
//! `consumers` are named readers with a cursor; `recent_changes`
//! tells whether they can have anything new. `watching` starts `patterns` (output lines that become events) and
//! `heartbeat` for a process. `delivery` sends announced events to webhooks (`webhook`) and command hooks.
//!
//! May use: registry, waits, access; by exception: processes.

pub(crate) mod compose;
mod consumers;
pub(crate) mod delivery;
mod heartbeat;
pub(crate) mod index_writer;
pub(crate) mod log;
mod patterns;
mod recent_changes;
pub(crate) mod watching;
pub(crate) mod webhook;
