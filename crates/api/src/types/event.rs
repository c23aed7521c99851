//! Events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cause, Outcome};

/// `GET /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Events with a higher number. Default 0; `latest` for only what is yet to come.
    pub after: Option<String>,
    pub owner: Option<String>,
    /// Only events of this process.
    pub process: Option<String>,
    /// At most this many (1 to 1000, default 100).
    pub limit: Option<u32>,
    /// If there is none, wait this long (at most 5m).
    pub wait: Option<String>,
}

/// What happened to a process. Each kind happens at most once to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    Started,
    /// The leader ended, and strays or open output ends remain.
    Exited,
    /// All output ends are closed, and the tree is not empty yet.
    Closed,
    Finished,
    Lost,
}

/// A durable, numbered fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Rises by at least one from event to event, for ever.
    pub seq: u64,
    pub kind: EventKind,
    /// The process it is about.
    pub process: String,
    pub owner: String,
    pub at: String,
    pub command: String,
    pub started_at: Option<String>,
    pub outcome: Option<Outcome>,
    pub cause: Option<Cause>,
}

/// A stretch of the event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// Give it as `after` for what follows.
    pub next: u64,
    /// True if the log no longer reaches back to the `after` asked for.
    pub truncated: bool,
}
