//! Processes as services: readiness, reserved ports, restarts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ReadyState;
use crate::input::Span;

/// The condition under which a process counts as ready. Give one of `port`, `http`, `output` and `peer`; `port` can also
/// be combined with a path in `http`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// A TCP port that a process of its tree listens on: a number, the name of a leased port, or `any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<Port>,
    /// A GET request that must succeed: a path such as `/health` (on `port`, default `any`), or a local URL such as
    /// `http://127.0.0.1:3000/health`. A process of its tree must listen on the port. Redirects are not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// With `http`: the expected status code. Default: any below 400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// A regular expression that a line of its output must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// True: a process of its tree connects to the Unix socket whose path is in `PINFOLD_READY_SOCKET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<bool>,
    /// How long to wait for it (default 60s, at most 24h). After that it counts as not ready, and runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// A port: its number, or a name.
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

/// Whether a process is restarted when it ends: `never` (default), `on_failure`, `always` or `after_turn`; or an object
/// with one of these and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected for `restart`: \"never\", \"on_failure\", \"always\" or \"after_turn\", or an object with `when` and its bounds"
)]
pub enum Restart {
    When(String),
    Policy(RestartPolicy),
}

/// When a process is restarted after it ended. It is never restarted after a requested stop or the end of its owner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestartPolicy {
    /// `on_failure`: after any end except exit code 0 and an exceeded `time_limit`. `always`: after any end.
    /// `after_turn`: only when a restart is requested.
    pub when: String,
    /// The delay before the first restart (default 1s).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<Span>,
    /// The factor by which the delay grows with each restart (1 to 10, default 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// The maximum delay (default 1m).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Span>,
    /// Give up after this many restarts within `window` (default 5, at most 100).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The period in which restarts are counted (default 10m).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Span>,
    /// A process that ran at least this long resets the delay and the count (default 30s).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<Span>,
}

/// The place of a process in its chain of restarts. Each run of the command is one life, with a process id of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LifeShown {
    /// Its restart policy.
    pub restart: String,
    /// The number of this life; the first is 1.
    pub number: u32,
    /// The process id of the first life; absent for the first life itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The process id of the next run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// When it will be restarted. A stop cancels it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarting_at: Option<String>,
    /// It will be restarted when a restart is requested.
    #[serde(default)]
    pub awaits_turn: bool,
    /// Why it is not restarted although its policy covers this end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<String>,
    /// It will not be restarted: it was stopped, given up, or its policy does not cover this end.
    #[serde(default)]
    pub over: bool,
}

/// The readiness of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadyShown {
    pub state: ReadyState,
    /// The condition, in words.
    pub by: String,
    /// When the final state was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The port it was found to listen on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// What was observed, or what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The timeout, counted from the start of the process.
    pub timeout_ms: u64,
}
