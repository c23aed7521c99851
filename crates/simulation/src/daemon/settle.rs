//! A process whose keeper died, as `daemon::loss` settles it: proof, record, sweep, loss.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pinfold_model::facts::{Fact, History};
use pinfold_model::id::ProcessId;
use pinfold_model::loss::{AfterAppend, Appended, Proof, RecordRead, RecordedEnd, after_append, recorded_end};
use pinfold_os::wait::Status;
use pinfold_store::Durability;
use pinfold_store::record::{LostError, append_lost_locked};

use super::{Daemon, Settling};
use crate::check;
use crate::files::MemoryFile;
use crate::keeper::RunningKeeper;
use crate::machine::SIGKILL;
use crate::scene::record_of;

/// How often a process is tried to be settled that could not be.
const AGAIN: Duration = Duration::from_millis(500);

/// A process that is not settled yet, with what a sweep has found so far.
struct Unsettled(Option<String>);

impl Daemon {
    pub(crate) fn settle(&mut self, id: &ProcessId, keepers: &BTreeMap<u32, RunningKeeper>) {
        let Some(settling) = self.entries.get_mut(id).and_then(|entry| entry.settling.take()) else { return };
        let history = self.entries[id].history.clone();
        match self.try_settle(&history, settling.evidence, keepers) {
            Ok(Some(facts)) => facts.into_iter().for_each(|fact| self.note_fact(id, fact)),
            Ok(None) => self.undo_start(id),
            // It was taken for dead by mistake: there is a keeper to be reached.
            Err(_) if self.lives(&history.intent.keeper) && !self.entries[id].disowned => self.begin_to_reach(id),
            Err(Unsettled(evidence)) => {
                let at = self.machine.now() + AGAIN;
                if let Some(entry) = self.entries.get_mut(id) {
                    entry.settling = Some(Settling { evidence, at });
                }
            }
        }
    }

    /// The facts that are new, or `None` if nothing was started.
    fn try_settle(
        &mut self,
        history: &History,
        evidence: Option<String>,
        keepers: &BTreeMap<u32, RunningKeeper>,
    ) -> Result<Option<Vec<Fact>>, Unsettled> {
        let id = &history.intent.id;
        let Some(told) = self.read_end(history) else { return Err(Unsettled(evidence)) };
        let evidence = match told.needs_sweep(evidence.is_some()) {
            true => Some(self.sweep(history, keepers)),
            false => evidence,
        };
        match (told, evidence) {
            (RecordedEnd::End(facts), _) => Ok(Some(facts)),
            (RecordedEnd::NeverBegan, _) => {
                if self.machine.acts(self.pid) {
                    check::removed(&self.machine, id, keepers);
                    self.machine.state().records.remove(id);
                }
                Ok(None)
            }
            (RecordedEnd::NoEnd(facts), Some(evidence)) => self.record_loss(history, facts, evidence, keepers),
            (RecordedEnd::NoEnd(_), None) => Err(Unsettled(None)),
        }
    }

    /// What the record says; `None` without proof that the keeper is dead.
    fn read_end(&self, history: &History) -> Option<RecordedEnd> {
        let id = &history.intent.id;
        let lives = self.lives(&history.intent.keeper);
        let disowned = self.entries.get(id).is_some_and(|entry| entry.disowned);
        let proof = Proof { lives, disowned, lock: self.lock_of(id) };
        let checked = proof.check();
        self.machine.note(|| format!("daemon looks what became of {id}: {proof:?} {checked:?}"));
        checked.ok()?;
        let read = record_of(&self.machine, id).map_or(RecordRead::Nothing, |record| RecordRead::Facts(record.facts));
        Some(recorded_end(history, read))
    }

    /// Kills what is left of the tree, found by its mark, and waits for its end; whoever waits inside the kernel is left.
    fn sweep(&self, history: &History, keepers: &BTreeMap<u32, RunningKeeper>) -> String {
        let id = &history.intent.id;
        check::swept(&self.machine, id, keepers);
        let tree = self.machine.state().tree_of(id);
        let mut killed = 0;
        for pid in tree {
            if self.machine.acts(self.pid) {
                let mut state = self.machine.state();
                state.signal(pid, SIGKILL);
                if !state.processes[&pid].stuck {
                    state.end(pid, Status::Signaled { signal: SIGKILL, core_dumped: false });
                }
                killed += 1;
            }
        }
        self.machine.note(|| format!("daemon sweeps {id}: {killed} killed"));
        format!("keeper {} ended without an exit record; {killed} were killed", history.intent.keeper.pid)
    }

    fn record_loss(
        &mut self,
        history: &History,
        mut facts: Vec<Fact>,
        evidence: String,
        keepers: &BTreeMap<u32, RunningKeeper>,
    ) -> Result<Option<Vec<Fact>>, Unsettled> {
        let id = &history.intent.id;
        let lost = Fact::Lost { evidence: evidence.clone(), at: self.machine.moment() };
        let appended = self.append_lost(id, &lost);
        self.machine.note(|| format!("daemon writes that {id} is lost: {appended:?}"));
        if appended == Appended::Written {
            check::lost(&self.machine, id, keepers);
        }
        match after_append(appended) {
            AfterAppend::Tell => {
                facts.push(lost);
                Ok(Some(facts))
            }
            AfterAppend::ReadAgain => match self.read_end(history) {
                Some(RecordedEnd::End(facts)) => Ok(Some(facts)),
                _ => Err(Unsettled(Some(evidence))),
            },
            AfterAppend::WriteAnew | AfterAppend::Again => Err(Unsettled(Some(evidence))),
        }
    }

    fn append_lost(&self, id: &ProcessId, lost: &Fact) -> Appended {
        let file = match MemoryFile::lock(&self.machine, self.pid, id) {
            Ok(Some(file)) => file,
            Ok(None) => return Appended::Held,
            Err(_) => return Appended::Missing,
        };
        let bytes = file.content();
        match append_lost_locked(&file, PathBuf::from("record"), &bytes, lost, Durability::Programs) {
            Ok(()) => Appended::Written,
            Err(LostError::Over { .. }) => Appended::Over,
            Err(LostError::Io { .. }) => Appended::Refused,
            Err(LostError::Held { .. }) => Appended::Held,
            Err(LostError::Record(_) | LostError::NotLost) => Appended::Unusable,
        }
    }
}
