//! Events: durable, numbered facts about processes.
//!
//! Order is normative: `started` before `exited` before `finished`; `closed` lies between `started` and
//! `finished`. `exited` and `closed` are logged on their own only when they do not coincide with
//! `finished`, which implies both.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happened to a process. Each kind occurs at most once per process, except matches, heartbeats and handovers.
// Those, and waits for input, are distinguished by a number: the cursor of the matching line, or a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    Started,
    /// The leader ended; descendants are alive or the output is still open.
    Exited,
    /// The output is complete; the tree is not empty yet.
    Closed,
    Finished,
    Lost,
    /// A line of its output matched a watched pattern.
    Matched,
    /// Its output is no longer watched; the process runs on.
    WatchEnded,
    /// It has a terminal and waits for input; `text` is the last line it wrote.
    WaitingForInput,
    /// It is alive; announced at the interval that `notify` sets.
    Heartbeat,
    /// It was handed over to another owner.
    HandedOver,
    /// It is ready, by its own `ready` condition.
    Ready,
    /// It was not ready in time; it runs on.
    NotReady,
    /// It reached the maximum number of restarts and is not restarted again.
    GaveUp,
}

impl EventKind {
    /// Every kind, in the order in which they can happen.
    pub const ALL: [Self; 13] = [
        Self::Started,
        Self::Matched,
        Self::WatchEnded,
        Self::WaitingForInput,
        Self::Heartbeat,
        Self::HandedOver,
        Self::Ready,
        Self::NotReady,
        Self::Exited,
        Self::Closed,
        Self::Finished,
        Self::Lost,
        Self::GaveUp,
    ];

    /// The name in the log and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Exited => "exited",
            Self::Closed => "closed",
            Self::Finished => "finished",
            Self::Lost => "lost",
            Self::Matched => "matched",
            Self::WatchEnded => "watch_ended",
            Self::WaitingForInput => "waiting_for_input",
            Self::Heartbeat => "heartbeat",
            Self::HandedOver => "handed_over",
            Self::Ready => "ready",
            Self::NotReady => "not_ready",
            Self::GaveUp => "gave_up",
        }
    }
}
