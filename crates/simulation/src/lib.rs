//! Daemon, keepers, records and clients in one thread: time, and every message, write, death and wake-up, chosen by a seed.
//!
//! What decides is the product's own code: the lifecycle, the keeper with its driver, pump and link, the record's rules, and
//! the daemon's conclusions about keepers. What it runs on is in memory: `machine` is the kernel, `files` the disk,
//! `sockets` the links, `system` what a keeper sees of them. `check` holds what must be true at every step.

pub mod check;
pub mod daemon;
pub mod files;
pub mod history;
pub mod index;
pub mod keeper;
pub mod machine;
pub mod plan;
pub mod random;
pub mod scene;
pub mod sockets;
pub mod system;
pub mod world;
