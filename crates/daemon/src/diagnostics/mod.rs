//! Diagnostics: `health` and `metrics` of the running daemon, and `doctor`, which examines the machine without a
//! daemon.
//!
//! May use: registry, access, events, keepers.

pub mod doctor;
mod health;
pub(crate) mod metrics;
