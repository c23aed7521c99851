//! Telling an owner more than the end: when the watch and the heartbeat of a process begin, and what of its output
//! its owner has seen already.
//!
//! They begin once for each process: when its start has been answered, or when a later daemon finds it alive.

use std::sync::Arc;

use pinfold_api::types::{OutputPage, OutputQuery};
use pinfold_model::outcome::Cause;
use pinfold_model::spec::DEFAULT_OWNER;

use crate::core::Core;
use crate::events::heartbeat;
use crate::events::patterns;
use crate::registry::{Entry, Found, Scope};

/// A start that has not been answered. Dropping it, with the answer or because the client went away, lets the watch
/// begin behind what the answer showed.
#[derive(Debug)]
pub(crate) struct Unanswered {
    core: Arc<Core>,
    entry: Arc<Entry>,
}

impl Unanswered {
    pub(crate) fn new(core: &Arc<Core>, entry: &Arc<Entry>) -> Self {
        Self { core: Arc::clone(core), entry: Arc::clone(entry) }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.core.attend(&self.entry);
    }
}

impl Core {
    /// Begins to tell the owner what it asked to be told; does nothing for a process of which that is only its end.
    pub(crate) fn attend(self: &Arc<Self>, entry: &Arc<Entry>) {
        let (watched, beats) = {
            let state = entry.state.borrow();
            let notify = &state.history.intent.spec.notify;
            let stopped = matches!(state.history.cause(), Some(Cause::StopRequested { .. }));
            if state.refused.is_some() {
                return;
            }
            (!notify.patterns.is_empty() && !stopped, notify.heartbeat)
        };
        if (!watched && beats.is_none()) || !entry.attend_first() {
            return;
        }
        // A start that is dropped with the event loop is taken up by the next daemon.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if watched {
            runtime.spawn(patterns::watch(Arc::clone(self), Arc::clone(entry)));
        }
        if let Some(every) = beats {
            runtime.spawn(heartbeat::beat(Arc::clone(self), Arc::clone(entry), every));
        }
    }

    /// Whoever asked was given output as text. What the owner has seen is no news to it; what others see hides
    /// nothing from it.
    pub(crate) fn note_read(&self, scope: &Scope, found: &Found, query: &OutputQuery, page: &OutputPage) {
        let Found::Here(entry) = found else { return };
        let is_owner = {
            let state = entry.state.borrow();
            let owner = state.history.owner();
            match scope {
                Scope::Owner(reader) => reader == owner,
                // Whoever says no name starts as this owner, and reads as the operator.
                Scope::Operator => owner == DEFAULT_OWNER,
            }
        };
        if is_owner && query.stream.is_none() {
            note_page(entry, page);
        }
    }
}

/// The owner was given this page. Where something was left out, it has not seen all that is behind it.
pub(crate) fn note_page(entry: &Entry, page: &OutputPage) {
    if page.matches.is_none() && page.omitted.is_none() && page.gap.is_none() {
        entry.note_shown(page.cursor, page.next_cursor);
    }
}
