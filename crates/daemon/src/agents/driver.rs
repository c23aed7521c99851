//! The driver of an agent: the task that reads its messages, sends it messages, and runs its turns.
//!
//! Everything that happens to an agent happens in this task, one thing after the other. Whatever must survive is on disk
//! before the agent or a client gets to know it. After a crash, the next daemon restores the conversation as it was last
//! saved and processes the output since then again.

use std::sync::Arc;
use std::time::Duration;

use pinfold_agents::{Conversation, Effect, Frame, Phase};
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{
    AgentEvent, AgentEventKind, AgentFault, AgentMode, AnswerRequest, FaultCode, Rung, Transport, TurnStatus,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::agent_process::{self, AgentProcess, NewsWait};
use super::handle::{AgentHandle, Command};
use super::host::Host;
use super::state::AgentState;
use crate::clock::{now, rfc3339};
use crate::mutex::lock;
use crate::request_error::RequestError;
use crate::threads::blocking;

/// How long to wait before output that could not be read is read again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The driver of one agent.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) host: Arc<dyn Host>,
    pub(super) handle: Arc<AgentHandle>,
    pub(super) state: AgentState,
    pub(super) conversation: Option<Conversation>,
    pub(super) process: Option<AgentProcess>,
    commands: mpsc::Receiver<Command>,
    /// When the agent must be ready, the turn must have ended, and the process must have exited.
    pub(super) ready_by: Option<Instant>,
    pub(super) turn_by: Option<Instant>,
    pub(super) gone_by: Option<Instant>,
    /// Previous processes whose tree has not ended.
    lingering: u32,
}

/// Why a driver woke up.
#[derive(Debug)]
enum Input {
    Command(Option<Command>),
    /// The agent sent something, or exited.
    News,
    ReadyTimeout,
    TurnTimeout,
    ExitTimeout,
    Shutdown,
}

impl Driver {
    pub(super) fn new(
        host: Arc<dyn Host>,
        handle: Arc<AgentHandle>,
        state: AgentState,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        Self {
            host,
            handle,
            state,
            conversation: None,
            process: None,
            commands,
            ready_by: None,
            turn_by: None,
            gone_by: None,
            lingering: 0,
        }
    }

    /// A driver for the rest of an agent whose driver panicked. It takes no commands: requests get the error that the agent
    /// has ended.
    pub(super) fn after_panic(host: Arc<dyn Host>, handle: Arc<AgentHandle>, state: AgentState) -> Self {
        let (_, commands) = mpsc::channel(1);
        let mut driver = Self::new(host, handle, state, commands);
        driver.state.seq = driver.state.seq.max(driver.handle.events.latest());
        driver
    }

    /// Runs until the agent has ended, or the daemon shuts down.
    pub(super) async fn run(mut self) {
        self.publish();
        // Messages that an earlier daemon may not have sent.
        self.deliver().await;
        let mut shutdown = self.host.shutdown();
        loop {
            self.advance().await;
            self.publish();
            if self.state.is_over() && self.process.is_none() && self.lingering == 0 {
                return;
            }
            match self.next(&mut shutdown).await {
                Input::Command(Some(command)) => self.carry_out_command(command).await,
                Input::News => self.read().await,
                Input::ReadyTimeout => self.never_ready().await,
                Input::TurnTimeout => self.interrupt_after_limit(),
                Input::ExitTimeout => self.stop_after_grace(),
                Input::Command(None) | Input::Shutdown => return,
            }
        }
    }

    async fn next(&mut self, shutdown: &mut watch::Receiver<bool>) -> Input {
        let mut wait: Option<NewsWait> = self.process.as_ref().map(AgentProcess::news);
        let host = Arc::clone(&self.host);
        let news = async {
            match &mut wait {
                Some(wait) => wait.wait(&*host).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = self.commands.recv() => Input::Command(command),
            () = news => Input::News,
            () = until(self.ready_by) => Input::ReadyTimeout,
            () = until(self.turn_by) => Input::TurnTimeout,
            () = until(self.gone_by) => Input::ExitTimeout,
            _ = shutdown.wait_for(|shutdown| *shutdown) => Input::Shutdown,
        }
    }

    /// Takes over the process that an earlier daemon started, if there is one. The agent fails if that is impossible.
    pub(super) async fn reattach_or_fail(&mut self) {
        if self.state.is_over() || self.process.is_some() {
            return;
        }
        if let Err(reason) = self.reattach().await {
            self.fail(FaultCode::Damaged, reason).await;
        }
    }

    async fn reattach(&mut self) -> Result<(), String> {
        let Some(process) = self.state.process.clone() else { return Ok(()) };
        let found = self.host.find(process.as_str()).await;
        // The record of the process may have been removed, or be unreadable.
        let found = found.map_err(|error| format!("its process {process} is not there: {}", error.0.message))?;
        let mut process = AgentProcess::reattached(found, self.state.cursor, &self.handle);
        if let Some(saved) = self.state.conversation.clone() {
            let conversation = Conversation::restore(saved).map_err(|error| error.to_string())?;
            if conversation.phase() == Phase::Opening {
                self.ready_by = Some(Instant::now() + self.handle.spec.ready_timeout);
            }
            if conversation.turn().is_some() {
                self.turn_by = self.handle.spec.turn_limit.map(|limit| Instant::now() + limit);
            }
            self.conversation = Some(conversation);
        }
        let in_turn = self.conversation.as_ref().is_some_and(|known| known.turn().is_some());
        if self.handle.spec.transport == Transport::Websocket && in_turn && !process.process.has_exited() {
            // It does not repeat what it sent while no daemon was running: the turn is started again in a new process.
            process.unreachable = true;
            let by = "pinfold, because messages it sent while no daemon was running are lost".to_owned();
            self.stop_process(&process.process, by);
        } else if self.handle.spec.transport == Transport::Websocket && !process.process.has_exited() {
            let socket =
                self.open_socket().await.map_err(|error| format!("its port cannot be opened again: {error}"))?;
            process.read_from(socket, self.handle.dir.stream(self.state.run));
        }
        self.process = Some(process);
        Ok(())
    }

    async fn carry_out_command(&mut self, command: Command) {
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
            Command::HandOver(new_owner, answer) => {
                self.hand_over(new_owner).await;
                let _ = answer.send(());
            }
            Command::Emptied(process) => {
                self.lingering -= 1;
                self.show(AgentEventKind::Emptied, |event| event.process = Some(process.to_string()));
            }
        }
    }

    async fn answer(&mut self, request: AnswerRequest) -> Result<(), RequestError> {
        let AnswerRequest { ask, verdict, message } = request;
        let answered = self.conversation.as_mut().and_then(|known| known.answer(&ask, verdict, message.as_deref()));
        match answered {
            Some(effects) => {
                let cursor = self.state.cursor;
                self.carry_out(effects, cursor).await;
                Ok(())
            }
            None => {
                let message = format!(
                    "it has no permission request `{ask}`: `pinfold agent show` lists those that wait for an answer"
                );
                Err(RequestError::new(ErrorCode::NotFound, message))
            }
        }
    }

    /// Reads and processes what the agent sent.
    async fn read(&mut self) {
        let Some(process) = &mut self.process else { return };
        // Before reading: once it has exited, nothing follows what is read now.
        let exited = process.process.has_exited();
        let new = match process.read(&*self.host).await {
            Ok(new) => new,
            Err(error) => {
                tracing::error!(agent = %self.handle.id, error = %error.0, "cannot read the output of an agent");
                tokio::time::sleep(READ_AGAIN).await;
                return;
            }
        };
        if new.gap {
            let message =
                "its output was dropped before it was read: it printed more than is kept while no daemon was running";
            self.fail(FaultCode::OutputLost, message.to_owned()).await;
        }
        for frame in new.frames {
            let Some(conversation) = &mut self.conversation else { break };
            let (effects, cursor) = match frame {
                Frame::Line { bytes, end } => (conversation.line(&bytes), end),
                Frame::TooLarge { at } => (conversation.too_large(), at),
            };
            self.carry_out(effects, cursor).await;
        }
        if exited && new.at_end {
            self.exited().await;
        }
    }

    /// Carries out the effects of a conversation: saves the state, then publishes events, then sends messages.
    pub(super) async fn carry_out(&mut self, effects: Vec<Effect>, cursor: u64) {
        let (mut shown, mut fault, mut must_save) = (Vec::new(), None, false);
        for effect in effects {
            match effect {
                Effect::Save => must_save = true,
                Effect::Show(event) => shown.push(*event),
                Effect::Fault(found) => fault = Some(found),
                Effect::Ended(turn) => self.turn_over(*turn).await,
                Effect::Send { number, line } => {
                    let run = self.state.run;
                    self.state.outbox.push(super::state::Message { run, number, line });
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
            self.handle.events.push(AgentEvent { at: rfc3339(now()), ..event });
        }
        self.deliver().await;
        if let Some(AgentFault { code, message }) = fault {
            self.fail(code, message).await;
        }
    }

    /// Sends the messages of the outbox. One that was sent before is written only once.
    pub(super) async fn deliver(&mut self) {
        let Some(process) = &mut self.process else { return };
        if process.process.has_exited() || process.unreachable {
            return self.state.outbox.clear();
        }
        let messages = std::mem::take(&mut self.state.outbox);
        if let Some(socket) = &process.socket {
            let sent = messages.into_iter().try_for_each(|message| socket.send(message.line));
            if let Err(error) = sent {
                self.give_up_on_process(error);
            }
            // Saved without them, because no keeper recognises a message that is sent again.
            return self.save().await;
        }
        for message in messages {
            if let Err(error) = agent_process::send(&*self.host, &process.process, &message).await {
                return self.give_up_on_process(&error.0.message);
            }
        }
    }

    /// Stops the process because a message cannot be delivered to it. A running turn is then started again in a new one.
    fn give_up_on_process(&mut self, error: &str) {
        tracing::warn!(agent = %self.handle.id, error, "cannot deliver a message to an agent");
        let Some(running) = &mut self.process else { return };
        running.unreachable = true;
        let process = running.process.clone();
        let note = format!("a message could not be delivered to it: {error}");
        self.show(AgentEventKind::Notice, |event| event.text = Some(note));
        self.stop_process(&process, "pinfold, because it does not read its input".to_owned());
    }

    async fn never_ready(&mut self) {
        let output = match &self.process {
            Some(process) => process.output_tail(&*self.host).await,
            None => String::new(),
        };
        let said = if output.is_empty() { "no output".to_owned() } else { format!("its last output: {output}") };
        let within = self.handle.spec.ready_timeout.as_secs_f64();
        let message = format!(
            "it was not ready within {within}s ({said}): check `program` and its configuration, or give it more time with `ready_timeout`"
        );
        self.fail(FaultCode::NeverReady, message).await;
    }

    /// The agent cannot continue: its turns fail and its process is stopped. The output is kept.
    pub(super) async fn fail(&mut self, code: FaultCode, message: String) {
        if self.state.is_over() {
            return;
        }
        (self.ready_by, self.turn_by) = (None, None);
        self.abandon_turns(TurnStatus::Failed, &message).await;
        let fault = AgentFault { code, message };
        tracing::warn!(agent = %self.handle.id, fault = ?fault.code, message = %fault.message, "an agent failed");
        self.state.fault = Some(fault.clone());
        self.state.ended = Some(now());
        self.save().await;
        self.publish();
        self.show(AgentEventKind::Failed, |event| event.fault = Some(fault));
        if let Some(running) = &self.process {
            self.stop_process(&running.process, "pinfold, because the agent failed".to_owned());
        }
    }

    /// Ends an agent whose driver panicked. Uses only the state on disk, since the conversation may be what panicked.
    pub(super) async fn end_after_panic(mut self, fault: AgentFault) {
        for id in &self.state.processes {
            if let Some(process) = self.host.recent(id).filter(|process| !process.is_over()) {
                self.stop_process(&process, "pinfold, because the agent failed".to_owned());
            }
        }
        self.end_unfinished_turns(TurnStatus::Failed, &fault.message).await;
        if !self.state.is_over() {
            self.state.fault = Some(fault.clone());
            self.state.ended = Some(now());
        }
        (self.state.process, self.state.conversation) = (None, None);
        self.state.outbox.clear();
        self.save().await;
        self.publish();
        self.show(AgentEventKind::Failed, |event| event.fault = Some(fault));
    }

    /// Its leader has exited, and all its output was processed.
    async fn exited(&mut self) {
        let Some(process) = self.process.take() else { return };
        (self.ready_by, self.gone_by) = (None, None);
        let phase = self.conversation.as_ref().map(Conversation::phase);
        // Published before the event, so that a reader of the event sees the new state. An agent that was never ready is
        // published later, when it is known whether it failed.
        if phase == Some(Phase::Open) {
            self.publish();
        }
        let (id, outcome) = (process.process.id().clone(), process.process.api_outcome());
        self.show(AgentEventKind::Exited, |event| {
            (event.process, event.outcome) = (Some(id.to_string()), outcome);
        });
        self.watch_strays(&process);
        let turn = self.conversation.as_mut().and_then(Conversation::abandon);
        if let Some(conversation) = self.conversation.take() {
            self.state.seq = self.state.seq.max(conversation.seq());
        }
        self.state.process = None;
        self.state.conversation = None;
        self.state.outbox.clear();
        let ready = phase == Some(Phase::Open);
        let by_interrupt = matches!(*lock(&self.handle.interrupt_step), Some(Rung::Int | Rung::Term));
        let stopped_by_us = process.stdin_closed || process.unreachable || by_interrupt;
        let requested = if stopped_by_us { None } else { process.requested_end() };
        match (turn, requested) {
            (Some(turn), requested) => self.turn_cut_short(turn, &process, requested).await,
            (None, Some(cause)) => self.state.begin_stop(cause),
            (None, None) if !ready && !self.state.is_over() && self.state.stopping.is_none() => {
                self.exited_before_ready(&process).await;
            }
            (None, _) => {}
        }
        self.save().await;
    }

    async fn exited_before_ready(&mut self, process: &AgentProcess) {
        let output = process.output_tail(&*self.host).await;
        let said = if output.is_empty() { String::new() } else { format!(": {output}") };
        if process.resumed {
            // The agent may not have saved a session that was interrupted in its first turn.
            self.state.session = None;
            let note = format!("it could not resume its session, and starts a new one{said}");
            return self.show(AgentEventKind::Notice, |event| event.text = Some(note));
        }
        let message = format!("it {} before it was ready{said}", process.ending());
        self.fail(FaultCode::ExitedBeforeReady, message).await;
    }

    /// Its owner ended, and another one gets it.
    async fn hand_over(&mut self, new_owner: String) {
        if self.state.is_over() || self.state.stopping.is_some() {
            return;
        }
        self.state.new_owner = Some(new_owner.clone());
        self.save().await;
        *lock(&self.handle.new_owner) = Some(new_owner.clone());
        self.publish();
        self.show(AgentEventKind::Notice, |event| {
            event.text = Some(format!("its owner ended: it was handed over to {new_owner}"));
        });
    }

    /// Sends a command to this driver when the whole tree of a process has ended.
    fn watch_strays(&mut self, process: &AgentProcess) {
        self.lingering += 1;
        let (over, id) = (self.host.until_over(&process.process), process.process.id().clone());
        let commands = self.handle.commands.clone();
        tokio::spawn(async move {
            over.await;
            let _ = commands.send(Command::Emptied(id)).await;
        });
    }

    /// The process did not exit after its stdin was closed.
    fn stop_after_grace(&mut self) {
        self.gone_by = None;
        if let Some(running) = &self.process {
            self.stop_process(
                &running.process,
                "pinfold, because it did not exit after its stdin was closed".to_owned(),
            );
        }
    }

    /// Publishes an event that is not an effect of the conversation.
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
        self.handle.events.push(event);
    }

    pub(super) async fn save(&mut self) {
        let (dir, state) = (self.handle.dir.clone(), self.state.clone());
        let saved = blocking(move || dir.commit_state(&state)).await;
        if let Ok(Err(error)) = saved {
            // The agent continues: a full disk must not end it. A crash of the daemon now would lose this change.
            tracing::error!(agent = %self.handle.id, %error, "cannot write the state of an agent");
        }
    }

    /// Whether each turn gets a new process.
    pub(super) fn starts_fresh(&self) -> bool {
        self.handle.spec.mode == AgentMode::Fresh
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
