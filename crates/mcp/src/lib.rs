//! pinfold's MCP server: the tools through which a model runs and observes processes, over stdio and streamable HTTP.
//!
//! This crate owns the tools, the parsing of their arguments and the rendering of their results. It holds no process
//! and no state that must survive a crash: it is an ordinary client of the daemon. It remembers how far each owner has
//! read and which events were reported, only so that a model does not read the same text twice.
//!
//! Invariants, each with a test that carries its code:
//! - M1 The text and the structured content of a result contain the same facts.
//! - M2 Text written by a process is inside the fence; text written by pinfold is outside.
//! - M3 No text is larger than 64 KiB, and no result is larger than 256 KiB.
//! - M4 The end of a process is reported to its owner, and acknowledged only after the result was sent.
//! - M5 Cancelling a call does not end a process.

mod aliases;
mod arguments;
mod call_timeout;
mod claude;
mod coder;
mod compact;
mod daemon_access;
mod duplicates;
mod facts;
mod handler;
mod http;
mod identity;
mod left_behind;
mod news;
mod options;
mod oversized_message;
mod owner_keepalive;
mod random;
mod read_positions;
mod render;
mod report_claims;
mod resources;
mod server;
mod sessions;
mod stdio;
mod tasks;
mod tool_error;
mod tools;
mod view;

pub use daemon_access::{Ensure, EnsureFuture};
pub use http::{http_service, http_service_of};
pub use options::{CommandDefaults, Options};
pub use stdio::{serve_stdio, serve_streams};
pub use tools::{Shape, definitions, names};
