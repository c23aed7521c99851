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
#[serde(untagged, expecting = "expected a port: a number, or a word such as \"any\" or \"lease\"")]
pub enum Port {
    Number(u64),
    Word(String),
}

impl From<&str> for Port {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Port::Word(text.to_owned()), Port::Number)
    }
}

/// What follows the end of a process: `never` (default), `on_failure`, `always` or `after_turn`; or one of these with its
/// bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected for `restart`: \"never\", \"on_failure\", \"always\" or \"after_turn\", or an object with `when` and its bounds"
)]
pub enum Restart {
    When(String),
    Policy(RestartPolicy),
}

/// When a process that ended lives again. A stop that was asked for and the end of its owner are never followed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestartPolicy {
    /// `on_failure`: after any end but exit code 0 and a passed `time_limit`. `always`. `after_turn`: when it is asked for.
    pub when: String,
    /// The wait before the first restart (default 1s).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<Span>,
    /// By how much each further wait is longer (1 to 10, default 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// No wait is longer (default 1m).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Span>,
    /// So many restarts (default 5, at most 100) within `window`, and it is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Default 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Span>,
    /// A life that lasted so long begins the waits and the count anew (default 30s).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<Span>,
}

/// Which life of a chain a process is, and what follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LifeShown {
    /// Its policy.
    pub restart: String,
    /// 1 is the first.
    pub number: u32,
    /// The first life, from the second on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The life that followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// When the next life begins. A stop takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarting_at: Option<String>,
    /// The next life begins when it is asked for.
    #[serde(default)]
    pub awaits_turn: bool,
    /// Why no other life follows, where one was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<String>,
    /// It will not be restarted: it was stopped, given up, or its policy does not cover this end.
    #[serde(default)]
    pub over: bool,
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
