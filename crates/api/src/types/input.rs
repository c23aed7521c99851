//! Input: what is sent to a process's stdin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Record;
use crate::input::Span;

/// What a process reads as its standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing: `/dev/null`.
    #[default]
    Null,
    /// What clients send with `POST /v1/processes/{id}/input`, until they end it.
    Pipe,
}

/// `POST /v1/processes/{id}/input`: text, bytes, keys and the end, in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputRequest {
    /// Text, as it is: a line ends with its newline. Together with `base64` at most 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Bytes that are no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Keys by name, such as `enter`, `ctrl+c`, `tab`, `esc`, `up`, `f1`, `alt+x`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Whether the end of input follows: a pipe is closed, a terminal gets its key for it (ctrl+d).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub eof: bool,
    /// A name for this input: one that is sent again under the same name is written once, also over a crash of the
    /// daemon, and goes on where it was left. The last 256 are remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_id: Option<String>,
    /// If not all of it can be taken, try this long (at most 1m; default: not at all).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
}

/// What became of an input. What is accepted is held by the keeper, and is written whatever becomes of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputAnswer {
    pub record: Record,
    /// The name of this input.
    pub input_id: String,
    /// Bytes of it that are held or written.
    pub accepted: u64,
    /// Whether that is all of it, with its end. If not, send the same again under the same `input_id`.
    pub complete: bool,
    /// Whether an input of this name was seen before.
    pub repeated: bool,
    /// Bytes that wait until the process reads, of this input and others; at most 1 MiB.
    pub queued: u64,
    /// Where its output ended before this input: what came after may be the answer.
    pub cursor: u64,
}
