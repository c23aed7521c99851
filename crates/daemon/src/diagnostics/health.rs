//! How the daemon is: what it tells of itself, and what is wrong.

use std::sync::Arc;

use pinfold_api::types::Health;

use crate::clock::rfc3339;
use crate::core::Core;
use crate::lock::lock;
use crate::registry::{Entry, Scope};

impl Core {
    /// Of an owner's business only its own is told.
    pub(crate) async fn health(self: &Arc<Self>, scope: &Scope) -> Health {
        if !self.troubles().is_empty() {
            // Whether an index that was locked still is.
            let _ = self.query(|queries| queries.first_seq()).await;
        }
        let (troubles, live) = match scope {
            Scope::Operator => (self.troubles(), self.registry.live_count()),
            scope => {
                let in_view = |entry: &Arc<Entry>| self.sees(scope, &entry.state.borrow().history);
                (vec![], self.registry.live().iter().filter(|entry| in_view(entry)).count())
            }
        };
        Health {
            status: if troubles.is_empty() { "ok" } else { "degraded" }.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            home: self.home.root().to_string_lossy().into_owned(),
            socket: self.home.socket().to_string_lossy().into_owned(),
            tcp: self.tcp_address.get().map(ToString::to_string),
            started_at: rfc3339(self.started_at),
            live: live as u64,
            containment: if self.cgroups.is_ok() { "cgroup" } else { "subreaper" }.to_owned(),
            no_cgroup: self.cgroups.as_ref().err().cloned(),
            troubles,
            recovering: self.recovery.is_reading() || self.recovery.unsettled() > 0,
            notes: self.recovery.notes(),
        }
    }

    /// What is wrong with the daemon's own things, for people.
    fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        troubles.extend(lock(&self.home_trouble).clone());
        troubles.extend(self.tokens.trouble());
        troubles.extend(self.ledger.trouble());
        troubles.extend(lock(&self.unreadable_index).clone().map(|(_, why)| why));
        let unreadable = lock(&self.unreadable);
        troubles.extend(unreadable.iter().map(|one| format!("process {} cannot be read: {}", one.id, one.reason)));
        troubles
    }
}
