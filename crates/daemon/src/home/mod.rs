//! The daemon's directory while it runs: `claim` ensures that one daemon owns it, `guard` acts when it is moved,
//! removed or replaced.
//!
//! May use: registry, access, events, services, keepers, processes, agents, server.

pub(crate) mod claim;
pub(crate) mod guard;
