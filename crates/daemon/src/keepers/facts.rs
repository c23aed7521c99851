//! What keepers report: facts, refused starts, and processes they kept while no daemon ran. Each fact goes into memory,
//! where waits end on it, and through the index writer into the index.

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
use crate::events::compose::{event_change, event_of, events_of};
use crate::output::screen;
use crate::registry::keeper_link::Link;
use crate::registry::records;
use crate::registry::{Entry, FoundProcess, Registered};
use crate::request_error::RequestError;
use crate::request_error::unwritable;

impl Core {
    /// Notes a fact that a keeper has written to its record.
    pub(super) async fn note_fact(self: &Arc<Self>, entry: &Arc<Entry>, fact: Fact) {
        if entry.status().is_over() {
            return tracing::warn!(process = %entry.id, ?fact, "ignored a fact about a process that is over");
        }
        let (kind, at) = (fact.event(), fact.at());
        let note = if let Fact::Noted { text, .. } = &fact { Some(text.clone()) } else { None };
        entry.add(fact);
        crash_point!("daemon.fact_noted");
        let history = entry.state.borrow().history.clone();
        if kind == Some(EventKind::HandedOver) {
            self.owners.note_owner(&history);
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
        if let Some(telemetry) = &self.telemetry {
            match kind {
                Some(EventKind::Started) => telemetry.started(&history),
                _ if over => telemetry.ended(&history),
                _ => {}
            }
        }
        let (shared, home) = (history.clone(), self.home.clone());
        let made = move || {
            let event = kind.map(|kind| event_of(&shared, kind, at));
            let end = over.then(|| (records::disk_bytes(&shared, &home), shared));
            let end = end.map(|(bytes, history)| Change::Put(Box::new(history), bytes));
            event.into_iter().chain(end).collect()
        };
        self.index_writer.apply_with(&history, made).await;
        if over {
            self.follow_end(&history).await;
        }
    }

    fn note_in_log(&self, history: &History, kind: Option<EventKind>) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (id, owner) = (&history.intent.id, history.owner());
        let kind = kind.map_or("refused", EventKind::name);
        let pid = history.start.as_ref().map(|start| start.pid);
        let code = history.outcome().and_then(|outcome| outcome.shell_code());
        // Clients read this in the event log; daemon.log has it at debug level only.
        tracing::debug!(process = %id, owner = %owner, pid, code, "{kind}");
    }

    /// A keeper could not start a process: the record cannot be written, or the program or directory does not exist
    /// (`step`). Nothing of the start remains.
    pub(super) fn note_refused(&self, link: &Link, id: &ProcessId, error: String, step: Option<StartStep>) {
        let error = match step {
            Some(StartStep::Spawn) => RequestError::new(ErrorCode::ResourceShortage, error),
            Some(step) => RequestError::failed_start(step, &error),
            None => {
                tracing::error!(process = %id, %error, "cannot write the record of a start");
                unwritable(&error)
            }
        };
        if link.entry().is_none_or(|entry| entry.id != *id) {
            return;
        }
        if let Some(entry) = link.unbind() {
            self.undo_start(&entry);
            entry.state.send_modify(|state| state.refused = Some(error));
        }
    }

    /// Takes over the process of a keeper that outlived an earlier daemon.
    pub(super) async fn adopt(self: &Arc<Self>, link: &Arc<Link>, kept: Kept) {
        let Kept { history, terminal, waiting, .. } = kept.clone();
        let known = self.registry.get(&history.intent.id);
        if !reach::should_adopt(known.as_ref().map(|entry| entry.status())) {
            return tracing::warn!(process = %history.intent.id, "ignored a keeper whose process is over");
        }
        let entry = match known {
            Some(entry) => entry,
            None => {
                let entry = Entry::new(history.clone());
                if let Registered::KeyTaken(holder) = self.registry.insert(&entry) {
                    tracing::error!(process = %entry.id, holder = %holder.id, "two processes have the same idempotency key");
                }
                entry
            }
        };
        link.bind(&entry);
        crash_point!("daemon.keeper_adopted");
        self.owners.note_owner(&history);
        entry.state.send_modify(|state| {
            state.history = history.clone();
            state.paused = kept.paused;
            state.output_bytes = kept.output_bytes;
            state.note = None;
            state.waiting = kept.waiting;
        });
        if let Some(reported) = terminal {
            let here = Arc::clone(&entry);
            let taken_up = blocking(move || {
                here.note_size(reported.size);
                here.with_terminal(|terminal| terminal.note_answered(reported.answered));
            });
            // A failure only affects the screen, and is reported when that is requested.
            let _ = taken_up.await;
        }
        tracing::info!(process = %entry.id, owner = %history.owner(), "adopted");
        self.index_writer.apply(events_of(&history)).await;
        self.leases.keep(&history);
        self.start_watching(&entry);
        self.look_for_readiness(&entry, None);
        screen::follow(self, &entry);
        self.note_waiting(&entry, waiting);
        if history.status().is_over() {
            self.registry.retire(&entry);
            if let Some(telemetry) = &self.telemetry {
                telemetry.ended(&history);
            }
            let bytes = records::disk_bytes(&history, &self.home);
            self.index_writer.apply(vec![Change::Put(Box::new(history.clone()), bytes)]).await;
            self.follow_end(&history).await;
        }
    }
}

impl Core {
    /// Notes whether a process waits for input. For a process with a terminal an event is sent, once per wait; the
    /// owner of a pipe knows what is read from it.
    pub(super) fn note_waiting(self: &Arc<Self>, entry: &Arc<Entry>, waiting: Waiting) {
        entry.state.send_modify(|state| state.waiting = waiting);
        if waiting.now == Some(true) && entry.has_terminal() {
            let (core, entry) = (Arc::clone(self), Arc::clone(entry));
            // Rendering the screen may take a while; the keeper's other messages do not wait for it.
            tokio::spawn(async move { core.announce_waiting(&entry, waiting.count).await });
        }
    }

    async fn announce_waiting(self: &Arc<Self>, entry: &Arc<Entry>, count: u64) {
        let (history, at) = (entry.snapshot().history, now());
        let screen = self.screen(&FoundProcess::Here(Arc::clone(entry))).await;
        let text = screen.as_ref().ok().and_then(|screen| {
            let row = usize::from(screen.cursor.row).saturating_sub(1);
            screen.lines.get(row).or(screen.lines.last()).cloned()
        });
        let cursor = screen.as_ref().ok().map(|screen| screen.output_cursor.saturating_sub(1));
        let event = Event { cursor, text, ..records::event(&history, EventKind::WaitingForInput, at) };
        self.index_writer.apply(vec![event_change(&history, event, (EventKind::WaitingForInput, count, at))]).await;
    }
}
