//! Dev only: codex, Claude Code, gemini-cli and opencode with a scripted model on loopback.
//!
//! The caller acts as the model: it calls tools, and sees of each result exactly what the client puts into its next
//! request. `cargo xtask clients` installs the agents; one that is not installed is skipped with a message. Every
//! chat has its own HOME, which is removed with it.
//!
//! `scenarios` are the tasks of a model, `shells` how it performs them with pinfold's tools or with the client's own,
//! `play` measures the cost.

pub mod agents;
pub mod chat;
pub mod dialect;
pub mod interactive;
pub mod model;
pub mod play;
pub mod scenarios;
pub mod seen;
pub mod shells;
