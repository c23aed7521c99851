//! Turns of hosted agents: the request, the result, and the events while it runs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentFault, Ask, Outcome, Verdict};
use crate::input::Span;

/// `POST /v1/agents/{id}/turns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnRequest {
    /// The prompt.
    pub text: String,
    /// Two requests with the same key run only one turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// What to do while another turn runs: `wait` in the queue (default), or `refuse`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_busy: Option<IfBusy>,
    /// How long to wait for its end before responding. Default: respond immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// Environment variables to set, in addition to the agent's own, for processes that are started from now on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<String>>,
}

/// What to do with a turn that would have to wait.
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
    pub prompt: String,
    /// The agent's last message, or the part of it so far if the turn did not complete.
    pub text: Option<String>,
    /// Why it did not complete.
    pub cause: Option<String>,
    /// The step that interrupted it.
    pub rung: Option<Rung>,
    /// How often it was started: 2 after an unexpected exit of the agent.
    pub attempts: u32,
    /// Why it was started a second time.
    pub retried: Option<String>,
    pub usage: Option<TurnUsage>,
    /// Its tool calls in order; the first 256.
    pub tools: Vec<ToolCall>,
    /// Number of further tool calls.
    pub tools_left_out: u64,
    /// The id of the process that it ran in.
    pub process: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    pub queued_at: String,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
}

/// The status of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// Other turns come first.
    #[default]
    Queued,
    Running,
    Completed,
    /// It was interrupted by a request or by its time limit.
    Interrupted,
    Failed,
    /// Its result is unknown.
    Lost,
}

impl TurnStatus {
    /// Whether the status is final.
    pub fn is_over(self) -> bool {
        !matches!(self, TurnStatus::Queued | TurnStatus::Running)
    }
}

/// A step of interrupting a turn; each is stronger than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// The interrupt request of the agent's own protocol.
    Protocol,
    Int,
    Term,
    Kill,
}

/// What a turn used, as reported by the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnUsage {
    pub input_tokens: u64,
    pub cached_input_tokens: u64,
    pub output_tokens: u64,
}

/// A tool call of the agent in a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    pub id: String,
    /// The agent's own name of the tool.
    pub name: String,
    /// Its arguments, cut to 2000 bytes.
    pub input: String,
    /// Its result, cut to 2000 bytes.
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
    /// Maximum number of turns. Default and maximum 100.
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

/// `POST /v1/agents/{id}/interrupt`. Each wait is the time that a step gets before the next one is tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterruptRequest {
    /// For the request in the agent's own protocol. Default 5s; 0 skips it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_wait: Option<Span>,
    /// For INT. Default 2s; 0 skips it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int_wait: Option<Span>,
    /// For TERM. Default 3s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term_wait: Option<Span>,
    /// Who requests the interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The result of an interrupt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptAnswer {
    /// The turn that was running; null if there was nothing to interrupt.
    pub turn: Option<Turn>,
    /// The step that interrupted the turn; null if the turn was not interrupted.
    pub rung: Option<Rung>,
    /// The steps that were tried, in order.
    pub tried: Vec<Tried>,
    /// What the turn had left running and was stopped: ids of managed processes, command lines of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<String>,
}

/// One step that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    pub rung: Rung,
    pub waited_ms: u64,
}

/// `GET /v1/agents/{id}/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentEventsQuery {
    /// Only events after this number; `latest` for future events only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Maximum number of events. Default 100, at most 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// If there are none, wait at most this long for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
}

/// `GET /v1/agents/{id}/attach`: a WebSocket with the agent's own messages, unchanged, one per frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentAttachQuery {
    /// Start at this byte of the latest process's output. Default: at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
}

/// Something that happened to an agent. Only the latest events are kept, in memory. The result of a turn is stored with
/// the turn, and the agent's output with its process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentEvent {
    pub seq: u64,
    pub at: String,
    pub turn: Option<u64>,
    pub kind: AgentEventKind,
    /// A part of a message, a complete message, a notice or a reason.
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

/// What happened to an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentEventKind {
    /// Its program was started.
    #[default]
    Started,
    Ready,
    TurnStarted,
    /// A part of a message.
    Delta,
    /// A complete message.
    Message,
    /// A tool was called, or returned.
    Tool,
    Asked,
    Answered,
    /// A message of the agent outside of turns.
    Notice,
    TurnRetried,
    TurnEnded,
    /// Its program exited; descendants may still be running.
    Exited,
    /// No process of its tree is left.
    Emptied,
    Failed,
    Stopped,
}

/// One page of an agent's events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentEventPage {
    pub events: Vec<AgentEvent>,
    /// Pass it as `after` to get the next page.
    pub next: u64,
    /// Whether events between `after` and the first event here are no longer in memory.
    pub gap: bool,
}
