//! Commands about the command line itself: shell completions, manual pages.

pub(crate) mod completions;
pub(crate) mod man;
