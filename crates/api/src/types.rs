//! The wire types: the same objects in HTTP, in `--json`.
//!
//! Fields are added, never renamed. Times are RFC 3339 in UTC.

mod act;
mod event;
mod output;
mod record;
mod start;
mod upkeep;
mod wait;

pub use act::{SignalAnswer, SignalRequest, StopAnswer, StopRequest, Survivor};
pub use event::{Event, EventKind, EventPage, EventsQuery};
pub use output::{Match, OutputPage, OutputQuery, Range};
pub use record::{
    Cause, ListQuery, Outcome, OutputSummary, ProcessList, Record, Status, TreeMember, Unreadable, Usage,
};
pub use start::{OnWaitTimeout, StartRequest, Started, Strays, Streams, Waited};
pub use upkeep::{GcAnswer, GcRequest, Health, ShutdownAnswer, ShutdownRequest};
pub use wait::{WaitAnswer, WaitManyAnswer, WaitManyRequest, WaitMode, WaitQuery, WaitReason};
