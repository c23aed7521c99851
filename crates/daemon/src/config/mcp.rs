//! The settings of the MCP server, on stdio and over HTTP.

use std::time::Duration;

use pinfold_model::units::parse_duration;
use serde::Deserialize;

use super::Text;

/// Settings of the MCP server, for every client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mcp {
    /// Maximum duration of a tool call; if unset, it depends on the client.
    pub longest_call: Option<Duration>,
}

/// The section's contents.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileMcp {
    longest_call: Option<Text>,
}

impl FileMcp {
    /// The settings, or the name of an invalid one and what is wrong.
    pub(super) fn try_into_mcp(self) -> Result<Mcp, (&'static str, String)> {
        let bad = |problem: String| ("mcp.longest_call", problem);
        let longest_call = match self.longest_call {
            Some(text) => Some(parse_duration(&text.text()).map_err(|error| bad(error.to_string()))?),
            None => None,
        };
        if longest_call.is_some_and(|longest| longest < Duration::from_secs(1)) {
            return Err(bad("give at least a second".to_owned()));
        }
        Ok(Mcp { longest_call })
    }
}

impl Mcp {
    pub(super) fn render_toml(&self) -> String {
        let longest_call = match self.longest_call {
            Some(longest) => format!("longest_call = \"{}s\"\n", longest.as_secs_f64()),
            None => "# longest_call = \"4m\"\n".to_owned(),
        };
        format!(
            "\n[mcp]\n# maximum duration of a tool call, less than the client's own timeout; by default it depends on the client\n\
             {longest_call}"
        )
    }
}
