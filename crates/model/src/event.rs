//! Events: durable, numbered facts about processes.
//!
//! Order is normative: `started` before `exited` before `finished`; `closed` lies between `started` and
//! `finished`. `exited` and `closed` are logged on their own only when they do not coincide with
//! `finished`, which implies both.

use serde::{Deserialize, Serialize};

/// What happened to a process. Each happens at most once to each process, but for matches, waits for
/// input, heartbeats and handovers, which are told apart by a number of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Its leader runs.
    Started,
    /// Its leader ended, and strays or output ends are still open.
    Exited,
    /// All its output ends are closed, and its tree is not empty yet.
    Closed,
    /// Leader gone, tree empty, output drained; or it never started.
    Finished,
    /// Its keeper died; nobody saw the end.
    Lost,
    /// A line of its output matched a watched pattern; its number is the cursor of the line.
    Matched,
    /// Its output is no longer watched.
    WatchEnded,
    /// It has a terminal and waits for input; they are counted.
    WaitingForInput,
    /// It lives, as its owner wished to be told; they are counted.
    Heartbeat,
    /// It belongs to another owner now; they are counted.
    HandedOver,
    /// It does what it was started for, as its `ready` says.
    Ready,
    /// It was not ready in time, and goes on.
    NotReady,
    /// It was restarted as often as allowed, and is not any more.
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
