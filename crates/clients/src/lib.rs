//! Dev only: codex, Claude Code, gemini-cli and opencode with a scripted model on loopback.
//!
//! A caller plays the model: it calls tools, and sees of each result exactly what the client puts into its next
//! request. `cargo xtask clients` installs the agents; one that is not installed is skipped, in a line that says so.
//! Every chat has a HOME of its own, and removes it when it is dropped.
//!
//! `scenarios` says what a model is to achieve, `shells` how it does that with pinfold's tools and with the client's
//! own, `play` counts what each costs.

pub mod agents;
pub mod chat;
pub mod dialect;
pub mod interactive;
pub mod model;
pub mod play;
pub mod scenarios;
pub mod seen;
pub mod shells;
