//! The HTTP server: listeners, connections and routes. Handlers read the request, call another room, and answer.
//!
//! `routes` has every route of `/v1`, `socket` serves the Unix socket, `tcp` the optional loopback port, and `spare_descriptor`
//! is for telling a client that no descriptors are left.
//!
//! May use: registry, waits, access, events, output, processes, agents, owners, coder, diagnostics.

pub(crate) mod routes;
pub(crate) mod socket;
mod spare_descriptor;
pub(crate) mod tcp;
