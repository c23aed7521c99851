//! Consumers: named readers of events, each with its own cursor, which an ack moves.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Consumer, ConsumerList, EventPage};
use pinfold_model::spec::check_name;
use pinfold_os::crash_point;
use pinfold_store::consumers::{self, ConsumerKey, Fetch, Fetched};

use crate::clock::{now, rfc3339};
use crate::core::Core;
use crate::events::log::{EventView, parse_event};
use crate::registry::Viewer;
use crate::request_error::RequestError;

/// Default and maximum lease.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const MAX_LEASE: Duration = Duration::from_secs(3600);

/// A read by a consumer.
#[derive(Debug)]
pub(super) struct ConsumerRead {
    pub(super) key: ConsumerKey,
    pub(super) reader: Option<String>,
    pub(super) begin: u64,
    pub(super) view: EventView,
    pub(super) limit: usize,
    pub(super) lease: Option<Duration>,
    pub(super) wait: Duration,
}

/// The key of a caller's consumer.
pub(super) fn consumer_key(viewer: &Viewer, name: &str) -> Result<ConsumerKey, RequestError> {
    check_name("consumer", name)?;
    Ok(ConsumerKey { scope: viewer.name().to_owned(), name: name.to_owned() })
}

impl Core {
    /// The events after a consumer's cursor, leased to this reader; waits for the first one if `wait` is set.
    pub(super) async fn consume(self: &Arc<Self>, read: ConsumerRead) -> Result<EventPage, RequestError> {
        let ConsumerRead { key, reader, begin, view, limit, lease, wait } = read;
        let lease = lease.unwrap_or(DEFAULT_LEASE).min(MAX_LEASE);
        let deadline = tokio::time::Instant::now() + wait;
        let mut committed = self.index_writer.last_event.clone();
        loop {
            let latest = self.last_event(&mut committed).await;
            // An ack covers everything up to the last event of the page, so the page must contain every event in view.
            let filter = self.event_filter(&view, latest)?;
            let (key, reader) = (key.clone(), reader.clone());
            let fetch = Fetch { key, reader, begin, filter, limit, lease, now: now() };
            let fetched = self.index_writer.run(move |index| index.fetch(&fetch)).await?;
            let full =
                |error: consumers::TooManyConsumers| RequestError::new(ErrorCode::LimitReached, error.to_string());
            let Fetched { events: rows, consumer, held_by_another } = fetched?.map_err(full)?;
            let next = rows.last().map_or(consumer.cursor, |row| row.seq);
            if !rows.is_empty() || tokio::time::Instant::now() >= deadline {
                let leased_until = consumer.lease.filter(|_| !rows.is_empty()).map(|(_, until)| rfc3339(until));
                let truncated = self.is_truncated(consumer.cursor).await?;
                let events = rows.into_iter().filter_map(parse_event).collect();
                return Ok(EventPage { events, next, truncated, leased_until, held_by_another });
            }
            // Another reader's lease may end before a new event comes.
            let ends = consumer.lease.map(|(_, until)| Duration::from_micros(until.0.saturating_sub(now().0)));
            let until = ends.map_or(deadline, |ends| deadline.min(tokio::time::Instant::now() + ends));
            let _ = tokio::time::timeout_at(until, committed.wait_for(|seq| *seq > latest)).await;
        }
    }

    /// A consumer's cursor; 0 if the consumer does not exist yet.
    pub(super) async fn consumer_cursor(self: &Arc<Self>, key: ConsumerKey) -> Result<u64, RequestError> {
        let consumer = self.query(move |queries| queries.consumer(&key)).await?;
        Ok(consumer.map_or(0, |consumer| consumer.cursor))
    }

    /// Acknowledges everything up to this event.
    pub(crate) async fn ack(
        self: &Arc<Self>,
        viewer: &Viewer,
        name: &str,
        through: u64,
    ) -> Result<Consumer, RequestError> {
        let key = consumer_key(viewer, name)?;
        let acked = self.index_writer.run(move |index| index.ack(&key, through)).await??;
        crash_point!("daemon.ack_done");
        acked.map(show).ok_or_else(|| no_consumer(name))
    }

    pub(crate) async fn list_consumers(self: &Arc<Self>, viewer: &Viewer) -> Result<ConsumerList, RequestError> {
        let viewer = viewer.name().to_owned();
        let found = self.query(move |queries| queries.consumers(&viewer)).await?;
        Ok(ConsumerList { consumers: found.into_iter().map(show).collect() })
    }

    pub(crate) async fn forget_consumer(
        self: &Arc<Self>,
        viewer: &Viewer,
        name: &str,
    ) -> Result<Consumer, RequestError> {
        let key = consumer_key(viewer, name)?;
        let forgotten = self.index_writer.run(move |index| index.forget_consumer(&key)).await??;
        forgotten.map(show).ok_or_else(|| no_consumer(name))
    }
}

fn no_consumer(name: &str) -> RequestError {
    let message = format!("no consumer `{name}`: its first read creates it, GET /v1/events?consumer={name}");
    RequestError::new(ErrorCode::NotFound, message)
}

fn show(consumer: consumers::Consumer) -> Consumer {
    Consumer {
        name: consumer.key.name,
        owner: Some(consumer.key.scope).filter(|viewer| !viewer.is_empty()),
        cursor: consumer.cursor,
        leased_through: consumer.lease.map(|(through, _)| through),
        leased_until: consumer.lease.map(|(_, until)| rfc3339(until)),
    }
}
