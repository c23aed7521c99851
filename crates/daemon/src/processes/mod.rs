//! Processes as clients know them: which exist, starting them, acting on them, and showing them.
//!
//! `registry` holds the live and the recently ended ones; `start` starts one and `start_timeout` gives up on a keeper that does
//! not answer; `actions` stops, signals, pauses and resumes; `input` writes to stdin; `find` resolves an id or a name, with
//! `similar_names` for suggestions; `list` makes pages, `records` the JSON that clients get; `retention` removes old ones.

pub(crate) mod actions;
pub(crate) mod find;
pub(crate) mod input;
pub(crate) mod list;
pub(crate) mod records;
pub(crate) mod registry;
pub(crate) mod retention;
mod similar_names;
pub(crate) mod start;
mod start_timeout;
