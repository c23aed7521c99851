//! The index: commits are atomic, and each event is stored once.

use std::collections::{BTreeMap, BTreeSet};

use pinfold_model::event::EventKind;
use pinfold_model::facts::{History, Status};
use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;

use crate::check;
use crate::machine::Machine;

/// An event to commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    pub id: ProcessId,
    pub kind: EventKind,
    /// Distinguishes events of a kind that can happen more than once.
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
    /// Events in the order in which clients saw them.
    pub shown: Vec<(ProcessId, EventKind)>,
    over: BTreeMap<ProcessId, Status>,
}

impl Index {
    /// Commits events; those already stored are not shown again.
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

    /// The kinds of a process's events, in the order in which clients saw them.
    pub fn events_of(&self, id: &ProcessId) -> Vec<EventKind> {
        self.shown.iter().filter(|(shown, _)| shown == id).map(|(_, kind)| *kind).collect()
    }
}
