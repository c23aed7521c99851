//! The one that leads an agent: a task that hears it, answers it, and gives it its turns.
//!
//! All that happens to an agent happens here, one thing after the other. What must not be lost is on disk before the
//! agent or a client is told; after a crash the conversation is taken up where it was saved, and what was printed since
//! is heard again.

use std::sync::Arc;
use std::time::Duration;

use pinfold_agents::{Conversation, Effect, Frame, Phase};
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{
    AgentEvent, AgentEventKind, AgentFault, AgentMode, AnswerRequest, FaultCode, Rung, Transport, TurnStatus,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::life::{self, Life};
use super::seat::{Command, Seat};
use super::state::AgentState;
use crate::clock::{now, rfc3339};
use crate::core::{Core, blocking};
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::records::api_outcome;

/// Leads one agent.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(super) core: Arc<Core>,
    pub(super) seat: Arc<Seat>,
    pub(super) state: AgentState,
    pub(super) conversation: Option<Conversation>,
    pub(super) life: Option<Life>,
    commands: mpsc::Receiver<Command>,
    /// When something must have happened.
    pub(super) ready_by: Option<Instant>,
    pub(super) turn_by: Option<Instant>,
    pub(super) gone_by: Option<Instant>,
    /// Former lives of which something is left.
    lingering: u32,
}

/// What a driver wakes for.
#[derive(Debug)]
enum Input {
    Command(Option<Command>),
    /// The agent said something, or exited.
    News,
    NotReady,
    TurnLimit,
    NotGone,
    Shutdown,
}

impl Driver {
    pub(crate) fn new(core: Arc<Core>, seat: Arc<Seat>, state: AgentState, commands: mpsc::Receiver<Command>) -> Self {
        Self {
            core,
            seat,
            state,
            conversation: None,
            life: None,
            commands,
            ready_by: None,
            turn_by: None,
            gone_by: None,
            lingering: 0,
        }
    }

    /// Leads it until it is over, or the daemon is.
    pub(crate) async fn run(mut self) {
        self.publish();
        // What an earlier daemon may not have sent.
        self.deliver().await;
        let mut shutdown = self.core.shutdown.subscribe();
        loop {
            self.advance().await;
            self.publish();
            if self.state.is_over() && self.life.is_none() && self.lingering == 0 {
                return;
            }
            match self.next(&mut shutdown).await {
                Input::Command(Some(command)) => self.obey(command).await,
                Input::News => self.listen().await,
                Input::NotReady => self.never_ready().await,
                Input::TurnLimit => self.out_of_time(),
                Input::NotGone => self.drive_out(),
                Input::Command(None) | Input::Shutdown => return,
            }
        }
    }

    async fn next(&mut self, shutdown: &mut watch::Receiver<bool>) -> Input {
        let place = self.life.as_ref().map(Life::place);
        let news = async {
            match &place {
                Some((entry, at, growing)) => Life::news(entry, *at, growing.clone()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = self.commands.recv() => Input::Command(command),
            () = news => Input::News,
            () = until(self.ready_by) => Input::NotReady,
            () = until(self.turn_by) => Input::TurnLimit,
            () = until(self.gone_by) => Input::NotGone,
            _ = shutdown.wait_for(|shutdown| *shutdown) => Input::Shutdown,
        }
    }

    /// Takes up what an earlier daemon left.
    pub(crate) async fn take_up(&mut self) -> Result<(), String> {
        let Some(process) = self.state.process.clone() else { return Ok(()) };
        let life = match life::find(&self.core, process.as_str()).await {
            Ok(found) => Life::taken_up(found.entry, self.state.cursor, &self.seat),
            // Its record was removed, or cannot be read.
            Err(refusal) => return Err(format!("its process {process} is not there: {}", refusal.0.message)),
        };
        if let Some(saved) = self.state.conversation.clone() {
            let conversation = Conversation::restore(saved).map_err(|error| error.to_string())?;
            if conversation.phase() == Phase::Opening {
                self.ready_by = Some(Instant::now() + self.seat.spec.ready_timeout);
            }
            if conversation.turn().is_some() {
                self.turn_by = self.seat.spec.turn_limit.map(|limit| Instant::now() + limit);
            }
            self.conversation = Some(conversation);
        }
        let mut life = life;
        let in_turn = self.conversation.as_ref().is_some_and(|known| known.turn().is_some());
        if self.seat.spec.transport == Transport::Websocket && in_turn && !life.has_exited() {
            // It does not send again what it sent while no daemon ran: the turn is begun again as after any other end.
            life.deaf = true;
            let by = "pinfold, since what it sent meanwhile is lost".to_owned();
            self.end_process(Arc::clone(&life.entry), by, None);
        } else if self.seat.spec.transport == Transport::Websocket && !life.has_exited() {
            let wire = self.open_wire().await.map_err(|error| format!("its port cannot be taken again: {error}"))?;
            life.listen_to(wire, self.seat.dir.stream(self.state.life));
        }
        self.life = Some(life);
        Ok(())
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Turn(turn, may_wait, answer) => {
                let queued = self.enqueue(*turn, may_wait).await;
                let _ = answer.send(queued);
            }
            Command::Interrupt(by, answer) => {
                let number = self.interrupt(by).await;
                let _ = answer.send(number);
            }
            Command::Answer(request, answer) => {
                let answered = self.answer(request).await;
                let _ = answer.send(answered);
            }
            Command::Stop(cause, grace, answer) => {
                self.stop(cause, grace).await;
                let _ = answer.send(());
            }
            Command::HandOver(heir, answer) => {
                self.hand_over(heir).await;
                let _ = answer.send(());
            }
            Command::Emptied(process) => {
                self.lingering -= 1;
                self.show(AgentEventKind::Emptied, |event| event.process = Some(process.to_string()));
            }
        }
    }

    async fn answer(&mut self, request: AnswerRequest) -> Result<(), Refusal> {
        let AnswerRequest { ask, verdict, message } = request;
        let answered = self.conversation.as_mut().and_then(|known| known.answer(&ask, verdict, message.as_deref()));
        match answered {
            Some(effects) => {
                let cursor = self.state.cursor;
                self.carry_out(effects, cursor).await;
                Ok(())
            }
            None => {
                let message = format!("it asks nothing with the id `{ask}`: `pinfold agent show` lists what it asks");
                Err(Refusal::new(ErrorCode::NotFound, message))
            }
        }
    }

    /// Hears what the agent said.
    async fn listen(&mut self) {
        let Some(life) = &mut self.life else { return };
        let exited = life.has_exited();
        let heard = match life.listen(&self.core).await {
            Ok(heard) => heard,
            Err(refusal) => {
                tracing::error!(agent = %self.seat.id, error = %refusal.0, "an agent's output cannot be read");
                tokio::time::sleep(Duration::from_secs(1)).await;
                return;
            }
        };
        if heard.gap {
            let message = "its output was dropped before it was read: it printed more than is kept while no daemon ran";
            self.fail(FaultCode::OutputLost, message.to_owned()).await;
        }
        for frame in heard.frames {
            let Some(conversation) = &mut self.conversation else { break };
            let (effects, cursor) = match frame {
                Frame::Line { bytes, end } => (conversation.line(&bytes), end),
                Frame::TooLarge { at } => (conversation.too_large(), at),
            };
            self.carry_out(effects, cursor).await;
        }
        if exited && heard.silent {
            self.exited().await;
        }
    }

    /// Does what a conversation wants done: writes it down, tells the agent, tells whoever listens.
    pub(super) async fn carry_out(&mut self, effects: Vec<Effect>, cursor: u64) {
        let (mut shown, mut fault, mut must_save) = (Vec::new(), None, false);
        for effect in effects {
            match effect {
                Effect::Save => must_save = true,
                Effect::Show(event) => shown.push(*event),
                Effect::Fault(found) => fault = Some(found),
                Effect::Ended(turn) => self.turn_over(*turn).await,
                Effect::Send { number, line } => {
                    let life = self.state.life;
                    self.state.outbox.push(super::state::Message { life, number, line });
                }
            }
        }
        if must_save {
            if let Some(conversation) = &self.conversation {
                self.state.note(conversation, cursor);
            }
            self.save().await;
        }
        if self.conversation.as_ref().is_some_and(|known| known.phase() == Phase::Open) {
            self.ready_by = None;
        }
        if must_save {
            self.publish();
        }
        for event in shown {
            self.seat.events.push(AgentEvent { at: rfc3339(now()), ..event });
        }
        self.deliver().await;
        if let Some(AgentFault { code, message }) = fault {
            self.fail(code, message).await;
        }
    }

    /// Sends what waits to be sent. What was sent before is written once.
    pub(super) async fn deliver(&mut self) {
        let Some(life) = &mut self.life else { return };
        if life.has_exited() || life.deaf {
            return self.state.outbox.clear();
        }
        let messages = std::mem::take(&mut self.state.outbox);
        if let Some(wire) = &life.wire {
            let sent = messages.into_iter().try_for_each(|message| wire.send(message.line));
            if let Err(error) = sent {
                tracing::warn!(agent = %self.seat.id, error, "an agent cannot be told something");
            }
            // No keeper tells what was sent before: it must not be sent again.
            return self.save().await;
        }
        for message in messages {
            if let Err(refusal) = life::send(&self.core, &life.entry, &message).await {
                tracing::warn!(agent = %self.seat.id, error = %refusal.0, "an agent cannot be told something");
                life.deaf = true;
                let entry = Arc::clone(&life.entry);
                let note = format!("it could not be told something: {}", refusal.0.message);
                self.show(AgentEventKind::Notice, |event| event.text = Some(note));
                // An agent that does not listen is of no use: its end is dealt with as any other.
                return self.end_process(entry, "pinfold, since it does not listen".to_owned(), None);
            }
        }
    }

    async fn never_ready(&mut self) {
        let words = match &self.life {
            Some(life) => life.last_words(&self.core).await,
            None => String::new(),
        };
        let said = if words.is_empty() { "it said nothing".to_owned() } else { format!("its last words: {words}") };
        let within = self.seat.spec.ready_timeout.as_secs_f64();
        let message = format!(
            "it was not ready within {within}s ({said}): check `program` and its configuration, or give it more time with `ready_timeout`"
        );
        self.fail(FaultCode::NeverReady, message).await;
    }

    /// The agent cannot go on: its turns fail, and its process is ended. What it printed is kept.
    pub(super) async fn fail(&mut self, code: FaultCode, message: String) {
        if self.state.is_over() {
            return;
        }
        (self.ready_by, self.turn_by) = (None, None);
        self.abandon_turns(TurnStatus::Failed, &message).await;
        let fault = AgentFault { code, message };
        tracing::warn!(agent = %self.seat.id, fault = ?fault.code, message = %fault.message, "an agent failed");
        self.state.fault = Some(fault.clone());
        self.state.ended = Some(now());
        self.save().await;
        self.publish();
        self.show(AgentEventKind::Failed, |event| event.fault = Some(fault));
        if let Some(life) = &self.life {
            self.end_process(Arc::clone(&life.entry), "pinfold, since the agent failed".to_owned(), None);
        }
    }

    /// Its leader has exited, and all it said is heard.
    async fn exited(&mut self) {
        let Some(life) = self.life.take() else { return };
        (self.ready_by, self.gone_by) = (None, None);
        let phase = self.conversation.as_ref().map(Conversation::phase);
        // Whoever hears of it sees it so; of one that was never ready, only once it is known what to make of it.
        if phase == Some(Phase::Open) {
            self.publish();
        }
        let process = life.entry.id.clone();
        let outcome = life.entry.state.borrow().history.outcome().map(api_outcome);
        self.show(AgentEventKind::Exited, |event| {
            (event.process, event.outcome) = (Some(process.to_string()), outcome);
        });
        self.watch_tree(&life);
        let turn = self.conversation.as_mut().and_then(Conversation::abandon);
        if let Some(conversation) = self.conversation.take() {
            self.state.seq = self.state.seq.max(conversation.seq());
        }
        self.state.process = None;
        self.state.conversation = None;
        self.state.outbox.clear();
        let ready = phase == Some(Phase::Open);
        let by_ladder = matches!(*lock(&self.seat.rung), Some(Rung::Int | Rung::Term));
        let own_doing = life.dismissed || life.deaf || by_ladder;
        let requested = if own_doing { None } else { life.requested_end() };
        match (turn, requested) {
            (Some(turn), requested) => self.turn_cut_short(turn, &life, requested).await,
            (None, Some(cause)) => self.state.begin_stop(cause),
            (None, None) if !ready && !self.state.is_over() && self.state.stopping.is_none() => {
                self.exited_before_ready(&life).await;
            }
            (None, _) => {}
        }
        self.save().await;
    }

    async fn exited_before_ready(&mut self, life: &Life) {
        let words = life.last_words(&self.core).await;
        let said = if words.is_empty() { String::new() } else { format!(": {words}") };
        if life.resumed {
            // A session that was cut off in its first turn may not have been written down by the agent.
            self.state.session = None;
            let note = format!("it could not go on with its session, and begins a new one{said}");
            return self.show(AgentEventKind::Notice, |event| event.text = Some(note));
        }
        let message = format!("it {} before it was ready{said}", life.ending());
        self.fail(FaultCode::ExitedBeforeReady, message).await;
    }

    /// Its owner ended, and it goes on for another.
    async fn hand_over(&mut self, heir: String) {
        if self.state.is_over() || self.state.stopping.is_some() {
            return;
        }
        self.state.heir = Some(heir.clone());
        self.save().await;
        *lock(&self.seat.heir) = Some(heir.clone());
        self.publish();
        self.show(AgentEventKind::Notice, |event| {
            event.text = Some(format!("its owner ended: it was handed over to {heir}"));
        });
    }

    /// Tells when nothing is left of a life.
    fn watch_tree(&mut self, life: &Life) {
        self.lingering += 1;
        let (entry, commands) = (Arc::clone(&life.entry), self.seat.commands.clone());
        tokio::spawn(async move {
            let mut state = entry.state.subscribe();
            let _ = state.wait_for(|state| state.history.status().is_over() || state.refused.is_some()).await;
            let _ = commands.send(Command::Emptied(entry.id.clone())).await;
        });
    }

    /// A process that was told to leave did not.
    fn drive_out(&mut self) {
        self.gone_by = None;
        if let Some(life) = &self.life {
            self.end_process(Arc::clone(&life.entry), "pinfold, since it did not leave".to_owned(), None);
        }
    }

    /// Shows something that is not of the conversation.
    pub(super) fn show(&mut self, kind: AgentEventKind, fill: impl FnOnce(&mut AgentEvent)) {
        let mut event = match &mut self.conversation {
            Some(conversation) => match conversation.show(kind, fill) {
                Effect::Show(event) => *event,
                _ => return,
            },
            None => {
                self.state.seq += 1;
                let mut event = AgentEvent { seq: self.state.seq, kind, ..AgentEvent::default() };
                fill(&mut event);
                event
            }
        };
        event.at = rfc3339(now());
        self.seat.events.push(event);
    }

    pub(super) async fn save(&mut self) {
        let (dir, state) = (self.seat.dir.clone(), self.state.clone());
        let saved = blocking(move || dir.commit_state(&state)).await;
        if let Ok(Err(error)) = saved {
            // Our trouble is not the agent's: it goes on, and a crash now would lose this.
            tracing::error!(agent = %self.seat.id, %error, "the state of an agent cannot be written");
        }
    }

    /// Whether each turn has a process of its own.
    pub(super) fn is_fresh(&self) -> bool {
        self.seat.spec.mode == AgentMode::Fresh
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
