//! Acting on a tree: stop, signal, pause, resume. The keeper does it; this asks, and waits for its answer.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::{Record, SignalAnswer, SignalRequest, StopAnswer, StopRequest, Survivor};
use pinfold_model::facts::Status;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{self, FromKeeper, ToKeeper};
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::spec::{GRACE_MOST, StopManner};
use pinfold_model::units::parse_duration;

use crate::core::Core;
use crate::refusal::Refusal;
use crate::registry::keeper_answers::{keeper_silent, over, unanswered};
use crate::registry::keeper_link::{ANSWER, Link, NoAnswer};
use crate::registry::{Entry, Found};

/// A stop may take this much longer than its grace: KILLs, their repetitions, the drain.
const STOP_SLACK: Duration = Duration::from_secs(10);
/// How often a stop is asked for on another link.
const STOP_TRIES: u32 = 3;
/// How often to check for a new link.
const RELINK_INTERVAL: Duration = Duration::from_millis(20);

impl Core {
    /// Ends a tree, and says what could not be ended.
    pub(crate) async fn stop(self: &Arc<Self>, found: Found, request: StopRequest) -> Result<StopAnswer, Refusal> {
        let manner = manner(&found, &request)?;
        let by = request.by.unwrap_or_else(|| "a client".to_owned());
        let Found::Here(entry) = &found else { return self.already_over(&found, &by).await };
        if entry.status().is_over() {
            return self.already_over(&found, &by).await;
        }
        let core = Arc::clone(self);
        let target = Arc::clone(entry);
        // The stop goes on even if its caller goes away.
        let survivors =
            tokio::spawn(async move { core.stop_entry(&target, Cause::StopRequested { by }, manner).await })
                .await
                .map_err(Refusal::internal)??;
        Ok(StopAnswer { record: self.record(&found).await?, already_over: false, survivors })
    }

    /// It is over; if it was to live again, that is what is stopped.
    async fn already_over(self: &Arc<Self>, found: &Found, by: &str) -> Result<StopAnswer, Refusal> {
        let cancelled = self.cancel_restart(found.id(), by).await;
        Ok(StopAnswer { record: self.record(found).await?, already_over: !cancelled, survivors: vec![] })
    }

    /// Asks for the next life of a process, the current one ended first.
    pub(crate) async fn restart_request(
        self: &Arc<Self>,
        found: Found,
        request: StopRequest,
    ) -> Result<Record, Refusal> {
        let manner = manner(&found, &request)?;
        let by = request.by.unwrap_or_else(|| "a client".to_owned());
        let core = Arc::clone(self);
        // Goes on even if its caller goes away: what was asked to end is followed by what was asked for.
        tokio::spawn(async move { core.restart(found, by, manner).await }).await.map_err(Refusal::internal)?
    }

    /// Stops one live process and waits until its tree is empty, or its survivors are certain.
    pub(crate) async fn stop_entry(
        &self,
        entry: &Arc<Entry>,
        cause: Cause,
        manner: StopManner,
    ) -> Result<Vec<Survivor>, Refusal> {
        entry.note_stop();
        self.settled_start(entry).await;
        if entry.status() == Status::Starting && entry.link().is_some() {
            self.give_up_start(entry);
            self.seen_over(entry).await;
            return self.without_keeper(entry);
        }
        let within = manner.grace + STOP_SLACK;
        // A link that closes under the request says nothing of the keeper: it is asked again on the next one.
        for _ in 0..STOP_TRIES {
            let Some(link) = self.keeper_of(entry).await else { break };
            let (id, cause) = (entry.id.clone(), cause.clone());
            match link.ask(within, |request| ToKeeper::Stop { request, id, cause, manner }).await {
                Ok(FromKeeper::Stopped { survivors, .. }) => {
                    if survivors.is_empty() {
                        self.seen_over(entry).await;
                    }
                    return Ok(survivors.into_iter().map(api_survivor).collect());
                }
                Ok(_) => return Err(Refusal::internal("a keeper gave the wrong answer")),
                Err(NoAnswer::Gone) => {}
                Err(NoAnswer::Silent) => return Err(keeper_silent(entry)),
            }
        }
        self.without_keeper(entry)
    }

    /// The link to the keeper of a process. If that is closed, waits a while for the next one, or for the end of the
    /// process if its keeper is gone.
    async fn keeper_of(&self, entry: &Entry) -> Option<Arc<Link>> {
        let deadline = tokio::time::Instant::now() + STOP_SLACK;
        loop {
            if entry.status().is_over() || entry.state.borrow().refused.is_some() {
                return None;
            }
            match entry.link().filter(|link| !link.is_gone()) {
                Some(link) => return Some(link),
                None if tokio::time::Instant::now() > deadline => return None,
                None => tokio::time::sleep(RELINK_INTERVAL).await,
            }
        }
    }

    async fn seen_over(&self, entry: &Entry) {
        let mut state = entry.state.subscribe();
        let over = state.wait_for(|state| state.history.status().is_over() || state.refused.is_some());
        let _ = tokio::time::timeout(STOP_SLACK, over).await;
    }

    fn without_keeper(&self, entry: &Entry) -> Result<Vec<Survivor>, Refusal> {
        if entry.status().is_over() { Ok(vec![]) } else { Err(keeper_silent(entry)) }
    }

    /// Sends a signal to a tree.
    pub(crate) async fn signal(
        self: &Arc<Self>,
        found: Found,
        request: SignalRequest,
    ) -> Result<SignalAnswer, Refusal> {
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
    pub(crate) async fn pause(self: &Arc<Self>, found: Found) -> Result<SignalAnswer, Refusal> {
        self.act(found, Some(true), |request, id| ToKeeper::Pause { request, id }).await
    }

    /// Thaws a tree.
    pub(crate) async fn resume(self: &Arc<Self>, found: Found) -> Result<SignalAnswer, Refusal> {
        self.act(found, Some(false), |request, id| ToKeeper::Resume { request, id }).await
    }

    async fn act(
        self: &Arc<Self>,
        found: Found,
        paused: Option<bool>,
        message: impl FnOnce(u64, ProcessId) -> ToKeeper,
    ) -> Result<SignalAnswer, Refusal> {
        let Found::Here(entry) = &found else { return Err(over(found.id())) };
        self.settled_start(entry).await;
        let link = self.keeper_of(entry).await;
        if entry.status().is_over() {
            return Err(over(&entry.id));
        }
        let link = link.ok_or_else(|| keeper_silent(entry))?;
        let id = entry.id.clone();
        match link.ask(ANSWER, |request| message(request, id)).await {
            Ok(FromKeeper::Signaled { reached: 0, refused, .. }) if refused.is_empty() => Err(over(&entry.id)),
            Ok(FromKeeper::Signaled { reached, refused, .. }) => {
                if let Some(paused) = paused {
                    entry.state.send_modify(|state| state.paused = paused);
                }
                let refused = refused.into_iter().map(api_survivor).collect();
                Ok(SignalAnswer { record: self.record(&found).await?, reached, refused })
            }
            Ok(_) => Err(Refusal::internal("a keeper gave the wrong answer")),
            Err(error) => Err(unanswered(entry, error)),
        }
    }

    /// Stops every live process, all at once. Returns how many, and who survived.
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

    /// Stops what no later daemon could find.
    pub(crate) async fn stop_homeless(self: &Arc<Self>) {
        let homeless: Vec<Arc<Entry>> = self.registry.live().into_iter().filter(|entry| entry.is_homeless()).collect();
        let mut stops = tokio::task::JoinSet::new();
        for entry in homeless {
            let core = Arc::clone(self);
            let by = "the daemon's end, since its directory is gone".to_owned();
            let manner = entry.state.borrow().history.intent.spec.stop;
            stops.spawn(async move { core.stop_entry(&entry, Cause::StopRequested { by }, manner).await.map(drop) });
        }
        while stops.join_next().await.is_some() {}
    }
}

/// How a process is stopped: as its spec says, where the request does not say otherwise.
fn manner(found: &Found, request: &StopRequest) -> Result<StopManner, Refusal> {
    let mut manner = found.snapshot().history.intent.spec.stop;
    if let Some(signal) = &request.signal {
        manner.signal = Signal::parse(signal)?;
    }
    if let Some(grace) = &request.grace {
        manner.grace = parse_duration(&grace.text())?.min(GRACE_MOST);
    }
    Ok(manner)
}

fn api_survivor(survivor: link::Survivor) -> Survivor {
    Survivor { pid: survivor.pid, command: survivor.command, reason: survivor.reason }
}
