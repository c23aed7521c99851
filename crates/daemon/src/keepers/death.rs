//! After a keeper died: the record has the end of its process, or the remaining processes are killed and it is
//! recorded as lost.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_model::facts::{Fact, History};
use pinfold_model::id::ProcessId;
use pinfold_model::loss::{
    self, AfterAppend, DeathEvidence, LockState, LossAppend, NotProvenDead, RecordRead, RecordedEnd,
};
use pinfold_os::cgroup::Cgroup;
use pinfold_os::sweep::{self, Remains};
use pinfold_os::{crash_point, proc};
use pinfold_store::record::{LostError, RecordError, append_lost, is_locked, read_record, recreate_record};
use pinfold_store::retention::remove_process;

use crate::clock::now;
use crate::core::{Core, blocking};
use crate::keepers::pool::is_alive;
use crate::keepers::reconnect::reconnect;
use crate::registry::Entry;
use crate::request_error::RequestError;

/// How long the remaining processes of a dead keeper's tree are searched and killed.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(5);
/// How soon to try again when an end cannot be determined: no free descriptors, no space to write.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of processes handled together: each may take a descriptor.
pub(crate) const MAX_BATCH: usize = 256;

/// A process whose keeper died.
struct Orphan {
    entry: Arc<Entry>,
    evidence: Option<String>,
}

/// How the process of a dead keeper ended.
enum EndFound {
    /// The facts to note: its end, or its loss.
    Facts(Vec<Fact>),
    /// Nothing was started.
    NeverStarted,
}

/// Why the end is not known yet, and the evidence of an earlier sweep.
struct EndUnknown {
    error: io::Error,
    evidence: Option<String>,
}

impl Core {
    /// A keeper died while it kept a process: notes the end from the record, or the loss. Retries in the background
    /// what cannot be determined now.
    pub(crate) async fn keeper_died(self: &Arc<Self>, entry: Arc<Entry>) {
        self.keepers_died(vec![entry]).await;
    }

    /// The same for many processes, at most [`MAX_BATCH`], with one sweep for all.
    pub(crate) async fn keepers_died(self: &Arc<Self>, entries: Vec<Arc<Entry>>) {
        entries.iter().for_each(|entry| entry.set_resolving(true));
        let dead = entries.into_iter().map(|entry| Orphan { entry, evidence: None }).collect();
        let unresolved = self.try_resolve(dead).await;
        if unresolved.is_empty() {
            return;
        }
        let core = Arc::clone(self);
        tokio::spawn(async move {
            let mut unresolved = unresolved;
            while !unresolved.is_empty() {
                tokio::time::sleep(RETRY_INTERVAL).await;
                unresolved = core.try_resolve(unresolved).await;
            }
        });
    }

    /// Notes the ends that can be determined now; returns the other processes.
    async fn try_resolve(self: &Arc<Self>, mut dead: Vec<Orphan>) -> Vec<Orphan> {
        dead.retain(|dead| !dead.entry.status().is_over());
        let core = Arc::clone(self);
        let histories: Vec<_> =
            dead.iter().map(|dead| (dead.entry.snapshot().history, dead.evidence.clone())).collect();
        let ends = match blocking(move || core.find_ends(histories)).await {
            Ok(ends) => ends,
            Err(error) => {
                tracing::error!(error = %error.0, "cannot determine the ends of processes whose keepers died: trying again");
                return dead;
            }
        };
        let mut unresolved = Vec::new();
        for (Orphan { entry, .. }, end) in dead.into_iter().zip(ends) {
            match end {
                Ok(end) => self.note_end_found(&entry, end).await,
                // Its keeper is alive after all: reconnect.
                Err(_) if self.is_reachable(&entry) => {
                    entry.set_resolving(false);
                    let keeper = entry.state.borrow().history.intent.keeper.clone();
                    tokio::spawn(reconnect(Arc::clone(self), entry, keeper));
                }
                Err(EndUnknown { error, evidence }) => {
                    tracing::error!(process = %entry.id, %error, "cannot determine the end of a process whose keeper died: trying again");
                    let note = format!("its end cannot be determined yet: {error}");
                    entry.state.send_modify(|state| state.note = Some(note));
                    unresolved.push(Orphan { entry, evidence });
                }
            }
        }
        unresolved
    }

    /// Whether the keeper of a process is alive and has not said that it keeps another.
    fn is_reachable(&self, entry: &Entry) -> bool {
        let intent = Arc::clone(&entry.state.borrow().history.intent);
        intent.boot_id == self.boot_id && is_alive(&intent.keeper) && !entry.is_disowned()
    }

    async fn note_end_found(self: &Arc<Self>, entry: &Arc<Entry>, end: EndFound) {
        entry.set_resolving(false);
        match end {
            EndFound::Facts(facts) => {
                entry.state.send_modify(|state| state.note = None);
                for fact in facts {
                    self.note_fact(entry, fact).await;
                }
            }
            EndFound::NeverStarted => {
                tracing::warn!(process = %entry.id, "a keeper died before it recorded a start");
                self.undo_start(entry);
                let message = "its keeper died before the command was started: nothing was run, try again";
                let error = RequestError::new(ErrorCode::FailedToStart, message);
                entry.state.send_modify(|state| state.refused = Some(error));
            }
        }
    }

    /// How the processes of dead keepers ended, in their order: the facts in their records, or a loss after a sweep.
    /// Blocks.
    fn find_ends(&self, dead: Vec<(History, Option<String>)>) -> Vec<Result<EndFound, EndUnknown>> {
        let recorded: Vec<_> = dead.iter().map(|(history, _)| self.read_end(history)).collect();
        let is_swept = |index: usize| {
            let (recorded, has_evidence) = (&recorded[index], dead[index].1.is_some());
            recorded.as_ref().is_ok_and(|recorded| recorded.needs_sweep(has_evidence))
        };
        let indices: Vec<usize> = (0..dead.len()).filter(|&index| is_swept(index)).collect();
        let swept: Vec<&History> = indices.iter().map(|&index| &dead[index].0).collect();
        let found = match swept.is_empty() {
            true => Ok(vec![]),
            false => self.sweep(&swept),
        };
        if !swept.is_empty() {
            crash_point!("daemon.remains_swept");
        }
        let error = found.as_ref().err().map(|error| (error.kind(), error.to_string()));
        let mut found: HashMap<usize, String> = indices.into_iter().zip(found.unwrap_or_default()).collect();
        let mut ends = Vec::new();
        for (index, ((history, evidence), recorded)) in dead.into_iter().zip(recorded).enumerate() {
            let evidence = evidence.or_else(|| found.remove(&index));
            ends.push(match (recorded, evidence, &error) {
                (Ok(RecordedEnd::End(facts)), ..) => Ok(EndFound::Facts(facts)),
                (Err(error), evidence, _) => Err(EndUnknown { error, evidence }),
                (Ok(RecordedEnd::NeverStarted), Some(_), _) => {
                    if let Err(error) = remove_process(&self.home, &history.intent.id) {
                        tracing::warn!(process = %history.intent.id, %error, "cannot remove an unused directory");
                    }
                    Ok(EndFound::NeverStarted)
                }
                (Ok(RecordedEnd::NoEnd(facts)), Some(evidence), _) => self.record_loss(&history, facts, evidence),
                (_, None, Some((kind, text))) => {
                    Err(EndUnknown { error: io::Error::new(*kind, text.clone()), evidence: None })
                }
                (_, None, None) => Err(EndUnknown { error: io::Error::other("it was not swept"), evidence: None }),
            });
        }
        ends
    }

    /// The end in the record of a process whose keeper is dead; an error if the death is not proven, or the record
    /// cannot be read now.
    fn read_end(&self, history: &History) -> io::Result<RecordedEnd> {
        self.check_dead(history)?;
        let id = &history.intent.id;
        let read = match read_record(&self.home.process(id)) {
            Ok(record) => RecordRead::Facts(record.facts),
            Err(RecordError::Empty { .. } | RecordError::Missing { .. }) if history.start.is_none() => {
                RecordRead::Nothing
            }
            Err(RecordError::Io { source, .. }) if proc::is_shortage(&source) => return Err(source),
            Err(error) => {
                tracing::error!(process = %id, %error, "its record is unreadable");
                RecordRead::Unreadable
            }
        };
        Ok(loss::recorded_end(history, read))
    }

    fn record_loss(&self, history: &History, mut facts: Vec<Fact>, evidence: String) -> Result<EndFound, EndUnknown> {
        let id = &history.intent.id;
        let lost = Fact::Lost { evidence: evidence.clone(), at: now() };
        let failed = append_lost(&self.home.process(id), &lost, self.durability()).err();
        match (loss::after_append(appended(failed.as_ref())), failed) {
            (AfterAppend::Report, None) => {}
            (AfterAppend::Report, Some(error)) => tracing::error!(process = %id, %error, "cannot record a loss"),
            (AfterAppend::ReadAgain, failed) => {
                return match self.read_end(history) {
                    Ok(RecordedEnd::End(facts)) => Ok(EndFound::Facts(facts)),
                    _ => Err(EndUnknown { error: reason(failed), evidence: Some(evidence) }),
                };
            }
            (AfterAppend::Recreate, _) => {
                let written = recreate_record(&self.home.processes(), history, &lost, self.durability());
                written.map_err(|error| EndUnknown { error, evidence: Some(evidence) })?;
            }
            (AfterAppend::Retry, failed) => {
                return Err(EndUnknown { error: reason(failed), evidence: Some(evidence) });
            }
        }
        facts.push(lost);
        Ok(EndFound::Facts(facts))
    }

    /// The evidence required before anything is killed or a loss is recorded: see [`loss::DeathEvidence`].
    fn check_dead(&self, history: &History) -> io::Result<()> {
        let keeper = &history.intent.keeper;
        let is_alive = history.intent.boot_id == self.boot_id && is_alive(keeper);
        let is_disowned = || self.registry.get(&history.intent.id).is_some_and(|entry| entry.is_disowned());
        let (lock, failed) = match is_locked(&self.home.process(&history.intent.id)) {
            Ok(false) => (LockState::Free, None),
            Ok(true) => (LockState::Held, None),
            Err(error) if proc::is_shortage(&error) => (LockState::Unknown, Some(error)),
            Err(_) => (LockState::Absent, None),
        };
        let proof = DeathEvidence { alive: is_alive, disowned: is_alive && is_disowned(), lock };
        proof.check().map_err(|why| match (why, failed) {
            (NotProvenDead::Alive, _) => io::Error::other(format!("its keeper (pid {}) is alive", keeper.pid)),
            (NotProvenDead::Unknown, Some(error)) => error,
            (NotProvenDead::Locked | NotProvenDead::Unknown, _) => {
                io::Error::other("its record is locked: by its keeper, or by a child that the keeper was starting")
            }
        })
    }

    /// Kills the remaining processes of dead keepers and returns the evidence, in their order. If /proc is unreadable,
    /// that is an error, not "nothing found".
    fn sweep(&self, dead: &[&History]) -> io::Result<Vec<String>> {
        proc::check_sight()?;
        let targets = self.sweep_targets(dead)?;
        let remains: Vec<Remains<'_>> = targets.iter().filter_map(SweepTarget::remains).collect();
        let mut swept = sweep::sweep_all(&remains, SWEEP_TIMEOUT).into_iter();
        proc::check_sight()?;
        let mut evidence = Vec::new();
        for (history, target) in dead.iter().zip(&targets) {
            let intent = &history.intent;
            let ran = match &history.start {
                Some(start) => format!("the leader was pid {}", start.pid),
                None => "no leader is known to have started".to_owned(),
            };
            if target.from_earlier_boot {
                evidence.push(format!("the machine was restarted while it ran; {ran}"));
                continue;
            }
            let swept = swept.next().unwrap_or_default();
            if let Some(cgroup) = &target.cgroup {
                let _ = cgroup.remove();
            }
            if let Some(own) = intent.keeper.cgroup.as_deref().filter(|_| !target.keeper_has_other) {
                let _ = Cgroup::open(own).and_then(|cgroup| cgroup.remove());
            }
            let name = |(pid, command): &(u32, String)| format!("{pid} {command}");
            let left = match swept.survivors.is_empty() {
                true => "none is left".to_owned(),
                false => format!("left: {}", swept.survivors.iter().map(name).collect::<Vec<_>>().join(", ")),
            };
            let who = format!("keeper {} ended without an exit record", intent.keeper.pid);
            evidence.push(format!("{who}; {ran}; {} processes of its tree were killed, {left}", swept.killed.len()));
        }
        if targets.iter().any(|target| target.is_limited) {
            self.remove_dead_limits();
        }
        Ok(evidence)
    }

    /// Where the remaining processes of each are searched. Removes the sockets of their keepers.
    fn sweep_targets(&self, dead: &[&History]) -> io::Result<Vec<SweepTarget>> {
        let mut by_keeper: HashMap<u32, Vec<ProcessId>> = HashMap::new();
        for entry in self.registry.live() {
            let keeper = entry.state.borrow().history.intent.keeper.pid;
            by_keeper.entry(keeper).or_default().push(entry.id.clone());
        }
        let limits = self.limits_by_keeper();
        let mut targets = Vec::new();
        for history in dead {
            let intent = &history.intent;
            // A live keeper with the same pid keeps another process: socket and cgroup belong to that one.
            let keeper_has_other =
                by_keeper.get(&intent.keeper.pid).is_some_and(|ids| ids.iter().any(|id| *id != intent.id));
            // The pid may have been reused by a new keeper, whose socket has the same name.
            let pid_is_reused = || proc::stat(intent.keeper.pid).is_ok_and(|stat| stat.is_living());
            if !keeper_has_other && !pid_is_reused() {
                let _ = std::fs::remove_file(self.home.keepers().join(intent.keeper.pid.to_string()));
            }
            let mark = format!("PINFOLD_MARK={}", intent.mark).into_bytes();
            let mut target =
                SweepTarget { mark, cgroup: None, from_earlier_boot: false, keeper_has_other, is_limited: false };
            if intent.boot_id != self.boot_id {
                targets.push(SweepTarget { from_earlier_boot: true, ..target });
                continue;
            }
            // A limited tree has its own cgroups: the v2 one contains it, the v1 ones are only removed.
            let limits = limits.get(&intent.keeper.pid).filter(|_| !keeper_has_other);
            for path in limits.into_iter().flatten() {
                target.cgroup = target.cgroup.or(open_cgroup(path)?);
            }
            let own = intent.keeper.cgroup.as_deref().filter(|_| !keeper_has_other && target.cgroup.is_none());
            let own = own.map(open_cgroup).transpose()?.flatten();
            target.cgroup = target.cgroup.or(own);
            targets.push(SweepTarget { is_limited: limits.is_some(), ..target });
        }
        Ok(targets)
    }
}

/// The result of appending a loss.
fn appended(failed: Option<&LostError>) -> LossAppend {
    match failed {
        None => LossAppend::Written,
        Some(LostError::Over { .. }) => LossAppend::Over,
        Some(LostError::Record(RecordError::Missing { .. })) => LossAppend::Missing,
        Some(LostError::Locked { .. }) => LossAppend::Locked,
        Some(LostError::Io { .. }) => LossAppend::Refused,
        Some(LostError::Record(_) | LostError::NotLost) => LossAppend::Unusable,
    }
}

/// Why a loss could not be recorded yet.
fn reason(failed: Option<LostError>) -> io::Error {
    match failed {
        Some(LostError::Io { source, .. }) => source,
        Some(error) => io::Error::other(error),
        None => io::Error::other("it was not written"),
    }
}

/// Where the remaining processes of one tree are searched.
struct SweepTarget {
    mark: Vec<u8>,
    cgroup: Option<Cgroup>,
    /// The machine was restarted since, so nothing of it can be left.
    from_earlier_boot: bool,
    keeper_has_other: bool,
    is_limited: bool,
}

impl SweepTarget {
    fn remains(&self) -> Option<Remains<'_>> {
        (!self.from_earlier_boot).then_some(Remains { mark: &self.mark, cgroup: self.cgroup.as_ref() })
    }
}

/// The cgroup, or `None` if it does not exist; an error if it cannot be checked for lack of descriptors.
fn open_cgroup(path: &Path) -> io::Result<Option<Cgroup>> {
    match Cgroup::open(path) {
        Ok(cgroup) => Ok(Some(cgroup)),
        Err(error) if proc::is_shortage(&error) => Err(error),
        Err(_) => Ok(None),
    }
}
