//! Waiting for a process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Record;
use crate::input::Span;

/// `GET /v1/processes/{id}/wait`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    /// `exit` (default), `closed`, `finished`, `output`, `match`, `port`, `quiet`, `ready` or `input` (until the process
    /// waits for input).
    pub until: Option<String>,
    /// At most this long (0 to 1h, default 30s); 0 does not block.
    pub timeout: Option<String>,
    /// For `output` and `match`: only output from this byte on. Default: the current end for `output`, 0 for `match`.
    pub cursor: Option<u64>,
    /// For `match`: a regular expression, matched against each line.
    pub pattern: Option<String>,
    /// For `output` and `match`: ignore lines that match this regular expression.
    pub exclude: Option<String>,
    /// For `port`: the TCP port. Default: any listening port.
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
    /// The output is complete: all of its writers have closed it.
    Closed,
    /// The tree is empty and the record is final.
    Finished,
    /// There is output beyond the cursor.
    Output,
    /// The pattern was found.
    Matched,
    /// The tree listens on the port.
    Port,
    /// There was no output for the requested time.
    Quiet,
    /// It is ready, by its own `ready` condition.
    Ready,
    /// It was not ready within the `timeout` of its `ready` condition; it runs on.
    NotReady,
    /// It waits for input.
    Input,
    /// The process ended before the condition was met.
    EndedBefore,
    /// The timeout passed. This is not a failure: wait again.
    Timeout,
    /// The owner's waits were released; the process runs on.
    Cancelled,
}

/// The result of a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitAnswer {
    pub reason: WaitReason,
    pub record: Record,
    /// Cursor of the output's end, or of the start of the matching line.
    pub cursor: u64,
    /// The matching line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<String>,
    /// The listening port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub waited_ms: u64,
}

/// `POST /v1/wait`: wait for any or all of several processes.
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

/// Whether one process or every process must meet the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitMode {
    Any,
    All,
}

/// The result of a wait for several processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitManyAnswer {
    pub reason: WaitReason,
    /// Processes that meet the condition.
    pub done: Vec<Record>,
    /// Processes that do not.
    pub pending: Vec<Record>,
    pub waited_ms: u64,
}
