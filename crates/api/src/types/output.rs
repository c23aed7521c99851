//! Reading output.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Outcome, Status};

/// `GET /v1/processes/{id}/output`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputQuery {
    /// Read from this byte on. Default 0.
    pub cursor: Option<u64>,
    /// Read only the last bytes (`4k`) or lines (`20 lines`).
    pub tail: Option<String>,
    /// Read at most this many bytes from the cursor on, contiguous.
    pub max_bytes: Option<String>,
    /// Show the whole range in at most this many bytes of text: the beginning, the number of omitted bytes, the end.
    pub budget: Option<String>,
    /// The same in tokens, four bytes each.
    pub budget_tokens: Option<u64>,
    /// Only lines that match this regular expression.
    pub grep: Option<String>,
    /// Lines of context around each match.
    pub context: Option<u32>,
    /// `text` (default, JSON) or `raw` (the bytes, with metadata in headers).
    pub format: Option<String>,
    /// `stdout` or `stderr`, for a process with separate streams.
    pub stream: Option<String>,
    /// Strip escape sequences from text.
    pub strip_ansi: Option<bool>,
    /// Show only the final state of lines that were overwritten with carriage returns.
    pub collapse_cr: Option<bool>,
    /// Prefix each line with the time when it arrived.
    pub times: Option<bool>,
    /// If there is no output at the cursor yet, wait at most this long for some.
    pub wait: Option<String>,
    /// With `wait`: wait for `output` (default), for the leader's `exit`, or until the output is `closed`.
    pub until: Option<String>,
    /// Stream the bytes from the cursor on, as they are written, until the output is complete. Can be combined only with `cursor`, `tail`, `stream`
    /// and `format`.
    pub follow: Option<bool>,
}

/// A range of output as text, with exact byte counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputPage {
    pub id: String,
    pub text: String,
    /// Cursor where this text starts.
    pub cursor: u64,
    /// Cursor for the next read.
    pub next_cursor: u64,
    /// Total bytes of output so far.
    pub end: u64,
    /// Range before the text that is no longer stored.
    pub gap: Option<Range>,
    /// Range inside the text that was omitted to stay within the budget.
    pub omitted: Option<Range>,
    /// Raw bytes in the requested range.
    pub original_bytes: u64,
    /// Raw bytes shown in the text.
    pub shown_bytes: u64,
    /// Raw bytes omitted to stay within the budget.
    pub omitted_bytes: u64,
    /// Raw bytes removed as escape sequences or overwritten progress.
    pub collapsed_bytes: u64,
    /// Lines found by `grep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<Vec<Match>>,
    /// Whether the leader has exited.
    pub exited: bool,
    /// Whether the output is complete: all of its writers have closed it.
    pub closed: bool,
    pub status: Status,
    pub outcome: Option<Outcome>,
    /// An explanation, if the result may be unexpected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A range of cursors; `to` is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    pub from: u64,
    pub to: u64,
}

/// One line that matched, with its context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Match {
    /// Cursor where the line starts.
    pub cursor: u64,
    pub text: String,
    /// Whether it is context around a match, not a match itself.
    pub context: bool,
}
