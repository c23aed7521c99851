//! Deterministic simulation: daemon, keepers, records and clients in one thread. A seed chooses the time and order of
//! every message, write, death and wake-up.
//!
//! The code under test is the product's own: the lifecycle, the keeper with its driver, pump and link, the record's
//! rules, and the daemon's decisions about keepers. Everything below is in memory: `machine` is the kernel, `files`
//! the disk, `sockets` the connections, `system` a keeper's view of them. `check` verifies the invariants at every
//! step.

pub mod check;
pub mod daemon;
pub mod files;
pub mod harness;
pub mod history;
pub mod index;
pub mod keeper;
pub mod machine;
pub mod plan;
pub mod random;
pub mod sockets;
pub mod system;
pub mod world;
