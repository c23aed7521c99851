//! Processes as services: `request` reads what a client asks for, `readiness` finds out when one is ready, `ready_socket` is what
//! one may connect to for that, `ports` leases loopback ports, `restarts` starts the next run after an end, and `view` is
//! what clients see of it all.
//!
//! May use: registry, waits, events; by exception: processes.

pub(crate) mod ports;
pub(crate) mod readiness;
mod ready_socket;
mod request;
pub(crate) mod restarts;
mod view;

pub(crate) use ready_socket::{ReadySocket, remove_sockets};
pub(crate) use request::parse;
