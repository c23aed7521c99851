//! What a process wrote, for clients: pages, filtered pages, streams, and what its terminal shows.
//!
//! `read` answers output requests, `filter` selects matching lines; `attach` is the WebSocket of one observer, with
//! `shared_reads` for several observers of one process; `screen` keeps the screen of a process with a terminal up to date, with
//! `emulator` drawing it.

pub(crate) mod attach;
pub(crate) mod emulator;
mod filter;
pub(crate) mod read;
pub(crate) mod screen;
pub(crate) mod shared_reads;
