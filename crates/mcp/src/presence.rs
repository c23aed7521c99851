//! The owners in whose names this server acts: while it lives, each is in contact with the daemon.
//!
//! An open stream of events is that contact. When the server ends, in whatever way, the stream closes, and the
//! processes' `owner_grace` begins to run.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pinfold_api::types::EventsQuery;

use crate::daemon_access::DaemonAccess;

/// How long such processes outlive the last contact: long enough for a client that restarts.
pub(crate) const GRACE: &str = "60s";
/// The same where no server stands for the owner: over HTTP each call is a contact.
pub(crate) const GRACE_OVER_HTTP: &str = "10m";
/// Owners that one server keeps in contact, each with a stream. Of one more, each call is a contact.
const MAX_OWNERS: usize = 256;
/// The pause before a stream that ended is opened again; shorter than any grace.
const AGAIN: Duration = Duration::from_secs(1);

/// The owners that are kept in contact.
#[derive(Clone, Debug, Default)]
pub(crate) struct Presence {
    owners: Arc<Mutex<HashSet<String>>>,
}

impl Presence {
    /// Keeps an owner in contact from here on, unless there are [`MAX_OWNERS`] already.
    pub(crate) fn keep(&self, owner: &str, daemon: &DaemonAccess) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.len() < MAX_OWNERS && owners.insert(owner.to_owned()) {
            tokio::spawn(stay(daemon.clone()));
        }
    }
}

/// Holds a stream open, and opens another when the daemon ended it.
async fn stay(daemon: DaemonAccess) {
    let query = EventsQuery {
        after: Some("latest".into()),
        // A kind that hardly ever comes: the stream is for being there.
        kinds: Some("handed_over".into()),
        ..EventsQuery::default()
    };
    loop {
        if let Ok(mut events) = daemon.client().events_stream(&query).await {
            while let Some(Ok(_)) = events.next().await {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}
