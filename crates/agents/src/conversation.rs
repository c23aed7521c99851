//! One agent, led through its turns, whatever it speaks.
//!
//! Lines of the agent and requests of ours come in; effects go out, and whoever drives it carries them out: it saves
//! what [`Conversation::save`] gives before it sends or shows anything. Every message to the agent has a number, which
//! goes to the keeper as the key of an input, so that G1 holds: what is sent again after a crash is written once.

use pinfold_api::types::{
    AgentEvent, AgentEventKind, AgentFault, Approvals, Ask, FaultCode, Turn, TurnStatus, Verdict,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::adapter::{Adapter, Ended, Heard, Settings};
use crate::bounds::{
    ASKS_BYTES_MOST, ASKS_MOST, FRAME_MOST, GARBAGE_MOST, NOTICES_MOST, TEXT_MOST, cut, glimpse, note_tool,
};
use crate::kind::Kind;

/// What an agent is told whose ask cannot wait for a person.
const TOO_MANY_ASKS: &str =
    "denied by pinfold: too much waits for approval already; ask again later, or for less at once";

/// What must be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write this line to the agent, under this number.
    Send { number: u64, line: String },
    /// Tell whoever listens. Its time is the driver's to fill in.
    Show(Box<AgentEvent>),
    /// The state changed in a way that must not be lost.
    Save,
    /// The turn is over.
    Ended(Box<Turn>),
    /// Nothing can follow.
    Fault(AgentFault),
}

/// How far a conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Opening,
    Open,
    Failed,
}

/// One agent's conversation, in one life of its program.
#[derive(Debug)]
pub struct Conversation {
    adapter: Box<dyn Adapter>,
    state: State,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    kind: Kind,
    approvals: Approvals,
    phase: Phase,
    turn: Option<Turn>,
    /// Of a message that is not whole yet.
    partial: String,
    asks: Vec<Ask>,
    notices: Vec<String>,
    session: Option<String>,
    version: Option<String>,
    /// Messages that were sent.
    sent: u64,
    /// The number of the last event.
    seq: u64,
    garbage: u32,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    state: State,
    adapter: Value,
}

impl Conversation {
    /// A conversation with a program that was just started. Events are numbered from `seq` on.
    pub fn new(kind: Kind, settings: Settings, approvals: Approvals, seq: u64) -> Self {
        let state = State {
            kind,
            approvals,
            phase: Phase::Opening,
            turn: None,
            partial: String::new(),
            asks: vec![],
            notices: vec![],
            session: settings.resume.clone(),
            version: None,
            sent: 0,
            seq,
            garbage: 0,
        };
        Self { adapter: kind.adapter(settings), state }
    }

    pub fn save(&self) -> Value {
        let saved = Saved { state: self.state.clone(), adapter: self.adapter.save() };
        serde_json::to_value(saved).unwrap_or_default()
    }

    pub fn restore(saved: Value) -> Result<Self, serde_json::Error> {
        let Saved { state, adapter } = serde_json::from_value(saved)?;
        Ok(Self { adapter: state.kind.restore(adapter)?, state })
    }

    pub fn phase(&self) -> Phase {
        self.state.phase
    }

    pub fn turn(&self) -> Option<&Turn> {
        self.state.turn.as_ref()
    }

    pub fn asks(&self) -> &[Ask] {
        &self.state.asks
    }

    pub fn notices(&self) -> &[String] {
        &self.state.notices
    }

    pub fn session(&self) -> Option<&str> {
        self.state.session.as_deref()
    }

    pub fn version(&self) -> Option<&str> {
        self.state.version.as_deref()
    }

    pub fn seq(&self) -> u64 {
        self.state.seq
    }

    /// Whether it is ready for a turn.
    pub fn is_free(&self) -> bool {
        self.state.phase == Phase::Open && self.state.turn.is_none()
    }

    /// The first messages.
    pub fn open(&mut self) -> Vec<Effect> {
        let messages = self.adapter.open();
        self.send(messages)
    }

    /// Begins a turn. The conversation must be free.
    pub fn begin(&mut self, turn: Turn) -> Vec<Effect> {
        let messages = self.adapter.prompt(&turn.prompt);
        self.state.partial.clear();
        self.state.turn = Some(turn);
        let mut effects = self.send(messages);
        effects.push(self.show(AgentEventKind::TurnStarted, |_| {}));
        effects
    }

    /// Asks the agent to end its turn.
    pub fn interrupt(&mut self) -> Vec<Effect> {
        if self.state.turn.is_none() {
            return vec![];
        }
        let messages = self.adapter.interrupt();
        self.send(messages)
    }

    /// Answers something that it asked; nothing if it asks no such thing.
    pub fn answer(&mut self, ask: &str, verdict: Verdict, message: Option<&str>) -> Option<Vec<Effect>> {
        let place = self.state.asks.iter().position(|known| known.id == ask)?;
        let ask = self.state.asks.remove(place);
        Some(self.decide(ask, verdict, message))
    }

    fn decide(&mut self, ask: Ask, verdict: Verdict, message: Option<&str>) -> Vec<Effect> {
        let messages = self.adapter.answer(&ask, verdict, message);
        let mut effects = self.send(messages);
        effects.push(self.show(AgentEventKind::Answered, |event| {
            (event.ask, event.verdict) = (Some(ask), Some(verdict));
        }));
        effects
    }

    /// Takes a line that the agent printed.
    pub fn line(&mut self, line: &[u8]) -> Vec<Effect> {
        if self.state.phase == Phase::Failed || line.iter().all(u8::is_ascii_whitespace) {
            return vec![];
        }
        match serde_json::from_slice::<Value>(line) {
            Ok(message) if message.is_object() => {
                let heard = self.adapter.hear(&message);
                heard.into_iter().flat_map(|heard| self.heard(heard)).collect()
            }
            _ => self.garbage(line),
        }
    }

    /// A line was longer than any message may be.
    pub fn too_large(&mut self) -> Vec<Effect> {
        let message = format!(
            "it printed a line of more than {} MiB, which is no message: look at the output of its process",
            FRAME_MOST >> 20
        );
        self.fail(FaultCode::FrameTooLarge, message)
    }

    /// Ends the conversation: nothing that comes is heard.
    pub fn fail(&mut self, code: FaultCode, message: String) -> Vec<Effect> {
        self.state.phase = Phase::Failed;
        vec![Effect::Save, Effect::Fault(AgentFault { code, message })]
    }

    /// Its program is gone: gives the turn that was running, as far as it came.
    pub fn abandon(&mut self) -> Option<Turn> {
        self.state.asks.clear();
        let mut turn = self.state.turn.take()?;
        self.keep_partial(&mut turn);
        Some(turn)
    }

    fn garbage(&mut self, line: &[u8]) -> Vec<Effect> {
        self.state.garbage += 1;
        if self.state.garbage > GARBAGE_MOST {
            let message = format!(
                "it prints what is not the protocol of {} (the last such line begins `{}`): check `program`, and look \
                 at the output of its process",
                self.state.kind.name(),
                glimpse(line)
            );
            return self.fail(FaultCode::Garbage, message);
        }
        self.notice(format!("it printed a line that is no message: `{}`", glimpse(line)))
    }

    fn heard(&mut self, heard: Heard) -> Vec<Effect> {
        match heard {
            Heard::Ready { version } => {
                self.state.phase = Phase::Open;
                self.state.version = version.or(self.state.version.take());
                vec![Effect::Save, self.show(AgentEventKind::Ready, |_| {})]
            }
            Heard::Session(session) => {
                self.state.session = Some(session);
                vec![Effect::Save]
            }
            Heard::Version(version) => {
                self.state.version = Some(version);
                vec![Effect::Save]
            }
            Heard::Delta(text) => self.piece(text),
            Heard::Message(text) => self.message(text),
            Heard::Tool(call) => {
                if let Some(turn) = &mut self.state.turn {
                    note_tool(turn, &call);
                }
                vec![self.show(AgentEventKind::Tool, |event| event.tool = Some(call))]
            }
            Heard::Asked(ask) => self.asked(ask),
            Heard::Unasked(id) => {
                let before = self.state.asks.len();
                self.state.asks.retain(|ask| ask.id != id);
                if self.state.asks.len() < before { vec![Effect::Save] } else { vec![] }
            }
            Heard::Ended(ended) => self.ended(ended),
            Heard::Notice(text) => self.notice(text),
            Heard::Reply(message) => self.send(vec![message]),
            Heard::Unfit(reason) => {
                let name = self.state.kind.name();
                let message = format!(
                    "it does not speak {name}'s protocol as pinfold knows it: {reason}: check `program` and its version"
                );
                self.fail(FaultCode::ProtocolMismatch, message)
            }
        }
    }

    fn piece(&mut self, text: String) -> Vec<Effect> {
        if self.state.turn.is_none() {
            return vec![];
        }
        if self.state.partial.len() + text.len() <= TEXT_MOST {
            self.state.partial.push_str(&text);
        }
        vec![self.show(AgentEventKind::Delta, |event| event.text = Some(text))]
    }

    fn message(&mut self, text: String) -> Vec<Effect> {
        let text = cut(&text, TEXT_MOST);
        self.state.partial.clear();
        if let Some(turn) = &mut self.state.turn {
            turn.text = Some(text.clone());
        }
        vec![self.show(AgentEventKind::Message, |event| event.text = Some(text))]
    }

    fn notice(&mut self, text: String) -> Vec<Effect> {
        if self.state.notices.len() == NOTICES_MOST {
            self.state.notices.remove(0);
        }
        self.state.notices.push(text.clone());
        vec![self.show(AgentEventKind::Notice, |event| event.text = Some(text))]
    }

    fn asked(&mut self, mut ask: Ask) -> Vec<Effect> {
        ask.turn = self.state.turn.as_ref().map(|turn| turn.number);
        let shown = self.show(AgentEventKind::Asked, |event| event.ask = Some(ask.clone()));
        let mut effects = vec![shown];
        match self.state.approvals {
            Approvals::Allow => effects.extend(self.decide(ask, Verdict::Allow, None)),
            Approvals::Ask if self.has_room_for(&ask) => {
                self.state.asks.push(ask);
                effects.push(Effect::Save);
            }
            Approvals::Ask => effects.extend(self.decide(ask, Verdict::Deny, Some(TOO_MANY_ASKS))),
            Approvals::Deny => effects.extend(self.decide(ask, Verdict::Deny, None)),
        }
        effects
    }

    /// Whether another ask can wait for its answer beside those that do.
    fn has_room_for(&self, ask: &Ask) -> bool {
        let size = |ask: &Ask| ask.what.len() + ask.detail.to_string().len();
        let waiting: usize = self.state.asks.iter().map(size).sum();
        self.state.asks.len() < ASKS_MOST && waiting + size(ask) <= ASKS_BYTES_MOST
    }

    fn ended(&mut self, ended: Ended) -> Vec<Effect> {
        self.state.asks.clear();
        let Some(mut turn) = self.state.turn.take() else { return vec![] };
        match ended {
            Ended::Completed { text, usage } => {
                turn.status = TurnStatus::Completed;
                turn.text = text.map(|text| cut(&text, TEXT_MOST)).or(turn.text);
                turn.usage = usage;
            }
            Ended::Interrupted { usage } => {
                turn.status = TurnStatus::Interrupted;
                turn.usage = usage;
                self.keep_partial(&mut turn);
            }
            Ended::Failed { cause, usage } => {
                turn.status = TurnStatus::Failed;
                (turn.cause, turn.usage) = (Some(cause), usage);
                self.keep_partial(&mut turn);
            }
        }
        self.state.partial.clear();
        let (number, status, cause) = (turn.number, turn.status, turn.cause.clone());
        let shown = self.show(AgentEventKind::TurnEnded, |event| {
            (event.turn, event.status, event.text) = (Some(number), Some(status), cause);
        });
        vec![Effect::Save, Effect::Ended(Box::new(turn)), shown]
    }

    fn keep_partial(&mut self, turn: &mut Turn) {
        let partial = std::mem::take(&mut self.state.partial);
        if !partial.is_empty() {
            turn.text = Some(partial);
        }
    }

    fn send(&mut self, messages: Vec<Value>) -> Vec<Effect> {
        let mut effects = vec![Effect::Save];
        for message in messages {
            self.state.sent += 1;
            effects.push(Effect::Send { number: self.state.sent, line: message.to_string() });
        }
        effects
    }

    /// An event of this conversation, or of what drives it.
    pub fn show(&mut self, kind: AgentEventKind, fill: impl FnOnce(&mut AgentEvent)) -> Effect {
        self.state.seq += 1;
        let turn = self.state.turn.as_ref().map(|turn| turn.number);
        let mut event = AgentEvent { seq: self.state.seq, turn, kind, ..AgentEvent::default() };
        fill(&mut event);
        Effect::Show(Box::new(event))
    }
}
