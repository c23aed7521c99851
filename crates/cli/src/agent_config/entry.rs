//! The entry for `pinfold mcp`, in the format of each agent.

use std::collections::BTreeMap;
use std::path::Path;

use super::Agent;
use super::jsonc::parse::{Dialect, Node};
use super::jsonc::value::Value;

/// Timeout of one tool call: half a day, so that long waits are not cut off.
pub(crate) const MAX_CALL_S: u64 = 12 * 60 * 60;
/// opencode has one timeout for everything, including connecting, and restarts it with every progress notification.
const OPENCODE_TIMEOUT_MS: u64 = 5 * 60 * 1000;
/// Timeout of the server's start, for agents that have this setting.
pub(crate) const MAX_START_S: u64 = 30;

/// The command that an agent runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    /// Variables that the command needs to find the same home, in case the agent does not pass them on.
    pub(crate) env: BTreeMap<String, String>,
}

/// The object that holds the MCP servers.
pub(crate) fn section(agent: Agent) -> &'static str {
    match agent {
        Agent::Codex => "mcp_servers",
        Agent::Claude | Agent::Gemini | Agent::Cursor => "mcpServers",
        Agent::Opencode => "mcp",
        Agent::Vscode => "servers",
    }
}

/// The JSON dialect of an agent. Claude Code reads plain JSON; the others allow comments.
pub(crate) fn dialect(agent: Agent) -> Dialect {
    if agent == Agent::Claude { Dialect::Strict } else { Dialect::Comments }
}

impl Entry {
    /// The command line as a list of words.
    pub(crate) fn words(&self) -> Vec<String> {
        std::iter::once(&self.command).chain(&self.args).cloned().collect()
    }

    /// The keys that define the command, in the order in which they are written.
    pub(crate) fn members(&self, agent: Agent) -> Vec<(&'static str, Value)> {
        let mut members = match agent {
            Agent::Opencode => vec![("command", Value::texts(&self.words()))],
            _ => vec![("command", Value::text(&self.command)), ("args", Value::texts(&self.args))],
        };
        if !self.env.is_empty() {
            let name = if agent == Agent::Opencode { "environment" } else { "env" };
            members.push((name, Value::object(self.env.iter().map(|(name, value)| (name, Value::text(value))))));
        }
        members
    }

    /// The whole entry as JSON.
    pub(crate) fn value(&self, agent: Agent) -> Value {
        let milliseconds = |number: u64| Value::Bare(number.to_string());
        let (before, after) = match agent {
            Agent::Codex => (vec![], vec![]),
            Agent::Claude | Agent::Cursor | Agent::Vscode => (vec![("type", Value::text("stdio"))], vec![]),
            Agent::Gemini => (vec![], vec![("timeout", milliseconds(MAX_CALL_S * 1000))]),
            Agent::Opencode => (
                vec![("type", Value::text("local"))],
                vec![("enabled", Value::Bare("true".into())), ("timeout", milliseconds(OPENCODE_TIMEOUT_MS))],
            ),
        };
        Value::object(before.into_iter().chain(self.members(agent)).chain(after))
    }
}

/// The command line of an entry.
pub(crate) fn words_of(entry: &Node) -> Option<Vec<String>> {
    let command = entry.get("command")?;
    let words = match command.text() {
        Some(command) => std::iter::once(command).chain(entry.get("args").and_then(Node::texts)?).collect(),
        None => command.texts()?,
    };
    Some(words.into_iter().map(str::to_owned).collect())
}

/// Whether this command line runs `pinfold mcp`, with whatever options.
pub(crate) fn is_ours(words: &[String]) -> bool {
    let program = words.first().and_then(|word| Path::new(word).file_name());
    program.is_some_and(|name| name == "pinfold") && words.iter().skip(1).any(|word| word == "mcp")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry { command: "/opt/pinfold".into(), args: vec!["mcp".into()], env: BTreeMap::new() }
    }

    #[test]
    fn every_agent_has_its_own_format() {
        for (agent, expected) in [
            (Agent::Claude, r#"{"type": "stdio", "command": "/opt/pinfold", "args": ["mcp"]}"#),
            (Agent::Gemini, r#"{"command": "/opt/pinfold", "args": ["mcp"], "timeout": 43200000}"#),
            (
                Agent::Opencode,
                r#"{"type": "local", "command": ["/opt/pinfold", "mcp"], "enabled": true, "timeout": 300000}"#,
            ),
        ] {
            assert_eq!(entry().value(agent).render_line(" "), expected, "{agent:?}");
        }
        let moved = Entry { env: [("XDG_STATE_HOME".to_owned(), "/s".to_owned())].into(), ..entry() };
        let text = moved.value(Agent::Opencode).render_line("");
        assert!(text.contains(r#""environment":{"XDG_STATE_HOME":"/s"}"#), "{text}");
    }

    #[test]
    fn an_entry_is_ours_if_it_runs_pinfold_mcp() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(is_ours(&words("/old/place/pinfold --home /x mcp")));
        assert!(is_ours(&words("pinfold mcp")));
        for line in ["npx pinfold mcp", "/opt/pinfold ps", "/opt/pinfold"] {
            assert!(!is_ours(&words(line)), "{line}");
        }
    }
}
