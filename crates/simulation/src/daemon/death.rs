//! Handles a process whose keeper died, as `daemon::keepers::death` does: proof, record, sweep, loss.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pinfold_model::facts::{Fact, History};
use pinfold_model::id::ProcessId;
use pinfold_model::loss::{
    AfterAppend, DeathEvidence, LossAppend, RecordRead, RecordedEnd, after_append, recorded_end,
};
use pinfold_os::wait::ExitStatus;
use pinfold_store::Durability;
use pinfold_store::record::{LostError, append_lost_locked};

use super::{Daemon, KeeperDeath};
use crate::check;
use crate::files::MemoryFile;
use crate::harness::record_of;
use crate::keeper::RunningKeeper;
use crate::machine::SIGKILL;

/// How often an unresolved death is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A death that cannot be resolved yet, with the evidence of an earlier sweep.
struct Unresolved(Option<String>);

impl Daemon {
    pub(crate) fn resolve_death(&mut self, id: &ProcessId, keepers: &BTreeMap<u32, RunningKeeper>) {
        let Some(keeper_death) = self.entries.get_mut(id).and_then(|entry| entry.keeper_death.take()) else { return };
        let history = self.entries[id].history.clone();
        match self.try_resolve_death(&history, keeper_death.evidence, keepers) {
            Ok(Some(facts)) => facts.into_iter().for_each(|fact| self.note_fact(id, fact)),
            Ok(None) => self.undo_start(id),
            // The keeper is running after all.
            Err(_) if self.is_keeper_alive(&history.intent.keeper) && !self.entries[id].disowned => {
                self.start_reconnect(id)
            }
            Err(Unresolved(evidence)) => {
                let at = self.machine.now() + RETRY_INTERVAL;
                if let Some(entry) = self.entries.get_mut(id) {
                    entry.keeper_death = Some(KeeperDeath { evidence, at });
                }
            }
        }
    }

    /// The new facts, or `None` if nothing was started.
    fn try_resolve_death(
        &mut self,
        history: &History,
        evidence: Option<String>,
        keepers: &BTreeMap<u32, RunningKeeper>,
    ) -> Result<Option<Vec<Fact>>, Unresolved> {
        let id = &history.intent.id;
        let Some(recorded) = self.read_end(history) else { return Err(Unresolved(evidence)) };
        let evidence = match recorded.needs_sweep(evidence.is_some()) {
            true => Some(self.sweep(history, keepers)),
            false => evidence,
        };
        match (recorded, evidence) {
            (RecordedEnd::End(facts), _) => Ok(Some(facts)),
            (RecordedEnd::NeverStarted, _) => {
                if self.machine.try_act(self.pid) {
                    check::removed(&self.machine, id, keepers);
                    self.machine.state().records.remove(id);
                }
                Ok(None)
            }
            (RecordedEnd::NoEnd(facts), Some(evidence)) => self.record_loss(history, facts, evidence, keepers),
            (RecordedEnd::NoEnd(_), None) => Err(Unresolved(None)),
        }
    }

    /// What the record says; `None` without proof that the keeper is dead.
    fn read_end(&self, history: &History) -> Option<RecordedEnd> {
        let id = &history.intent.id;
        let alive = self.is_keeper_alive(&history.intent.keeper);
        let disowned = self.entries.get(id).is_some_and(|entry| entry.disowned);
        let death = DeathEvidence { alive, disowned, lock: self.lock_of(id) };
        let checked = death.check();
        self.machine.trace(|| format!("daemon checks whether the keeper of {id} died: {death:?} {checked:?}"));
        checked.ok()?;
        let read =
            record_of(&self.machine, id).map_or(RecordRead::Nothing, |record| RecordRead::Facts(record.facts.clone()));
        Some(recorded_end(history, read))
    }

    /// Kills what is left of the tree, found by its mark. A process in an uninterruptible wait stays.
    fn sweep(&self, history: &History, keepers: &BTreeMap<u32, RunningKeeper>) -> String {
        let id = &history.intent.id;
        check::swept(&self.machine, id, keepers);
        let tree = self.machine.state().tree_of(id);
        let mut killed = 0;
        for pid in tree {
            if self.machine.try_act(self.pid) {
                let mut state = self.machine.state();
                state.signal(pid, SIGKILL);
                if !state.processes[&pid].stuck {
                    state.end(pid, ExitStatus::Signaled { signal: SIGKILL, core_dumped: false });
                }
                killed += 1;
            }
        }
        self.machine.trace(|| format!("daemon sweeps {id}: {killed} killed"));
        format!("keeper {} ended without an exit record; {killed} were killed", history.intent.keeper.pid)
    }

    fn record_loss(
        &mut self,
        history: &History,
        mut facts: Vec<Fact>,
        evidence: String,
        keepers: &BTreeMap<u32, RunningKeeper>,
    ) -> Result<Option<Vec<Fact>>, Unresolved> {
        let id = &history.intent.id;
        let lost = Fact::Lost { evidence: evidence.clone(), at: self.machine.moment() };
        let appended = self.append_lost(id, &lost);
        self.machine.trace(|| format!("daemon writes that {id} is lost: {appended:?}"));
        if appended == LossAppend::Written {
            check::lost(&self.machine, id, keepers);
        }
        match after_append(appended) {
            AfterAppend::Report => {
                facts.push(lost);
                Ok(Some(facts))
            }
            AfterAppend::ReadAgain => match self.read_end(history) {
                Some(RecordedEnd::End(facts)) => Ok(Some(facts)),
                _ => Err(Unresolved(Some(evidence))),
            },
            AfterAppend::Recreate | AfterAppend::Retry => Err(Unresolved(Some(evidence))),
        }
    }

    fn append_lost(&self, id: &ProcessId, lost: &Fact) -> LossAppend {
        let file = match MemoryFile::lock(&self.machine, self.pid, id) {
            Ok(Some(file)) => file,
            Ok(None) => return LossAppend::Locked,
            Err(_) => return LossAppend::Missing,
        };
        let bytes = file.content();
        match append_lost_locked(&file, PathBuf::from("record"), &bytes, lost, Durability::Programs) {
            Ok(()) => LossAppend::Written,
            Err(LostError::Over { .. }) => LossAppend::Over,
            Err(LostError::Io { .. }) => LossAppend::Refused,
            Err(LostError::Locked { .. }) => LossAppend::Locked,
            Err(LostError::Record(_) | LostError::NotLost) => LossAppend::Unusable,
        }
    }
}
