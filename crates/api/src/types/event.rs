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
    /// Only these kinds, separated by commas; `announce` for those worth telling the owner.
    pub kinds: Option<String>,
    /// Read as this consumer: from its own cursor on (`after` says where a new one begins), and leased to this
    /// reader until they are acked or the lease ends.
    pub consumer: Option<String>,
    /// How long a consumer's events are leased (default 30s, at most 1h).
    pub lease: Option<String>,
    /// Which of several readers of one consumer this is: while another holds the lease it is given nothing. Readers
    /// that do not say so count as one, and are given what follows.
    pub reader: Option<String>,
}

/// What happened to a process. Each kind happens at most once to each, but for matches, heartbeats and handovers.
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
    /// A line of its output matched a watched pattern.
    Matched,
    /// Its output is no longer watched; the process goes on.
    WatchEnded,
    /// It has a terminal and waits for input; `text` is the last line it wrote.
    WaitingForInput,
    /// It lives, as asked to be told every so often.
    Heartbeat,
    /// It belongs to another owner now.
    HandedOver,
    /// It does what it was started for, as its `ready` says.
    Ready,
    /// It was not ready in time, and goes on.
    NotReady,
    /// It was restarted as often as allowed, and is not any more.
    GaveUp,
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
    /// Whether this is the completion of the process: one event of each is, the first that tells its leader's end.
    #[serde(default)]
    pub completion: bool,
    /// Whether it is worth telling the owner: a completion, unless that is switched off, or what `notify` asks for.
    #[serde(default)]
    pub announce: bool,
    /// Where the matching line begins, or how much output there was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
    /// The matching line, the new output, the reason or the purpose. Lines and output come from the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Matches that were not announced since the last one that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppressed: Option<u64>,
}

/// A stretch of the event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// Give it as `after` for what follows.
    pub next: u64,
    /// True if the log no longer reaches back to the `after` asked for.
    pub truncated: bool,
    /// Until when they are this consumer's reader's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_until: Option<String>,
}

/// A reader of events with a cursor of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Consumer {
    pub name: String,
    /// The owner it belongs to; null for the operator's own.
    pub owner: Option<String>,
    /// All up to this number is acked.
    pub cursor: u64,
    /// All up to this number is leased …
    pub leased_through: Option<u64>,
    /// … until this moment.
    pub leased_until: Option<String>,
}

/// `POST /v1/consumers/{name}/ack`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AckRequest {
    /// The number of the last event that is dealt with.
    pub through: u64,
}

/// `GET /v1/consumers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConsumerList {
    pub consumers: Vec<Consumer>,
}
