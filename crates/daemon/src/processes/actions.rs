//! Actions on a tree: stop, signal, pause, resume. The keeper performs them; this sends the request and waits for the
//! answer.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::{Record, SignalAnswer, SignalRequest, StopAnswer, StopRequest, Survivor};
use pinfold_model::facts::Status;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{FromKeeper, ToKeeper};
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::spec::{MAX_GRACE, StopManner};
use pinfold_model::units::parse_duration;

use crate::clock::now;
use crate::core::Core;
use crate::registry::keeper_answers::{keeper_silent, over, unanswered};
use crate::registry::keeper_link::{ANSWER_TIMEOUT, Link, NoAnswer};
use crate::registry::{Entry, FoundProcess};
use crate::request_error::RequestError;

/// How much longer than its grace a stop may take: repeated KILLs, and draining the output.
const STOP_SLACK: Duration = Duration::from_secs(10);
/// Attempts to send a stop, each on a new link.
const MAX_STOP_ATTEMPTS: u32 = 3;
/// How often to check for a new link.
const RELINK_INTERVAL: Duration = Duration::from_millis(20);

impl Core {
    /// Stops a tree, and reports processes that survived.
    pub(crate) async fn stop(
        self: &Arc<Self>,
        found: FoundProcess,
        request: StopRequest,
    ) -> Result<StopAnswer, RequestError> {
        let manner = manner(&found, &request)?;
        let by = request.by.unwrap_or_else(|| "a client".to_owned());
        let FoundProcess::Here(entry) = &found else { return self.already_over(&found, &by).await };
        if entry.status().is_over() {
            return self.already_over(&found, &by).await;
        }
        let core = Arc::clone(self);
        let target = Arc::clone(entry);
        // The stop continues even if the caller disconnects.
        let stop = tokio::spawn(async move {
            let from = core.telemetry.as_ref().map(|_| now());
            let stopped = core.stop_entry(&target, Cause::StopRequested { by }, manner).await;
            if let (Some(telemetry), Some(from)) = (&core.telemetry, from) {
                telemetry.stopped(&target.state.borrow().history, from, &stopped);
            }
            stopped
        });
        let survivors = stop.await.map_err(RequestError::internal)??;
        Ok(StopAnswer { record: self.record(&found).await?, already_over: false, survivors })
    }

    /// The process is over: cancels its restart, if one is due.
    async fn already_over(self: &Arc<Self>, found: &FoundProcess, by: &str) -> Result<StopAnswer, RequestError> {
        let cancelled = self.cancel_restart(found.id(), by).await;
        Ok(StopAnswer { record: self.record(found).await?, already_over: !cancelled, survivors: vec![] })
    }

    /// Restarts a process; stops the current run first.
    pub(crate) async fn restart_request(
        self: &Arc<Self>,
        found: FoundProcess,
        request: StopRequest,
    ) -> Result<Record, RequestError> {
        let manner = manner(&found, &request)?;
        let by = request.by.unwrap_or_else(|| "a client".to_owned());
        let core = Arc::clone(self);
        // Continues even if the caller disconnects: a stop must be followed by the start.
        tokio::spawn(async move { core.restart(found, by, manner).await }).await.map_err(RequestError::internal)?
    }

    /// Stops one live process and waits until its tree is empty, or its survivors are known.
    pub(crate) async fn stop_entry(
        &self,
        entry: &Arc<Entry>,
        cause: Cause,
        manner: StopManner,
    ) -> Result<Vec<Survivor>, RequestError> {
        entry.note_stop();
        self.start_decided(entry).await;
        if entry.status() == Status::Starting && entry.link().is_some() {
            self.give_up_start(entry);
            self.wait_until_over(entry).await;
            return self.without_keeper(entry);
        }
        let within = manner.grace + STOP_SLACK;
        // A link that closes during the request does not mean that the keeper is dead: send it again on the next link.
        for _ in 0..MAX_STOP_ATTEMPTS {
            let Some(link) = self.keeper_of(entry).await else { break };
            let (id, cause) = (entry.id.clone(), cause.clone());
            match link.request(within, |request| ToKeeper::Stop { request, id, cause, manner }).await {
                Ok(FromKeeper::Stopped { survivors, .. }) => {
                    if survivors.is_empty() {
                        self.wait_until_over(entry).await;
                    }
                    return Ok(survivors);
                }
                Ok(_) => return Err(RequestError::internal("a keeper sent an answer of the wrong kind")),
                Err(NoAnswer::Closed) => {}
                Err(NoAnswer::TimedOut) => return Err(keeper_silent(entry)),
            }
        }
        self.without_keeper(entry)
    }

    /// The link to a process's keeper. If that is closed, waits for the next one, or for the end of the process.
    async fn keeper_of(&self, entry: &Entry) -> Option<Arc<Link>> {
        let deadline = tokio::time::Instant::now() + STOP_SLACK;
        loop {
            if entry.status().is_over() || entry.state.borrow().refused.is_some() {
                return None;
            }
            match entry.link().filter(|link| !link.is_closed()) {
                Some(link) => return Some(link),
                None if tokio::time::Instant::now() > deadline => return None,
                None => tokio::time::sleep(RELINK_INTERVAL).await,
            }
        }
    }

    async fn wait_until_over(&self, entry: &Entry) {
        let mut state = entry.state.subscribe();
        let over = state.wait_for(|state| state.history.status().is_over() || state.refused.is_some());
        let _ = tokio::time::timeout(STOP_SLACK, over).await;
    }

    fn without_keeper(&self, entry: &Entry) -> Result<Vec<Survivor>, RequestError> {
        if entry.status().is_over() { Ok(vec![]) } else { Err(keeper_silent(entry)) }
    }

    /// Sends a signal to a tree.
    pub(crate) async fn signal(
        self: &Arc<Self>,
        found: FoundProcess,
        request: SignalRequest,
    ) -> Result<SignalAnswer, RequestError> {
        let signal = Signal::parse(&request.signal)?;
        let by = request.by.unwrap_or_else(|| "a client".to_owned());
        let paused = match signal {
            Signal::STOP => Some(true),
            Signal::CONT => Some(false),
            _ => None,
        };
        self.act(found, paused, |request, id| ToKeeper::Signal { request, id, signal, by }).await
    }

    /// Freezes a tree.
    pub(crate) async fn pause(self: &Arc<Self>, found: FoundProcess) -> Result<SignalAnswer, RequestError> {
        self.act(found, Some(true), |request, id| ToKeeper::Pause { request, id }).await
    }

    /// Thaws a tree.
    pub(crate) async fn resume(self: &Arc<Self>, found: FoundProcess) -> Result<SignalAnswer, RequestError> {
        self.act(found, Some(false), |request, id| ToKeeper::Resume { request, id }).await
    }

    async fn act(
        self: &Arc<Self>,
        found: FoundProcess,
        paused: Option<bool>,
        message: impl FnOnce(u64, ProcessId) -> ToKeeper,
    ) -> Result<SignalAnswer, RequestError> {
        let FoundProcess::Here(entry) = &found else { return Err(over(found.id())) };
        self.start_decided(entry).await;
        let link = self.keeper_of(entry).await;
        if entry.status().is_over() {
            return Err(over(&entry.id));
        }
        let link = link.ok_or_else(|| keeper_silent(entry))?;
        let id = entry.id.clone();
        match link.request(ANSWER_TIMEOUT, |request| message(request, id)).await {
            Ok(FromKeeper::Signaled { reached: 0, refused, .. }) if refused.is_empty() => Err(over(&entry.id)),
            Ok(FromKeeper::Signaled { reached, refused, .. }) => {
                if let Some(paused) = paused {
                    entry.state.send_modify(|state| state.paused = paused);
                }
                Ok(SignalAnswer { record: self.record(&found).await?, reached, refused })
            }
            Ok(_) => Err(RequestError::internal("a keeper sent an answer of the wrong kind")),
            Err(error) => Err(unanswered(entry, error)),
        }
    }

    /// Stops every live process, all at once. Returns how many, and what survived.
    pub(crate) async fn stop_all(self: &Arc<Self>, by: &str) -> (u64, Vec<Survivor>) {
        self.cancel_restarts(by, |_| true).await;
        let mut stops = tokio::task::JoinSet::new();
        for entry in self.registry.live() {
            let (core, cause) = (Arc::clone(self), Cause::StopRequested { by: by.to_owned() });
            let manner = entry.state.borrow().history.intent.spec.stop;
            stops.spawn(async move { core.stop_entry(&entry, cause, manner).await });
        }
        let (mut count, mut survivors) = (0, Vec::new());
        while let Some(stopped) = stops.join_next().await {
            count += 1;
            survivors.extend(stopped.ok().and_then(Result::ok).unwrap_or_default());
        }
        (count, survivors)
    }

    /// Stops the processes that no later daemon could find.
    pub(crate) async fn stop_unrecoverable(self: &Arc<Self>) {
        let directory_lost: Vec<Arc<Entry>> =
            self.registry.live().into_iter().filter(|entry| entry.is_directory_lost()).collect();
        let mut stops = tokio::task::JoinSet::new();
        for entry in directory_lost {
            let core = Arc::clone(self);
            let by = "the daemon's shutdown: its directory was removed".to_owned();
            let manner = entry.state.borrow().history.intent.spec.stop;
            stops.spawn(async move { core.stop_entry(&entry, Cause::StopRequested { by }, manner).await.map(drop) });
        }
        while stops.join_next().await.is_some() {}
    }
}

/// Signal and grace of a stop: from the request, or else from the spec.
fn manner(found: &FoundProcess, request: &StopRequest) -> Result<StopManner, RequestError> {
    let mut manner = found.snapshot().history.intent.spec.stop;
    if let Some(signal) = &request.signal {
        manner.signal = Signal::parse(signal)?;
    }
    if let Some(grace) = &request.grace {
        manner.grace = parse_duration(&grace.text())?.min(MAX_GRACE);
    }
    Ok(manner)
}
