//! Deliveries of events beyond the log: noted with the event itself, taken away when they are done or given up.
//!
//! A delivery is noted in the transaction that numbers its event, so that S4 holds for it too: one of each kind for
//! each event. It may be tried more than once: whoever receives it knows it by the event's number.
//!
//! Invariant S7, *deliveries of one process to one target keep the order of its events*: only the first of them is
//! ever given out.

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

/// One delivery that is due, or will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub event: u64,
    pub target: Target,
    /// The process it is about.
    pub process: ProcessId,
    /// How often it was tried.
    pub attempts: u32,
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
    /// The deliveries that are due first; of each process and target only the one that is next (S7).
    pub fn deliveries(&self, limit: usize) -> Result<Vec<Delivery>, IndexError> {
        let sql = "SELECT event, target, attempts, due_us, process FROM outbox AS this WHERE NOT EXISTS (
                       SELECT 1 FROM outbox WHERE process = this.process AND target = this.target
                       AND event < this.event)
                   ORDER BY due_us, event LIMIT ?1";
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut rows = statement.query([limit as i64])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let (event, name, attempts, due): (i64, String, u32, i64) =
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let target = [Target::Webhook, Target::Command].into_iter().find(|target| target.name() == name);
            let process = ProcessId::parse(&row.get::<_, String>(4)?).ok();
            found.extend(target.zip(process).map(|(target, process)| Delivery {
                event: event as u64,
                target,
                process,
                attempts,
                due: Moment(due as u64),
            }));
        }
        Ok(found)
    }
}

impl Index {
    /// A delivery is done, or given up.
    pub fn delivered(&mut self, delivery: &Delivery) -> Result<(), IndexError> {
        let sql = "DELETE FROM outbox WHERE event = ?1 AND target = ?2";
        self.connection().prepare_cached(sql)?.execute(params![delivery.event as i64, delivery.target.name()])?;
        crash_point!("store.delivery_written");
        Ok(())
    }

    /// A delivery failed and is tried again then.
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
