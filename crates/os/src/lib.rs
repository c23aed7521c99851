//! Every system call of pinfold, and every `unsafe`.
//!
//! Owns descriptors and children. Knows nothing of records or policy: it does what it is told and reports
//! what the kernel said.

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
