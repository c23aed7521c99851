//! The wire types: the same objects over HTTP and with `--json`.
//!
//! Fields may be added but are never renamed. Times are RFC 3339 in UTC.
//!
//! What a client and the rest of pinfold mean alike is one type, in `pinfold-model`, with the docs that OpenAPI shows.
//! A type of its own stands here where the wire says less (no grace in a lifetime) or more (a signal's name).

mod agent;
mod attach;
mod daemon;
mod dashboard;
mod event;
mod inbox;
mod input;
mod output;
mod owner;
mod record;
mod sample;
mod screen;
mod search;
mod service;
mod session;
mod start;
mod stop;
mod turn;
mod wait;

pub use pinfold_model::event::EventKind;
pub use pinfold_model::facts::{Status, Usage};
pub use pinfold_model::link::Survivor;
pub use pinfold_model::outcome::CauseKind as Cause;
pub use pinfold_model::ready::ReadyState;
pub use pinfold_model::spec::{PtySize, Stdin, Strays, Streams};

pub use agent::{
    Agent, AgentFault, AgentList, AgentListQuery, AgentMode, AgentRequest, AgentStatus, AgentStopRequest,
    AnswerRequest, Approvals, Ask, FaultCode, Transport, Verdict,
};
pub use attach::{AttachControl, AttachNotice, AttachQuery};
pub use daemon::{GcAnswer, GcRequest, Health, Removed, ShutdownAnswer, ShutdownRequest};
pub use dashboard::{DashboardAnswer, DashboardClosed, DashboardRequest, DoctorAnswer, DoctorFinding, DoctorLevel};
pub use event::{AckRequest, Consumer, ConsumerList, Event, EventPage, EventsQuery};
pub use inbox::{Inbox, InboxItem, InboxKind, InboxQuery, SeenAnswer, SeenRequest};
pub use input::{InputAnswer, InputRequest};
pub use output::{Match, OutputPage, OutputQuery, Range};
pub use owner::{
    EndAnswer, EndRequest, HandoverRequest, Owner, OwnerList, ReleaseAnswer, Token, TokenAnswer, TokenList,
    TokenRequest,
};
pub use pinfold_model::sandbox::{Part as SandboxPart, RefusedCall, SandboxRequest, Tier as SandboxTier};
pub use record::{
    LimitsShown, ListQuery, NotifyShown, Outcome, OutputSummary, ProcessList, Record, SandboxShown, TreeMember,
    Unreadable,
};
pub use sample::{Sample, Samples, SamplesQuery};
pub use screen::{Position, Pty, ResizeRequest, Screen};
pub use search::{Hit, SearchBound, SearchPage, SearchQuery};
pub use service::{LifeShown, Port, Ready, ReadyShown, Restart, RestartPolicy};
pub use session::{
    AdoptAnswer, AdoptRefusal, AdoptRequest, LeftBehind, LeftBehindList, ServerProcess, SessionAnswer, SessionRequest,
};
pub use start::{Lifetime, NewsState, Notify, OnWaitTimeout, StartRequest, Started, Waited};
pub use stop::{SignalAnswer, SignalRequest, StopAnswer, StopRequest};
pub use turn::{
    AgentAttachQuery, AgentEvent, AgentEventKind, AgentEventPage, AgentEventsQuery, IfBusy, InterruptAnswer,
    InterruptRequest, Rung, ToolCall, Tried, Turn, TurnList, TurnQuery, TurnRequest, TurnStatus, TurnUsage, TurnsQuery,
};
pub use wait::{WaitAnswer, WaitManyAnswer, WaitManyRequest, WaitMode, WaitQuery, WaitReason};
