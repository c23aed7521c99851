//! What a driver does about turns: they wait, begin, end, are interrupted, and are begun again once.

use std::sync::Arc;
use std::time::Duration;

use pinfold_agents::Conversation;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{AgentEventKind, FaultCode, Rung, Transport, Turn, TurnStatus};
use pinfold_model::outcome::Cause;
use pinfold_model::spec::{GRACE_MOST, StopManner};
use pinfold_store::tokens::random_token;
use tokio::time::Instant;

use super::driver::Driver;
use super::ladder::{self, Waits};
use super::life::{self, Door, Life};
use super::state::{read_turn, reason_of};
use super::wire::{self, Wire};
use crate::clock::{now, rfc3339};
use crate::core::blocking;
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::Entry;

/// How long an agent whose stdin was ended has to leave by itself.
const LEAVE: Duration = Duration::from_secs(2);

impl Driver {
    /// Does whatever can be done now: a life is begun where one is needed, and a turn where one can be.
    pub(super) async fn advance(&mut self) {
        loop {
            if self.state.is_over() {
                return;
            }
            if self.state.stopping.is_some() {
                if self.life.is_none() {
                    self.stopped().await;
                }
                return;
            }
            let wanted = self.state.pending.is_some() || !self.state.queue.is_empty();
            match &self.life {
                None if wanted || self.state.starting => match self.begin_life().await {
                    Ok(()) => {}
                    Err(refusal) => return self.no_life(refusal).await,
                },
                Some(life) if self.is_fresh() && self.state.used && !life.dismissed && self.is_free() => {
                    self.let_go().await
                }
                Some(life) if wanted && self.is_free() && !life.dismissed => {
                    if !self.begin_turn().await {
                        continue;
                    }
                }
                _ => return,
            }
            self.publish();
        }
    }

    fn is_free(&self) -> bool {
        self.conversation.as_ref().is_some_and(Conversation::is_free)
    }

    /// Starts the process of the next life and opens the conversation with it. The number of the life is on disk before,
    /// so that a process that a dying daemon started is found by its key.
    pub(super) async fn begin_life(&mut self) -> Result<(), Refusal> {
        if !self.state.starting {
            self.state.life += 1;
            self.state.starting = true;
            self.save().await;
        }
        let own = self.state.session.clone().filter(|_| !self.is_fresh());
        let resumed = own.is_some() && own != self.seat.spec.resume;
        let resume = own.or_else(|| self.seat.spec.resume.clone());
        let (door, wire) = self.open_door().await?;
        let port = door.as_ref().map(|door| door.port);
        let started = life::start(&self.core, &self.seat, self.state.life, (resume.clone(), door)).await;
        self.state.starting = false;
        let mut found = started?;
        found.resumed = resumed;
        if let Some(wire) = wire {
            found.listen_to(wire, self.seat.dir.stream(self.state.life));
        }
        let cwd = found.entry.state.borrow().history.intent.spec.cwd.to_string_lossy().into_owned();
        let settings = self.seat.spec.settings_of(resume, &cwd, port.map(Wire::url));
        let seq = self.state.seq;
        self.state.begin_life(found.entry.id.clone());
        let process = found.entry.id.to_string();
        self.life = Some(found);
        let mut conversation = Conversation::new(self.seat.spec.kind, settings, self.seat.spec.approvals, seq);
        let effects = conversation.open();
        self.conversation = Some(conversation);
        self.ready_by = Some(Instant::now() + self.seat.spec.ready_timeout);
        self.show(AgentEventKind::Started, |event| event.process = Some(process));
        self.carry_out(effects, 0).await;
        Ok(())
    }

    /// For an agent that connects to us: a port, and a token that only it knows. Both are settled before it is started, and
    /// stay what they are if an earlier daemon started it already.
    async fn open_door(&mut self) -> Result<(Option<Door>, Option<Wire>), Refusal> {
        if self.seat.spec.transport != Transport::Websocket {
            return Ok((None, None));
        }
        let key = format!("agent-{}-{}", self.seat.id, self.state.life);
        let started = self.core.registry.by_key(&self.seat.owner(), &key).is_some();
        let token = match started {
            true => None,
            false => Some(random_token().map_err(Refusal::internal)?),
        };
        if let Some(token) = &token {
            self.state.port = None;
            self.state.token_hash = wire::hash(token);
        }
        let wire = self.open_wire().await.map_err(Refusal::internal)?;
        self.state.port = Some(wire.port());
        self.save().await;
        Ok((Some(Door { port: wire.port(), token }), Some(wire)))
    }

    /// Listens where this life's agent connects to.
    pub(super) async fn open_wire(&self) -> std::io::Result<Wire> {
        // Of what earlier lives sent, the last one's is kept.
        if let Some(past) = self.state.life.checked_sub(2) {
            let _ = std::fs::remove_file(self.seat.dir.stream(past));
        }
        Wire::listen(self.state.port, self.state.token_hash.clone(), self.seat.dir.stream(self.state.life)).await
    }

    /// No process can be started: the turn that wanted it fails; the agent may be given another.
    async fn no_life(&mut self, refusal: Refusal) {
        let message = refusal.0.message;
        let next = self.state.pending.take().map(|turn| turn.number).or_else(|| self.state.queue.pop_front());
        match next {
            Some(number) => {
                self.end_turn(number, TurnStatus::Failed, &format!("its program was not started: {message}")).await;
                self.save().await;
            }
            None => self.fail(FaultCode::FailedToStart, message).await,
        }
    }

    /// Puts a turn into the queue. Its key finds it again (D8).
    pub(super) async fn enqueue(&mut self, mut turn: Turn, may_wait: bool) -> Result<u64, Refusal> {
        if self.state.is_over() || self.state.stopping.is_some() {
            return Err(over(&self.seat.id.to_string()));
        }
        if let Some(number) = turn.idempotency_key.as_deref().and_then(|key| self.state.number_of(key)) {
            return self.same_turn(number, &turn).await;
        }
        let waiting = self.state.turns - self.state.over_through;
        if waiting > 0 && !may_wait {
            let message = "a turn is running: wait for its end, interrupt it, or let this one wait (`if_busy`)";
            return Err(Refusal::new(ErrorCode::AgentBusy, message));
        }
        if waiting > u64::from(self.seat.spec.queue) {
            let message =
                format!("{waiting} turns are there already, and {} may wait: try again later", self.seat.spec.queue);
            return Err(Refusal::new(ErrorCode::AgentBusy, message));
        }
        turn.number = self.state.turns + 1;
        turn.queued_at = rfc3339(now());
        self.commit_turn(&turn).await.map_err(|error| {
            Refusal::new(ErrorCode::StoreUnwritable, format!("the turn cannot be written down: {error}"))
        })?;
        self.state.turns = turn.number;
        self.state.queue.push_back(turn.number);
        if let Some(key) = turn.idempotency_key {
            self.state.remember_key(key, turn.number);
        }
        self.save().await;
        Ok(turn.number)
    }

    /// The turn that has this key already, if it is the same.
    async fn same_turn(&self, number: u64, turn: &Turn) -> Result<u64, Refusal> {
        let known = self.read_turn(number).await?;
        if known.is_some_and(|known| known.prompt != turn.prompt) {
            let message = "this idempotency key was used for another turn: use a fresh key for each turn";
            return Err(Refusal::new(ErrorCode::KeyReused, message));
        }
        Ok(number)
    }

    /// Begins the next turn; false if there was none that could be read.
    async fn begin_turn(&mut self) -> bool {
        let mut turn = match self.state.pending.take() {
            Some(turn) => turn,
            None => {
                let Some(number) = self.state.queue.pop_front() else { return false };
                match self.read_turn(number).await {
                    Ok(Some(turn)) => Turn { attempts: 0, ..turn },
                    _ => {
                        self.end_turn(number, TurnStatus::Lost, "what was asked cannot be read from disk").await;
                        return false;
                    }
                }
            }
        };
        turn.attempts += 1;
        turn.status = TurnStatus::Running;
        turn.started_at = turn.started_at.or_else(|| Some(rfc3339(now())));
        turn.process = self.life.as_ref().map(|life| life.entry.id.to_string());
        let _ = self.commit_turn(&turn).await;
        *lock(&self.seat.rung) = None;
        self.state.interrupted_by = None;
        self.turn_by = self.seat.spec.turn_limit.map(|limit| Instant::now() + limit);
        self.state.used = true;
        let Some(conversation) = &mut self.conversation else { return false };
        let effects = conversation.begin(turn);
        let cursor = self.state.cursor;
        self.carry_out(effects, cursor).await;
        true
    }

    /// A turn ended by the agent's word.
    pub(super) async fn turn_over(&mut self, mut turn: Turn) {
        self.turn_by = None;
        if turn.status == TurnStatus::Interrupted {
            turn.rung = *lock(&self.seat.rung);
            turn.cause = self.state.interrupted_by.take().map(|by| format!("interrupted by {by}"));
        }
        turn.ended_at = Some(rfc3339(now()));
        if let Err(error) = self.commit_turn(&turn).await {
            tracing::error!(agent = %self.seat.id, turn = turn.number, %error, "a turn cannot be written down");
        }
        self.state.over_through = self.state.over_through.max(turn.number);
    }

    /// The program ended under a turn: that was asked for, or it is begun again, once.
    pub(super) async fn turn_cut_short(&mut self, mut turn: Turn, life: &Life, requested: Option<Cause>) {
        self.turn_by = None;
        let how = life.ending();
        if let Some(by) = self.state.interrupted_by.take() {
            let rung = *lock(&self.seat.rung);
            turn.rung = if rung == Some(Rung::Term) && life.was_killed() { Some(Rung::Kill) } else { rung };
            return self
                .close_turn(turn, TurnStatus::Interrupted, format!("interrupted by {by}: the agent {how}"))
                .await;
        }
        if let Some(cause) = requested {
            self.close_turn(turn, TurnStatus::Interrupted, format!("the agent {how}: {}", reason_of(&cause))).await;
            return self.state.begin_stop(cause);
        }
        if turn.attempts < 2 && !self.state.is_over() {
            let why = format!("the agent {how} in the middle of the turn, which was begun again");
            turn.retried = Some(why.clone());
            turn.text = None;
            let number = turn.number;
            let _ = self.commit_turn(&turn).await;
            self.state.pending = Some(turn);
            return self.show(AgentEventKind::TurnRetried, |event| {
                (event.turn, event.text) = (Some(number), Some(why));
            });
        }
        let status = if life.is_lost() { TurnStatus::Lost } else { TurnStatus::Failed };
        self.close_turn(turn, status, format!("the agent {how} in the middle of the turn, a second time")).await;
    }

    async fn close_turn(&mut self, turn: Turn, status: TurnStatus, cause: String) {
        let (number, told) = (turn.number, cause.clone());
        let turn = Turn { status, cause: Some(cause), ended_at: Some(rfc3339(now())), ..turn };
        if let Err(error) = self.commit_turn(&turn).await {
            tracing::error!(agent = %self.seat.id, turn = number, %error, "a turn cannot be written down");
        }
        self.state.over_through = self.state.over_through.max(number);
        self.save().await;
        self.publish();
        self.show(AgentEventKind::TurnEnded, |event| {
            (event.turn, event.status, event.text) = (Some(number), Some(status), Some(told));
        });
    }

    async fn end_turn(&mut self, number: u64, status: TurnStatus, cause: &str) {
        let known = self.read_turn(number).await.ok().flatten();
        let turn = known.unwrap_or_else(|| Turn { agent: self.seat.id.to_string(), number, ..Turn::default() });
        self.close_turn(turn, status, cause.to_owned()).await;
    }

    /// Ends every turn that runs or waits.
    pub(super) async fn abandon_turns(&mut self, status: TurnStatus, cause: &str) {
        let running = self.conversation.as_mut().and_then(Conversation::abandon);
        for turn in running.into_iter().chain(self.state.pending.take()) {
            self.close_turn(turn, status, cause.to_owned()).await;
        }
        while let Some(number) = self.state.queue.pop_front() {
            self.end_turn(number, status, cause).await;
        }
    }

    /// Asks the agent to end its turn; gives the number of the turn that runs.
    pub(super) async fn interrupt(&mut self, by: String) -> Option<u64> {
        let Some(number) = self.conversation.as_ref().and_then(Conversation::turn).map(|turn| turn.number) else {
            return self.interrupt_early(&by).await;
        };
        self.state.interrupted_by = Some(by);
        let effects = self.conversation.as_mut().map(Conversation::interrupt).unwrap_or_default();
        let cursor = self.state.cursor;
        self.carry_out(effects, cursor).await;
        Some(number)
    }

    /// The agent is not ready: the turn that is first does not begin.
    async fn interrupt_early(&mut self, by: &str) -> Option<u64> {
        let pending = self.state.pending.take();
        let number = pending.as_ref().map(|turn| turn.number).or_else(|| self.state.queue.pop_front())?;
        let cause = format!("interrupted by {by} before it began");
        match pending {
            Some(turn) => self.close_turn(turn, TurnStatus::Interrupted, cause).await,
            None => self.end_turn(number, TurnStatus::Interrupted, &cause).await,
        }
        Some(number)
    }

    /// The turn took too long: it is interrupted as by anybody else.
    pub(super) fn out_of_time(&mut self) {
        self.turn_by = None;
        let (core, seat) = (Arc::clone(&self.core), Arc::clone(&self.seat));
        tokio::spawn(async move { ladder::climb(&core, &seat, "its turn limit".to_owned(), Waits::default()).await });
    }

    /// Begins to stop: nothing follows, and its process is ended.
    pub(super) async fn stop(&mut self, cause: Cause, grace: Option<Duration>) {
        if self.state.is_over() || self.state.stopping.is_some() {
            return;
        }
        self.state.begin_stop(cause.clone());
        self.save().await;
        // Former lives may have left something behind.
        let entries = self.state.lives.iter().filter_map(|id| self.core.registry.get(id));
        for entry in entries.filter(|entry| !entry.status().is_over()) {
            let own = entry.state.borrow().history.intent.spec.stop;
            let manner = grace.map(|grace| StopManner { grace: grace.min(GRACE_MOST), ..own });
            self.end_process_for(entry, cause.clone(), manner);
        }
    }

    /// All of it is stopped.
    async fn stopped(&mut self) {
        let reason = self.state.stopping.clone().unwrap_or_default();
        self.abandon_turns(TurnStatus::Interrupted, &format!("the agent ended: {reason}")).await;
        self.state.ended = Some(now());
        self.save().await;
        self.publish();
        self.show(AgentEventKind::Stopped, |event| event.text = Some(reason));
    }

    /// A fresh process has done its turn: its stdin is ended, and it has a moment to leave.
    async fn let_go(&mut self) {
        let Some(life) = &mut self.life else { return };
        life.dismissed = true;
        let entry = Arc::clone(&life.entry);
        self.gone_by = Some(Instant::now() + LEAVE);
        if life::dismiss(&self.core, &entry).await.is_err() {
            self.end_process(entry, "pinfold, since its turn is over".to_owned(), None);
        }
    }

    /// Ends a process and its tree; its end is seen like any other.
    pub(super) fn end_process(&self, entry: Arc<Entry>, by: String, manner: Option<StopManner>) {
        self.end_process_for(entry, Cause::StopRequested { by }, manner);
    }

    fn end_process_for(&self, entry: Arc<Entry>, cause: Cause, manner: Option<StopManner>) {
        let core = Arc::clone(&self.core);
        tokio::spawn(async move {
            let manner = manner.unwrap_or(entry.state.borrow().history.intent.spec.stop);
            if let Err(refusal) = core.stop_entry(&entry, cause, manner).await {
                tracing::warn!(process = %entry.id, error = %refusal.0, "an agent's process cannot be stopped");
            }
        });
    }

    async fn commit_turn(&self, turn: &Turn) -> std::io::Result<()> {
        let (dir, turn) = (self.seat.dir.clone(), turn.clone());
        blocking(move || dir.commit_turn(turn.number, &turn))
            .await
            .unwrap_or_else(|_| Err(std::io::Error::other("gone")))
    }

    async fn read_turn(&self, number: u64) -> Result<Option<Turn>, Refusal> {
        let dir = self.seat.dir.clone();
        blocking(move || read_turn(&dir, number)).await?.map_err(Refusal::internal)
    }
}

/// An agent that takes no more turns.
pub(crate) fn over(id: &str) -> Refusal {
    let message = format!("agent {id} is over: run another, with `resume` to go on with its session");
    Refusal::new(ErrorCode::AlreadyOver, message)
}
