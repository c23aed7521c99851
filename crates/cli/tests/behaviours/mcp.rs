//! what an agent sees over MCP. Left to others: the round trip with each real client.

pub(crate) mod agent;
mod arguments;
mod contract;
mod extensions;
mod http;
mod left_behind;
mod news;
mod results;
mod shim;
