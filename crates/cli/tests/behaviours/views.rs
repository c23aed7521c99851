//! What screens and dashboards ask for: last lines, samples, lists by time and label, search, the inbox, removal, streams.

mod inbox;
mod lists;
mod removal;
mod samples;
mod search;
mod streams;
