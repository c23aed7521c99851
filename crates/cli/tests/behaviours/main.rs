//! The acceptance list: each behaviour is a test of its name, against the real binary and a real daemon.

mod agents;
mod ampersand;
mod background;
mod bad_input;
mod calls;
mod cli;
mod clients;
mod coder;
mod connect;
mod containment;
mod crash;
mod foreground;
mod hooks;
mod interactive;
mod isolation;
mod keepers;
mod limits;
mod mcp;
mod naming;
mod nested;
mod output;
mod records;
mod services;
mod signals;
mod upgrade;
mod wire;

/// The binary under test.
const PINFOLD: &str = env!("CARGO_BIN_EXE_pinfold");
