//! The turns of an agent: queued, started, ended, interrupted, and started again once after a crash of its program.

use std::sync::Arc;
use std::time::Duration;

use pinfold_agents::Conversation;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{AgentEventKind, FaultCode, Rung, Turn, TurnStatus};
use pinfold_model::outcome::Cause;
use pinfold_model::spec::{MAX_GRACE, StopManner};
use tokio::time::Instant;

use super::agent_process::{self, AgentProcess};
use super::driver::Driver;
use super::host::Process;
use super::interrupt::{self, Waits};
use super::state::reason_of;
use crate::clock::{now, rfc3339};
use crate::mutex::lock;
use crate::request_error::RequestError;
use crate::threads::blocking;

/// How long a process may take to exit after its stdin was closed.
const EXIT_GRACE: Duration = Duration::from_secs(2);

impl Driver {
    /// Starts a process if one is needed, and the next turn if the process is ready for it.
    pub(super) async fn advance(&mut self) {
        loop {
            if self.state.is_over() {
                return;
            }
            if self.state.stopping.is_some() {
                if self.process.is_none() {
                    self.stopped().await;
                }
                return;
            }
            let wanted = self.state.has_waiting_turn();
            match &self.process {
                None if wanted || self.state.starting => match self.start_process().await {
                    Ok(()) => {}
                    Err(error) => return self.start_failed(error).await,
                },
                Some(process) if self.starts_fresh() && self.state.used && !process.stdin_closed && self.is_free() => {
                    self.close_stdin().await
                }
                Some(process) if wanted && self.is_free() && !process.stdin_closed => {
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

    /// The process could not be started: the turn that needed it fails, or the agent if there is none.
    async fn start_failed(&mut self, error: RequestError) {
        let message = error.0.message;
        let next = self.state.pending.take().map(|turn| turn.number).or_else(|| self.state.queue.pop_front());
        match next {
            Some(number) => {
                self.end_turn(number, TurnStatus::Failed, &format!("its program could not be started: {message}"))
                    .await;
                self.save().await;
            }
            None => self.fail(FaultCode::FailedToStart, message).await,
        }
    }

    /// Queues a turn. A request with the same idempotency key finds it again (D11).
    pub(super) async fn enqueue(&mut self, mut turn: Turn, may_wait: bool) -> Result<u64, RequestError> {
        if self.state.is_over() || self.state.stopping.is_some() {
            return Err(ended(self.handle.id.as_str()));
        }
        if let Some(number) = turn.idempotency_key.as_deref().and_then(|key| self.state.number_of(key)) {
            return self.same_turn(number, &turn).await;
        }
        let waiting = self.state.turns - self.state.over_through;
        if waiting > 0 && !may_wait {
            let message = "a turn is running: wait for it, interrupt it, or queue this one (`if_busy`)";
            return Err(RequestError::new(ErrorCode::AgentBusy, message));
        }
        if waiting > u64::from(self.handle.spec.queue) {
            let message =
                format!("the queue is full ({} turns): try again after a turn has ended", self.handle.spec.queue);
            return Err(RequestError::new(ErrorCode::AgentBusy, message));
        }
        turn.number = self.state.turns + 1;
        turn.queued_at = rfc3339(now());
        self.commit_turn(&turn).await.map_err(|error| {
            RequestError::new(ErrorCode::StoreUnwritable, format!("cannot write the turn: {error}"))
        })?;
        self.state.turns = turn.number;
        self.state.queue.push_back(turn.number);
        if let Some(key) = turn.idempotency_key {
            self.state.remember_key(key, turn.number);
        }
        self.save().await;
        Ok(turn.number)
    }

    /// The turn that has this idempotency key already, if its prompt is the same.
    async fn same_turn(&self, number: u64, turn: &Turn) -> Result<u64, RequestError> {
        let known = self.read_turn(number).await?;
        if known.is_some_and(|known| known.prompt != turn.prompt) {
            let message = "this idempotency key was used for another turn: use a fresh key for each turn";
            return Err(RequestError::new(ErrorCode::KeyReused, message));
        }
        Ok(number)
    }

    /// Starts the next turn; false if it could not be read.
    async fn begin_turn(&mut self) -> bool {
        let mut turn = match self.state.pending.take() {
            Some(turn) => turn,
            None => {
                let Some(number) = self.state.queue.pop_front() else { return false };
                match self.read_turn(number).await {
                    Ok(Some(turn)) => Turn { attempts: 0, ..turn },
                    _ => {
                        self.end_turn(number, TurnStatus::Lost, "its file cannot be read").await;
                        return false;
                    }
                }
            }
        };
        turn.attempts += 1;
        turn.status = TurnStatus::Running;
        turn.started_at = turn.started_at.or_else(|| Some(rfc3339(now())));
        turn.process = self.process.as_ref().map(|running| running.process.id().to_string());
        let _ = self.commit_turn(&turn).await;
        *lock(&self.handle.interrupt_step) = None;
        self.state.interrupted_by = None;
        self.turn_by = self.handle.spec.turn_limit.map(|limit| Instant::now() + limit);
        self.state.used = true;
        let Some(conversation) = &mut self.conversation else { return false };
        let effects = conversation.begin(turn);
        let cursor = self.state.cursor;
        self.carry_out(effects, cursor).await;
        true
    }

    /// The agent reported the end of a turn.
    pub(super) async fn turn_over(&mut self, mut turn: Turn) {
        self.turn_by = None;
        if turn.status == TurnStatus::Interrupted {
            turn.rung = *lock(&self.handle.interrupt_step);
            turn.cause = self.state.interrupted_by.take().map(|by| format!("interrupted by {by}"));
        }
        turn.ended_at = Some(rfc3339(now()));
        if let Err(error) = self.commit_turn(&turn).await {
            tracing::error!(agent = %self.handle.id, turn = turn.number, %error, "cannot write a turn");
        }
        self.state.over_through = self.state.over_through.max(turn.number);
    }

    /// The program exited during a turn. If an interrupt or a stop ended it, the turn is interrupted; otherwise the
    /// turn is retried, once.
    pub(super) async fn turn_cut_short(&mut self, mut turn: Turn, process: &AgentProcess, requested: Option<Cause>) {
        self.turn_by = None;
        let how = process.ending();
        if let Some(by) = self.state.interrupted_by.take() {
            let rung = *lock(&self.handle.interrupt_step);
            turn.rung = if rung == Some(Rung::Term) && process.was_killed() { Some(Rung::Kill) } else { rung };
            return self
                .close_turn(turn, TurnStatus::Interrupted, format!("interrupted by {by}: the agent {how}"))
                .await;
        }
        if let Some(cause) = requested {
            self.close_turn(turn, TurnStatus::Interrupted, format!("the agent {how}: {}", reason_of(&cause))).await;
            return self.state.begin_stop(cause);
        }
        if turn.attempts < 2 && !self.state.is_over() {
            let why = format!("the agent {how} during the turn, which was started again");
            turn.retried = Some(why.clone());
            turn.text = None;
            let number = turn.number;
            let _ = self.commit_turn(&turn).await;
            self.state.pending = Some(turn);
            return self.show(AgentEventKind::TurnRetried, |event| {
                (event.turn, event.text) = (Some(number), Some(why));
            });
        }
        let status = if process.is_lost() { TurnStatus::Lost } else { TurnStatus::Failed };
        self.close_turn(turn, status, format!("the agent {how} during the turn, a second time")).await;
    }

    async fn close_turn(&mut self, turn: Turn, status: TurnStatus, cause: String) {
        let (number, text) = (turn.number, cause.clone());
        let turn = Turn { status, cause: Some(cause), ended_at: Some(rfc3339(now())), ..turn };
        if let Err(error) = self.commit_turn(&turn).await {
            tracing::error!(agent = %self.handle.id, turn = number, %error, "cannot write a turn");
        }
        self.state.over_through = self.state.over_through.max(number);
        self.save().await;
        self.publish();
        self.show(AgentEventKind::TurnEnded, |event| {
            (event.turn, event.status, event.text) = (Some(number), Some(status), Some(text));
        });
    }

    async fn end_turn(&mut self, number: u64, status: TurnStatus, cause: &str) {
        let known = self.read_turn(number).await.ok().flatten();
        let turn = known.unwrap_or_else(|| Turn { agent: self.handle.id.to_string(), number, ..Turn::default() });
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

    /// Ends every turn that has not ended according to the state on disk, for a driver without a conversation.
    pub(super) async fn end_unfinished_turns(&mut self, status: TurnStatus, cause: &str) {
        self.state.pending = None;
        self.state.queue.clear();
        for number in self.state.over_through + 1..=self.state.turns {
            self.end_turn(number, status, cause).await;
        }
    }

    /// Interrupts the running turn through the agent's protocol; returns its number.
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

    /// No turn is running because the agent is not ready: the first one in the queue is cancelled.
    async fn interrupt_early(&mut self, by: &str) -> Option<u64> {
        let pending = self.state.pending.take();
        let number = pending.as_ref().map(|turn| turn.number).or_else(|| self.state.queue.pop_front())?;
        let cause = format!("interrupted by {by} before it started");
        match pending {
            Some(turn) => self.close_turn(turn, TurnStatus::Interrupted, cause).await,
            None => self.end_turn(number, TurnStatus::Interrupted, &cause).await,
        }
        Some(number)
    }

    /// The turn exceeded its limit: it is interrupted as by a client.
    pub(super) fn interrupt_after_limit(&mut self) {
        self.turn_by = None;
        let (host, handle) = (Arc::clone(&self.host), Arc::clone(&self.handle));
        tokio::spawn(async move {
            interrupt::interrupt_turn(&host, &handle, "its turn limit".to_owned(), Waits::default()).await
        });
    }

    /// Stops the agent: no further turn or process is started, and its processes are stopped.
    pub(super) async fn stop(&mut self, cause: Cause, grace: Option<Duration>) {
        if self.state.is_over() || self.state.stopping.is_some() {
            return;
        }
        self.state.begin_stop(cause.clone());
        self.save().await;
        // Earlier processes may have left strays.
        let processes = self.state.processes.iter().filter_map(|id| self.host.recent(id));
        for process in processes.filter(|process| !process.is_over()) {
            let own = process.stop_manner();
            let manner = grace.map(|grace| StopManner { grace: grace.min(MAX_GRACE), ..own });
            self.stop_process_for(&process, cause.clone(), manner);
        }
    }

    /// The agent was stopped, and its process has exited.
    async fn stopped(&mut self) {
        let reason = self.state.stopping.clone().unwrap_or_default();
        self.abandon_turns(TurnStatus::Interrupted, &format!("the agent ended: {reason}")).await;
        self.state.ended = Some(now());
        self.save().await;
        self.publish();
        self.show(AgentEventKind::Stopped, |event| event.text = Some(reason));
    }

    /// For agents that need a new process for each turn: the turn has ended, so closes the stdin of the process to make it exit.
    async fn close_stdin(&mut self) {
        let Some(process) = &mut self.process else { return };
        process.stdin_closed = true;
        let process = process.process.clone();
        self.gone_by = Some(Instant::now() + EXIT_GRACE);
        if agent_process::close_stdin(&*self.host, &process).await.is_err() {
            self.stop_process(&process, "pinfold, because its turn has ended".to_owned());
        }
    }

    /// Stops a process and its tree. Its exit is then processed like any other.
    pub(super) fn stop_process(&self, process: &Process, by: String) {
        self.stop_process_for(process, Cause::StopRequested { by }, None);
    }

    fn stop_process_for(&self, process: &Process, cause: Cause, manner: Option<StopManner>) {
        let (stop, id) = (self.host.stop(process, cause, manner), process.id().clone());
        tokio::spawn(async move {
            if let Err(error) = stop.await {
                tracing::warn!(process = %id, error = %error.0, "cannot stop the process of an agent");
            }
        });
    }

    async fn commit_turn(&self, turn: &Turn) -> std::io::Result<()> {
        let (dir, turn) = (self.handle.dir.clone(), turn.clone());
        blocking(move || dir.commit_turn(turn.number, &turn))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error.0.message)))
    }

    async fn read_turn(&self, number: u64) -> Result<Option<Turn>, RequestError> {
        let dir = self.handle.dir.clone();
        blocking(move || dir.read_turn(number)).await?.map_err(RequestError::internal)
    }
}

/// The error of a request to an agent that has ended.
pub(super) fn ended(id: &str) -> RequestError {
    let message = format!("agent {id} is over: run another one, with `resume` to continue its session");
    RequestError::new(ErrorCode::AlreadyOver, message)
}
