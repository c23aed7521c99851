//! The state of an agent that is stored on disk: its conversation, its turns, and how it ended.

use std::collections::VecDeque;

use pinfold_agents::Conversation;
use pinfold_api::types::{AgentFault, Turn};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;
use pinfold_model::units::Moment;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How many of the latest processes are remembered.
const MAX_PROCESSES: usize = 64;
/// Idempotency keys of turns that are remembered; of more, the oldest are forgotten.
const MAX_KEYS: usize = 1024;

/// The stored state. Its fields are a file format: `life`, `lives` and `heir` are older names.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct AgentState {
    /// The run number of the latest process, from 1 on.
    #[serde(rename = "life")]
    pub(super) run: u64,
    #[serde(rename = "lives")]
    pub(super) processes: VecDeque<ProcessId>,
    /// Whether a process is being started.
    pub(super) starting: bool,
    /// The current process, until its exit and all its output were processed.
    pub(super) process: Option<ProcessId>,
    /// Whether the current process has had a turn.
    pub(super) used: bool,
    /// The cursor up to which its output was processed when the conversation was saved.
    pub(super) cursor: u64,
    /// The conversation at that cursor.
    pub(super) conversation: Option<Value>,
    /// Messages that may not have been sent yet.
    pub(super) outbox: Vec<Message>,
    /// A turn that is to be started again in the next process.
    pub(super) pending: Option<Turn>,
    pub(super) queue: VecDeque<u64>,
    /// The number of the last turn.
    pub(super) turns: u64,
    /// Turns up to this number are over.
    pub(super) over_through: u64,
    /// Turn numbers by idempotency key.
    pub(super) keys: VecDeque<(String, u64)>,
    pub(super) session: Option<String>,
    pub(super) version: Option<String>,
    /// The number of the last event.
    pub(super) seq: u64,
    pub(super) fault: Option<AgentFault>,
    /// Why it is being stopped, as a text.
    pub(super) stopping: Option<String>,
    /// Why it is being stopped. Missing in files of older versions.
    #[serde(default)]
    pub(super) cause: Option<Cause>,
    /// The owner it was handed over to.
    #[serde(default, rename = "heir")]
    pub(super) new_owner: Option<String>,
    pub(super) ended: Option<Moment>,
    /// Who interrupted the running turn.
    pub(super) interrupted_by: Option<String>,
    /// The loopback port that the agent connects to.
    #[serde(default)]
    pub(super) port: Option<u16>,
    /// The hash of the token that it must send there.
    #[serde(default)]
    pub(super) token_hash: String,
}

/// A message to the agent. The run and the number identify it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Message {
    #[serde(rename = "life")]
    pub(super) run: u64,
    pub(super) number: u64,
    pub(super) line: String,
}

impl Message {
    /// The key of the input, by which the keeper recognises it.
    pub(super) fn key(&self) -> String {
        format!("agent-{}-{}", self.run, self.number)
    }
}

impl AgentState {
    /// Records a new process.
    pub(super) fn note_process(&mut self, process: ProcessId) {
        self.processes.push_back(process.clone());
        if self.processes.len() > MAX_PROCESSES {
            self.processes.pop_front();
        }
        self.process = Some(process);
        self.used = false;
        self.cursor = 0;
        self.conversation = None;
        self.outbox.clear();
    }

    /// Copies what must be saved from the conversation.
    pub(super) fn note(&mut self, conversation: &Conversation, cursor: u64) {
        self.cursor = cursor;
        self.conversation = Some(conversation.save());
        self.seq = conversation.seq();
        self.session = conversation.session().map(str::to_owned).or(self.session.take());
        self.version = conversation.version().map(str::to_owned).or(self.version.take());
    }

    pub(super) fn number_of(&self, key: &str) -> Option<u64> {
        self.keys.iter().find(|(known, _)| known == key).map(|(_, number)| *number)
    }

    pub(super) fn remember_key(&mut self, key: String, number: u64) {
        if self.keys.len() == MAX_KEYS {
            self.keys.pop_front();
        }
        self.keys.push_back((key, number));
    }

    /// Records why it is being stopped. The first cause counts.
    pub(super) fn begin_stop(&mut self, cause: Cause) {
        if self.stopping.is_none() {
            self.stopping = Some(reason_of(&cause));
            self.cause = Some(cause);
        }
    }

    pub(super) fn has_waiting_turn(&self) -> bool {
        self.pending.is_some() || !self.queue.is_empty()
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some()
    }
}

/// A cause as a text.
pub(super) fn reason_of(cause: &Cause) -> String {
    match cause {
        Cause::OnItsOwn => "it ended by itself".to_owned(),
        Cause::OutOfMemory => "its tree reached its memory limit".to_owned(),
        Cause::StopRequested { by } => format!("it was stopped by {by}"),
        Cause::TimeLimit => "it ran for longer than its time limit".to_owned(),
        Cause::IdleLimit => "it was idle for longer than its limit".to_owned(),
        Cause::PidsLimit => "its tree reached its limit of processes".to_owned(),
        Cause::CpuTimeLimit => "its tree used up its processor time".to_owned(),
        Cause::OwnerEnded => "its owner ended".to_owned(),
    }
}
