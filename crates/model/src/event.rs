//! Events: durable, numbered facts about processes.
//!
//! Order is normative: `started` before `exited` before `finished`; `closed` lies between `started` and
//! `finished`. `exited` and `closed` are logged on their own only when they do not coincide with
//! `finished`, which implies both.

use serde::{Deserialize, Serialize};

/// What happened to a process. Each happens at most once to each process.
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
}

impl EventKind {
    /// Every kind, in the order in which they can happen.
    pub const ALL: [Self; 5] = [Self::Started, Self::Exited, Self::Closed, Self::Finished, Self::Lost];

    /// The name in the log and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Exited => "exited",
            Self::Closed => "closed",
            Self::Finished => "finished",
            Self::Lost => "lost",
        }
    }
}
