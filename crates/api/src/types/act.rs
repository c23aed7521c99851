//! Stop and signal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Record;
use crate::input::Span;

/// `POST /v1/processes/{id}/stop`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// The first signal. Default: the process's `stop_signal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// How long before KILL. Default: the process's `grace`; 0 kills at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// Who asks; recorded with the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// How a stop ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StopAnswer {
    pub record: Record,
    /// Whether it was over before the request came.
    pub already_over: bool,
    /// Processes that could not be ended, with the reason. Empty means: verified empty.
    pub survivors: Vec<Survivor>,
}

/// A process that a signal could not end or reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Survivor {
    pub pid: u32,
    pub command: String,
    pub reason: String,
}

/// `POST /v1/processes/{id}/signal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// `TERM`, `SIGTERM`, `15`.
    pub signal: String,
    /// Who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The answer to a signal, a pause or a resume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignalAnswer {
    pub record: Record,
    /// How many processes of the tree it reached.
    pub reached: u32,
    /// Those that it could not reach.
    pub refused: Vec<Survivor>,
}
