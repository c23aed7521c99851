//! Turns of hosted agents: what is asked, what comes of it, and what is heard meanwhile.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentFault, Ask, Outcome, Verdict};
use crate::input::Span;

/// `POST /v1/agents/{id}/turns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnRequest {
    /// What the agent is told.
    pub text: String,
    /// A key of the client's choice: the same key gives the same turn, which is not run twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// What to do while another turn runs: `wait` in the queue (default), or `refuse`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_busy: Option<IfBusy>,
    /// How long to wait for its end. Default: the answer comes at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// Environment for processes that are started from now on, laid over the agent's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<String>>,
}

/// What becomes of a turn that would have to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfBusy {
    #[default]
    Wait,
    Refuse,
}

/// One turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Turn {
    pub agent: String,
    pub number: u64,
    pub status: TurnStatus,
    /// What the agent was told.
    pub prompt: String,
    /// The agent's last message; of a turn that did not complete, what there is of it.
    pub text: Option<String>,
    /// Why it did not complete.
    pub cause: Option<String>,
    /// By what it was interrupted.
    pub rung: Option<Rung>,
    /// How often it was begun: 2 after an unexpected exit of the agent.
    pub attempts: u32,
    /// Why it was begun a second time.
    pub retried: Option<String>,
    pub usage: Option<TurnUsage>,
    /// What it did, in order; the first 256.
    pub tools: Vec<ToolCall>,
    /// Calls beyond those.
    pub tools_left_out: u64,
    /// The kept process that it ran in.
    pub process: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    pub queued_at: String,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
}

/// How a turn stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// Others are before it.
    #[default]
    Queued,
    Running,
    Completed,
    /// It was interrupted on request, or by its limit.
    Interrupted,
    Failed,
    /// What came of it is not known.
    Lost,
}

impl TurnStatus {
    /// Whether it will not change any more.
    pub fn is_over(self) -> bool {
        !matches!(self, TurnStatus::Queued | TurnStatus::Running)
    }
}

/// A rung of the ladder by which a turn is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// The agent was asked in its protocol, and ended the turn.
    Protocol,
    Int,
    Term,
    Kill,
}

/// What a turn cost, as the agent tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnUsage {
    pub input_tokens: u64,
    pub cached_input_tokens: u64,
    pub output_tokens: u64,
}

/// Something the agent did in a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    pub id: String,
    /// The tool's name as the agent has it.
    pub name: String,
    /// What it was called with, cut to 2000 characters.
    pub input: String,
    /// What came back, cut to 2000 characters.
    pub output: Option<String>,
    pub exit_code: Option<i64>,
    /// Whether it failed; absent while it runs.
    pub failed: Option<bool>,
}

/// `GET /v1/agents/{id}/turns/{number}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnQuery {
    /// How long to wait for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
}

/// `GET /v1/agents/{id}/turns`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnsQuery {
    /// Turns after this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// At most so many. Default and most 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Turns, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnList {
    pub turns: Vec<Turn>,
    /// Whether there are more after these.
    pub more: bool,
}

/// `POST /v1/agents/{id}/interrupt`: each wait is how long a rung has before the next is taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterruptRequest {
    /// For the agent's own protocol. Default 5s; 0 skips it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_wait: Option<Span>,
    /// For INT. Default 2s; 0 skips it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int_wait: Option<Span>,
    /// For TERM. Default 3s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term_wait: Option<Span>,
    /// Who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What an interrupt did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptAnswer {
    /// The turn that was running; none means there was nothing to interrupt.
    pub turn: Option<Turn>,
    /// Which rung worked.
    pub rung: Option<Rung>,
    /// The rungs that were tried, in order.
    pub tried: Vec<Tried>,
    /// What the turn had left running and was stopped: ids of kept processes, command lines of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<String>,
}

/// One rung that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    pub rung: Rung,
    pub waited_ms: u64,
}

/// `GET /v1/agents/{id}/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentEventsQuery {
    /// Events after this number; `latest` for those to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most so many. Default 100, at most 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How long to wait for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
}

/// `GET /v1/agents/{id}/attach`: a WebSocket of the agent's own messages, verbatim, one a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentAttachQuery {
    /// From this byte of what the latest process said. Default: from its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
}

/// Something heard of an agent. The latest are kept in memory; what a turn came to is kept with the turn, and what the
/// agent printed with its process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentEvent {
    pub seq: u64,
    pub at: String,
    pub turn: Option<u64>,
    pub kind: AgentEventKind,
    /// A piece of a message, a whole one, a notice or a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// How the turn ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<TurnStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<AgentFault>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// How its program ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// What was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentEventKind {
    /// Its program was started.
    #[default]
    Started,
    Ready,
    TurnStarted,
    /// A piece of a message.
    Delta,
    /// A whole message.
    Message,
    /// A tool was called, or came back.
    Tool,
    Asked,
    Answered,
    /// Something that it said beside its turns.
    Notice,
    TurnRetried,
    TurnEnded,
    /// Its program exited; what it left running may live.
    Exited,
    /// Nothing of its tree is left.
    Emptied,
    Failed,
    Stopped,
}

/// A stretch of events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentEventPage {
    pub events: Vec<AgentEvent>,
    /// Where the next read begins.
    pub next: u64,
    /// Whether events between `after` and the first one here are no longer in memory.
    pub gap: bool,
}
