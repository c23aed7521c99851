//! Attaching: what goes over the WebSocket besides the bytes themselves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cause, Outcome, PtySize, Status};
use crate::error::ErrorCode;

/// `GET /v1/processes/{id}/attach`, upgraded to a WebSocket. Binary frames are the process's output one way and its input
/// the other; text frames are [`AttachNotice`]s one way and [`AttachControl`]s the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachQuery {
    /// Output from this byte on. Default: for a terminal its screen is drawn and output follows from there; else 0.
    pub cursor: Option<u64>,
    /// Whether frames of ours are input. Default false: they are refused.
    pub write: Option<bool>,
    /// A name for who types: a frame that is sent again on a new connection under the same name and number is
    /// applied once.
    pub session: Option<String>,
    /// The number of the first input frame on this connection. Default 0; each frame counts one.
    pub next: Option<u64>,
}

/// What the daemon tells an observer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum AttachNotice {
    /// First of all: binary frames are the output from this byte on, without a hole but for gaps that are told.
    Attached { id: String, cursor: u64, pty: Option<PtySize>, write: bool, status: Status },
    /// What draws the screen as it is; binary frames go on from there.
    Screen { data: String },
    /// These bytes are no longer kept; the next binary frame begins behind them.
    Gap { from: u64, to: u64 },
    /// The terminal has another size.
    Size { rows: u16, cols: u16 },
    /// Input frames below this number are held by the keeper, and written whatever becomes of the daemon.
    Taken { below: u64 },
    /// An input or control was not done.
    Refused { code: ErrorCode, message: String },
    /// The leader ended, and all that it wrote has been sent.
    Exit { outcome: Option<Outcome>, cause: Option<Cause>, status: Status },
    /// Nothing more can come; the connection is closed.
    Closed {},
}

/// What an observer tells the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "control", rename_all = "snake_case")]
pub enum AttachControl {
    /// Give the terminal this size. Of several that attach, the last to say so has its way.
    Resize { rows: u16, cols: u16 },
    /// End the input; counts as an input frame.
    Eof {},
}
