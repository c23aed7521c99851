//! How far each owner has looked through its inbox: the number of the last event that it has seen.
//!
//! Kept as the cursor of a consumer whose name no client can choose, so that it is stored, counted and pruned like one.

use rusqlite::{OptionalExtension, params};

use crate::index::{Index, IndexError};
use crate::queries::Queries;

/// The name of that consumer. `#` is not allowed in names.
pub(crate) const CONSUMER: &str = "#inbox";

impl Index {
    /// Moves the mark of an owner (empty: the operator) forward to this event, but not beyond the latest. Returns where it is.
    pub fn set_seen(&mut self, scope: &str, through: u64) -> Result<u64, IndexError> {
        let through = through.min(self.last_seq()?).max(self.seen(scope)?);
        let sql = "INSERT INTO consumers (scope, name, cursor) VALUES (?1, ?2, ?3)
                   ON CONFLICT (scope, name) DO UPDATE SET cursor = excluded.cursor";
        self.connection().prepare_cached(sql)?.execute(params![scope, CONSUMER, through as i64])?;
        Ok(through)
    }
}

impl Queries {
    /// The mark of an owner; 0 if it never set one.
    pub fn seen(&self, scope: &str) -> Result<u64, IndexError> {
        let sql = "SELECT cursor FROM consumers WHERE scope = ?1 AND name = ?2";
        let mut statement = self.connection().prepare_cached(sql)?;
        let cursor = statement.query_row(params![scope, CONSUMER], |row| row.get::<_, i64>(0)).optional()?;
        Ok(cursor.map_or(0, |cursor| cursor as u64))
    }

    /// The number before the latest `count` events; 0 if there are fewer.
    pub fn seq_before_latest(&self, count: u32) -> Result<u64, IndexError> {
        let sql = "SELECT seq FROM events ORDER BY seq DESC LIMIT 1 OFFSET ?1";
        let mut statement = self.connection().prepare_cached(sql)?;
        Ok(statement.query_row([count], |row| row.get::<_, i64>(0)).optional()?.map_or(0, |seq| seq as u64))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use pinfold_model::event::EventKind;
    use pinfold_model::units::Moment;

    use super::*;
    use crate::Durability;
    use crate::index::{Change, Opened};
    use crate::testing::{Scratch, event};

    #[test]
    fn a_mark_moves_forward_only_for_each_owner_and_survives_reopening() {
        let home = Scratch::home();
        let open = || match Index::open(&home, Durability::Programs, Moment(1)).unwrap() {
            Opened::Ready(index) | Opened::Rebuild { index, .. } => index,
        };
        let mut index = open();
        let events = (1..=5).map(|number| Change::Event(Box::new(event(number, EventKind::Finished))));
        index.apply(&events.collect::<Vec<_>>()).unwrap();
        let last = index.last_seq().unwrap();
        assert_eq!(index.seen("").unwrap(), 0);
        assert_eq!(index.set_seen("", last - 1).unwrap(), last - 1);
        assert_eq!(index.set_seen("", 1).unwrap(), last - 1, "never back");
        assert_eq!(index.set_seen("ann", last + 100).unwrap(), last, "not beyond what there is");
        drop(index);
        let index = open();
        assert_eq!((index.seen("").unwrap(), index.seen("ann").unwrap()), (last - 1, last));
        assert_eq!(index.consumers("ann").unwrap(), [], "it is not one of the owner's consumers");
        assert_eq!(index.seq_before_latest(2).unwrap(), last - 2);
        assert_eq!(index.seq_before_latest(100).unwrap(), 0);
    }
}
