//! Retention: what ended too long ago, or does not fit into the quota, is removed; oldest end first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_api::types::{GcAnswer, GcRequest};
use pinfold_model::admission::{Ended, Limits, to_remove};
use pinfold_model::clock_steps::ClockSteps;
use pinfold_model::id::ProcessId;
use pinfold_model::units::{Moment, parse_duration};
use pinfold_os::{crash_point, daemonize};
use pinfold_store::index::Change;
use pinfold_store::retention::remove_process;

use crate::clock::now;
use crate::core::{Core, blocking};
use crate::keepers::pool;
use crate::lock::lock;
use crate::refusal::Refusal;

/// How often the store is looked over, and idle keepers are sent home.
const EVERY: Duration = Duration::from_secs(30);

/// The wall clock as it was last seen, beside one that cannot be set, and its steps.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    last: (Moment, Instant),
    steps: ClockSteps,
}

impl ClockWatch {
    pub(crate) fn new() -> Self {
        Self { last: (now(), Instant::now()), steps: ClockSteps::default() }
    }
}

impl Core {
    pub(crate) async fn gc(self: &Arc<Self>, request: GcRequest) -> Result<GcAnswer, Refusal> {
        let mut limits = self.config.limits.clone();
        if let Some(age) = &request.older_than {
            limits.retention = parse_duration(&age.text())?;
        }
        self.collect(limits, request.dry_run).await
    }

    async fn collect(self: &Arc<Self>, limits: Limits, dry_run: bool) -> Result<GcAnswer, Refusal> {
        let at = now();
        let steps = self.note_clock_steps(at);
        let rows = self.query(|queries| queries.ended()).await?;
        let bytes_of: HashMap<ProcessId, u64> = rows.iter().map(|row| (row.id.clone(), row.bytes)).collect();
        // What is to live again is still needed.
        let ended = rows.into_iter().filter(|row| !self.chains.needs(&row.id));
        let ended =
            ended.map(|row| Ended { id: row.id, owner: row.owner, age: steps.age(row.at, at), bytes: row.bytes });
        let mut live: HashMap<String, u64> = HashMap::new();
        for entry in self.registry.live() {
            let state = entry.state.borrow();
            *live.entry(state.history.owner().to_owned()).or_default() += state.output_bytes;
        }
        let chosen = to_remove(&limits, ended.collect(), &live);
        let freed_bytes = chosen.iter().filter_map(|id| bytes_of.get(id)).sum();
        let removed = chosen.iter().map(ProcessId::to_string).collect();
        if !dry_run {
            self.remove(chosen).await?;
            // Both the account of what ended and what was removed may have taken much.
            blocking(daemonize::trim_memory).await?;
        }
        Ok(GcAnswer { removed, freed_bytes, dry_run })
    }

    /// The forward steps of the wall clock since the daemon began, up to now.
    fn note_clock_steps(&self, at: Moment) -> ClockSteps {
        let mut watch = lock(&self.clock_watch);
        let ((before, then), moment) = (watch.last, Instant::now());
        watch.steps.note(before, at, moment.saturating_duration_since(then));
        watch.last = (at, moment);
        watch.steps.clone()
    }

    async fn remove(self: &Arc<Self>, chosen: Vec<ProcessId>) -> Result<(), Refusal> {
        for id in &chosen {
            self.cancel_restart(id, "retention").await;
        }
        let core = Arc::clone(self);
        let gone: Vec<ProcessId> = blocking(move || {
            let remove = |id: &ProcessId| match remove_process(&core.home, id) {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(process = %id, %error, "cannot remove an ended process");
                    false
                }
            };
            chosen.into_iter().filter(remove).collect()
        })
        .await?;
        crash_point!("daemon.directories_removed");
        for id in &gone {
            if let Some(entry) = self.registry.get(id) {
                self.registry.remove(&entry);
            }
        }
        let some_went = !gone.is_empty();
        self.ledger.apply(gone.into_iter().map(Change::Forget).collect()).await;
        self.ledger.drain().await;
        if some_went {
            self.learn_keys().await;
        }
        Ok(())
    }

    /// Learns anew which idempotency keys the index holds.
    async fn learn_keys(self: &Arc<Self>) {
        self.registry.begin_to_know_keys();
        match self.query(|queries| queries.keys()).await {
            Ok(keys) => self.registry.know_keys(&keys),
            Err(refusal) => tracing::warn!(error = %refusal.0, "the keys of the index are not known anew"),
        }
    }
}

/// Looks over the store and the keepers from time to time, until shutdown.
pub(crate) async fn tend(core: Arc<Core>) {
    let mut shutdown = core.shutdown.subscribe();
    // Not before the daemon listens: until they are known, each key is looked for in the index.
    core.learn_keys().await;
    loop {
        let rest = tokio::time::timeout(EVERY, shutdown.wait_for(|shutdown| *shutdown));
        if rest.await.is_ok() {
            return;
        }
        pool::shrink(&core).await;
        let mut owning: HashSet<String> =
            core.registry.live().iter().map(|entry| entry.state.borrow().history.owner().to_owned()).collect();
        // An agent that rests is its owner's, too.
        owning.extend(core.agents.all().iter().filter(|seat| !seat.is_over()).map(|seat| seat.owner()));
        core.owners.forget_silent(|owner| owning.contains(owner));
        core.tend_sessions().await;
        lock(&core.unreadable).retain(|unreadable| core.home.processes().join(&unreadable.id).exists());
        if let Err(refusal) = core.collect(core.config.limits.clone(), false).await {
            tracing::warn!(error = %refusal.0, "retention failed");
        }
    }
}
