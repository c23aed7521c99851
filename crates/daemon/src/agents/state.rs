//! What of an agent survives the daemon: how far its conversation is, and which turns wait.

use std::collections::VecDeque;

use pinfold_agents::Conversation;
use pinfold_api::types::{AgentFault, Turn};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;
use pinfold_model::units::Moment;
use pinfold_store::agents::AgentDir;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Processes that are remembered.
const LIVES_MOST: usize = 64;
/// Keys of turns that are remembered; the oldest are forgotten first.
const KEYS_MOST: usize = 1024;

/// The state as it is written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct AgentState {
    /// How many lives there were.
    pub(crate) life: u64,
    pub(crate) lives: VecDeque<ProcessId>,
    /// Whether a process was about to be started.
    pub(crate) starting: bool,
    /// The process of this life, while it may have something to say.
    pub(crate) process: Option<ProcessId>,
    /// Whether this life has had a turn.
    pub(crate) used: bool,
    /// How far its output has been heard: what follows is heard again after a crash.
    pub(crate) cursor: u64,
    /// The conversation as it was there.
    pub(crate) conversation: Option<Value>,
    /// Messages that may not have been written yet.
    pub(crate) outbox: Vec<Message>,
    /// A turn that is to be begun again in the next life, or that waits for its life.
    pub(crate) pending: Option<Turn>,
    pub(crate) queue: VecDeque<u64>,
    /// The number of the last turn.
    pub(crate) turns: u64,
    /// Turns up to this number are over.
    pub(crate) over_through: u64,
    /// Numbers by key.
    pub(crate) keys: VecDeque<(String, u64)>,
    pub(crate) session: Option<String>,
    pub(crate) version: Option<String>,
    /// The number of the last event.
    pub(crate) seq: u64,
    pub(crate) fault: Option<AgentFault>,
    /// Whether somebody asked for its end, and who.
    pub(crate) stopping: Option<String>,
    /// Why it was stopped; states of before this was written have none.
    #[serde(default)]
    pub(crate) cause: Option<Cause>,
    /// Whom it was handed over to, when the owner it began with ended.
    #[serde(default)]
    pub(crate) heir: Option<String>,
    pub(crate) ended: Option<Moment>,
    /// Who asked that the running turn be interrupted.
    pub(crate) interrupted_by: Option<String>,
    /// The loopback port that its agent connects to.
    #[serde(default)]
    pub(crate) port: Option<u16>,
    /// The hash of the token that it must show there.
    #[serde(default)]
    pub(crate) token_hash: String,
}

/// A message under the number that makes it one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) life: u64,
    pub(crate) number: u64,
    pub(crate) line: String,
}

impl Message {
    /// Its key for the keeper.
    pub(crate) fn key(&self) -> String {
        format!("agent-{}-{}", self.life, self.number)
    }
}

impl AgentState {
    /// A new process.
    pub(crate) fn begin_life(&mut self, process: ProcessId) {
        self.lives.push_back(process.clone());
        if self.lives.len() > LIVES_MOST {
            self.lives.pop_front();
        }
        self.process = Some(process);
        self.used = false;
        self.cursor = 0;
        self.conversation = None;
        self.outbox.clear();
    }

    /// Takes over what the conversation knows.
    pub(crate) fn note(&mut self, conversation: &Conversation, cursor: u64) {
        self.cursor = cursor;
        self.conversation = Some(conversation.save());
        self.seq = conversation.seq();
        self.session = conversation.session().map(str::to_owned).or(self.session.take());
        self.version = conversation.version().map(str::to_owned).or(self.version.take());
    }

    pub(crate) fn number_of(&self, key: &str) -> Option<u64> {
        self.keys.iter().find(|(known, _)| known == key).map(|(_, number)| *number)
    }

    pub(crate) fn remember_key(&mut self, key: String, number: u64) {
        if self.keys.len() == KEYS_MOST {
            self.keys.pop_front();
        }
        self.keys.push_back((key, number));
    }

    /// It is to end. The first cause stands.
    pub(crate) fn begin_stop(&mut self, cause: Cause) {
        if self.stopping.is_none() {
            self.stopping = Some(reason_of(&cause));
            self.cause = Some(cause);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some()
    }
}

/// Why something ended, in words.
pub(crate) fn reason_of(cause: &Cause) -> String {
    match cause {
        Cause::OnItsOwn => "it ended by itself".to_owned(),
        Cause::OutOfMemory => "its tree reached its memory limit".to_owned(),
        Cause::StopRequested { by } => format!("it was stopped by {by}"),
        Cause::TimeLimit => "its time limit passed".to_owned(),
        Cause::IdleLimit => "its idle limit passed".to_owned(),
        Cause::PidsLimit => "its tree reached its limit of processes".to_owned(),
        Cause::CpuTimeLimit => "its tree used up its processor time".to_owned(),
        Cause::OwnerEnded => "its owner ended".to_owned(),
    }
}

/// A turn by its number, as it is on disk.
pub(crate) fn read_turn(dir: &AgentDir, number: u64) -> std::io::Result<Option<Turn>> {
    dir.read_turn(number)
}
