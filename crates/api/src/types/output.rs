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
    /// Read only the last so many bytes (`4k`) or lines (`20 lines`).
    pub tail: Option<String>,
    /// Read at most this many bytes from the cursor on, contiguous.
    pub max_bytes: Option<String>,
    /// Show the whole range in at most this many bytes of text: head, count of what is left out, tail.
    pub budget: Option<String>,
    /// The same in tokens, four bytes each.
    pub budget_tokens: Option<u64>,
    /// Only lines that match this regular expression.
    pub grep: Option<String>,
    /// Lines of context around each match.
    pub context: Option<u32>,
    /// `text` (default, JSON) or `raw` (the bytes themselves, facts in headers).
    pub format: Option<String>,
    /// `stdout` or `stderr`, for a process with separate streams.
    pub stream: Option<String>,
    /// Strip escape sequences from text.
    pub strip_ansi: Option<bool>,
    /// Show only the last state of lines that were rewritten with carriage returns.
    pub collapse_cr: Option<bool>,
    /// Prefix each line with the time at which it arrived.
    pub times: Option<bool>,
    /// If there is nothing at the cursor, wait this long for output or the end.
    pub wait: Option<String>,
    /// With `wait`: wait for `output` (default), or for the leader's `exit`, or for `closed`.
    pub until: Option<String>,
}

/// A stretch of output as text, with exact accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputPage {
    pub id: String,
    pub text: String,
    /// Where this text begins.
    pub cursor: u64,
    /// Where the next read continues.
    pub next_cursor: u64,
    /// How much output there is now.
    pub end: u64,
    /// Bytes below the text that are no longer kept.
    pub gap: Option<Range>,
    /// Bytes inside the range that were left out for the budget.
    pub omitted: Option<Range>,
    /// Raw bytes in the range asked for …
    pub original_bytes: u64,
    /// … shown in the text …
    pub shown_bytes: u64,
    /// … left out for the budget …
    pub omitted_bytes: u64,
    /// … and removed as escape sequences or overwritten progress.
    pub collapsed_bytes: u64,
    /// Lines found by `grep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<Vec<Match>>,
    /// Whether the leader has exited.
    pub exited: bool,
    /// Whether nothing more can come.
    pub closed: bool,
    pub status: Status,
    pub outcome: Option<Outcome>,
    /// Why this read is not what one would expect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A stretch of cursors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    pub from: u64,
    pub to: u64,
}

/// One line that matched, with its context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Match {
    /// Where the line begins.
    pub cursor: u64,
    pub text: String,
    /// Whether it is context around a match.
    pub context: bool,
}
