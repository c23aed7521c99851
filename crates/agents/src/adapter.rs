//! What every protocol offers to the conversation that is led through it.

use std::fmt;

use pinfold_api::types::{Ask, ToolCall, TurnUsage, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What an adapter is told before it begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub cwd: String,
    pub model: Option<String>,
    /// The thread or session to go on with.
    pub resume: Option<String>,
    /// Fields for the request that opens a thread.
    pub extra: Map<String, Value>,
    /// Arguments of the user's, after the protocol's own.
    pub args: Vec<String>,
    /// Where the agent is to connect to, if it is not spoken to by stdio.
    pub url: Option<String>,
    /// Our version, as the agent is told.
    pub client_version: String,
}

/// One protocol. Deterministic: the same calls in the same order give the same messages.
pub trait Adapter: fmt::Debug + Send + Sync {
    /// The first messages.
    fn open(&mut self) -> Vec<Value>;

    /// Takes a message of the agent's.
    fn hear(&mut self, message: &Value) -> Vec<Heard>;

    /// Begins a turn; asked for only when the agent is ready and no turn runs.
    fn prompt(&mut self, text: &str) -> Vec<Value>;

    /// Ends the running turn early. May come before the agent has said that it runs.
    fn interrupt(&mut self) -> Vec<Value>;

    /// Answers something that it asked.
    fn answer(&mut self, ask: &Ask, verdict: Verdict, message: Option<&str>) -> Vec<Value>;

    /// All that `restore` needs.
    fn save(&self) -> Value;
}

/// What a message of an agent's means.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// It is ready for turns.
    Ready { version: Option<String> },
    /// Its own id of the thread or session.
    Session(String),
    /// Its version, if it tells that late.
    Version(String),
    /// A piece of a message in the running turn.
    Delta(String),
    /// A whole message in the running turn.
    Message(String),
    /// A tool was called, or came back.
    Tool(ToolCall),
    /// It wants to be allowed something.
    Asked(Ask),
    /// It no longer wants to know.
    Unasked(String),
    /// The turn ended.
    Ended(Ended),
    /// Something to tell people.
    Notice(String),
    /// Something to tell the agent at once.
    Reply(Value),
    /// It speaks something else: nothing can follow.
    Unfit(String),
}

/// How a turn ended, by the agent's word.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    Completed { text: Option<String>, usage: Option<TurnUsage> },
    Interrupted { usage: Option<TurnUsage> },
    Failed { cause: String, usage: Option<TurnUsage> },
}
