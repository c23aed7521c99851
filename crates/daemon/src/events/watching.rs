//! Starts the pattern watch and the heartbeats of a process, and tracks how much of its output the owner has seen.
//!
//! They start once per process: when its start request has been answered, or when a later daemon finds it alive.

use std::sync::Arc;

use pinfold_api::types::{OutputPage, OutputQuery};
use pinfold_model::outcome::Cause;
use pinfold_model::spec::DEFAULT_OWNER;

use crate::core::Core;
use crate::events::heartbeat;
use crate::events::patterns;
use crate::registry::{Entry, FoundProcess, Viewer};

/// A start request that has not been answered. Dropping it, with the answer or because the client disconnected, starts
/// the watch after the output that the answer showed.
#[derive(Debug)]
pub(crate) struct PendingAnswer {
    core: Arc<Core>,
    entry: Arc<Entry>,
}

impl PendingAnswer {
    pub(crate) fn new(core: &Arc<Core>, entry: &Arc<Entry>) -> Self {
        Self { core: Arc::clone(core), entry: Arc::clone(entry) }
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.core.start_watching(&self.entry);
    }
}

impl Core {
    /// Starts the watch and the heartbeats that the owner requested, if any.
    pub(crate) fn start_watching(self: &Arc<Self>, entry: &Arc<Entry>) {
        let (watched, beats) = {
            let state = entry.state.borrow();
            let notify = &state.history.intent.spec.notify;
            let stopped = matches!(state.history.cause(), Some(Cause::StopRequested { .. }));
            if state.refused.is_some() {
                return;
            }
            (!notify.patterns.is_empty() && !stopped, notify.heartbeat)
        };
        if (!watched && beats.is_none()) || !entry.claim_watch() {
            return;
        }
        // No event loop: the daemon is exiting, and the next one starts the watch.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if watched {
            runtime.spawn(patterns::run(Arc::clone(self), Arc::clone(entry)));
        }
        if let Some(every) = beats {
            runtime.spawn(heartbeat::run(Arc::clone(self), Arc::clone(entry), every));
        }
    }

    /// Notes that a caller was shown output as text. Output that the owner has seen is not announced to it again; what
    /// others see does not count.
    pub(crate) fn note_read(&self, viewer: &Viewer, found: &FoundProcess, query: &OutputQuery, page: &OutputPage) {
        let FoundProcess::Here(entry) = found else { return };
        let is_owner = {
            let state = entry.state.borrow();
            let owner = state.history.owner();
            match viewer {
                Viewer::Owner(reader) => reader == owner,
                // A client without an owner name starts processes as this owner, and reads as the operator.
                Viewer::Operator => owner == DEFAULT_OWNER,
            }
        };
        if is_owner && query.stream.is_none() {
            note_shown_page(entry, page);
        }
    }
}

/// Notes that the owner was shown this page. If the page leaves something out, nothing of it counts as seen.
pub(crate) fn note_shown_page(entry: &Entry, page: &OutputPage) {
    if page.matches.is_none() && page.omitted.is_none() && page.gap.is_none() {
        entry.note_shown(page.cursor, page.next_cursor);
    }
}
