//! Hosted agents: agent programs that run as pinfold processes and are controlled through their own protocol.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Cause, Lifetime, Strays};
use crate::input::{Size, Span};

/// `POST /v1/agents`: which agent to host, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentRequest {
    /// The protocol it speaks: `codex` or `claude`.
    pub kind: String,
    /// The program. Default: the kind's own name, found in PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Arguments to add after those that the protocol needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The model, if the agent supports choosing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Fields to add, unchanged, to the agent's own request that opens a thread (codex: `thread/start`).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
    /// The working directory: absolute, or starting with `~`. Default: the home directory of the daemon's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment variables to set; null unsets one. Values are never written to disk: if the daemon restarts and the
    /// agent has to be started again, pass them again with the next turn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<String>>,
    /// Whether to start from the daemon's own environment (default) or from an empty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherit_env: Option<bool>,
    /// The chat, session or agent it belongs to. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The owner's parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// What happens to it when its owner is ended, as for processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    /// With `lifetime` `owner` or `parent`: the owner counts as ended if there was no contact for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_grace: Option<Span>,
    /// A name to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What happens to descendants that outlive its program: `keep` (default) or `stop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strays: Option<Strays>,
    /// Time between TERM and KILL when its tree is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// Maximum memory of its whole tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Size>,
    /// How its permission requests are answered: `deny` (default), `allow`, or `ask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Approvals>,
    /// `persistent` (default): all turns share one process and one thread. `fresh`: each turn gets new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<AgentMode>,
    /// The agent's own id of an earlier thread or session to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// How pinfold communicates with it: `stdio` (default), or `websocket`, where the agent connects to pinfold (claude).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Maximum time until it is ready. Default 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_timeout: Option<Span>,
    /// Interrupt a turn after this time. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_limit: Option<Span>,
    /// Maximum number of queued turns. Default 16, at most 256; 0 refuses every turn that would have to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// Two requests with the same key create only one agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How long to wait until it is ready before responding. Default: respond immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
}

/// How an agent's permission requests are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approvals {
    /// Refuse all of them.
    #[default]
    Deny,
    /// Grant all of them.
    Allow,
    /// Wait until a client answers with `/answer`.
    Ask,
}

/// Whether all turns share one process and one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentMode {
    #[default]
    Persistent,
    Fresh,
}

/// How pinfold communicates with an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Through its stdin and stdout.
    #[default]
    Stdio,
    /// The agent connects to a WebSocket of pinfold on loopback.
    Websocket,
}

/// The status of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// Its program was started and is not ready yet.
    #[default]
    Starting,
    /// It is ready for a turn.
    Idle,
    /// A turn is running.
    Busy,
    /// A turn is running and waits for an answer to a permission request.
    Asking,
    /// Its program is not running; the next turn starts it.
    Resting,
    /// It was stopped.
    Stopped,
    /// It cannot continue; see `fault`.
    Failed,
}

/// Why an agent cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentFault {
    pub code: FaultCode,
    /// What went wrong and what to do. The output of its process is kept.
    pub message: String,
}

/// What went wrong with an agent, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    /// Its program could not be started.
    FailedToStart,
    /// It was not ready in time.
    NeverReady,
    /// It exited before it was ready.
    ExitedBeforeReady,
    /// It uses a different protocol, or an unsupported version of it.
    ProtocolMismatch,
    /// It printed too many lines that are not protocol messages.
    Garbage,
    /// One of its messages is too large.
    FrameTooLarge,
    /// Part of its output was dropped before pinfold had read it.
    OutputLost,
    /// It must be started again, and its environment, which is not stored on disk, was not passed again.
    EnvironmentLost,
    /// Its state on disk is unreadable.
    Damaged,
    /// pinfold itself failed while it handled the agent.
    Internal,
}

/// A hosted agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Agent {
    pub id: String,
    pub name: Option<String>,
    pub kind: String,
    pub status: AgentStatus,
    /// Why it failed.
    pub fault: Option<AgentFault>,
    /// Why it was stopped: by a request, with its owner, or because its process was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Who requested the stop, if that is the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    pub owner: String,
    pub cwd: String,
    pub model: Option<String>,
    pub mode: AgentMode,
    pub approvals: Approvals,
    pub transport: Transport,
    /// The agent's own id of its thread or session. To continue it, start a new agent of
    /// the same kind with this id as `resume`.
    pub session: Option<String>,
    /// The version that the agent reports.
    pub version: Option<String>,
    /// The id of its current or last process.
    pub process: Option<String>,
    /// The ids of its processes, oldest first; the latest 64.
    pub lives: Vec<String>,
    /// The number of the running turn.
    pub turn: Option<u64>,
    /// Number of queued turns.
    pub queued: u64,
    /// Number of turns so far, including queued and running ones.
    pub turns: u64,
    /// Its unanswered permission requests.
    pub asks: Vec<Ask>,
    /// Its latest messages outside of turns, such as warnings.
    pub notices: Vec<String>,
    pub created_at: String,
    /// When it was stopped or failed.
    pub ended_at: Option<String>,
}

/// A permission request of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ask {
    pub id: String,
    pub turn: Option<u64>,
    /// `command`, `file_change`, `tool` or `permissions`.
    pub kind: String,
    /// What it wants to do, in one line.
    pub what: String,
    /// The agent's own data of the request.
    pub detail: Value,
}

/// `GET /v1/agents`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentListQuery {
    /// Only agents of this owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Include stopped and failed agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
}

/// Agents, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentList {
    pub agents: Vec<Agent>,
    /// Number of further agents that are not in the list.
    pub more: u64,
}

/// `POST /v1/agents/{id}/answer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerRequest {
    /// The id of the permission request.
    pub ask: String,
    pub verdict: Verdict,
    /// A message for the agent, sent with a `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The answer to a permission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Allow,
    Deny,
}

/// `POST /v1/agents/{id}/stop`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentStopRequest {
    /// Time between TERM and KILL. Default: the agent's own `grace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// Who requests the stop; recorded as `stopped_by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}
