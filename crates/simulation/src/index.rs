//! The index on disk, as far as its promises go: a commit is whole or nothing, and an event is in it once.

use std::collections::{BTreeMap, BTreeSet};

use pinfold_model::event::EventKind;
use pinfold_model::facts::{History, Status};
use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;

use crate::check;
use crate::machine::Machine;

/// An event on its way there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    pub id: ProcessId,
    pub kind: EventKind,
    /// Tells apart what may happen more than once.
    pub number: u64,
    pub at: Moment,
}

impl NewEvent {
    pub fn of(history: &History, kind: EventKind, at: Moment) -> Self {
        let number = history.handover_of(kind, at).map_or(0, |place| place as u64 + 1);
        Self { id: history.intent.id.clone(), kind, number, at }
    }
}

#[derive(Debug, Default)]
pub struct Index {
    events: BTreeSet<(ProcessId, EventKind, u64)>,
    /// In the order in which they were shown to clients.
    pub shown: Vec<(ProcessId, EventKind)>,
    over: BTreeMap<ProcessId, Status>,
}

impl Index {
    /// Commits events; those that were there before are not shown again.
    pub(crate) fn apply(&mut self, machine: &Machine, events: Vec<NewEvent>) {
        for event in events {
            check::committed(machine, &event);
            if self.events.insert((event.id.clone(), event.kind, event.number)) {
                self.shown.push((event.id, event.kind));
            }
        }
    }

    pub(crate) fn put(&mut self, id: &ProcessId, history: &History) {
        self.over.insert(id.clone(), history.status());
    }

    pub fn is_over(&self, id: &ProcessId) -> bool {
        self.over.contains_key(id)
    }

    /// The kinds of events of one process, in the order in which they were shown.
    pub fn events_of(&self, id: &ProcessId) -> Vec<EventKind> {
        self.shown.iter().filter(|(shown, _)| shown == id).map(|(_, kind)| *kind).collect()
    }
}
