//! The HTTP server: listeners, connections and routes. Handlers read the request, call another room, and answer.
//!
//! `routes` has every route of `/v1`, `socket` serves the Unix socket, `tcp` the optional loopback port,
//! `dashboard` the port of the web dashboard, and `spare_descriptor` makes room to answer a client when no descriptors are left.
//!
//! May use: registry, waits, access, events, output, processes, agents, inbox, owners, coder, diagnostics, dashboard.

mod dashboard;
pub(crate) mod routes;
pub(crate) mod socket;
mod spare_descriptor;
pub(crate) mod tcp;
