//! Sending input to a process's stdin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Record;
use crate::input::Span;

/// `POST /v1/processes/{id}/input`. Sent in this order: text, bytes, keys, end of input.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputRequest {
    /// Text, sent unchanged: end a line with a newline. Together with `base64` at most 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Bytes, encoded as base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Keys by name, such as `enter`, `ctrl+c`, `tab`, `esc`, `up`, `f1`, `alt+x`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Whether to send the end of input: a pipe is closed, a terminal gets its end-of-input key (ctrl+d).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub eof: bool,
    /// An id that makes a retry safe: input sent again with the same id continues where it stopped and is written once,
    /// even if the daemon crashed in between. The last 256 ids are remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_id: Option<String>,
    /// If not all of the input can be accepted, keep trying for this long (at most 1m; default: do not wait).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
}

/// The result of sending input. Accepted input is held by the keeper and is written even if the daemon crashes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputAnswer {
    pub record: Record,
    /// The id of this input.
    pub input_id: String,
    /// Bytes of it that were accepted.
    pub accepted: u64,
    /// Whether all of it was accepted, including `eof`. If not, send the same input again with the same `input_id`.
    pub complete: bool,
    /// Whether input with this id was sent before.
    pub repeated: bool,
    /// Bytes accepted but not yet read by the process, of this input and earlier ones; at most 1 MiB.
    pub queued: u64,
    /// Cursor of the output's end before this input: output after it may be the reply.
    pub cursor: u64,
}
