//! The acceptance list: each behaviour is a test of its name, against the real binary and a real daemon.

mod agents;
mod background;
mod background_children;
mod bad_input;
mod cli;
mod clients;
mod coder;
mod connect;
mod containment;
mod crash;
mod dashboard;
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
mod project;
mod receiver;
mod records;
mod requests;
mod sandbox;
mod services;
mod signals;
mod telemetry;
mod top;
mod units;
mod upgrade;
mod views;
mod wire;

/// The binary under test.
const PINFOLD: &str = env!("CARGO_BIN_EXE_pinfold");
