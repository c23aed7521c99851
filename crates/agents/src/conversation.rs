//! The turns and permission requests of one agent process, whatever its protocol.
//! Input: lines printed by the agent, and requests. Output: effects, which the caller carries out. The caller stores
//! the result of [`Conversation::save`] before it sends or shows anything. Every message to the agent has a number, and
//! the keeper receives it as the id of that input. So G1 holds: a message that is sent again after a crash is written
//! only once.

use pinfold_api::types::{
    AgentEvent, AgentEventKind, AgentFault, Approvals, Ask, FaultCode, Turn, TurnStatus, Verdict,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::adapter::{Adapter, AgentMessage, Settings, TurnEnd};
use crate::bounds::{
    MAX_ASKS, MAX_ASKS_BYTES, MAX_FRAME, MAX_GARBAGE, MAX_ID, MAX_NOTICES, MAX_TEXT, cut, glimpse, long_id, note_tool,
};
use crate::kind::Kind;

/// Sent to the agent with a denial because too many permission requests are unanswered.
const TOO_MANY_ASKS: &str = "denied by pinfold: too many permission requests are waiting for an answer; try again later, or with a smaller request";

/// What the caller must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write this line to the agent, under this number.
    Send { number: u64, line: String },
    /// Publish this event. The caller sets its time.
    Show(Box<AgentEvent>),
    /// Save the state: a change must not be lost.
    Save,
    /// The turn has ended.
    Ended(Box<Turn>),
    /// The agent has failed; the conversation cannot continue.
    Fault(AgentFault),
}

/// The phase of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Opening,
    Open,
    Failed,
}

/// The conversation with one process of an agent.
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
    /// The text so far of an incomplete message.
    partial: String,
    asks: Vec<Ask>,
    notices: Vec<String>,
    session: Option<String>,
    version: Option<String>,
    /// Number of messages sent.
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
    /// A conversation with a new process. Events are numbered from `seq` + 1 on.
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

    /// Sends the first messages.
    pub fn open(&mut self) -> Vec<Effect> {
        let messages = self.adapter.open();
        self.send(messages)
    }

    /// Starts a turn. The conversation must be free.
    pub fn begin(&mut self, turn: Turn) -> Vec<Effect> {
        let messages = self.adapter.prompt(&turn.prompt);
        self.state.partial.clear();
        self.state.turn = Some(turn);
        let mut effects = self.send(messages);
        effects.push(self.show(AgentEventKind::TurnStarted, |_| {}));
        effects
    }

    /// Asks the agent to interrupt its turn.
    pub fn interrupt(&mut self) -> Vec<Effect> {
        if self.state.turn.is_none() {
            return vec![];
        }
        let messages = self.adapter.interrupt();
        self.send(messages)
    }

    /// Answers a permission request; `None` if there is no such request.
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

    /// Processes a line that the agent printed.
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

    /// Fails because a line exceeded [`MAX_FRAME`].
    pub fn too_large(&mut self) -> Vec<Effect> {
        let message = format!(
            "it printed a line of more than {} MiB, which is more than a message may have: look at the output of its process",
            MAX_FRAME >> 20
        );
        self.fail(FaultCode::FrameTooLarge, message)
    }

    /// Ends the conversation: later lines are ignored.
    pub fn fail(&mut self, code: FaultCode, message: String) -> Vec<Effect> {
        self.state.phase = Phase::Failed;
        vec![Effect::Save, Effect::Fault(AgentFault { code, message })]
    }

    /// The agent's program has exited: returns the turn that was running, with its text so far.
    pub fn abandon(&mut self) -> Option<Turn> {
        self.state.asks.clear();
        let mut turn = self.state.turn.take()?;
        self.keep_partial(&mut turn);
        Some(turn)
    }

    fn garbage(&mut self, line: &[u8]) -> Vec<Effect> {
        self.state.garbage += 1;
        if self.state.garbage > MAX_GARBAGE {
            let message = format!(
                "it printed too many lines that are not messages of {}'s protocol (the last one starts with `{}`): check \
                 `program`, and look at the output of its process",
                self.state.kind.name(),
                glimpse(line)
            );
            return self.fail(FaultCode::Garbage, message);
        }
        self.notice(format!("it printed a line that is not a message: `{}`", glimpse(line)))
    }

    fn heard(&mut self, heard: AgentMessage) -> Vec<Effect> {
        match heard {
            AgentMessage::Ready { version } => {
                self.state.phase = Phase::Open;
                self.state.version = version.map(|version| cut(&version, MAX_ID)).or(self.state.version.take());
                vec![Effect::Save, self.show(AgentEventKind::Ready, |_| {})]
            }
            AgentMessage::Session(session) => {
                if let Some(reason) = long_id(&session) {
                    return self.unfit(&reason);
                }
                self.state.session = Some(session);
                vec![Effect::Save]
            }
            AgentMessage::Version(version) => {
                self.state.version = Some(cut(&version, MAX_ID));
                vec![Effect::Save]
            }
            AgentMessage::Delta(text) => self.piece(text),
            AgentMessage::Message(text) => self.message(text),
            AgentMessage::Tool(mut call) => {
                call.id = cut(&call.id, MAX_ID);
                if let Some(turn) = &mut self.state.turn {
                    note_tool(turn, &call);
                }
                vec![self.show(AgentEventKind::Tool, |event| event.tool = Some(call))]
            }
            AgentMessage::PermissionRequested(ask) => match long_id(&ask.id) {
                Some(reason) => self.unfit(&reason),
                None => self.asked(ask),
            },
            AgentMessage::PermissionWithdrawn(id) => {
                let before = self.state.asks.len();
                self.state.asks.retain(|ask| ask.id != id);
                if self.state.asks.len() < before { vec![Effect::Save] } else { vec![] }
            }
            AgentMessage::Ended(ended) => self.ended(ended),
            AgentMessage::Notice(text) => self.notice(text),
            AgentMessage::Reply(message) => self.send(vec![message]),
            AgentMessage::Unfit(reason) => self.unfit(&reason),
        }
    }

    fn unfit(&mut self, reason: &str) -> Vec<Effect> {
        let name = self.state.kind.name();
        let message = format!(
            "it does not use {name}'s protocol as pinfold expects it: {reason}: check `program` and its version"
        );
        self.fail(FaultCode::ProtocolMismatch, message)
    }

    fn piece(&mut self, text: String) -> Vec<Effect> {
        if self.state.turn.is_none() {
            return vec![];
        }
        if self.state.partial.len() + text.len() <= MAX_TEXT {
            self.state.partial.push_str(&text);
        }
        vec![self.show(AgentEventKind::Delta, |event| event.text = Some(text))]
    }

    fn message(&mut self, text: String) -> Vec<Effect> {
        let text = cut(&text, MAX_TEXT);
        self.state.partial.clear();
        if let Some(turn) = &mut self.state.turn {
            turn.text = Some(text.clone());
        }
        vec![self.show(AgentEventKind::Message, |event| event.text = Some(text))]
    }

    fn notice(&mut self, text: String) -> Vec<Effect> {
        if self.state.notices.len() == MAX_NOTICES {
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

    /// Whether the unanswered permission requests leave room for another one.
    fn has_room_for(&self, ask: &Ask) -> bool {
        let size = |ask: &Ask| ask.what.len() + ask.detail.to_string().len();
        let waiting: usize = self.state.asks.iter().map(size).sum();
        self.state.asks.len() < MAX_ASKS && waiting + size(ask) <= MAX_ASKS_BYTES
    }

    fn ended(&mut self, ended: TurnEnd) -> Vec<Effect> {
        self.state.asks.clear();
        let Some(mut turn) = self.state.turn.take() else { return vec![] };
        match ended {
            TurnEnd::Completed { text, usage } => {
                turn.status = TurnStatus::Completed;
                turn.text = text.map(|text| cut(&text, MAX_TEXT)).or(turn.text);
                turn.usage = usage;
            }
            TurnEnd::Interrupted { usage } => {
                turn.status = TurnStatus::Interrupted;
                turn.usage = usage;
                self.keep_partial(&mut turn);
            }
            TurnEnd::Failed { cause, usage } => {
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

    /// Numbers an event of this conversation.
    pub fn show(&mut self, kind: AgentEventKind, fill: impl FnOnce(&mut AgentEvent)) -> Effect {
        self.state.seq += 1;
        let turn = self.state.turn.as_ref().map(|turn| turn.number);
        let mut event = AgentEvent { seq: self.state.seq, turn, kind, ..AgentEvent::default() };
        fill(&mut event);
        Effect::Show(Box::new(event))
    }
}
