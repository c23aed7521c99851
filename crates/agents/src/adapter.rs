//! The interface that every protocol implements.

use std::fmt;

use pinfold_api::types::{Ask, ToolCall, TurnUsage, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The settings of one agent process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub cwd: String,
    pub model: Option<String>,
    /// The thread or session to continue.
    pub resume: Option<String>,
    /// Fields for the request that opens a thread.
    pub extra: Map<String, Value>,
    /// Arguments of the user, after the protocol's own.
    pub args: Vec<String>,
    /// The WebSocket that the agent connects to, if it does not use stdio.
    pub url: Option<String>,
    /// The version of pinfold, which is sent to the agent.
    pub client_version: String,
}

/// One protocol. Deterministic: the same calls in the same order return the same messages.
pub trait Adapter: fmt::Debug + Send + Sync {
    /// The first messages to send.
    fn open(&mut self) -> Vec<Value>;

    /// Parses a message of the agent.
    fn hear(&mut self, message: &Value) -> Vec<AgentMessage>;

    /// Starts a turn. Called only when the agent is ready and no turn is running.
    fn prompt(&mut self, text: &str) -> Vec<Value>;

    /// Interrupts the running turn. May be called before the agent has confirmed that the turn started.
    fn interrupt(&mut self) -> Vec<Value>;

    /// Answers a permission request.
    fn answer(&mut self, ask: &Ask, verdict: Verdict, message: Option<&str>) -> Vec<Value>;

    /// The state that [`crate::Kind::restore`] needs.
    fn save(&self) -> Value;
}

/// The meaning of a message of the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentMessage {
    /// It is ready for turns.
    Ready { version: Option<String> },
    /// Its own id of the thread or session.
    Session(String),
    /// Its version, if it is reported after `Ready`.
    Version(String),
    /// A part of a message in the running turn.
    Delta(String),
    /// A complete message in the running turn.
    Message(String),
    /// A tool was called, or returned.
    Tool(ToolCall),
    /// A permission request.
    PermissionRequested(Ask),
    /// It withdrew the permission request with this id.
    PermissionWithdrawn(String),
    /// The turn ended.
    Ended(TurnEnd),
    /// A message for people.
    Notice(String),
    /// A message to send back to the agent immediately.
    Reply(Value),
    /// It uses an unsupported protocol; the conversation cannot continue.
    Unfit(String),
}

/// How a turn ended, as reported by the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEnd {
    Completed { text: Option<String>, usage: Option<TurnUsage> },
    Interrupted { usage: Option<TurnUsage> },
    Failed { cause: String, usage: Option<TurnUsage> },
}
