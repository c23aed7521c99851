//! A keeper's death: its process's record tells the end, or the process is lost; then its remains are stopped first.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_model::facts::{Fact, History};
use pinfold_os::cgroup::Cgroup;
use pinfold_os::{crash_point, proc, sweep};
use pinfold_store::record::{LostError, RecordError, append_lost, read_record};
use pinfold_store::retention::remove_process;

use crate::clock::now;
use crate::refusal::Refusal;
use crate::registry::Entry;
use crate::service::{Core, blocking};

/// How long the remains of a process whose keeper died are hunted.
const SWEEP: Duration = Duration::from_secs(5);
/// How often a process is tried to be settled that could not be: no descriptors to look with, no room to write.
const AGAIN: Duration = Duration::from_millis(500);

/// What came of a process whose keeper died.
enum Settled {
    /// What is to be noted: its end, or its loss.
    Facts(Vec<Fact>),
    /// Nothing was started, and nothing is left.
    NeverBegan,
}

/// Why nothing came of it yet, and what a hunt has found so far.
struct Unsettled {
    error: io::Error,
    evidence: Option<String>,
}

impl From<io::Error> for Unsettled {
    fn from(error: io::Error) -> Self {
        Self { error, evidence: None }
    }
}

impl Core {
    /// A keeper ended while it kept a process: its record tells the end, or the process is lost. What cannot be settled
    /// now is settled as soon as it can be.
    pub(crate) async fn keeper_went(self: &Arc<Self>, entry: Arc<Entry>) {
        let Some(evidence) = self.try_settle(&entry, None).await else { return };
        let core = Arc::clone(self);
        tokio::spawn(async move {
            let mut unsettled = Some(evidence);
            while let Some(evidence) = unsettled {
                tokio::time::sleep(AGAIN).await;
                unsettled = core.try_settle(&entry, evidence).await;
            }
        });
    }

    /// `None` when it is settled; else what is to be said as evidence once it can be.
    async fn try_settle(self: &Arc<Self>, entry: &Arc<Entry>, evidence: Option<String>) -> Option<Option<String>> {
        if entry.status().is_over() {
            return None;
        }
        let core = Arc::clone(self);
        let history = entry.snapshot().history;
        match blocking(move || core.settle(history, evidence)).await {
            Ok(Ok(Settled::Facts(facts))) => {
                for fact in facts {
                    self.note_fact(entry, fact).await;
                }
            }
            Ok(Ok(Settled::NeverBegan)) => {
                tracing::warn!(process = %entry.id, "a keeper ended before it wrote down a start");
                self.undo_start(entry);
                let message = "its keeper ended before anything was started: nothing was run, ask again";
                let refusal = Refusal::new(ErrorCode::FailedToStart, message);
                entry.state.send_modify(|state| state.refused = Some(refusal));
            }
            Ok(Err(Unsettled { error, evidence })) => {
                tracing::error!(process = %entry.id, %error, "cannot settle a lost process yet");
                let note = format!("its keeper is gone, and what became of it cannot be settled yet: {error}");
                entry.state.send_modify(|state| state.note = Some(note));
                return Some(evidence);
            }
            Err(refusal) => tracing::error!(process = %entry.id, error = %refusal.0, "cannot settle a lost process"),
        }
        None
    }

    /// What a process came to whose keeper is dead: the facts in its record, or its loss, after its remains are
    /// stopped. Blocks.
    fn settle(&self, history: History, evidence: Option<String>) -> Result<Settled, Unsettled> {
        let directory = self.home.process(&history.intent.id);
        let mut history = history;
        let mut facts = Vec::new();
        match read_record(&directory) {
            Ok(record) => {
                for fact in record.facts {
                    let before = history.clone();
                    history.add(fact.clone());
                    if history != before {
                        facts.push(fact);
                    }
                }
            }
            // The intent is written before anything is started: nobody ran, and there is nothing to tell.
            Err(RecordError::Empty { .. } | RecordError::Missing { .. }) if history.start.is_none() => {
                self.hunt(&history)?;
                if let Err(error) = remove_process(&self.home, &history.intent.id) {
                    tracing::warn!(process = %history.intent.id, %error, "cannot remove an unused directory");
                }
                return Ok(Settled::NeverBegan);
            }
            Err(RecordError::Io { source, .. }) if proc::is_shortage(&source) => {
                return Err(Unsettled { error: source, evidence });
            }
            Err(error) => tracing::error!(process = %history.intent.id, %error, "its record tells nothing"),
        }
        if history.status().is_over() {
            return Ok(Settled::Facts(facts));
        }
        let evidence = match evidence {
            Some(evidence) => evidence,
            None => self.hunt(&history)?,
        };
        crash_point!("daemon.remains_swept");
        let lost = Fact::Lost { evidence: evidence.clone(), at: now() };
        match append_lost(&directory, &lost, self.durability()) {
            Ok(()) => {}
            // Told before it is written, it could be told otherwise later.
            Err(LostError::Io { source, .. }) if proc::is_shortage(&source) || is_full(&source) => {
                return Err(Unsettled { error: source, evidence: Some(evidence) });
            }
            Err(error) => tracing::error!(process = %history.intent.id, %error, "cannot record a loss"),
        }
        facts.push(lost);
        Ok(Settled::Facts(facts))
    }

    /// Stops what a dead keeper left, and says what was found. Who cannot look has found nothing out.
    fn hunt(&self, history: &History) -> io::Result<String> {
        proc::check_sight()?;
        let intent = &history.intent;
        // A living keeper may have its pid, or be the same one, with another process: socket and cgroup are then
        // that one's.
        let is_taken = |entry: &Arc<Entry>| {
            entry.id != intent.id && entry.state.borrow().history.intent.keeper.pid == intent.keeper.pid
        };
        let taken = self.registry.live().iter().any(is_taken);
        if !taken {
            let _ = std::fs::remove_file(self.home.keepers().join(intent.keeper.pid.to_string()));
        }
        let who = format!("keeper {} ended without an exit record", intent.keeper.pid);
        let ran = match &history.start {
            Some(start) => format!("the leader was pid {}", start.pid),
            None => "no leader is known to have started".to_owned(),
        };
        if intent.boot_id != self.boot_id {
            return Ok(format!("the machine was restarted while it ran; {ran}"));
        }
        let mark = format!("PINFOLD_MARK={}", intent.mark);
        // A limited tree has cgroups of its own: the v2 one contains it, the others are only removed.
        let limits = if taken { vec![] } else { self.limits_of_keeper(intent.keeper.pid) };
        let mut limiting = None;
        for path in &limits {
            limiting = limiting.or(open_cgroup(path)?);
        }
        let own = intent.keeper.cgroup.as_deref().filter(|_| !taken).map(open_cgroup).transpose()?.flatten();
        let cgroup = limiting.or(own);
        let swept = sweep::sweep(mark.as_bytes(), cgroup.as_ref(), SWEEP);
        proc::check_sight()?;
        if let Some(cgroup) = cgroup {
            let _ = cgroup.remove();
        }
        if let Some(own) = intent.keeper.cgroup.as_deref().filter(|_| !taken) {
            let _ = Cgroup::open(own).and_then(|cgroup| cgroup.remove());
        }
        if !limits.is_empty() {
            self.remove_dead_limits();
        }
        let name = |(pid, command): &(u32, String)| format!("{pid} {command}");
        let left = match swept.survivors.is_empty() {
            true => "none is left".to_owned(),
            false => format!("left: {}", swept.survivors.iter().map(name).collect::<Vec<_>>().join(", ")),
        };
        Ok(format!("{who}; {ran}; {} processes of its tree were killed, {left}", swept.killed.len()))
    }
}

/// The cgroup, or `None` if there is none; an error if that cannot be told.
fn open_cgroup(path: &Path) -> io::Result<Option<Cgroup>> {
    match Cgroup::open(path) {
        Ok(cgroup) => Ok(Some(cgroup)),
        Err(error) if proc::is_shortage(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
