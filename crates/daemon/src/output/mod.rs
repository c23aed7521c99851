//! Output for clients: `read` makes pages, `filter` selects matching lines, `follow` streams bytes, `last_line` finds the last line for
//! records and lists, and `screen` keeps the screen of a terminal up to date.
//!
//! May use: registry, waits.

mod filter;
pub(crate) mod follow;
pub(crate) mod last_line;
pub(crate) mod read;
pub(crate) mod screen;
