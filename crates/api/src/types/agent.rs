//! Hosted agents: agent programs that run as kept processes and are spoken to in their own protocol.

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
    /// Arguments after those that the protocol needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The model, where the agent lets one choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Fields for the agent's own request that opens a thread, as they are (codex: `thread/start`).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
    /// The working directory: absolute, or beginning with `~`. Default: the home directory of the daemon's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment laid over the base; null unsets. Values are never written to disk: an agent that must be started
    /// anew after a crash of the daemon needs them again, with its next turn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<String>>,
    /// Whether the daemon's own environment is the base (default), or nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherit_env: Option<bool>,
    /// The chat, session or agent it belongs to. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The owner's parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// What becomes of it when its owner is ended, as for processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    /// With `lifetime` `owner` or `parent`: the owner counts as ended this long after its last contact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_grace: Option<Span>,
    /// A name to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What becomes of what it left running when its program exits: `keep` (default) or `stop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strays: Option<Strays>,
    /// How long its tree has between TERM and KILL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// Memory of its whole tree at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Size>,
    /// How it is answered when it asks for permission: `deny` (default), `allow`, or `ask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Approvals>,
    /// `persistent` (default): one process and one thread for all turns. `fresh`: each turn has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<AgentMode>,
    /// The agent's own id of an earlier thread or session to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// How it is spoken to: `stdio` (default), or `websocket` where the agent connects to pinfold (claude).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// How long it may take until it is ready. Default 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_timeout: Option<Span>,
    /// How long a turn may take before it is interrupted. Default: as long as it likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_limit: Option<Span>,
    /// Turns that may wait for others. Default 16, at most 256; 0 refuses every turn that would have to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// A key of the client's choice: the same key gives the same agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How long to wait until it is ready. Default: the answer comes at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
}

/// How an agent is answered when it asks for permission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approvals {
    /// No, and it is told so.
    #[default]
    Deny,
    /// Yes.
    Allow,
    /// It waits until somebody answers with `/answer`.
    Ask,
}

/// Whether turns share a process and a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentMode {
    #[default]
    Persistent,
    Fresh,
}

/// How an agent is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// By its stdin and stdout.
    #[default]
    Stdio,
    /// It connects to a WebSocket of pinfold's, on loopback.
    Websocket,
}

/// How an agent stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// Its program was started and is not ready.
    #[default]
    Starting,
    /// It is ready for a turn.
    Idle,
    /// A turn is running.
    Busy,
    /// A turn is running and waits for an answer.
    Asking,
    /// No program runs; the next turn starts one.
    Resting,
    /// It was stopped.
    Stopped,
    /// It cannot go on; `fault` says why.
    Failed,
}

/// Why an agent cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentFault {
    pub code: FaultCode,
    /// What was wrong and what to do. The process is kept for its output.
    pub message: String,
}

/// What was wrong with an agent, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    /// Its program could not be started.
    FailedToStart,
    /// It was not ready in time.
    NeverReady,
    /// It exited before it was ready.
    ExitedBeforeReady,
    /// It speaks another protocol, or another version of it.
    ProtocolMismatch,
    /// It printed too much that is not its protocol.
    Garbage,
    /// A message of it is too large.
    FrameTooLarge,
    /// Its output was lost before it could be read.
    OutputLost,
    /// Its environment is not on disk, and nobody gave it again.
    EnvironmentLost,
    /// Its state on disk cannot be read.
    Damaged,
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
    /// Why it was stopped: at a request, with its owner, or as its process was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Who asked for the stop, where that is the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    pub owner: String,
    pub cwd: String,
    pub model: Option<String>,
    pub mode: AgentMode,
    pub approvals: Approvals,
    pub transport: Transport,
    /// The agent's own id of its thread or session: with `resume` another agent goes on with it.
    pub session: Option<String>,
    /// The version that the agent tells.
    pub version: Option<String>,
    /// The kept process that it runs as now, or ran as last.
    pub process: Option<String>,
    /// All processes it ran as, oldest first; the latest 64.
    pub lives: Vec<String>,
    /// The number of the turn that runs.
    pub turn: Option<u64>,
    /// Turns that wait.
    pub queued: u64,
    /// Turns there were, those that wait and run included.
    pub turns: u64,
    /// What it asks and nobody has answered.
    pub asks: Vec<Ask>,
    /// The latest things that it said beside its turns, such as warnings.
    pub notices: Vec<String>,
    pub created_at: String,
    /// When it was stopped or failed.
    pub ended_at: Option<String>,
}

/// Something an agent asks permission for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ask {
    pub id: String,
    pub turn: Option<u64>,
    /// `command`, `file_change`, `tool` or `permissions`.
    pub kind: String,
    /// What it wants to do, in a line.
    pub what: String,
    /// The agent's own words for it.
    pub detail: Value,
}

/// `GET /v1/agents`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentListQuery {
    /// Agents of this owner only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Those that were stopped or failed, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
}

/// Agents, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentList {
    pub agents: Vec<Agent>,
    /// How many more there are.
    pub more: u64,
}

/// `POST /v1/agents/{id}/answer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerRequest {
    /// The id of what it asks.
    pub ask: String,
    pub verdict: Verdict,
    /// What the agent is told with a `deny`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// An answer to an agent that asks for permission.
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
    /// How long its tree has between TERM and KILL. Default: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// Who asks; shown in the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}
