//! Keeps owners connected to the daemon while this server runs.
//!
//! For each owner the server holds an event stream open. When the server exits or crashes, the stream closes, and the
//! `owner_grace` of the owner's processes starts.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pinfold_api::types::EventsQuery;

use crate::daemon_access::DaemonAccess;

/// Default grace period on stdio: long enough for a client to restart its server.
pub(crate) const DEFAULT_GRACE: &str = "60s";
/// Default grace period over HTTP, where no stream is held open and only calls count as contact.
pub(crate) const DEFAULT_HTTP_GRACE: &str = "10m";
/// Maximum number of owners with an open stream. Further owners stay connected only through their calls.
const MAX_OWNERS: usize = 256;
/// Delay before a closed stream is reopened; shorter than any grace period.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The owners for which this server holds an event stream open.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerKeepalive {
    owners: Arc<Mutex<HashSet<String>>>,
}

impl OwnerKeepalive {
    /// Opens a stream for this owner, unless it has one or [`MAX_OWNERS`] are open.
    pub(crate) fn keep_alive(&self, owner: &str, daemon: &DaemonAccess) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.len() < MAX_OWNERS && owners.insert(owner.to_owned()) {
            tokio::spawn(hold_stream(daemon.clone()));
        }
    }
}

/// Holds an event stream open, and reopens it when the daemon closes it.
async fn hold_stream(daemon: DaemonAccess) {
    let query = EventsQuery {
        after: Some("latest".into()),
        // The events are not used: subscribe to a kind that is rare.
        kinds: Some("handed_over".into()),
        ..EventsQuery::default()
    };
    loop {
        if let Ok(mut events) = daemon.client().events_stream(&query).await {
            while let Some(Ok(_)) = events.next().await {}
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}
