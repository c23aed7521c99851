//! A keeper's death: its process's record tells the end, or the process is lost; then its remains are stopped first.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_model::facts::{Fact, History};
use pinfold_model::id::ProcessId;
use pinfold_model::loss::{self, AfterAppend, Appended, Lock, NotDead, Proof, RecordRead, RecordedEnd};
use pinfold_os::cgroup::Cgroup;
use pinfold_os::sweep::{self, Remains};
use pinfold_os::{crash_point, proc};
use pinfold_store::record::{LostError, RecordError, append_lost, is_held, read_record, write_anew};
use pinfold_store::retention::remove_process;

use crate::clock::now;
use crate::core::{Core, blocking};
use crate::keepers::pool::lives;
use crate::keepers::reconnect::reach_again;
use crate::refusal::Refusal;
use crate::registry::Entry;

/// How long the remains of a process whose keeper died are hunted.
const SWEEP: Duration = Duration::from_secs(5);
/// How often a process is tried to be settled that could not be: no descriptors to look with, no room to write.
const AGAIN: Duration = Duration::from_millis(500);
/// Most processes that are settled together: each may take a descriptor.
pub(crate) const BATCH: usize = 256;

/// A process whose keeper died, and what an earlier try to settle it has found.
struct Dead {
    entry: Arc<Entry>,
    evidence: Option<String>,
}

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

impl Core {
    /// A keeper ended while it kept a process: its record tells the end, or the process is lost. What cannot be settled
    /// now is settled as soon as it can be.
    pub(crate) async fn keeper_went(self: &Arc<Self>, entry: Arc<Entry>) {
        self.keepers_went(vec![entry]).await;
    }

    /// Settles many processes at once, at most [`BATCH`]: what is left of all of them is looked for together.
    pub(crate) async fn keepers_went(self: &Arc<Self>, entries: Vec<Arc<Entry>>) {
        entries.iter().for_each(|entry| entry.set_settling(true));
        let dead = entries.into_iter().map(|entry| Dead { entry, evidence: None }).collect();
        let unsettled = self.try_settle(dead).await;
        if unsettled.is_empty() {
            return;
        }
        let core = Arc::clone(self);
        tokio::spawn(async move {
            let mut unsettled = unsettled;
            while !unsettled.is_empty() {
                tokio::time::sleep(AGAIN).await;
                unsettled = core.try_settle(unsettled).await;
            }
        });
    }

    /// Settles what can be settled now; gives the rest.
    async fn try_settle(self: &Arc<Self>, mut dead: Vec<Dead>) -> Vec<Dead> {
        dead.retain(|dead| !dead.entry.status().is_over());
        let core = Arc::clone(self);
        let histories: Vec<_> =
            dead.iter().map(|dead| (dead.entry.snapshot().history, dead.evidence.clone())).collect();
        let settled = match blocking(move || core.settle(histories)).await {
            Ok(settled) => settled,
            Err(refusal) => {
                tracing::error!(error = %refusal.0, "cannot settle lost processes yet");
                return dead;
            }
        };
        let mut unsettled = Vec::new();
        for (Dead { entry, .. }, settled) in dead.into_iter().zip(settled) {
            match settled {
                Ok(settled) => self.note_settled(&entry, settled).await,
                // It was taken for dead by mistake: there is a keeper to be reached.
                Err(_) if self.may_be_reached(&entry) => {
                    entry.set_settling(false);
                    let keeper = entry.state.borrow().history.intent.keeper.clone();
                    tokio::spawn(reach_again(Arc::clone(self), entry, keeper));
                }
                Err(Unsettled { error, evidence }) => {
                    tracing::error!(process = %entry.id, %error, "cannot settle a lost process yet");
                    let note = format!("what became of it cannot be settled yet: {error}");
                    entry.state.send_modify(|state| state.note = Some(note));
                    unsettled.push(Dead { entry, evidence });
                }
            }
        }
        unsettled
    }

    /// Whether the keeper of a process lives and has not said that it keeps another.
    fn may_be_reached(&self, entry: &Entry) -> bool {
        let intent = Arc::clone(&entry.state.borrow().history.intent);
        intent.boot_id == self.boot_id && lives(&intent.keeper) && !entry.is_disowned()
    }

    async fn note_settled(self: &Arc<Self>, entry: &Arc<Entry>, settled: Settled) {
        entry.set_settling(false);
        match settled {
            Settled::Facts(facts) => {
                entry.state.send_modify(|state| state.note = None);
                for fact in facts {
                    self.note_fact(entry, fact).await;
                }
            }
            Settled::NeverBegan => {
                tracing::warn!(process = %entry.id, "a keeper ended before it wrote down a start");
                self.undo_start(entry);
                let message = "its keeper ended before anything was started: nothing was run, ask again";
                let refusal = Refusal::new(ErrorCode::FailedToStart, message);
                entry.state.send_modify(|state| state.refused = Some(refusal));
            }
        }
    }

    /// What processes came to whose keepers are dead, in their order: the facts in their records, or their loss, after
    /// their remains are stopped. Blocks.
    fn settle(&self, dead: Vec<(History, Option<String>)>) -> Vec<Result<Settled, Unsettled>> {
        let told: Vec<_> = dead.iter().map(|(history, _)| self.read_end(history)).collect();
        let is_hunted = |place: usize| {
            let (told, has_evidence) = (&told[place], dead[place].1.is_some());
            told.as_ref().is_ok_and(|told| told.needs_sweep(has_evidence))
        };
        let places: Vec<usize> = (0..dead.len()).filter(|&place| is_hunted(place)).collect();
        let hunted: Vec<&History> = places.iter().map(|&place| &dead[place].0).collect();
        let found = match hunted.is_empty() {
            true => Ok(vec![]),
            false => self.hunt(&hunted),
        };
        if !hunted.is_empty() {
            crash_point!("daemon.remains_swept");
        }
        let error = found.as_ref().err().map(|error| (error.kind(), error.to_string()));
        let mut found: HashMap<usize, String> = places.into_iter().zip(found.unwrap_or_default()).collect();
        let mut settled = Vec::new();
        for (place, ((history, evidence), told)) in dead.into_iter().zip(told).enumerate() {
            let evidence = evidence.or_else(|| found.remove(&place));
            settled.push(match (told, evidence, &error) {
                (Ok(RecordedEnd::End(facts)), ..) => Ok(Settled::Facts(facts)),
                (Err(error), evidence, _) => Err(Unsettled { error, evidence }),
                (Ok(RecordedEnd::NeverBegan), Some(_), _) => {
                    if let Err(error) = remove_process(&self.home, &history.intent.id) {
                        tracing::warn!(process = %history.intent.id, %error, "cannot remove an unused directory");
                    }
                    Ok(Settled::NeverBegan)
                }
                (Ok(RecordedEnd::NoEnd(facts)), Some(evidence), _) => self.record_loss(&history, facts, evidence),
                (_, None, Some((kind, text))) => {
                    Err(Unsettled { error: io::Error::new(*kind, text.clone()), evidence: None })
                }
                (_, None, None) => Err(Unsettled { error: io::Error::other("it was not looked for"), evidence: None }),
            });
        }
        settled
    }

    /// What the record says of a process whose keeper is dead; an error if that is not proved, or cannot be read now.
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
                tracing::error!(process = %id, %error, "its record tells nothing");
                RecordRead::Unreadable
            }
        };
        Ok(loss::recorded_end(history, read))
    }

    fn record_loss(&self, history: &History, mut facts: Vec<Fact>, evidence: String) -> Result<Settled, Unsettled> {
        let id = &history.intent.id;
        let lost = Fact::Lost { evidence: evidence.clone(), at: now() };
        let failed = append_lost(&self.home.process(id), &lost, self.durability()).err();
        match (loss::after_append(appended(failed.as_ref())), failed) {
            (AfterAppend::Tell, None) => {}
            (AfterAppend::Tell, Some(error)) => tracing::error!(process = %id, %error, "cannot record a loss"),
            (AfterAppend::ReadAgain, failed) => {
                return match self.read_end(history) {
                    Ok(RecordedEnd::End(facts)) => Ok(Settled::Facts(facts)),
                    _ => Err(Unsettled { error: reason(failed), evidence: Some(evidence) }),
                };
            }
            (AfterAppend::WriteAnew, _) => {
                let written = write_anew(&self.home.processes(), history, &lost, self.durability());
                written.map_err(|error| Unsettled { error, evidence: Some(evidence) })?;
            }
            (AfterAppend::Again, failed) => {
                return Err(Unsettled { error: reason(failed), evidence: Some(evidence) });
            }
        }
        facts.push(lost);
        Ok(Settled::Facts(facts))
    }

    /// The proof without which nothing is swept and no loss is written: see [`loss::Proof`].
    fn check_dead(&self, history: &History) -> io::Result<()> {
        let keeper = &history.intent.keeper;
        let lives = history.intent.boot_id == self.boot_id && lives(keeper);
        let is_disowned = || self.registry.get(&history.intent.id).is_some_and(|entry| entry.is_disowned());
        let (lock, failed) = match is_held(&self.home.process(&history.intent.id)) {
            Ok(false) => (Lock::Free, None),
            Ok(true) => (Lock::Held, None),
            Err(error) if proc::is_shortage(&error) => (Lock::Unknown, Some(error)),
            Err(_) => (Lock::Absent, None),
        };
        let proof = Proof { lives, disowned: lives && is_disowned(), lock };
        proof.check().map_err(|why| match (why, failed) {
            (NotDead::Lives, _) => io::Error::other(format!("its keeper (pid {}) lives", keeper.pid)),
            (NotDead::Unknown, Some(error)) => error,
            (NotDead::Locked | NotDead::Unknown, _) => {
                io::Error::other("its record is locked: its keeper is not gone, or a child that it was starting")
            }
        })
    }

    /// Stops what dead keepers left, and says what was found, in their order. If /proc cannot be read, that is an error,
    /// not "nothing found".
    fn hunt(&self, dead: &[&History]) -> io::Result<Vec<String>> {
        proc::check_sight()?;
        let grounds = self.grounds_of(dead)?;
        let remains: Vec<Remains<'_>> = grounds.iter().filter_map(Ground::remains).collect();
        let mut swept = sweep::sweep_all(&remains, SWEEP).into_iter();
        proc::check_sight()?;
        let mut told = Vec::new();
        for (history, ground) in dead.iter().zip(&grounds) {
            let intent = &history.intent;
            let ran = match &history.start {
                Some(start) => format!("the leader was pid {}", start.pid),
                None => "no leader is known to have started".to_owned(),
            };
            if ground.of_another_boot {
                told.push(format!("the machine was restarted while it ran; {ran}"));
                continue;
            }
            let swept = swept.next().unwrap_or_default();
            if let Some(cgroup) = &ground.cgroup {
                let _ = cgroup.remove();
            }
            if let Some(own) = intent.keeper.cgroup.as_deref().filter(|_| !ground.keeper_is_taken) {
                let _ = Cgroup::open(own).and_then(|cgroup| cgroup.remove());
            }
            let name = |(pid, command): &(u32, String)| format!("{pid} {command}");
            let left = match swept.survivors.is_empty() {
                true => "none is left".to_owned(),
                false => format!("left: {}", swept.survivors.iter().map(name).collect::<Vec<_>>().join(", ")),
            };
            let who = format!("keeper {} ended without an exit record", intent.keeper.pid);
            told.push(format!("{who}; {ran}; {} processes of its tree were killed, {left}", swept.killed.len()));
        }
        if grounds.iter().any(|ground| ground.is_limited) {
            self.remove_dead_limits();
        }
        Ok(told)
    }

    /// Where each of them is looked for. Removes the sockets of their keepers.
    fn grounds_of(&self, dead: &[&History]) -> io::Result<Vec<Ground>> {
        let mut by_keeper: HashMap<u32, Vec<ProcessId>> = HashMap::new();
        for entry in self.registry.live() {
            let keeper = entry.state.borrow().history.intent.keeper.pid;
            by_keeper.entry(keeper).or_default().push(entry.id.clone());
        }
        let limits = self.limits_by_keeper();
        let mut grounds = Vec::new();
        for history in dead {
            let intent = &history.intent;
            // A living keeper may have its pid, or be the same one, with another process: socket and cgroup are then
            // that one's.
            let keeper_is_taken =
                by_keeper.get(&intent.keeper.pid).is_some_and(|ids| ids.iter().any(|id| *id != intent.id));
            // By now the pid may be that of a new keeper, with a socket of its own in that place.
            let pid_is_taken = || proc::stat(intent.keeper.pid).is_ok_and(|stat| stat.is_living());
            if !keeper_is_taken && !pid_is_taken() {
                let _ = std::fs::remove_file(self.home.keepers().join(intent.keeper.pid.to_string()));
            }
            let mark = format!("PINFOLD_MARK={}", intent.mark).into_bytes();
            let mut ground = Ground { mark, cgroup: None, of_another_boot: false, keeper_is_taken, is_limited: false };
            if intent.boot_id != self.boot_id {
                grounds.push(Ground { of_another_boot: true, ..ground });
                continue;
            }
            // A limited tree has cgroups of its own: the v2 one contains it, the others are only removed.
            let limits = limits.get(&intent.keeper.pid).filter(|_| !keeper_is_taken);
            for path in limits.into_iter().flatten() {
                ground.cgroup = ground.cgroup.or(open_cgroup(path)?);
            }
            let own = intent.keeper.cgroup.as_deref().filter(|_| !keeper_is_taken && ground.cgroup.is_none());
            let own = own.map(open_cgroup).transpose()?.flatten();
            ground.cgroup = ground.cgroup.or(own);
            grounds.push(Ground { is_limited: limits.is_some(), ..ground });
        }
        Ok(grounds)
    }
}

/// What came of appending a loss.
fn appended(failed: Option<&LostError>) -> Appended {
    match failed {
        None => Appended::Written,
        Some(LostError::Over { .. }) => Appended::Over,
        Some(LostError::Record(RecordError::Missing { .. })) => Appended::Missing,
        Some(LostError::Held { .. }) => Appended::Held,
        Some(LostError::Io { .. }) => Appended::Refused,
        Some(LostError::Record(_) | LostError::NotLost) => Appended::Unusable,
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

/// Where the remains of one process are looked for.
struct Ground {
    mark: Vec<u8>,
    cgroup: Option<Cgroup>,
    /// Nothing of it can be left.
    of_another_boot: bool,
    keeper_is_taken: bool,
    is_limited: bool,
}

impl Ground {
    fn remains(&self) -> Option<Remains<'_>> {
        (!self.of_another_boot).then_some(Remains { mark: &self.mark, cgroup: self.cgroup.as_ref() })
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
