//! Pending deliveries of events to webhooks and commands: added with the event, deleted when delivered or given up.
//!
//! A delivery is added in the same transaction as its event, so S4 holds for it too: one per event and target. It may be
//! attempted more than once; the receiver can detect duplicates by the event's number.
//!
//! Invariant S7, *deliveries of one process to one target keep the order of its events*: only the oldest pending one is
//! returned.

use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;
use pinfold_os::crash_point;
use rusqlite::{OptionalExtension, Transaction, params};

use crate::index::{Index, IndexError};
use crate::queries::Queries;

/// Where an event is delivered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Webhook,
    Command,
}

impl Target {
    /// The name in the index and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Target::Webhook => "webhook",
            Target::Command => "command",
        }
    }
}

/// One pending delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub event: u64,
    pub target: Target,
    /// The process it is about.
    pub process: ProcessId,
    /// Number of failed attempts.
    pub attempts: u32,
    /// When to attempt it next.
    pub due: Moment,
}

pub(crate) fn add(
    transaction: &Transaction<'_>,
    (seq, target): (i64, Target),
    process: &ProcessId,
    due: Moment,
) -> Result<(), IndexError> {
    let sql = "INSERT OR IGNORE INTO outbox (event, target, process, attempts, due_us) VALUES (?1, ?2, ?3, 0, ?4)";
    let values = params![seq, target.name(), process.as_str(), due.0 as i64];
    transaction.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

impl Queries {
    /// The deliveries that are due first; of each process and target only the oldest (S7).
    pub fn deliveries(&self, limit: usize) -> Result<Vec<Delivery>, IndexError> {
        let sql = "SELECT event, target, attempts, due_us, process FROM outbox AS this WHERE NOT EXISTS (
                       SELECT 1 FROM outbox WHERE process = this.process AND target = this.target
                       AND event < this.event)
                   ORDER BY due_us, event LIMIT ?1";
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut rows = statement.query([limit as i64])?;
        let mut deliveries = Vec::new();
        while let Some(row) = rows.next()? {
            let (event, name, attempts, due): (i64, String, u32, i64) =
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let target = [Target::Webhook, Target::Command].into_iter().find(|target| target.name() == name);
            let process = ProcessId::parse(&row.get::<_, String>(4)?).ok();
            deliveries.extend(target.zip(process).map(|(target, process)| Delivery {
                event: event as u64,
                target,
                process,
                attempts,
                due: Moment(due as u64),
            }));
        }
        Ok(deliveries)
    }
}

impl Index {
    /// Deletes a delivery that succeeded or was given up.
    pub fn delivered(&mut self, delivery: &Delivery) -> Result<(), IndexError> {
        let sql = "DELETE FROM outbox WHERE event = ?1 AND target = ?2";
        self.connection().prepare_cached(sql)?.execute(params![delivery.event as i64, delivery.target.name()])?;
        crash_point!("store.delivery_written");
        Ok(())
    }

    /// Schedules the next attempt of a delivery that failed.
    pub fn deliver_later(&mut self, delivery: &Delivery, due: Moment) -> Result<(), IndexError> {
        let sql = "UPDATE outbox SET attempts = attempts + 1, due_us = ?3 WHERE event = ?1 AND target = ?2";
        let values = params![delivery.event as i64, delivery.target.name(), due.0 as i64];
        self.connection().prepare_cached(sql)?.execute(values)?;
        crash_point!("store.delivery_put_off");
        Ok(())
    }
}

impl Queries {
    /// The payload of one event.
    pub fn payload(&self, seq: u64) -> Result<Option<String>, IndexError> {
        let mut statement = self.connection().prepare_cached("SELECT payload FROM events WHERE seq = ?1")?;
        Ok(statement.query_row([seq as i64], |row| row.get(0)).optional()?)
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
