//! The wire types: the same objects over HTTP and with `--json`.
//!
//! Fields may be added but are never renamed. Times are RFC 3339 in UTC.

mod act;
mod agent;
mod attach;
mod event;
mod input;
mod output;
mod owner;
mod record;
mod screen;
mod service;
mod session;
mod start;
mod turn;
mod upkeep;
mod wait;

pub use act::{SignalAnswer, SignalRequest, StopAnswer, StopRequest, Survivor};
pub use agent::{
    Agent, AgentFault, AgentList, AgentListQuery, AgentMode, AgentRequest, AgentStatus, AgentStopRequest,
    AnswerRequest, Approvals, Ask, FaultCode, Transport, Verdict,
};
pub use attach::{AttachControl, AttachNotice, AttachQuery};
pub use event::{AckRequest, Consumer, ConsumerList, Event, EventKind, EventPage, EventsQuery};
pub use input::{InputAnswer, InputRequest, Stdin};
pub use output::{Match, OutputPage, OutputQuery, Range};
pub use owner::{
    EndAnswer, EndRequest, HandoverRequest, Owner, OwnerList, ReleaseAnswer, Token, TokenAnswer, TokenList,
    TokenRequest,
};
pub use record::{
    Cause, LimitsShown, ListQuery, NotifyShown, Outcome, OutputSummary, ProcessList, Record, Status, TreeMember,
    Unreadable, Usage,
};
pub use screen::{Position, Pty, PtySize, ResizeRequest, Screen};
pub use service::{LifeShown, Port, Ready, ReadyShown, ReadyState, Restart, RestartPolicy};
pub use session::{
    AdoptAnswer, AdoptRefusal, AdoptRequest, LeftBehind, LeftBehindList, ServerProcess, SessionAnswer, SessionRequest,
};
pub use start::{Lifetime, Notify, OnWaitTimeout, StartRequest, Started, Strays, Streams, Waited};
pub use turn::{
    AgentAttachQuery, AgentEvent, AgentEventKind, AgentEventPage, AgentEventsQuery, IfBusy, InterruptAnswer,
    InterruptRequest, Rung, ToolCall, Tried, Turn, TurnList, TurnQuery, TurnRequest, TurnStatus, TurnUsage, TurnsQuery,
};
pub use upkeep::{GcAnswer, GcRequest, Health, ShutdownAnswer, ShutdownRequest};
pub use wait::{WaitAnswer, WaitManyAnswer, WaitManyRequest, WaitMode, WaitQuery, WaitReason};
