//! What keepers tell: facts, refusals, and the processes they kept while there was no daemon. Each fact goes into
//! memory, where waits end on it, and through the ledger into the index.

use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::Event;
use pinfold_model::event::EventKind;
use pinfold_model::facts::{Fact, History};
use pinfold_model::id::ProcessId;
use pinfold_model::link::{Kept, Waiting};
use pinfold_model::outcome::StartStep;
use pinfold_model::reach;
use pinfold_os::crash_point;
use pinfold_store::index::Change;

use crate::clock::now;
use crate::core::{Core, blocking};
use crate::events::compose::{event_of, events_of, told};
use crate::output::screen;
use crate::refusal::Refusal;
use crate::refusal::unwritable;
use crate::registry::keeper_link::Link;
use crate::registry::records;
use crate::registry::{Entry, Found, Registered};

impl Core {
    /// A keeper told a fact that it has written.
    pub(super) async fn note_fact(self: &Arc<Self>, entry: &Arc<Entry>, fact: Fact) {
        if entry.status().is_over() {
            return tracing::warn!(process = %entry.id, ?fact, "a fact of a process that is over");
        }
        let (kind, at) = (fact.event(), fact.at());
        let note = if let Fact::Noted { text, .. } = &fact { Some(text.clone()) } else { None };
        entry.add(fact);
        crash_point!("daemon.fact_noted");
        let history = entry.state.borrow().history.clone();
        if kind == Some(EventKind::HandedOver) {
            self.owners.learn(&history);
        }
        match note {
            Some(note) => tracing::info!(process = %entry.id, %note, "noted"),
            None => self.note_in_log(&history, kind),
        }
        let over = history.status().is_over();
        if over {
            self.registry.retire(entry);
            self.metrics.note_end(&history);
        }
        let (told, home) = (history.clone(), self.home.clone());
        let made = move || {
            let event = kind.map(|kind| event_of(&told, kind, at));
            let end = over.then(|| (records::disk_bytes(&told, &home), told));
            let end = end.map(|(bytes, history)| Change::Put(Box::new(history), bytes));
            event.into_iter().chain(end).collect()
        };
        self.ledger.make(made).await;
        if over {
            self.follow_end(&history).await;
        }
    }

    fn note_in_log(&self, history: &History, kind: Option<EventKind>) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (id, owner) = (&history.intent.id, history.owner());
        let kind = kind.map_or("intended", EventKind::name);
        let pid = history.start.as_ref().map(|start| start.pid);
        let code = history.outcome().and_then(|outcome| outcome.shell_code());
        // The event log has it for everybody; this one is for what became of the daemon, unless it is asked for more.
        tracing::debug!(process = %id, owner = %owner, pid, code, "{kind}");
    }

    /// The store refused a start, or what was asked for does not exist (`step`): nothing is left of it.
    pub(super) fn note_refused(&self, link: &Link, id: &ProcessId, error: String, step: Option<StartStep>) {
        let refusal = match step {
            Some(StartStep::Spawn) => Refusal::new(ErrorCode::ResourceShortage, error),
            Some(step) => Refusal::failed_start(step, &error),
            None => {
                tracing::error!(process = %id, %error, "the store refused a start");
                unwritable(&error)
            }
        };
        if link.entry().is_none_or(|entry| entry.id != *id) {
            return;
        }
        if let Some(entry) = link.release() {
            self.undo_start(&entry);
            entry.state.send_modify(|state| state.refused = Some(refusal));
        }
    }

    /// A keeper that lived through the death of an earlier daemon.
    pub(super) async fn adopt(self: &Arc<Self>, link: &Arc<Link>, kept: Kept) {
        let Kept { history, terminal, waiting, .. } = kept.clone();
        let known = self.registry.get(&history.intent.id);
        if !reach::is_adopted(known.as_ref().map(|entry| entry.status())) {
            return tracing::warn!(process = %history.intent.id, "a keeper keeps a process that is over");
        }
        let entry = match known {
            Some(entry) => entry,
            None => {
                let entry = Entry::new(history.clone());
                if let Registered::KeyTaken(holder) = self.registry.insert(&entry) {
                    tracing::error!(process = %entry.id, holder = %holder.id, "two processes with one key");
                }
                entry
            }
        };
        link.keep(&entry);
        crash_point!("daemon.keeper_adopted");
        self.owners.learn(&history);
        entry.state.send_modify(|state| {
            state.history = history.clone();
            state.paused = kept.paused;
            state.output_bytes = kept.output_bytes;
            state.note = None;
            state.waiting = kept.waiting;
        });
        if let Some(told) = terminal {
            let here = Arc::clone(&entry);
            let taken_up = blocking(move || {
                here.note_size(told.size);
                here.with_terminal(|terminal| terminal.note_answered(told.answered));
            });
            // Trouble here costs a screen, which is told to whoever asks for it.
            let _ = taken_up.await;
        }
        tracing::info!(process = %entry.id, owner = %history.owner(), "adopted");
        self.ledger.apply(events_of(&history)).await;
        self.leases.keep(&history);
        self.attend(&entry);
        self.look_for_readiness(&entry, None);
        screen::follow(self, &entry);
        self.note_waiting(&entry, waiting);
        if history.status().is_over() {
            self.registry.retire(&entry);
            let bytes = records::disk_bytes(&history, &self.home);
            self.ledger.apply(vec![Change::Put(Box::new(history.clone()), bytes)]).await;
            self.follow_end(&history).await;
        }
    }
}

impl Core {
    /// Whether it waits for input has changed. Of one with a terminal its owner is told, once for each wait: whoever opened
    /// a pipe knows what is read from it.
    pub(super) fn note_waiting(self: &Arc<Self>, entry: &Arc<Entry>, waiting: Waiting) {
        entry.state.send_modify(|state| state.waiting = waiting);
        if waiting.now == Some(true) && entry.has_terminal() {
            let (core, entry) = (Arc::clone(self), Arc::clone(entry));
            // The screen may take a while to make; the keeper's other messages do not wait for it.
            tokio::spawn(async move { core.tell_waiting(&entry, waiting.count).await });
        }
    }

    async fn tell_waiting(self: &Arc<Self>, entry: &Arc<Entry>, count: u64) {
        let (history, at) = (entry.snapshot().history, now());
        let screen = self.screen(&Found::Here(Arc::clone(entry))).await;
        let text = screen.as_ref().ok().and_then(|screen| {
            let row = usize::from(screen.cursor.row).saturating_sub(1);
            screen.lines.get(row).or(screen.lines.last()).cloned()
        });
        let cursor = screen.as_ref().ok().map(|screen| screen.output_cursor.saturating_sub(1));
        let event = Event { cursor, text, ..records::event(&history, EventKind::WaitingForInput, at) };
        self.ledger.apply(vec![told(&history, event, (EventKind::WaitingForInput, count, at))]).await;
    }
}
