//! `/healthz`: the daemon's state and problems.

use std::sync::Arc;

use pinfold_api::types::Health;

use crate::clock::rfc3339;
use crate::core::Core;
use crate::mutex::lock;
use crate::registry::{Entry, Viewer};

impl Core {
    /// The daemon's health. An owner sees only the number of its own processes, and no problems.
    pub(crate) async fn health(self: &Arc<Self>, viewer: &Viewer) -> Health {
        if !self.troubles().is_empty() {
            // Checks whether a locked index still is.
            let _ = self.query(|queries| queries.first_seq()).await;
        }
        let (troubles, live) = match viewer {
            Viewer::Operator => (self.troubles(), self.registry.live_count()),
            Viewer::Owner(_) => {
                let in_view = |entry: &Arc<Entry>| self.sees(viewer, &entry.state.borrow().history);
                (vec![], self.registry.live().iter().filter(|entry| in_view(entry)).count())
            }
        };
        Health {
            status: if troubles.is_empty() { "ok" } else { "degraded" }.to_owned(),
            version: self.version.to_owned(),
            pid: std::process::id(),
            home: self.home.root().to_string_lossy().into_owned(),
            socket: self.home.socket().to_string_lossy().into_owned(),
            tcp: self.tcp_address.get().map(ToString::to_string),
            started_at: rfc3339(self.started_at),
            live: live as u64,
            containment: if self.cgroups.is_ok() { "cgroup" } else { "subreaper" }.to_owned(),
            no_cgroup: self.cgroups.as_ref().err().cloned(),
            troubles,
            recovering: self.recovery.is_reading() || self.recovery.unresolved() > 0,
            notes: self.recovery.notes(),
        }
    }

    /// The daemon's problems, as text for people.
    fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        troubles.extend(lock(&self.home_problem).clone());
        troubles.extend(self.tokens.damage());
        troubles.extend(self.index_writer.problem());
        troubles.extend(lock(&self.unreadable_index).clone().map(|(_, why)| why));
        let unreadable = lock(&self.unreadable);
        troubles.extend(unreadable.iter().map(|one| format!("process {} cannot be read: {}", one.id, one.reason)));
        troubles
    }
}
