//! The kinds of agents that can be hosted: name and adapter of each. Its command-line arguments are in the adapter
//! (`codex`, `claude`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::adapter::{Adapter, Settings};
use crate::claude::Claude;
use crate::codex::Codex;

/// An agent program's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// codex, through `codex app-server`.
    Codex,
    /// Claude Code, through its stream-json mode.
    Claude,
}

/// The name is not that of a supported agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown agent `{0}`: use codex or claude; if the program has another name or path, pass it as `program`")]
pub struct UnknownKind(String);

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Codex, Kind::Claude];

    pub fn parse(name: &str) -> Result<Self, UnknownKind> {
        let unknown = || UnknownKind(name.chars().take(60).collect());
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Codex => "codex",
            Kind::Claude => "claude",
        }
    }

    /// The variable that it sets for the commands it runs, but not for its own servers and helpers.
    pub fn command_variable(self) -> &'static str {
        match self {
            Kind::Codex => "CODEX_THREAD_ID",
            Kind::Claude => "CLAUDE_PID",
        }
    }

    /// The owner of what it starts through `pinfold mcp` in this session.
    pub fn owner_in(self, session: &str) -> String {
        format!("{}-{session}", self.name())
    }

    /// Whether it can connect to a WebSocket of pinfold.
    pub fn takes_websocket(self) -> bool {
        self == Kind::Claude
    }

    /// The command-line arguments that select the protocol, and the user's own.
    pub fn arguments(self, settings: &Settings) -> Vec<String> {
        match self {
            Kind::Codex => Codex::arguments(settings),
            Kind::Claude => Claude::arguments(settings),
        }
    }

    /// An adapter for a new process.
    pub fn adapter(self, settings: Settings) -> Box<dyn Adapter> {
        match self {
            Kind::Codex => Box::new(Codex::new(settings)),
            Kind::Claude => Box::new(Claude::new(settings)),
        }
    }

    /// An adapter from its saved state.
    pub fn restore(self, saved: Value) -> Result<Box<dyn Adapter>, serde_json::Error> {
        Ok(match self {
            Kind::Codex => Box::new(serde_json::from_value::<Codex>(saved)?),
            Kind::Claude => Box::new(serde_json::from_value::<Claude>(saved)?),
        })
    }
}
