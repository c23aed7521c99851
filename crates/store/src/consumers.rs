//! Consumers of events: each has a cursor of its own, and a lease on the events it has fetched and not acknowledged.
//!
//! Invariant S6, *an event that was not acked is given again*: only an ack moves the cursor. A lease only keeps other
//! readers of the same consumer from fetching the same events. A reader with a name gets nothing while another reader
//! holds the lease: its ack would also cover events that the other has not processed. The holder of a lease is not stored
//! on disk: after a restart a lease has no holder until it is acked or expires.

use std::time::Duration;

use pinfold_model::units::Moment;
use pinfold_os::crash_point;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use crate::index::{Index, IndexError};
use crate::queries::{Event, EventFilter, Queries};

/// Maximum number of consumers per owner.
pub const MAX_CONSUMERS: usize = 1000;

/// The owner and the name of a consumer. The operator's consumers have an empty `scope`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConsumerKey {
    pub scope: String,
    pub name: String,
}

/// The state of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    pub key: ConsumerKey,
    /// Events up to this number are acknowledged.
    pub cursor: u64,
    /// Events up to this number are leased until this time.
    pub lease: Option<(u64, Moment)>,
}

/// A request to fetch events as a consumer.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub key: ConsumerKey,
    /// The name of the reader, if the consumer has several. Readers without a name count as one.
    pub reader: Option<String>,
    /// The cursor of a new consumer.
    pub begin: u64,
    pub filter: EventFilter,
    pub limit: usize,
    pub lease: Duration,
    pub now: Moment,
}

/// The answer to a fetch.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub events: Vec<Event>,
    pub consumer: Consumer,
    /// Whether another reader holds the lease, so that there may be events that are not given to this one.
    pub held_by_another: bool,
}

/// A consumer cannot be created, because there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are already {MAX_CONSUMERS} consumers: delete one with DELETE /v1/consumers/NAME")]
pub struct TooManyConsumers;

impl Index {
    /// Returns the consumer's next events and leases them. Creates the consumer if it does not exist.
    pub fn fetch(&mut self, fetch: &Fetch) -> Result<Result<Fetched, TooManyConsumers>, IndexError> {
        let known = self.consumer(&fetch.key)?;
        if known.is_none() && self.consumers(&fetch.key.scope)?.len() >= MAX_CONSUMERS {
            return Ok(Err(TooManyConsumers));
        }
        let is_new = known.is_none();
        let mut consumer = known.unwrap_or(Consumer { key: fetch.key.clone(), cursor: fetch.begin, lease: None });
        let leased = consumer.lease.filter(|(through, until)| *until > fetch.now && *through > consumer.cursor);
        if leased.is_some() && self.holders.get(&fetch.key) != fetch.reader.as_ref() {
            return Ok(Ok(Fetched { events: vec![], consumer, held_by_another: true }));
        }
        let from = leased.map_or(consumer.cursor, |(through, _)| through);
        let events = self.events_after(from, &fetch.filter, fetch.limit)?;
        if let Some(last) = events.last() {
            let until = Moment(fetch.now.0 + fetch.lease.as_micros() as u64);
            consumer.lease = Some((last.seq, until));
            match &fetch.reader {
                Some(reader) => self.holders.insert(fetch.key.clone(), reader.clone()),
                None => self.holders.remove(&fetch.key),
            };
        }
        if is_new || !events.is_empty() {
            let transaction = self.transaction()?;
            write(&transaction, &consumer)?;
            crash_point!("store.lease_applied");
            transaction.commit()?;
            crash_point!("store.lease_committed");
        }
        Ok(Ok(Fetched { events, consumer, held_by_another: false }))
    }

    /// Acknowledges events up to this number. `None` if there is no such consumer.
    pub fn ack(&mut self, key: &ConsumerKey, through: u64) -> Result<Option<Consumer>, IndexError> {
        let Some(mut consumer) = self.consumer(key)? else { return Ok(None) };
        consumer.cursor = consumer.cursor.max(through.min(self.last_seq()?));
        consumer.lease = consumer.lease.filter(|(leased, _)| *leased > consumer.cursor);
        let transaction = self.transaction()?;
        write(&transaction, &consumer)?;
        crash_point!("store.ack_applied");
        transaction.commit()?;
        crash_point!("store.ack_committed");
        Ok(Some(consumer))
    }

    /// Deletes a consumer and returns it.
    pub fn forget_consumer(&mut self, key: &ConsumerKey) -> Result<Option<Consumer>, IndexError> {
        let consumer = self.consumer(key)?;
        self.holders.remove(key);
        let sql = "DELETE FROM consumers WHERE scope = ?1 AND name = ?2";
        self.connection().prepare_cached(sql)?.execute([&key.scope, &key.name])?;
        Ok(consumer)
    }
}

impl Queries {
    /// One consumer.
    pub fn consumer(&self, key: &ConsumerKey) -> Result<Option<Consumer>, IndexError> {
        let sql = "SELECT scope, name, cursor, leased_through, leased_until_us FROM consumers
                   WHERE scope = ?1 AND name = ?2";
        let mut statement = self.connection().prepare_cached(sql)?;
        Ok(statement.query_row([&key.scope, &key.name], read).optional()?)
    }

    /// All consumers of an owner, ordered by name.
    pub fn consumers(&self, scope: &str) -> Result<Vec<Consumer>, IndexError> {
        let sql = "SELECT scope, name, cursor, leased_through, leased_until_us FROM consumers
                   WHERE scope = ?1 AND name <> ?2 ORDER BY name";
        let mut statement = self.connection().prepare_cached(sql)?;
        let found: Result<Vec<_>, _> = statement.query_map([scope, crate::seen::CONSUMER], read)?.collect();
        Ok(found?)
    }

    /// Every owner with a parent: (owner, parent).
    pub fn parents(&self) -> Result<Vec<(String, String)>, IndexError> {
        let mut statement = self.connection().prepare_cached("SELECT owner, parent FROM owners")?;
        let found: Result<Vec<_>, _> = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect();
        Ok(found?)
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Consumer> {
    let lease: (Option<i64>, Option<i64>) = (row.get(3)?, row.get(4)?);
    Ok(Consumer {
        key: ConsumerKey { scope: row.get(0)?, name: row.get(1)? },
        cursor: row.get::<_, i64>(2)? as u64,
        lease: lease.0.zip(lease.1).map(|(through, until)| (through as u64, Moment(until as u64))),
    })
}

fn write(transaction: &Transaction<'_>, consumer: &Consumer) -> Result<(), IndexError> {
    let sql = "INSERT OR REPLACE INTO consumers (scope, name, cursor, leased_through, leased_until_us)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    transaction.prepare_cached(sql)?.execute(params![
        consumer.key.scope,
        consumer.key.name,
        consumer.cursor as i64,
        consumer.lease.map(|(through, _)| through as i64),
        consumer.lease.map(|(_, until)| until.0 as i64),
    ])?;
    Ok(())
}

#[cfg(test)]
#[path = "consumers_tests.rs"]
mod tests;
