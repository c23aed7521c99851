//! The agents that can be hosted: their names, how each is run, and which adapter speaks to it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::adapter::{Adapter, Settings};
use crate::claude::Claude;
use crate::codex::Codex;

/// An agent program's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// codex, by `codex app-server`.
    Codex,
    /// Claude Code, by its stream of JSON.
    Claude,
}

/// A name that is no agent's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no agent is called `{0}`: use codex or claude, with `program` for another name of the same program")]
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

    /// The variable that it sets for the commands that it runs, and not for its own servers and helpers.
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

    /// Whether it can connect to a WebSocket of ours.
    pub fn takes_websocket(self) -> bool {
        self == Kind::Claude
    }

    /// The arguments that make the program speak its protocol.
    pub fn arguments(self, settings: &Settings) -> Vec<String> {
        match self {
            Kind::Codex => Codex::arguments(settings),
            Kind::Claude => Claude::arguments(settings),
        }
    }

    /// An adapter for a process that was just started.
    pub fn adapter(self, settings: Settings) -> Box<dyn Adapter> {
        match self {
            Kind::Codex => Box::new(Codex::new(settings)),
            Kind::Claude => Box::new(Claude::new(settings)),
        }
    }

    /// An adapter as it was saved.
    pub fn restore(self, saved: Value) -> Result<Box<dyn Adapter>, serde_json::Error> {
        Ok(match self {
            Kind::Codex => Box::new(serde_json::from_value::<Codex>(saved)?),
            Kind::Claude => Box::new(serde_json::from_value::<Claude>(saved)?),
        })
    }
}
