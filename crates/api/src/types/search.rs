//! Searching the output of many processes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Status;

/// `GET /v1/search`. The filters are those of `GET /v1/processes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchQuery {
    /// A regular expression, or with `literal` a text. Lines are searched without their escape sequences.
    pub pattern: String,
    /// Search for the pattern as it is written, not as a regular expression.
    pub literal: Option<bool>,
    /// Ignore the difference between upper and lower case.
    pub ignore_case: Option<bool>,
    /// Only this process: an id, a name, or an unambiguous prefix of an id.
    pub process: Option<String>,
    pub owner: Option<String>,
    /// Comma-separated statuses; `live` means starting, running and lingering, `ended` finished and lost.
    pub status: Option<String>,
    pub name: Option<String>,
    /// `key=value`. May be repeated: a process must have all of these labels.
    #[serde(default)]
    pub label: Vec<String>,
    /// Created at this time or later: RFC 3339, or a duration such as `10m` for that long ago.
    pub created_after: Option<String>,
    /// Created before this time.
    pub created_before: Option<String>,
    /// Finished at this time or later; live processes are left out.
    pub finished_after: Option<String>,
    /// Finished before this time; live processes are left out.
    pub finished_before: Option<String>,
    /// At most this many hits (1 to 1000, default 100).
    pub limit: Option<u32>,
    /// Stop after this time and return what was found so far (at most 30s, default 5s).
    pub timeout: Option<String>,
    /// The `next` of the previous page. Repeat the other parameters unchanged.
    pub page: Option<String>,
}

/// Lines that match. The newest process comes first; within a process, the oldest line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SearchPage {
    pub hits: Vec<Hit>,
    /// Pass it as `page` to continue; null if everything was searched. There may be a `next` without any hits.
    pub next: Option<String>,
    /// Why this page ends before the search is complete; null if it is complete.
    pub stopped_by: Option<SearchBound>,
    /// How many processes were searched for this page, completely or in part.
    pub searched_processes: u64,
    /// How many bytes of output were searched for this page.
    pub searched_bytes: u64,
}

/// The bound that ended a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchBound {
    /// `limit` hits were found.
    Limit,
    /// A page searches at most 1 GiB.
    Bytes,
    /// The `timeout` was reached.
    Time,
}

/// One line that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hit {
    /// The id of the process.
    pub process: String,
    pub name: Option<String>,
    pub owner: String,
    pub status: Status,
    /// Cursor where the line starts.
    pub cursor: u64,
    /// The line without escape sequences, cut after 1000 bytes. Untrusted text of the process.
    pub text: String,
}
