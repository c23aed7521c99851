//! pinfold's MCP server: what a model sees of its processes, over stdio and streamable HTTP.
//!
//! Owns the tools, the parsing of their arguments and the rendering of their results. Holds no process and no state that
//! must survive a crash: it is a client of the daemon like any other, and what it remembers (how far an owner has read, what was
//! reported to it) only saves a model from reading the same thing twice.
//!
//! Invariants that live here, each with a test of its name:
//! - M1 the text of a result and its structured content say the same.
//! - M2 what a process wrote stands inside the fence, what pinfold says outside.
//! - M3 no text is larger than 64 KiB and no result than 256 KiB.
//! - M4 an end is told to its owner, and acknowledged only after it was handed over.
//! - M5 a cancelled call ends no process.

mod aliases;
mod arguments;
mod brief;
mod claims;
mod claude;
mod coder;
mod daemon_access;
mod duplicates;
mod endurance;
mod facts;
mod handler;
mod http;
mod identity;
mod left_behind;
mod memory;
mod news;
mod options;
mod overlong;
mod presence;
mod random;
mod render;
mod resources;
mod server;
mod sessions;
mod stdio;
mod tasks;
mod tool_error;
mod tools;
mod view;

pub use daemon_access::{Ensure, Ensuring};
pub use http::{http_service, http_service_of};
pub use options::{Base, Options};
pub use stdio::{serve_stdio, serve_streams};
pub use tools::{Shape, definitions, names};
