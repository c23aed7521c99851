//! Recovery: takes over what an earlier daemon left, as soon as this one listens.
//!
//! May use: registry, telemetry, events, services, keepers, agents.

pub(crate) mod recover;
