//! What an agent sees over MCP. The round trip with each real client is in crates/cli/tests/clients.

pub(crate) mod agent;
mod arguments;
mod contract;
mod extensions;
mod http;
mod left_behind;
mod news;
mod results;
mod shim;
