//! Lives: what ended lives again as its policy says, each time as a process of its own.
//!
//! Invariant D7, *no end has two successors, and none that is owed is lost*: what follows an end is decided from its
//! history alone ([`after_end`]), so that every daemon decides the same; the next life is started under a key made of the
//! id of the one before; and the chain's file, from which a later daemon takes it up, goes only when nothing more
//! follows. What waits is bounded by what the store keeps: a process that is removed does not live again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Event, Record};
use pinfold_model::event::EventKind;
use pinfold_model::facts::History;
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;
use pinfold_model::restart::{Life, Verdict, after_end, first_of, key_after, next_life};
use pinfold_model::spec::{Spec, StopManner};
use pinfold_model::units::Moment;
use pinfold_store::chains::{Chain, commit_chain, read_chains, remove_chain};
use tokio::sync::Notify;

use crate::clock::now;
use crate::core::Core;
use crate::events::compose::told;
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::records;
use crate::registry::{Entry, Found};

/// How long a restart that was asked for may take before its caller is told to look later.
const ASKED: Duration = Duration::from_secs(60);
/// How soon the caller of a restart looks for the next life again.
const LOOK: Duration = Duration::from_millis(20);

/// Chains of lives that are not over.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    /// As in their files, by the first life.
    open: Mutex<HashMap<ProcessId, Chain>>,
    /// What ended and is to live again.
    waiting: Mutex<HashMap<ProcessId, Waiting>>,
    changed: Notify,
}

#[derive(Clone, Debug)]
struct Waiting {
    history: History,
    next: Life,
    /// `None`: when it is asked for.
    due: Option<Moment>,
    /// How often its start was refused.
    tries: usize,
    under_way: bool,
    /// It was stopped while its next life was under way.
    cancelled: bool,
}

impl Chains {
    /// When the next life of an ended process comes; `Some(None)` if it waits to be asked for.
    pub(super) fn due(&self, id: &ProcessId) -> Option<Option<Moment>> {
        lock(&self.waiting).get(id).map(|waiting| waiting.due)
    }

    /// Whether another life may follow the last one of its chain.
    pub(super) fn is_open(&self, history: &History) -> bool {
        lock(&self.open).contains_key(first_of(history))
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    /// What waits under this name.
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

    fn await_next(&self, history: &History, next: Life, due: Option<Moment>) {
        let waiting = Waiting { history: history.clone(), next, due, tries: 0, under_way: false, cancelled: false };
        lock(&self.waiting).entry(history.intent.id.clone()).or_insert(waiting);
        self.changed.notify_one();
    }

    /// Those whose time has come, marked as under way; and when the next one's comes.
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
    /// Writes down what a life of a chain needs, before it is begun.
    pub(crate) fn begin_life(&self, spec: &Spec, id: &ProcessId) -> Result<(), Refusal> {
        if !spec.service.lives_on() {
            return Ok(());
        }
        let first = spec.service.life.as_ref().map_or(id, |life| &life.first);
        let chain = match (&spec.service.life, lock(&self.chains.open).get(first).cloned()) {
            (Some(life), Some(chain)) => chain.with_life(id.clone(), life.previous.clone()),
            _ => Chain::new(id.clone(), spec.env.clone()),
        };
        let failed =
            |error| Refusal::new(ErrorCode::StoreUnwritable, format!("its next lives cannot be kept: {error}"));
        commit_chain(&self.home, first, &chain).map_err(failed)?;
        lock(&self.chains.open).insert(first.clone(), chain);
        Ok(())
    }

    /// A process is over: decides whether it lives again.
    pub(crate) async fn follow_end(self: &Arc<Self>, history: &History) {
        if !history.intent.spec.service.lives_on() {
            return self.leases.free(history);
        }
        match self.decide(history) {
            Verdict::Restart { at, next } => self.chains.await_next(history, next, Some(at)),
            Verdict::AwaitTurn { next } => self.chains.await_next(history, next, None),
            Verdict::Over => self.end_chain(history, None).await,
            Verdict::GiveUp { restarts } => {
                let text = format!("restarted {}, gave up", times(restarts as u64));
                self.end_chain(history, Some((text, true))).await;
            }
        }
    }

    /// What follows an end: what was asked for, or what the policy says.
    fn decide(&self, history: &History) -> Verdict {
        let asked = lock(&self.chains.open).get(first_of(history)).and_then(|chain| chain.asked.clone());
        match asked {
            Some(asked) if asked == history.intent.id => {
                Verdict::Restart { at: now(), next: next_life(history, vec![]) }
            }
            _ => after_end(history, &self.boot_id),
        }
    }

    /// Nothing more follows. What is said of it is durable before the chain's file goes.
    async fn end_chain(self: &Arc<Self>, history: &History, said: Option<(String, bool)>) {
        if let Some((text, announce)) = said {
            let at = now();
            let event = records::event(history, EventKind::GaveUp, at);
            let event = Event { text: Some(text), announce, ..event };
            self.ledger.apply(vec![told(history, event, (EventKind::GaveUp, 0, at))]).await;
            self.ledger.drain().await;
        }
        lock(&self.chains.waiting).remove(&history.intent.id);
        self.forget_chain(history);
        self.leases.free(history);
    }

    /// Removes a chain's file. Does nothing for a process that is never restarted.
    pub(super) fn forget_chain(&self, history: &History) {
        if !history.intent.spec.service.lives_on() {
            return;
        }
        lock(&self.chains.open).remove(first_of(history));
        if let Err(error) = remove_chain(&self.home, first_of(history)) {
            tracing::warn!(process = %history.intent.id, %error, "cannot remove a chain that is over");
        }
    }

    /// A registered start left nothing: it is forgotten, with the ports and the restart data that were kept for it. Those
    /// of a later life belong to its chain, which tries again.
    pub(crate) fn undo_start(&self, entry: &Entry) {
        self.registry.remove(entry);
        let history = entry.snapshot().history;
        if history.intent.spec.service.life.is_none() {
            self.leases.free(&history);
            self.forget_chain(&history);
        }
    }

    /// Reads the chains that an earlier daemon left, before anything of them is decided.
    pub(crate) fn read_chains(&self) {
        for (first, chain) in read_chains(&self.home) {
            match chain {
                Ok(chain) => drop(lock(&self.chains.open).insert(first, chain)),
                Err(error) => {
                    tracing::warn!(process = %first, %error, "a chain cannot be read: it ends with its current life");
                }
            }
        }
    }

    /// Takes up the chains whose last life nobody has seen end here.
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
                // Its first life never came to be, or its last one is no longer kept.
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

    /// Starts the next life of what waited for it.
    async fn live_again(self: &Arc<Self>, waiting: Waiting) {
        let history = &waiting.history;
        let id = &history.intent.id;
        if self.successor(history).await.is_some() {
            lock(&self.chains.waiting).remove(id);
            return;
        }
        let env = lock(&self.chains.open).get(first_of(history)).map(|chain| chain.env.clone());
        let mut spec = history.intent.spec.clone();
        spec.env = env.unwrap_or_default();
        spec.owner = history.owner().to_owned();
        spec.ancestors = history.ancestors().to_vec();
        spec.service.life = Some(waiting.next.clone());
        spec.idempotency_key = Some(key_after(id));
        let owner = spec.owner.clone();
        let started = Arc::clone(self).start_spec(spec).await;
        let Some(next) = self.registry.by_key(&owner, &key_after(id)) else {
            let why = started.err().map_or_else(String::new, |refusal| refusal.0.message);
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

    /// A start was refused: it is tried again as its policy waits, and as often as it may.
    async fn try_later(self: &Arc<Self>, waiting: Waiting, why: String) {
        let (history, tries) = (&waiting.history, waiting.tries + 1);
        let policy = history.intent.spec.service.restart.clone();
        tracing::warn!(process = %history.intent.id, tries, %why, "a restart was refused");
        let open = policy.filter(|policy| tries < policy.limit as usize && !self.is_cancelled(&history.intent.id));
        let Some(policy) = open else {
            let text = format!("its restart was refused {}, gave up: {why}", times(tries as u64));
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

    /// Takes the next life of an ended process away; false if none was to come.
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

    /// Cancels every restart that fits.
    pub(crate) async fn cancel_restarts(self: &Arc<Self>, by: &str, fits: impl Fn(&History) -> bool) -> Vec<String> {
        let ids = self.chains.ids(fits);
        for id in &ids {
            self.cancel_restart(id, by).await;
        }
        ids.iter().map(ProcessId::to_string).collect()
    }

    /// Asks for the next life: ends the current one, if it lives, and gives the record of the one that follows.
    pub(crate) async fn restart(
        self: &Arc<Self>,
        found: Found,
        by: String,
        manner: StopManner,
    ) -> Result<Record, Refusal> {
        let history = found.snapshot().history;
        let id = history.intent.id.clone();
        if !history.intent.spec.service.lives_on() {
            let message = "it was started without `restart`, so nothing is kept for another life: start it anew, with `restart` if it is to be restarted";
            return Err(Refusal::invalid(message).about(&id));
        }
        let key = key_after(&id);
        let live = matches!(&found, Found::Here(entry) if !entry.status().is_over());
        if let (Found::Here(entry), true) = (&found, live) {
            self.ask_for_next(&history)?;
            let survivors = self.stop_entry(entry, Cause::StopRequested { by }, manner).await?;
            if !survivors.is_empty() {
                let message =
                    format!("{} of its processes survive: it lives again when they are gone", survivors.len());
                return Err(Refusal::new(ErrorCode::KeeperSilent, message).about(&id));
            }
        } else if !self.hurry(&id) {
            let message = "it will not be restarted: it was stopped, its policy does not cover this end, or it was restarted already (see `next`)";
            return Err(Refusal::new(ErrorCode::AlreadyOver, message).about(&id));
        }
        let owner = history.owner().to_owned();
        let next = tokio::time::timeout(ASKED, self.next_of(&owner, &key)).await;
        let late = |_| Refusal::new(ErrorCode::KeeperSilent, "its next life has not begun yet: look again").about(&id);
        self.record(&Found::Here(next.map_err(late)?)).await
    }

    /// Has the end of a live process followed by another life, whatever its cause.
    fn ask_for_next(&self, history: &History) -> Result<(), Refusal> {
        let first = first_of(history);
        let chain = lock(&self.chains.open).get(first).cloned();
        let Some(mut chain) = chain else {
            return Err(Refusal::new(ErrorCode::Damaged, "what its next life needs is lost: start it anew"));
        };
        chain.asked = Some(history.intent.id.clone());
        commit_chain(&self.home, first, &chain).map_err(Refusal::internal)?;
        lock(&self.chains.open).insert(first.clone(), chain);
        Ok(())
    }

    /// Lets a waiting life begin now; false if none waits.
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
                let begun =
                    |state: &crate::registry::State| state.history.start.is_some() || state.history.status().is_over();
                let _ = state.wait_for(begun).await;
                return entry;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The life after this one, if it came to be.
    pub(super) async fn successor(self: &Arc<Self>, history: &History) -> Option<ProcessId> {
        let (owner, key) = (history.owner().to_owned(), key_after(&history.intent.id));
        if let Some(entry) = self.registry.by_key(&owner, &key) {
            return Some(entry.id.clone());
        }
        self.query(move |queries| queries.by_key(&owner, &key)).await.ok().flatten()
    }
}

/// Starts lives when their time has come, until shutdown.
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
