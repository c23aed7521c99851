//! Recovery: taking over what an earlier daemon left, as soon as this one listens.

pub(crate) mod recover;
