//! Every system call of pinfold, and every `unsafe` block.
//!
//! Owns descriptors and child processes. Knows nothing of records or policy: it makes the calls and reports what the
//! kernel answered.

pub mod awaiting;
pub mod cgroup;
pub mod controllers;
pub mod crash;
pub mod daemonize;
pub mod file_watch;
pub mod fork_limit;
pub mod fsio;
mod mounts;
mod oom;
pub mod poll;
pub mod ports;
pub mod proc;
pub mod process_handle;
pub mod pty;
pub mod sandbox;
pub mod socket;
pub mod spawn;
mod start_time;
pub mod sweep;
pub mod tcp_peer;
pub mod tree;
pub mod usage;
pub mod wait;
