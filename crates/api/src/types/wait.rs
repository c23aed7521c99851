//! Waiting.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Record;
use crate::input::Span;

/// `GET /v1/processes/{id}/wait`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    /// `exit` (default), `closed`, `finished`, `output`, `match`, `port`, `quiet`, `ready` or `input`: it waits for input.
    pub until: Option<String>,
    /// At most this long (0 to 1h, default 30s); 0 does not block.
    pub timeout: Option<String>,
    /// For `output` and `match`: only what comes from this byte on. Default: now for `output`, 0 for `match`.
    pub cursor: Option<u64>,
    /// For `match`: a regular expression, matched against each line.
    pub pattern: Option<String>,
    /// For `output` and `match`: lines that match this do not count.
    pub exclude: Option<String>,
    /// For `port`: the TCP port; any listening port when left out.
    pub port: Option<u16>,
    /// For `quiet`: no output for this long. Default 2s.
    pub quiet: Option<String>,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// The leader exited, as waited for.
    Exited,
    /// All output ends are closed.
    Closed,
    /// The tree is empty and the record is final.
    Finished,
    /// There is output beyond the cursor.
    Output,
    /// The pattern was found.
    Matched,
    /// The port is listening.
    Port,
    /// There was no output for the asked-for time.
    Quiet,
    /// It is ready, as its `ready` says.
    Ready,
    /// It was not ready within the time of its `ready`, and goes on.
    NotReady,
    /// It waits for input.
    Input,
    /// The process ended before what was waited for could happen.
    EndedBefore,
    /// The time ran out. Not a failure: wait again.
    Timeout,
    /// Somebody released the owner's waits; the process runs on.
    Cancelled,
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitAnswer {
    pub reason: WaitReason,
    pub record: Record,
    /// Where the output stood, or where the matching line begins.
    pub cursor: u64,
    /// The matching line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<String>,
    /// The listening port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub waited_ms: u64,
}

/// `POST /v1/wait`: any or all of many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitManyRequest {
    /// Ids, prefixes or names; at most 256.
    pub ids: Vec<String>,
    /// `any` (default) or `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<WaitMode>,
    /// `exit` (default), `closed` or `finished`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// At most this long (0 to 1h, default 30s).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// Whether one or every process must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitMode {
    Any,
    All,
}

/// How a wait for many ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitManyAnswer {
    pub reason: WaitReason,
    /// Those that are there.
    pub done: Vec<Record>,
    /// Those that are not.
    pub pending: Vec<Record>,
    pub waited_ms: u64,
}
