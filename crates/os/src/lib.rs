//! Every system call of pinfold, and every `unsafe` block.
//!
//! Owns descriptors and child processes. Knows nothing of records or policy: it makes the calls and reports what the
//! kernel answered.

pub mod awaiting;
mod birth;
pub mod brake;
pub mod cgroup;
pub mod controllers;
pub mod crash;
pub mod daemonize;
pub mod fsio;
pub mod held;
mod mounts;
mod oom;
pub mod poll;
pub mod ports;
pub mod proc;
pub mod pty;
pub mod socket;
pub mod spawn;
pub mod sweep;
pub mod tree;
pub mod vanish;
pub mod wait;
