//! Follows the daemon's events: for the list of events, and to ask for news when there are some.

use std::time::Duration;

use pinfold_api::client::ClientError;
use pinfold_api::types::{Event, EventsQuery};
use tokio::time::{sleep, timeout};

use super::worker::Shared;
use crate::message::Message;

/// Events from before the start that are shown.
const EARLIER: u64 = 200;
/// Events that are sent together, and how long the first of them waits for others.
const MAX_BATCH: usize = 200;
const BATCH_WAIT: Duration = Duration::from_millis(20);
/// The pause before a stream that ended is opened again.
const RETRY: Duration = Duration::from_millis(500);

pub(super) async fn run(shared: Shared) {
    let mut after: Option<u64> = None;
    loop {
        // Whether the daemon is there is what the poll reports.
        let _ = follow(&shared, &mut after).await;
        if shared.news.is_closed() {
            return;
        }
        sleep(RETRY).await;
    }
}

async fn follow(shared: &Shared, after: &mut Option<u64>) -> Result<(), ClientError> {
    let start = match after {
        Some(after) => *after,
        None => {
            let query = EventsQuery { after: Some("latest".to_owned()), limit: Some(1), ..EventsQuery::default() };
            shared.client.events(&query).await?.next.saturating_sub(EARLIER)
        }
    };
    let query = EventsQuery { after: Some(start.to_string()), ..EventsQuery::default() };
    let mut stream = shared.client.events_stream(&query).await?;
    while let Some(event) = stream.next().await {
        let mut batch: Vec<Event> = vec![event?];
        while batch.len() < MAX_BATCH {
            match timeout(BATCH_WAIT, stream.next()).await {
                Ok(Some(event)) => batch.push(event?),
                Ok(None) | Err(_) => break,
            }
        }
        *after = batch.last().map(|event| event.seq);
        if batch.iter().any(|event| event.completion || event.outcome.is_some()) {
            shared.ended_changed.notify_one();
        }
        shared.refresh.notify_one();
        if !shared.send(Message::EventsHappened(batch)).await {
            break;
        }
    }
    Ok(())
}
