//! Diagnostics: `health` and `metrics` of the running daemon, and `doctor`, which examines the machine without a
//! daemon.
//!
//! May use: registry, telemetry, access, events, keepers.

pub mod doctor;
mod health;
pub(crate) mod metrics;
