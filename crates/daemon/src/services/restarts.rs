//! Restarts: an ended process is started again as its policy says, each time as a new process of the same chain.
//!
//! Invariant D7, *no end has two successors, and no due restart is lost*: whether a restart follows is decided only from
//! the history ([`after_end`]), so that every daemon decides the same; the next process is started with an idempotency key
//! made of the id of the previous one; and the chain's file, which a later daemon reads, is removed only when no restart
//! will follow. Waiting restarts are bounded by the store: a process that is removed is not restarted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Event, Record};
use pinfold_model::event::EventKind;
use pinfold_model::facts::History;
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;
use pinfold_model::restart::{ChainPosition, RestartDecision, after_end, first_run, next_run, restart_key};
use pinfold_model::spec::{Spec, StopManner};
use pinfold_model::units::Moment;
use pinfold_store::chains::{Chain, commit_chain, read_chains, remove_chain};
use tokio::sync::Notify;

use crate::clock::now;
use crate::core::Core;
use crate::events::compose::event_change;
use crate::mutex::lock;
use crate::registry::records;
use crate::registry::{Entry, FoundProcess};
use crate::request_error::RequestError;

/// How long a request for a restart waits for the new process.
const ASKED: Duration = Duration::from_secs(60);
/// How often it checks for the new process.
const LOOK: Duration = Duration::from_millis(20);

/// Chains that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    /// The content of their files, by the first process of the chain.
    open: Mutex<HashMap<ProcessId, Chain>>,
    /// Ended processes that will be restarted.
    waiting: Mutex<HashMap<ProcessId, Waiting>>,
    changed: Notify,
}

#[derive(Clone, Debug)]
struct Waiting {
    history: History,
    next: ChainPosition,
    /// `None`: only on request.
    due: Option<Moment>,
    /// How often the restart failed.
    tries: usize,
    under_way: bool,
    /// Stopped while its restart was under way.
    cancelled: bool,
}

impl Chains {
    /// When an ended process is restarted; `Some(None)` if only on request.
    pub(super) fn due(&self, id: &ProcessId) -> Option<Option<Moment>> {
        lock(&self.waiting).get(id).map(|waiting| waiting.due)
    }

    /// Whether its chain has not ended.
    pub(super) fn is_open(&self, history: &History) -> bool {
        lock(&self.open).contains_key(first_run(history))
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    /// The processes of this name that wait for a restart.
    pub(crate) fn named(&self, name: &str) -> Vec<History> {
        let waiting = lock(&self.waiting);
        let histories = waiting.values().map(|waiting| &waiting.history);
        histories.filter(|history| history.intent.spec.name.as_deref() == Some(name)).cloned().collect()
    }

    /// Whether the record of an ended process is still needed.
    pub(crate) fn needs(&self, id: &ProcessId) -> bool {
        self.due(id).is_some_and(|due| due.is_some())
    }

    fn ids(&self, fits: impl Fn(&History) -> bool) -> Vec<ProcessId> {
        let waiting = lock(&self.waiting);
        waiting.iter().filter(|(_, waiting)| fits(&waiting.history)).map(|(id, _)| id.clone()).collect()
    }

    fn await_next(&self, history: &History, next: ChainPosition, due: Option<Moment>) {
        let waiting = Waiting { history: history.clone(), next, due, tries: 0, under_way: false, cancelled: false };
        lock(&self.waiting).entry(history.intent.id.clone()).or_insert(waiting);
        self.changed.notify_one();
    }

    /// The restarts that are due, marked as under way, and when the next one is due.
    fn take_due(&self, now: Moment) -> (Vec<Waiting>, Option<Moment>) {
        let mut waiting = lock(&self.waiting);
        let mut taken = Vec::new();
        for one in waiting.values_mut().filter(|one| !one.under_way && one.due.is_some_and(|due| due <= now)) {
            one.under_way = true;
            taken.push(one.clone());
        }
        (taken, waiting.values().filter(|one| !one.under_way).filter_map(|one| one.due).min())
    }
}

impl Core {
    /// Writes the chain's file, before the process is started.
    pub(crate) fn begin_life(&self, spec: &Spec, id: &ProcessId) -> Result<(), RequestError> {
        if !spec.service.has_restart_policy() {
            return Ok(());
        }
        let first = spec.service.life.as_ref().map_or(id, |life| &life.first);
        let chain = match (&spec.service.life, lock(&self.chains.open).get(first).cloned()) {
            (Some(life), Some(chain)) => chain.with_life(id.clone(), life.previous.clone()),
            _ => Chain::new(id.clone(), spec.env.clone()),
        };
        let failed = |error| {
            RequestError::new(ErrorCode::StoreUnwritable, format!("cannot store what its restarts need: {error}"))
        };
        commit_chain(&self.home, first, &chain).map_err(failed)?;
        lock(&self.chains.open).insert(first.clone(), chain);
        Ok(())
    }

    /// A process has ended: decides whether it is restarted.
    pub(crate) async fn follow_end(self: &Arc<Self>, history: &History) {
        if !history.intent.spec.service.has_restart_policy() {
            return self.leases.free(history);
        }
        match self.decide(history) {
            RestartDecision::Restart { at, next } => self.chains.await_next(history, next, Some(at)),
            RestartDecision::AwaitTurn { next } => self.chains.await_next(history, next, None),
            RestartDecision::Over => self.end_chain(history, None).await,
            RestartDecision::GiveUp { restarts } => {
                let text = format!("restarted {}, gave up", times(restarts as u64));
                self.end_chain(history, Some((text, true))).await;
            }
        }
    }

    /// Whether a restart follows: because it was requested, or as the policy says.
    fn decide(&self, history: &History) -> RestartDecision {
        let asked = lock(&self.chains.open).get(first_run(history)).and_then(|chain| chain.asked.clone());
        match asked {
            Some(asked) if asked == history.intent.id => {
                RestartDecision::Restart { at: now(), next: next_run(history, vec![]) }
            }
            _ => after_end(history, &self.boot_id),
        }
    }

    /// No restart follows. The reason is on disk before the chain's file is removed.
    async fn end_chain(self: &Arc<Self>, history: &History, said: Option<(String, bool)>) {
        if let Some((text, announce)) = said {
            let at = now();
            let event = records::event(history, EventKind::GaveUp, at);
            let event = Event { text: Some(text), announce, ..event };
            self.index_writer.apply(vec![event_change(history, event, (EventKind::GaveUp, 0, at))]).await;
            self.index_writer.drain().await;
        }
        lock(&self.chains.waiting).remove(&history.intent.id);
        self.forget_chain(history);
        self.leases.free(history);
    }

    /// Removes a chain's file. Does nothing for a process that is never restarted.
    pub(super) fn forget_chain(&self, history: &History) {
        if !history.intent.spec.service.has_restart_policy() {
            return;
        }
        lock(&self.chains.open).remove(first_run(history));
        if let Err(error) = remove_chain(&self.home, first_run(history)) {
            tracing::warn!(process = %history.intent.id, %error, "cannot remove the file of a restart chain that has ended");
        }
    }

    /// A registered start failed: its ports and its restart data are released. Those of a restart belong to the chain,
    /// which tries again.
    pub(crate) fn undo_start(&self, entry: &Entry) {
        self.registry.remove(entry);
        let history = entry.snapshot().history;
        if history.intent.spec.service.life.is_none() {
            self.leases.free(&history);
            self.forget_chain(&history);
        }
    }

    /// Reads the chains of an earlier daemon, before restarts are decided.
    pub(crate) fn read_chains(&self) {
        for (first, chain) in read_chains(&self.home) {
            match chain {
                Ok(chain) => drop(lock(&self.chains.open).insert(first, chain)),
                Err(error) => {
                    tracing::warn!(process = %first, %error, "cannot read a restart chain: its process will not be restarted");
                }
            }
        }
    }

    /// Decides the restarts of chains whose last process ended while no daemon was running.
    pub(crate) async fn take_up_chains(self: &Arc<Self>) {
        let open: Vec<_> = lock(&self.chains.open).clone().into_iter().collect();
        for (first, chain) in open {
            if self.registry.get(&chain.current).is_some_and(|entry| !entry.status().is_over()) {
                continue;
            }
            let current = self.history_of(&chain.current).await;
            let last = match (current, &chain.previous) {
                (None, Some(previous)) => self.history_of(previous).await,
                (current, _) => current,
            };
            match last {
                Some(history) if history.status().is_over() => {
                    self.leases.keep(&history);
                    self.follow_end(&history).await;
                }
                Some(_) => {}
                // Its first process was never started, or its last one was removed.
                None => {
                    lock(&self.chains.open).remove(&first);
                    let _ = remove_chain(&self.home, &first);
                }
            }
        }
    }

    async fn history_of(self: &Arc<Self>, id: &ProcessId) -> Option<History> {
        if let Some(entry) = self.registry.get(id) {
            return Some(entry.snapshot().history);
        }
        let id = id.clone();
        self.query(move |queries| queries.get(&id)).await.ok().flatten().map(|(history, _)| history)
    }

    /// Restarts a process that waited for it.
    async fn live_again(self: &Arc<Self>, waiting: Waiting) {
        let history = &waiting.history;
        let id = &history.intent.id;
        if self.successor(history).await.is_some() {
            lock(&self.chains.waiting).remove(id);
            return;
        }
        let env = lock(&self.chains.open).get(first_run(history)).map(|chain| chain.env.clone());
        let mut spec = history.intent.spec.clone();
        spec.env = env.unwrap_or_default();
        spec.owner = history.owner().to_owned();
        spec.ancestors = history.ancestors().to_vec();
        spec.service.life = Some(waiting.next.clone());
        spec.idempotency_key = Some(restart_key(id));
        let owner = spec.owner.clone();
        let started = Arc::clone(self).start_spec(spec).await;
        let Some(next) = self.registry.by_key(&owner, &restart_key(id)) else {
            let why = started.err().map_or_else(String::new, |error| error.0.message);
            return self.try_later(waiting, why).await;
        };
        let cancelled = lock(&self.chains.waiting).remove(id).is_some_and(|waiting| waiting.cancelled);
        tracing::info!(process = %next.id, previous = %id, "restarted");
        if cancelled {
            let manner = next.state.borrow().history.intent.spec.stop;
            let by = "a stop that came before it".to_owned();
            let _ = self.stop_entry(&next, Cause::StopRequested { by }, manner).await;
        }
    }

    /// A restart failed: it is tried again with the policy's delay, and as often as the policy allows.
    async fn try_later(self: &Arc<Self>, waiting: Waiting, why: String) {
        let (history, tries) = (&waiting.history, waiting.tries + 1);
        let policy = history.intent.spec.service.restart.clone();
        tracing::warn!(process = %history.intent.id, tries, %why, "a restart was refused");
        let open = policy.filter(|policy| tries < policy.limit as usize && !self.is_cancelled(&history.intent.id));
        let Some(policy) = open else {
            let text = format!("its restart failed {}, gave up: {why}", times(tries as u64));
            return self.end_chain(history, Some((text, true))).await;
        };
        if let Some(waiting) = lock(&self.chains.waiting).get_mut(&history.intent.id) {
            waiting.tries = tries;
            waiting.under_way = false;
            waiting.due = Some(now().after(policy.wait(tries).max(Duration::from_secs(1))));
        }
        self.chains.changed.notify_one();
    }

    fn is_cancelled(&self, id: &ProcessId) -> bool {
        lock(&self.chains.waiting).get(id).is_none_or(|waiting| waiting.cancelled)
    }

    /// Cancels the restart of an ended process; false if none was due.
    pub(crate) async fn cancel_restart(self: &Arc<Self>, id: &ProcessId, by: &str) -> bool {
        let history = {
            let mut waiting = lock(&self.chains.waiting);
            let Some(one) = waiting.get_mut(id) else { return false };
            one.cancelled = true;
            if one.under_way {
                return true;
            }
            one.history.clone()
        };
        self.end_chain(&history, Some((format!("its restart was cancelled by {by}"), false))).await;
        true
    }

    /// Cancels every restart that the filter selects.
    pub(crate) async fn cancel_restarts(self: &Arc<Self>, by: &str, fits: impl Fn(&History) -> bool) -> Vec<String> {
        let ids = self.chains.ids(fits);
        for id in &ids {
            self.cancel_restart(id, by).await;
        }
        ids.iter().map(ProcessId::to_string).collect()
    }

    /// Restarts a process, after stopping it if it runs; returns the record of the new one.
    pub(crate) async fn restart(
        self: &Arc<Self>,
        found: FoundProcess,
        by: String,
        manner: StopManner,
    ) -> Result<Record, RequestError> {
        let history = found.snapshot().history;
        let id = history.intent.id.clone();
        if !history.intent.spec.service.has_restart_policy() {
            let message = format!(
                "it was started without `restart`, so what a restart needs was not stored: `pinfold rerun {id}` starts its \
                 command once more; start it with `restart` if it should be restartable"
            );
            return Err(RequestError::invalid(message).about(&id));
        }
        let key = restart_key(&id);
        let live = matches!(&found, FoundProcess::Here(entry) if !entry.status().is_over());
        if let (FoundProcess::Here(entry), true) = (&found, live) {
            self.ask_for_next(&history)?;
            let survivors = self.stop_entry(entry, Cause::StopRequested { by }, manner).await?;
            if !survivors.is_empty() {
                let message =
                    format!("{} of its processes survive: it is restarted when they have ended", survivors.len());
                return Err(RequestError::new(ErrorCode::KeeperSilent, message).about(&id));
            }
        } else if !self.hurry(&id) {
            let message = "it will not be restarted: it was stopped, its policy does not cover this end, or it was restarted already (see `next`)";
            return Err(RequestError::new(ErrorCode::AlreadyOver, message).about(&id));
        }
        let owner = history.owner().to_owned();
        let next = tokio::time::timeout(ASKED, self.next_of(&owner, &key)).await;
        let late =
            |_| RequestError::new(ErrorCode::KeeperSilent, "its restart has not started yet: check again").about(&id);
        self.record(&FoundProcess::Here(next.map_err(late)?)).await
    }

    /// Makes a restart follow the end of a live process, whatever its cause.
    fn ask_for_next(&self, history: &History) -> Result<(), RequestError> {
        let first = first_run(history);
        let chain = lock(&self.chains.open).get(first).cloned();
        let Some(mut chain) = chain else {
            return Err(RequestError::new(ErrorCode::Damaged, "what its restart needs is lost: start it again"));
        };
        chain.asked = Some(history.intent.id.clone());
        commit_chain(&self.home, first, &chain).map_err(RequestError::internal)?;
        lock(&self.chains.open).insert(first.clone(), chain);
        Ok(())
    }

    /// Starts a waiting restart now; false if none waits.
    fn hurry(&self, id: &ProcessId) -> bool {
        let mut waiting = lock(&self.chains.waiting);
        let Some(one) = waiting.get_mut(id) else { return false };
        one.due = Some(now());
        self.chains.changed.notify_one();
        true
    }

    async fn next_of(&self, owner: &str, key: &str) -> Arc<Entry> {
        loop {
            if let Some(entry) = self.registry.by_key(owner, key) {
                let mut state = entry.state.subscribe();
                let has_started =
                    |state: &crate::registry::State| state.history.start.is_some() || state.history.status().is_over();
                let _ = state.wait_for(has_started).await;
                return entry;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The process that followed this one, if it was started.
    pub(super) async fn successor(self: &Arc<Self>, history: &History) -> Option<ProcessId> {
        let (owner, key) = (history.owner().to_owned(), restart_key(&history.intent.id));
        if let Some(entry) = self.registry.by_key(&owner, &key) {
            return Some(entry.id.clone());
        }
        self.query(move |queries| queries.by_key(&owner, &key)).await.ok().flatten()
    }
}

/// Starts restarts when they are due, until shutdown.
pub(crate) async fn tend(core: Arc<Core>) {
    let mut shutdown = core.shutdown.subscribe();
    loop {
        let (due, next) = core.chains.take_due(now());
        for waiting in due {
            let core = Arc::clone(&core);
            tokio::spawn(async move { core.live_again(waiting).await });
        }
        let rest = async {
            match next {
                Some(due) => tokio::time::sleep(due.since(now()).max(Duration::from_millis(1))).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = rest => {}
            () = core.chains.changed.notified() => {}
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        }
    }
}

/// `once`, `2 times`.
fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
