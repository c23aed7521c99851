//! Events and their consumers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cause, EventKind, Outcome};

/// `GET /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only events with a higher number. Default 0; `latest` for future events only.
    pub after: Option<String>,
    pub owner: Option<String>,
    /// Only events of this process.
    pub process: Option<String>,
    /// At most this many (1 to 1000, default 100).
    pub limit: Option<u32>,
    /// If there are none, wait at most this long for one (at most 5m).
    pub wait: Option<String>,
    /// Only these kinds, comma-separated; `announce` for those that the owner is notified of.
    pub kinds: Option<String>,
    /// Read as this consumer: from its own cursor on (for a new consumer, from `after` on). The events are leased to this
    /// reader until they are acknowledged or the lease expires.
    pub consumer: Option<String>,
    /// How long the events are leased (default 30s, at most 1h).
    pub lease: Option<String>,
    /// An id for this reader, if a consumer has several: while another reader holds the lease, it gets no events. Readers
    /// without an id count as one reader, and get the events after those already leased.
    pub reader: Option<String>,
}

/// Something that happened to a process: durable and numbered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// The number of the event. Strictly increasing; numbers may be skipped, and are never reused.
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
    /// Whether this is the completion of the process: the first event that reports the end of its leader. Each process
    /// has exactly one.
    #[serde(default)]
    pub completion: bool,
    /// Whether the owner is notified of it: a completion, unless switched off, or what `notify` requests.
    #[serde(default)]
    pub announce: bool,
    /// Cursor where the matching line starts, or of the output's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
    /// The matching line, the new output, the reason or the purpose. Lines and output are untrusted text of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Number of matches since the last announced one that were not announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppressed: Option<u64>,
}

/// One page of the event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// Pass it as `after` to get the next page.
    pub next: u64,
    /// True if events right after the requested `after` have been deleted.
    pub truncated: bool,
    /// When the lease on these events expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_until: Option<String>,
    /// True if another reader of this consumer holds a lease: events are given to this one when it ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_by_another: bool,
}

/// A reader of events with a cursor of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Consumer {
    pub name: String,
    /// The owner it belongs to; null if it belongs to the operator.
    pub owner: Option<String>,
    /// Events up to this number are acknowledged.
    pub cursor: u64,
    /// Events up to this number are leased.
    pub leased_through: Option<u64>,
    /// When the lease expires.
    pub leased_until: Option<String>,
}

/// `POST /v1/consumers/{name}/ack`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AckRequest {
    /// The number of the last event that was processed.
    pub through: u64,
}

/// `GET /v1/consumers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConsumerList {
    pub consumers: Vec<Consumer>,
}
