//! Consumers of events: named readers, each with a cursor of its own that an ack moves.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Consumer, ConsumerList, EventPage};
use pinfold_model::spec::check_name;
use pinfold_os::crash_point;
use pinfold_store::consumers::{self, ConsumerKey, Fetch};

use crate::clock::{now, rfc3339};
use crate::core::Core;
use crate::events::log::{EventView, read_event};
use crate::refusal::Refusal;
use crate::registry::Scope;

/// How long events are leased, and at most.
const LEASE: Duration = Duration::from_secs(30);
const LEASE_MOST: Duration = Duration::from_secs(3600);

/// A read as a consumer.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) key: ConsumerKey,
    pub(super) reader: Option<String>,
    pub(super) begin: u64,
    pub(super) view: EventView,
    pub(super) limit: usize,
    pub(super) lease: Option<Duration>,
    pub(super) wait: Duration,
}

/// The consumer of this name in a caller's scope.
pub(super) fn consumer_key(scope: &Scope, name: &str) -> Result<ConsumerKey, Refusal> {
    check_name("consumer", name)?;
    Ok(ConsumerKey { scope: scope.name().to_owned(), name: name.to_owned() })
}

impl Core {
    /// What follows a consumer's cursor, leased to this reader; waits for the first event if that is asked for.
    pub(super) async fn consume(self: &Arc<Self>, reading: Reading) -> Result<EventPage, Refusal> {
        let Reading { key, reader, begin, view, limit, lease, wait } = reading;
        let lease = lease.unwrap_or(LEASE).min(LEASE_MOST);
        let deadline = tokio::time::Instant::now() + wait;
        let mut committed = self.ledger.last_event.clone();
        loop {
            let latest = self.last_event(&mut committed).await;
            // An ack moves past everything up to the last event of the page: none may be left out that was in view.
            let filter = self.event_filter(&view, latest)?;
            let (key, reader) = (key.clone(), reader.clone());
            let fetch = Fetch { key, reader, begin, filter, limit, lease, now: now() };
            let fetched = self.ledger.with(move |index| index.fetch(&fetch)).await?;
            let full = |error: consumers::TooManyConsumers| Refusal::new(ErrorCode::LimitReached, error.to_string());
            let (rows, consumer) = fetched?.map_err(full)?;
            let next = rows.last().map_or(consumer.cursor, |row| row.seq);
            if !rows.is_empty() || tokio::time::Instant::now() >= deadline {
                let leased_until = consumer.lease.filter(|_| !rows.is_empty()).map(|(_, until)| rfc3339(until));
                let truncated = self.is_truncated(consumer.cursor).await?;
                let events = rows.into_iter().filter_map(read_event).collect();
                return Ok(EventPage { events, next, truncated, leased_until });
            }
            // Another reader's lease may end before anything new comes.
            let ends = consumer.lease.map(|(_, until)| Duration::from_micros(until.0.saturating_sub(now().0)));
            let until = ends.map_or(deadline, |ends| deadline.min(tokio::time::Instant::now() + ends));
            let _ = tokio::time::timeout_at(until, committed.wait_for(|seq| *seq > latest)).await;
        }
    }

    /// Where a consumer's cursor is; at the beginning, if there is no such consumer yet.
    pub(super) async fn consumer_cursor(self: &Arc<Self>, key: ConsumerKey) -> Result<u64, Refusal> {
        let consumer = self.query(move |queries| queries.consumer(&key)).await?;
        Ok(consumer.map_or(0, |consumer| consumer.cursor))
    }

    /// All up to this event is dealt with.
    pub(crate) async fn ack(self: &Arc<Self>, scope: &Scope, name: &str, through: u64) -> Result<Consumer, Refusal> {
        let key = consumer_key(scope, name)?;
        let acked = self.ledger.with(move |index| index.ack(&key, through)).await??;
        crash_point!("daemon.ack_done");
        acked.map(show).ok_or_else(|| no_consumer(name))
    }

    pub(crate) async fn list_consumers(self: &Arc<Self>, scope: &Scope) -> Result<ConsumerList, Refusal> {
        let scope = scope.name().to_owned();
        let found = self.query(move |queries| queries.consumers(&scope)).await?;
        Ok(ConsumerList { consumers: found.into_iter().map(show).collect() })
    }

    pub(crate) async fn forget_consumer(self: &Arc<Self>, scope: &Scope, name: &str) -> Result<Consumer, Refusal> {
        let key = consumer_key(scope, name)?;
        let forgotten = self.ledger.with(move |index| index.forget_consumer(&key)).await??;
        forgotten.map(show).ok_or_else(|| no_consumer(name))
    }
}

fn no_consumer(name: &str) -> Refusal {
    let message = format!("no consumer `{name}`: it is made by its first read, GET /v1/events?consumer={name}");
    Refusal::new(ErrorCode::NotFound, message)
}

fn show(consumer: consumers::Consumer) -> Consumer {
    Consumer {
        name: consumer.key.name,
        owner: Some(consumer.key.scope).filter(|scope| !scope.is_empty()),
        cursor: consumer.cursor,
        leased_through: consumer.lease.map(|(through, _)| through),
        leased_until: consumer.lease.map(|(_, until)| rfc3339(until)),
    }
}
