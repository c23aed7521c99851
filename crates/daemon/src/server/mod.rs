//! The HTTP server: listeners, routes, and how a request is read. Handlers parse, call another room, and answer.
//!
//! `http` has the routes and the Unix socket, `tcp` the optional loopback port, `extract` reads bodies, queries and ids, and
//! `spare_descriptor` keeps one descriptor so that a client is told when no more can be opened.

pub(crate) mod extract;
pub(crate) mod http;
mod spare_descriptor;
pub(crate) mod tcp;
