//! Recovery: taking over what an earlier daemon left, and what requests do meanwhile (`progress`).

mod progress;
pub(crate) mod recover;

pub(crate) use progress::Progress;
