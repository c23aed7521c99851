//! How pinfold is doing: `health` of the running daemon, `metrics` for Prometheus, and `doctor`, which examines the machine
//! without a daemon.

pub mod doctor;
mod health;
pub(crate) mod metrics;
