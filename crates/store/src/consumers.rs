//! Consumers of events: each with a cursor of its own, and a lease on what it was given and has not acked.
//!
//! Invariant S6, *an event that was not acked is given again*: the cursor moves by an ack alone; a lease only keeps
//! others that read as the same consumer from getting it meanwhile. A reader that says its own name is given nothing
//! while another holds the lease: it would ack beyond what that one has not told. Who holds a lease is not kept on
//! disk: after a restart nobody does, until it is acked or runs out.

use std::time::Duration;

use pinfold_model::units::Moment;
use pinfold_os::crash_point;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use crate::index::{Index, IndexError};
use crate::queries::{Event, EventFilter, Queries};

/// Consumers of one scope at most.
pub const CONSUMERS_MOST: usize = 1000;

/// Whose a consumer is, and its name. The operator's own have an empty scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConsumerKey {
    pub scope: String,
    pub name: String,
}

/// A consumer as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    pub key: ConsumerKey,
    /// All up to this number is acked.
    pub cursor: u64,
    /// All up to this number is leased until then.
    pub lease: Option<(u64, Moment)>,
}

/// What a read as a consumer wants.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub key: ConsumerKey,
    /// Which of those that read as this consumer; all that do not say so are one.
    pub reader: Option<String>,
    /// Where a consumer that is new begins.
    pub begin: u64,
    pub filter: EventFilter,
    pub limit: usize,
    pub lease: Duration,
    pub now: Moment,
}

/// Why a consumer is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {CONSUMERS_MOST} consumers already: forget one with DELETE /v1/consumers/NAME")]
pub struct TooManyConsumers;

impl Index {
    /// Gives a consumer what follows, and leases it. The consumer is made if there is none.
    pub fn fetch(&mut self, fetch: &Fetch) -> Result<Result<(Vec<Event>, Consumer), TooManyConsumers>, IndexError> {
        let known = self.consumer(&fetch.key)?;
        if known.is_none() && self.consumers(&fetch.key.scope)?.len() >= CONSUMERS_MOST {
            return Ok(Err(TooManyConsumers));
        }
        let is_new = known.is_none();
        let mut consumer = known.unwrap_or(Consumer { key: fetch.key.clone(), cursor: fetch.begin, lease: None });
        let leased = consumer.lease.filter(|(through, until)| *until > fetch.now && *through > consumer.cursor);
        if leased.is_some() && self.holders.get(&fetch.key) != fetch.reader.as_ref() {
            return Ok(Ok((vec![], consumer)));
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
        Ok(Ok((events, consumer)))
    }

    /// Says that all up to this number is dealt with. `None` if there is no such consumer.
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

    /// Forgets a consumer, and gives it as it was.
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

    /// All consumers of a scope, by name.
    pub fn consumers(&self, scope: &str) -> Result<Vec<Consumer>, IndexError> {
        let sql = "SELECT scope, name, cursor, leased_through, leased_until_us FROM consumers
                   WHERE scope = ?1 ORDER BY name";
        let mut statement = self.connection().prepare_cached(sql)?;
        let found: Result<Vec<_>, _> = statement.query_map([scope], read)?.collect();
        Ok(found?)
    }

    /// Every owner that has a parent, with it.
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
