//! The invariants, checked at every step.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pinfold_model::event::EventKind;
use pinfold_model::facts::{Fact, History};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Outcome;
use pinfold_os::wait::ExitStatus;
use pinfold_store::record::{Record, RecordError, parse_record};

use crate::harness::record_of;
use crate::index::NewEvent;
use crate::keeper::RunningKeeper;
use crate::machine::{Machine, State};

/// The start of a frame with a fact, after its length.
const FACT: &[u8] = br#"{"say":"fact","id":""#;
const BETWEEN: &[u8] = br#"","fact":"#;

/// K1: a fact that a keeper sends is in the record already, byte for byte.
pub(crate) fn keeper_sent(state: &mut State, bytes: &[u8]) {
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
            state.violation.get_or_insert(format!("K1: a keeper sent {fact} of {id}, which is not in its record"));
        }
    }
}

/// Where the fact ends: one brace before the end of the frame that contains `rest`.
fn frame_end(bytes: &[u8], rest: &[u8]) -> Option<usize> {
    let begin = bytes.len() - rest.len() - FACT.len();
    let header = bytes.get(begin.checked_sub(4)?..begin)?;
    let length = u32::from_le_bytes(header.try_into().ok()?) as usize;
    let end = length.checked_sub(FACT.len() + 1)?;
    (end <= rest.len()).then_some(end)
}

/// Whether the record has this JSON as a complete line.
fn holds_line(record: &[u8], json: &[u8]) -> bool {
    record
        .split_inclusive(|byte| *byte == b'\n')
        .any(|line| line.len() == 9 + json.len() + 1 && line.ends_with(b"\n") && &line[9..line.len() - 1] == json)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// D3: a fact that the daemon accepts is in the record.
pub(crate) fn fact_accepted(machine: &Machine, id: &ProcessId, fact: &Fact) {
    let written = record_of(machine, id).is_some_and(|record| record.facts.contains(fact));
    if !written {
        machine.violation(format!("D3: the daemon accepted {fact:?} of {id}, which is not in its record"));
    }
}

/// D3: the history that a keeper sends in its hello is in the record.
pub(crate) fn adopted(machine: &Machine, sent: &History) {
    let id = &sent.intent.id;
    let written = record_of(machine, id).and_then(|record| record.history());
    let known = |history: &History| {
        (sent.start.is_none() || sent.start == history.start)
            && (sent.exit.is_none() || sent.exit == history.exit)
            && (sent.finish.is_none() || sent.finish == history.finish)
    };
    if !written.as_ref().is_some_and(known) {
        machine.violation(format!("D3: a keeper's hello has facts about {id} that are not in its record"));
    }
}

/// D3: an event is committed only if its fact is in the record.
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
        machine.violation(format!(
            "D3: {} of {} is shown, and its record does not have it",
            event.kind.name(),
            event.id
        ));
    }
}

/// After a stop was answered without survivors, no process of the tree is running.
pub(crate) fn stopped(machine: &Machine, id: &ProcessId) {
    let left = machine.state().tree_of(id);
    if !left.is_empty() {
        machine.violation(format!("a stop of {id} was answered, but {left:?} are running"));
    }
}

/// D1: an acknowledged start is never undone.
pub(crate) fn start_undone(machine: &Machine, id: &ProcessId, acknowledged: bool) {
    if acknowledged {
        machine.violation(format!("D1: the start of {id} was acknowledged, and then undone"));
    }
}

/// A tree is not killed by the daemon while its keeper is running.
pub(crate) fn swept(machine: &Machine, id: &ProcessId, keepers: &BTreeMap<u32, RunningKeeper>) {
    if let Some(keeper) = keeper_of(machine, id, keepers) {
        machine.violation(format!("the daemon kills the tree of {id}, although its keeper {keeper} is running"));
    }
}

/// A process is recorded as lost only if no keeper runs it and no member of its tree is left.
pub(crate) fn lost(machine: &Machine, id: &ProcessId, keepers: &BTreeMap<u32, RunningKeeper>) {
    if let Some(keeper) = keeper_of(machine, id, keepers) {
        machine.violation(format!("{id} is recorded as lost, but keeper {keeper} runs it"));
    }
    let state = machine.state();
    let left = state.tree_of(id).into_iter().any(|pid| state.processes[&pid].pending_exit.is_none());
    drop(state);
    if left {
        machine.violation(format!("{id} is recorded as lost, but its tree is not empty"));
    }
}

/// A directory is not removed while a keeper uses it, nor after its first line is written.
pub(crate) fn removed(machine: &Machine, id: &ProcessId, keepers: &BTreeMap<u32, RunningKeeper>) {
    if let Some(keeper) = keeper_of(machine, id, keepers) {
        machine.violation(format!("the directory of {id} is removed, although keeper {keeper} uses it"));
    }
    if record_of(machine, id).is_some() {
        machine.violation(format!("the directory of {id} is removed, although its record has a first line"));
    }
}

/// The socket of a running keeper is not removed: no later daemon could find the keeper.
pub(crate) fn socket_removed(machine: &Machine, pid: u32) {
    let state = machine.state();
    let start_time = state.keeper_sockets.get(&pid).copied();
    let running = state.is_alive(pid) && state.processes.get(&pid).map(|process| process.start_time) == start_time;
    drop(state);
    if running {
        machine.violation(format!("the socket of keeper {pid} is removed, although it is running"));
    }
}

fn keeper_of(machine: &Machine, id: &ProcessId, keepers: &BTreeMap<u32, RunningKeeper>) -> Option<u32> {
    let keeps = |keeper: &&RunningKeeper| keeper.keeps() == Some(id) && machine.is_alive(keeper.pid());
    keepers.values().find(keeps).map(RunningKeeper::pid)
}

/// The version of each record at the last check, and its content once it is over.
#[derive(Debug, Default)]
pub struct Records {
    seen: BTreeMap<ProcessId, (u64, Option<Vec<u8>>)>,
}

impl Records {
    /// L1, L2, S1: every changed record is readable, has a true outcome, and keeps its end.
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
            // A torn line after the end does not count.
            if !bytes.starts_with(before) {
                machine.violation(format!("S1: the record of {id} was changed after its end"));
            }
            return Some(before.clone());
        }
        let Some(record) = record_of(machine, id) else {
            match parse_record(PathBuf::from("record"), bytes) {
                Ok(_) | Err(RecordError::Empty { .. }) => {}
                Err(error) => machine.violation(format!("the record of {id} cannot be read: {error}")),
            }
            return None;
        };
        let ends = record.facts.iter().filter(|fact| matches!(fact, Fact::Finished(_) | Fact::Lost { .. })).count();
        if ends > 1 {
            machine.violation(format!("L2: the record of {id} has {ends} ends"));
        }
        check_outcome(machine, id, &record);
        if !record.is_over() {
            return None;
        }
        if matches!(record.facts.last(), Some(Fact::Finished(_))) && !machine.state().tree_of(id).is_empty() {
            machine.violation(format!("{id} is recorded as finished, but its tree is not empty"));
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
    let actual = machine.state().actual_exits.get(id).copied();
    let is_true = match (recorded, actual) {
        (None, _) => true,
        (Some(Outcome::FailedToStart { .. }), None) => true,
        (Some(Outcome::Exited { code }), Some(ExitStatus::Exited { code: true_code })) => *code == true_code,
        (Some(Outcome::Signaled { signal, .. }), Some(ExitStatus::Signaled { signal: true_signal, .. })) => {
            signal.number() == true_signal
        }
        _ => false,
    };
    if !is_true {
        machine.violation(format!("L1: {id} is recorded with {recorded:?}, but the kernel reported {actual:?}"));
    }
}
