//! Processes as services: when they are ready, the ports they are lent, their lives.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::input::Span;

/// What says that a process is ready. Give `port`, `http`, `output` or `peer`; `port` goes with a path in `http` too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// A TCP port that a process of its tree listens on: a number, the name of a leased port, or `any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// A GET that is answered: a path such as `/health` (on `port`, default `any`), or an address on this machine such as
    /// `http://127.0.0.1:3000/health`. The port must be held by its tree. No redirect is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// With `http`: the status of the answer. Default: any below 400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// A regular expression that a line of its output matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// True: a process of its tree connects to the Unix socket whose path is in `PINFOLD_READY_SOCKET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<bool>,
    /// How long is looked for it (default 60s, at most 24h). Then it counts as not ready, and goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// A port: its number, or a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Port {
    Number(u64),
    Word(String),
}

impl From<&str> for Port {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Port::Word(text.to_owned()), Port::Number)
    }
}

/// How it stands with the readiness of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadyState {
    /// Not yet.
    Waiting,
    Ready,
    /// Not in time; it goes on.
    TimedOut,
    /// It ended before it was ready.
    Exited,
}

/// The readiness of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadyShown {
    pub state: ReadyState,
    /// What makes it ready, in words.
    pub by: String,
    /// When that was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The port it was found to listen on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// What was seen, or what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How long is looked for it, from the start on.
    pub timeout_ms: u64,
}
