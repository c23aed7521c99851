//! Retention: removes processes that ended too long ago or exceed the quota, the oldest end first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_api::types::{GcAnswer, GcRequest};
use pinfold_model::admission::{Limits, StoredProcess, to_remove};
use pinfold_model::clock_steps::ClockSteps;
use pinfold_model::id::ProcessId;
use pinfold_model::units::{Moment, parse_duration};
use pinfold_os::{crash_point, daemonize};
use pinfold_store::index::Change;
use pinfold_store::retention::remove_process;

use crate::clock::now;
use crate::core::{Core, blocking};
use crate::keepers::pool;
use crate::mutex::lock;
use crate::request_error::RequestError;

/// How often retention runs and idle keepers are retired.
const INTERVAL: Duration = Duration::from_secs(30);

/// The wall clock at the last check, beside a monotonic one, and its steps.
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
    pub(crate) async fn gc(self: &Arc<Self>, request: GcRequest) -> Result<GcAnswer, RequestError> {
        let mut limits = self.config.limits.clone();
        if let Some(age) = &request.older_than {
            limits.retention = parse_duration(&age.text())?;
        }
        self.collect(limits, request.dry_run).await
    }

    async fn collect(self: &Arc<Self>, limits: Limits, dry_run: bool) -> Result<GcAnswer, RequestError> {
        let at = now();
        let steps = self.note_clock_steps(at);
        let rows = self.query(|queries| queries.ended()).await?;
        let bytes_of: HashMap<ProcessId, u64> = rows.iter().map(|row| (row.id.clone(), row.bytes)).collect();
        // Processes that are due to be restarted are still needed.
        let ended = rows.into_iter().filter(|row| !self.chains.needs(&row.id));
        let ended = ended.map(|row| StoredProcess {
            id: row.id,
            owner: row.owner,
            age: steps.age(row.at, at),
            bytes: row.bytes,
        });
        let mut live: HashMap<String, u64> = HashMap::new();
        for entry in self.registry.live() {
            let state = entry.state.borrow();
            // What is stored, which is at most the limit, not what was ever written.
            let stored = state.output_bytes.min(state.history.intent.spec.output_limit);
            *live.entry(state.history.owner().to_owned()).or_default() += stored;
        }
        let chosen = to_remove(&limits, ended.collect(), &live);
        let freed_bytes = chosen.iter().filter_map(|id| bytes_of.get(id)).sum();
        let removed = chosen.iter().map(ProcessId::to_string).collect();
        if !dry_run {
            self.remove(chosen).await?;
            // Listing the ended processes and removing them may have used much memory.
            blocking(daemonize::trim_memory).await?;
        }
        Ok(GcAnswer { removed, freed_bytes, dry_run })
    }

    /// The forward steps of the wall clock since the daemon started.
    fn note_clock_steps(&self, at: Moment) -> ClockSteps {
        let mut watch = lock(&self.clock_watch);
        let ((before, then), moment) = (watch.last, Instant::now());
        watch.steps.note(before, at, moment.saturating_duration_since(then));
        watch.last = (at, moment);
        watch.steps.clone()
    }

    pub(super) async fn remove(self: &Arc<Self>, chosen: Vec<ProcessId>) -> Result<(), RequestError> {
        for id in &chosen {
            self.cancel_restart(id, "retention").await;
        }
        let core = Arc::clone(self);
        let removed: Vec<ProcessId> = blocking(move || {
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
        for id in &removed {
            if let Some(entry) = self.registry.get(id) {
                self.registry.remove(&entry);
            }
        }
        let any_removed = !removed.is_empty();
        self.index_writer.apply(removed.into_iter().map(Change::Forget).collect()).await;
        self.index_writer.drain().await;
        if any_removed {
            self.reload_keys().await;
        }
        Ok(())
    }

    /// Reads again which idempotency keys the index has.
    async fn reload_keys(self: &Arc<Self>) {
        self.registry.begin_key_reload();
        match self.query(|queries| queries.keys()).await {
            Ok(keys) => self.registry.finish_key_reload(&keys),
            Err(error) => tracing::warn!(error = %error.0, "cannot read the idempotency keys from the index"),
        }
    }
}

/// Runs retention periodically until shutdown, and retires idle keepers.
pub(crate) async fn run(core: Arc<Core>) {
    let mut shutdown = core.shutdown.subscribe();
    // Only once the daemon listens: until then each key is looked up in the index.
    core.reload_keys().await;
    loop {
        let rest = tokio::time::timeout(INTERVAL, shutdown.wait_for(|shutdown| *shutdown));
        if rest.await.is_ok() {
            return;
        }
        pool::shrink(&core).await;
        let mut owning: HashSet<String> =
            core.registry.live().iter().map(|entry| entry.state.borrow().history.owner().to_owned()).collect();
        // An idle agent also keeps its owner known.
        owning.extend(core.agents.owners());
        core.owners.forget_absent(|owner| owning.contains(owner));
        core.refresh_sessions().await;
        core.last_lines.forget_unused();
        lock(&core.unreadable).retain(|unreadable| core.home.processes().join(&unreadable.id).exists());
        if let Err(error) = core.collect(core.config.limits.clone(), false).await {
            tracing::warn!(error = %error.0, "retention failed");
        }
    }
}
