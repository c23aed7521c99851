//! Stop and signal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Record, Survivor};
use crate::input::Span;

/// `POST /v1/processes/{id}/stop`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// The first signal. Default: the process's `stop_signal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Time between the first signal and KILL. Default: the process's `grace`; 0 kills immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// Who requests the stop; recorded as `stopped_by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The result of a stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StopAnswer {
    pub record: Record,
    /// Whether the process had already ended before the request.
    pub already_over: bool,
    /// Processes that could not be killed, with the reason. If empty, it was verified that none is left.
    pub survivors: Vec<Survivor>,
}

/// `POST /v1/processes/{id}/signal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// A name or a number: `TERM`, `SIGTERM`, `15`.
    pub signal: String,
    /// Who sends the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The result of a signal, a pause or a resume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SignalAnswer {
    pub record: Record,
    /// How many processes of the tree were reached.
    pub reached: u32,
    /// Processes that could not be reached.
    pub refused: Vec<Survivor>,
}
