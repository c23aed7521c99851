//! Attaching to a process: the query, and the JSON messages on the WebSocket.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cause, Outcome, PtySize, Status};
use crate::error::ErrorCode;

/// `GET /v1/processes/{id}/attach`, upgraded to a WebSocket. From the daemon, binary frames are output and text frames
/// are [`AttachNotice`]s. From the client, binary frames are input and text frames are [`AttachControl`]s.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachQuery {
    /// Send output from this byte on. Default: for a terminal, the current screen and then new output; otherwise 0.
    pub cursor: Option<u64>,
    /// Accept input from this client. Default false: input frames are refused.
    pub write: Option<bool>,
    /// An id for this client that makes resending safe: a frame that is sent again on a new connection with the same
    /// session and number is applied once.
    pub session: Option<String>,
    /// The number of the first input frame on this connection; later frames are numbered consecutively. Default 0.
    pub next: Option<u64>,
}

/// A message from the daemon to an attached client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum AttachNotice {
    /// The first message: binary frames are the output from this byte on, contiguous except for reported gaps.
    Attached { id: String, cursor: u64, pty: Option<PtySize>, write: bool, status: Status },
    /// Terminal output that draws the current screen; binary frames continue from there.
    Screen { data: String },
    /// These bytes are no longer stored; the next binary frame starts after them.
    Gap { from: u64, to: u64 },
    /// The size of the terminal has changed.
    Size { rows: u16, cols: u16 },
    /// Input frames below this number were accepted by the keeper and are written even if the daemon crashes.
    Taken { below: u64 },
    /// An input frame or control message was refused.
    Refused { code: ErrorCode, message: String },
    /// The leader ended, and all of its output has been sent.
    Exit { outcome: Option<Outcome>, cause: Option<Cause>, status: Status },
    /// The output is complete; the daemon closes the connection.
    Closed {},
}

/// A message from an attached client to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "control", rename_all = "snake_case")]
pub enum AttachControl {
    /// Resize the terminal. If several clients are attached, the last resize wins.
    Resize { rows: u16, cols: u16 },
    /// End of input. It is numbered like an input frame.
    Eof {},
}
