//! What must hold at every step, whatever happens.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pinfold_model::event::EventKind;
use pinfold_model::facts::{Fact, History};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Outcome;
use pinfold_os::wait::Status;
use pinfold_store::record::{Record, RecordError, parse_record};

use crate::index::NewEvent;
use crate::keeper::RunningKeeper;
use crate::machine::{Machine, State};
use crate::scene::record_of;

/// How a frame with a fact begins, after its length.
const FACT: &[u8] = br#"{"say":"fact","id":""#;
const BETWEEN: &[u8] = br#"","fact":"#;

/// K1: what a keeper sends as a fact is in the record already, word for word.
pub(crate) fn sent_by_keeper(state: &mut State, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(at) = find(rest, FACT) {
        rest = &rest[at + FACT.len()..];
        let (Some(middle), Some(end)) = (find(rest, BETWEEN), frame_end(bytes, rest)) else { return };
        let id = std::str::from_utf8(&rest[..middle]).ok().and_then(|id| ProcessId::parse(id).ok());
        let json = rest.get(middle + BETWEEN.len()..end);
        let (Some(id), Some(json)) = (id, json) else { return };
        let written = state.records.get(&id).is_some_and(|inode| holds_line(&inode.borrow().bytes, json));
        if !written {
            let fact = String::from_utf8_lossy(json).into_owned();
            state.broken.get_or_insert(format!("K1: {id} is said to have {fact}, which is not in its record"));
        }
    }
}

/// Where the fact of a frame ends that begins in `bytes` just before `rest`: one brace before the frame's end.
fn frame_end(bytes: &[u8], rest: &[u8]) -> Option<usize> {
    let begin = bytes.len() - rest.len() - FACT.len();
    let header = bytes.get(begin.checked_sub(4)?..begin)?;
    let length = u32::from_le_bytes(header.try_into().ok()?) as usize;
    let end = length.checked_sub(FACT.len() + 1)?;
    (end <= rest.len()).then_some(end)
}

/// Whether the record holds this JSON as a whole line.
fn holds_line(record: &[u8], json: &[u8]) -> bool {
    record
        .split_inclusive(|byte| *byte == b'\n')
        .any(|line| line.len() == 9 + json.len() + 1 && line.ends_with(b"\n") && &line[9..line.len() - 1] == json)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// D3: what the daemon takes for a fact is in the record.
pub(crate) fn noted_by_daemon(machine: &Machine, id: &ProcessId, fact: &Fact) {
    let written = record_of(machine, id).is_some_and(|record| record.facts.contains(fact));
    if !written {
        machine.broken(format!("D3: the daemon notes {fact:?} of {id}, which is not in its record"));
    }
}

/// D3: what a keeper says to have is in the record.
pub(crate) fn adopted(machine: &Machine, told: &History) {
    let id = &told.intent.id;
    let written = record_of(machine, id).and_then(|record| record.history());
    let known = |history: &History| {
        (told.start.is_none() || told.start == history.start)
            && (told.exit.is_none() || told.exit == history.exit)
            && (told.finish.is_none() || told.finish == history.finish)
    };
    if !written.as_ref().is_some_and(known) {
        machine.broken(format!("D3: a keeper says more of {id} than its record"));
    }
}

/// D3: an event is committed only when the record has its fact.
pub(crate) fn committed(machine: &Machine, event: &NewEvent) {
    let history = record_of(machine, &event.id).and_then(|record| record.history());
    let durable = history.is_some_and(|history| match event.kind {
        EventKind::Started => history.start.is_some(),
        EventKind::Exited => history.exit.is_some(),
        EventKind::Closed => history.closed_at.is_some(),
        EventKind::Finished => history.finish.is_some(),
        EventKind::Lost => history.lost.is_some(),
        _ => true,
    });
    if !durable {
        machine.broken(format!("D3: {} of {} is shown, and its record does not have it", event.kind.name(), event.id));
    }
}

/// A stop that was answered without survivors has left nobody.
pub(crate) fn stopped(machine: &Machine, id: &ProcessId) {
    let left = machine.state().tree_of(id);
    if !left.is_empty() {
        machine.broken(format!("a stop of {id} is answered, and {left:?} live"));
    }
}

/// D1: a start that was acknowledged is not forgotten.
pub(crate) fn forgotten(machine: &Machine, id: &ProcessId, acknowledged: bool) {
    if acknowledged {
        machine.broken(format!("D1: the start of {id} was acknowledged, and is forgotten"));
    }
}

/// Nothing is swept while a living keeper keeps it.
pub(crate) fn swept(machine: &Machine, id: &ProcessId, keepers: &BTreeMap<u32, RunningKeeper>) {
    if let Some(keeper) = keeper_of(machine, id, keepers) {
        machine.broken(format!("the tree of {id} is swept, which keeper {keeper} keeps and lives"));
    }
}

/// A process is lost only if nobody keeps it, and nobody of it is left who could be killed.
pub(crate) fn lost(machine: &Machine, id: &ProcessId, keepers: &BTreeMap<u32, RunningKeeper>) {
    if let Some(keeper) = keeper_of(machine, id, keepers) {
        machine.broken(format!("{id} is recorded as lost, and keeper {keeper} keeps it"));
    }
    let state = machine.state();
    let left = state.tree_of(id).into_iter().any(|pid| state.processes[&pid].doomed.is_none());
    drop(state);
    if left {
        machine.broken(format!("{id} is recorded as lost, and somebody of its tree lives"));
    }
}

/// Nothing is removed that somebody keeps, or that began.
pub(crate) fn removed(machine: &Machine, id: &ProcessId, keepers: &BTreeMap<u32, RunningKeeper>) {
    if let Some(keeper) = keeper_of(machine, id, keepers) {
        machine.broken(format!("the directory of {id} is removed, which keeper {keeper} keeps"));
    }
    if record_of(machine, id).is_some() {
        machine.broken(format!("the directory of {id} is removed, and its record has begun"));
    }
}

/// The socket of a living keeper stays: without it no later daemon finds the keeper.
pub(crate) fn socket_removed(machine: &Machine, pid: u32) {
    let state = machine.state();
    let start_time = state.keeper_sockets.get(&pid).copied();
    let lives = state.is_alive(pid) && state.processes.get(&pid).map(|process| process.start_time) == start_time;
    drop(state);
    if lives {
        machine.broken(format!("the socket of keeper {pid} is removed, and it lives"));
    }
}

fn keeper_of(machine: &Machine, id: &ProcessId, keepers: &BTreeMap<u32, RunningKeeper>) -> Option<u32> {
    let keeps = |keeper: &&RunningKeeper| keeper.keeps() == Some(id) && machine.is_alive(keeper.pid());
    keepers.values().find(keeps).map(RunningKeeper::pid)
}

/// What was seen of each record: its version, and once it was over, its content.
#[derive(Debug, Default)]
pub struct Records {
    seen: BTreeMap<ProcessId, (u64, Option<Vec<u8>>)>,
}

impl Records {
    /// L1, L2, S1: every record that changed since the last look can be read, invents nothing, and keeps its end.
    pub fn check(&mut self, machine: &Machine) {
        let changed: Vec<(ProcessId, u64, Vec<u8>)> = {
            let state = machine.state();
            let is_new = |id: &ProcessId, version: u64| self.seen.get(id).is_none_or(|(seen, _)| *seen != version);
            let records = state.records.iter().map(|(id, inode)| (id, inode.borrow()));
            let changed = records.filter(|(id, inode)| is_new(id, inode.version));
            changed.map(|(id, inode)| (id.clone(), inode.version, inode.bytes.clone())).collect()
        };
        for (id, version, bytes) in changed {
            let over = self.check_one(machine, &id, &bytes);
            self.seen.insert(id, (version, over));
        }
    }

    fn check_one(&self, machine: &Machine, id: &ProcessId, bytes: &[u8]) -> Option<Vec<u8>> {
        if let Some((_, Some(before))) = self.seen.get(id) {
            // Something torn behind the end is nothing.
            if !bytes.starts_with(before) {
                machine.broken(format!("S1: the record of {id} held its end, and was changed"));
            }
            return Some(before.clone());
        }
        let record = match parse_record(PathBuf::from("record"), bytes) {
            Ok((record, _)) => record,
            Err(RecordError::Empty { .. }) => return None,
            Err(error) => {
                machine.broken(format!("the record of {id} cannot be read: {error}"));
                return None;
            }
        };
        let ends = record.facts.iter().filter(|fact| matches!(fact, Fact::Finished(_) | Fact::Lost { .. })).count();
        if ends > 1 {
            machine.broken(format!("L2: the record of {id} holds {ends} ends"));
        }
        check_outcome(machine, id, &record);
        if !record.is_over() {
            return None;
        }
        if matches!(record.facts.last(), Some(Fact::Finished(_))) && !machine.state().tree_of(id).is_empty() {
            machine.broken(format!("{id} is recorded as finished, and somebody of its tree lives"));
        }
        Some(bytes[..bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)].to_vec())
    }
}

/// L1: the outcome is what the kernel reported.
fn check_outcome(machine: &Machine, id: &ProcessId, record: &Record) {
    let recorded = record.facts.iter().find_map(|fact| match fact {
        Fact::Exited(exit) => Some(&exit.end.outcome),
        Fact::Finished(finish) => Some(&finish.end.outcome),
        _ => None,
    });
    let truth = machine.state().truth.get(id).copied();
    let is_true = match (recorded, truth) {
        (None, _) => true,
        (Some(Outcome::FailedToStart { .. }), None) => true,
        (Some(Outcome::Exited { code }), Some(Status::Exited { code: true_code })) => *code == true_code,
        (Some(Outcome::Signaled { signal, .. }), Some(Status::Signaled { signal: true_signal, .. })) => {
            signal.number() == true_signal
        }
        _ => false,
    };
    if !is_true {
        machine.broken(format!("L1: {id} is recorded with {recorded:?}, and the kernel reported {truth:?}"));
    }
}
