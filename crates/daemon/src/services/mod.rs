//! Processes as services: `asked` reads what a request wants, `look` finds out when one is ready, `peer` is the socket
//! that one may connect to for that, `lease` lends loopback ports, `chain` has their lives, `shown` is what clients see of it all.

mod asked;
pub(crate) mod chain;
pub(crate) mod lease;
pub(crate) mod look;
mod peer;
pub(crate) mod shown;

pub(crate) use asked::parse;
pub(crate) use peer::{ReadySocket, remove_sockets};
