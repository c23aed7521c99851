//! Waiting for processes: `until` waits for one change, for any part of the daemon; `wait` handles the wait requests,
//! for one process or many.
//!
//! May use: registry, telemetry.

mod until;
pub(crate) mod wait;

pub(crate) use until::{has_closed, has_exited, until_change, until_closed, until_exit, until_output, until_ready};
