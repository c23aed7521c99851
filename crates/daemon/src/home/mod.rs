//! The daemon's directory while it runs: `claim` makes sure that one daemon owns it, `guard` acts when it is moved,
//! removed or replaced.

pub(crate) mod claim;
pub(crate) mod guard;
