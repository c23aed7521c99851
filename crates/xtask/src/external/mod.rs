//! Programs of others, installed below target/, that test pinfold: agents, the MCP conformance suite, schemathesis, and
//! Chromium with the dashboard.

pub mod clients;
pub mod conformance;
pub mod dashboard;
pub mod scenarios;
pub mod schemathesis;
