//! What a process wrote, for clients: `read` has pages and streams, `filter` selects matching lines, and `screen` keeps what a
//! terminal shows up to date.
//!
//! May use: registry, waits.

mod filter;
pub(crate) mod read;
pub(crate) mod screen;
