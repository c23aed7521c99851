//! Queries of the index: processes by id, key, prefix and filter, and events by number.
//!
//! Owns every read, for the writing connection as well as the reading one. Read-only.

use std::collections::HashSet;

use pinfold_model::event::EventKind;
use pinfold_model::facts::{History, Status};
use pinfold_model::id::{ProcessId, is_prefix};
use pinfold_model::units::Moment;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::index::IndexError;

/// Something that happened to a process: durable and numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub seq: u64,
    pub process: ProcessId,
    pub owner: String,
    pub kind: EventKind,
    /// Distinguishes events of a kind that may occur more than once; otherwise 0.
    pub n: u64,
    pub at: Moment,
    pub payload: String,
}

/// Which processes to select; the default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only of these owners; `None` means of all.
    pub owners: Option<Vec<String>>,
    /// Only with these statuses; empty means all.
    pub statuses: Vec<Status>,
    pub name: Option<String>,
    /// Only with all of these labels.
    pub labels: Vec<(String, String)>,
    /// Only created in this period.
    pub created: Period,
    /// Only ended in this period, which leaves out what has not ended, unless it is unlimited.
    pub ended: Period,
}

/// A period of time; the default is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// The first moment in it.
    pub from: Option<Moment>,
    /// The first moment after it.
    pub to: Option<Moment>,
}

impl Period {
    pub fn contains(&self, at: Moment) -> bool {
        self.from.is_none_or(|from| from <= at) && self.to.is_none_or(|to| at < to)
    }

    pub fn is_unlimited(&self) -> bool {
        self.from.is_none() && self.to.is_none()
    }
}

/// Which events to select; the default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only of these owners; `None` means of all.
    pub owners: Option<Vec<String>>,
    pub process: Option<ProcessId>,
    /// Only of these kinds; empty means all.
    pub kinds: Vec<EventKind>,
    /// Only those that owners are notified of.
    pub announced: bool,
    /// Only up to this number, inclusive; `None` means up to the last.
    pub through: Option<u64>,
}

/// An ended process, for retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRow {
    pub id: ProcessId,
    pub owner: String,
    /// When it ended.
    pub at: Moment,
    /// The size of its directory on disk.
    pub bytes: u64,
}

/// A connection to the index, for reading.
#[derive(Debug)]
pub struct Queries {
    connection: Connection,
}

type Result<T> = std::result::Result<T, IndexError>;

impl Queries {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Runs several queries on one snapshot of the database.
    pub fn at_one_moment<T>(&self, query: impl FnOnce() -> Result<T>) -> Result<T> {
        let _snapshot = self.connection.unchecked_transaction()?;
        query()
    }

    /// The history of a process, and the size of its directory in bytes.
    pub fn get(&self, id: &ProcessId) -> Result<Option<(History, u64)>> {
        let sql = "SELECT history, bytes FROM processes WHERE id = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
        let Some((json, bytes)) = statement.query_row([id.as_str()], read).optional()? else { return Ok(None) };
        match serde_json::from_str(&json) {
            Ok(history) => Ok(Some((history, bytes as u64))),
            Err(_) => Err(IndexError::BadHistory { id: id.as_str().to_owned() }),
        }
    }

    /// The process that an owner started with this idempotency key.
    pub fn by_key(&self, owner: &str, key: &str) -> Result<Option<ProcessId>> {
        let sql = "SELECT id FROM processes WHERE starter = ?1 AND idem_key = ?2";
        let mut ids = self.ids(sql, params![owner, key])?;
        Ok(ids.pop())
    }

    /// Every idempotency key, with the owner that used it.
    pub fn keys(&self) -> Result<Vec<(String, String)>> {
        let sql = "SELECT starter, idem_key FROM processes WHERE idem_key IS NOT NULL";
        let mut statement = self.connection().prepare_cached(sql)?;
        let keys: rusqlite::Result<Vec<_>> = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect();
        Ok(keys?)
    }

    /// The first ids with this prefix, of these owners or of all. With a limit of two it shows whether the prefix is
    /// unambiguous.
    pub fn prefix(&self, prefix: &str, owners: Option<&[String]>, limit: usize) -> Result<Vec<ProcessId>> {
        if !is_prefix(prefix) {
            return Ok(vec![]);
        }
        // `~` sorts after every character of an id.
        let mut sql = "SELECT id FROM processes WHERE id >= ? AND id < ? || '~'".to_owned();
        let mut values = vec![Value::Text(prefix.to_owned()), Value::Text(prefix.to_owned())];
        if let Some(owners) = owners {
            one_of("owner", owners.iter().map(String::as_str), &mut sql, &mut values);
        }
        sql.push_str(" ORDER BY id LIMIT ?");
        values.push(Value::Integer(clamp(limit)));
        self.ids(&sql, params_from_iter(values))
    }

    /// Processes, newest first. `before` is the creation time and id of the last process of the previous page. Rows with
    /// an unreadable history are left out; [`Self::get`] returns the error.
    pub fn list(&self, filter: &Filter, before: Option<(Moment, ProcessId)>, limit: usize) -> Result<Vec<History>> {
        let (mut sql, mut values) = condition(filter);
        if let Some((at, id)) = before {
            sql.push_str(" AND (created_us, id) < (?, ?)");
            values.extend([Value::Integer(at.0 as i64), Value::Text(id.as_str().to_owned())]);
        }
        let sql = format!("SELECT history FROM processes WHERE {sql} ORDER BY created_us DESC, id DESC LIMIT ?");
        values.push(Value::Integer(clamp(limit)));
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut histories = Vec::new();
        while let Some(row) = rows.next()? {
            histories.extend(serde_json::from_str(row.get_ref(0)?.as_str().unwrap_or_default()).ok());
        }
        Ok(histories)
    }

    /// How many processes of these owners, or of all, ended at this time or later, and the newest of them.
    pub fn ended_since(&self, owners: Option<&[String]>, since: Moment, limit: usize) -> Result<(u64, Vec<History>)> {
        let mut condition = "ended_us >= ?".to_owned();
        let mut values = vec![Value::Integer(i64::try_from(since.0).unwrap_or(i64::MAX))];
        if let Some(owners) = owners {
            one_of("+owner", owners.iter().map(String::as_str), &mut condition, &mut values);
        }
        let sql = format!("SELECT count(*) FROM processes WHERE {condition}");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let count = statement.query_row(params_from_iter(&values), |row| row.get::<_, i64>(0))? as u64;
        let sql = format!("SELECT history FROM processes WHERE {condition} ORDER BY +created_us DESC, id DESC LIMIT ?");
        values.push(Value::Integer(clamp(limit)));
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut newest = Vec::new();
        while let Some(row) = rows.next()? {
            newest.extend(serde_json::from_str(row.get_ref(0)?.as_str().unwrap_or_default()).ok());
        }
        Ok((count, newest))
    }

    pub fn count(&self, filter: &Filter) -> Result<u64> {
        let (sql, values) = condition(filter);
        let mut statement = self.connection.prepare_cached(&format!("SELECT count(*) FROM processes WHERE {sql}"))?;
        Ok(statement.query_row(params_from_iter(values), |row| row.get::<_, i64>(0))? as u64)
    }

    /// Processes that have ended: recovery need not read their directories.
    pub fn ended_ids(&self) -> Result<HashSet<ProcessId>> {
        Ok(self.ids("SELECT id FROM processes WHERE ended_us IS NOT NULL", [])?.into_iter().collect())
    }

    /// Ended processes, in the order in which they ended, for retention to choose from.
    pub fn ended(&self) -> Result<Vec<EndedRow>> {
        let sql = "SELECT id, ended_us, bytes, owner FROM processes WHERE ended_us IS NOT NULL ORDER BY ended_us";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        let mut ended = Vec::new();
        while let Some(row) = rows.next()? {
            let (at, bytes, owner): (i64, i64, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
            let ended_row = |id| EndedRow { id, owner, at: Moment(at as u64), bytes: bytes as u64 };
            ended.extend(read_id(row)?.map(ended_row));
        }
        Ok(ended)
    }

    /// Events with a greater number, in order.
    pub fn events_after(&self, seq: u64, filter: &EventFilter, limit: usize) -> Result<Vec<Event>> {
        let mut sql = "SELECT process, seq, owner, kind, at_us, payload, n FROM events WHERE seq > ?".to_owned();
        let mut values = vec![Value::Integer(i64::try_from(seq).unwrap_or(i64::MAX))];
        if let Some(owners) = &filter.owners {
            one_of("owner", owners.iter().map(String::as_str), &mut sql, &mut values);
        }
        if !filter.kinds.is_empty() {
            one_of("kind", filter.kinds.iter().map(|kind| kind.name()), &mut sql, &mut values);
        }
        if filter.announced {
            sql.push_str(" AND announce = 1");
        }
        if let Some(through) = filter.through {
            sql.push_str(" AND seq <= ?");
            values.push(Value::Integer(i64::try_from(through).unwrap_or(i64::MAX)));
        }
        if let Some(process) = &filter.process {
            sql.push_str(" AND process = ?");
            values.push(Value::Text(process.as_str().to_owned()));
        }
        sql.push_str(" ORDER BY seq LIMIT ?");
        values.push(Value::Integer(clamp(limit)));
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut events = Vec::new();
        while let Some(row) = rows.next()? {
            events.extend(read_event(row)?);
        }
        Ok(events)
    }

    /// The `n` of all events of this kind of a process, in order.
    pub fn numbers_of(&self, process: &ProcessId, kind: EventKind) -> Result<Vec<u64>> {
        let sql = "SELECT n FROM events WHERE process = ?1 AND kind = ?2 ORDER BY n";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map(params![process.as_str(), kind.name()], |row| row.get::<_, i64>(0))?;
        let numbers: std::result::Result<Vec<_>, _> = rows.collect();
        Ok(numbers?.into_iter().map(|n| n as u64).collect())
    }

    /// The event of this kind of a process with the highest `n`.
    pub fn latest_of(&self, process: &ProcessId, kind: EventKind) -> Result<Option<Event>> {
        let sql = "SELECT process, seq, owner, kind, at_us, payload, n FROM events
                   WHERE process = ?1 AND kind = ?2 ORDER BY n DESC LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![process.as_str(), kind.name()])?;
        match rows.next()? {
            Some(row) => read_event(row),
            None => Ok(None),
        }
    }

    /// The highest event number used so far, whether the event still exists or not. In a rebuilt index without events,
    /// the number before the first.
    pub fn last_seq(&self) -> Result<u64> {
        let sql = "SELECT max((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)";
        Ok(self.number(sql)?.unwrap_or(0) as u64)
    }

    /// The number of the oldest event that still exists; if there is none, the number of the next event.
    pub fn first_seq(&self) -> Result<u64> {
        match self.number("SELECT min(seq) FROM events")? {
            Some(seq) => Ok(seq as u64),
            None => Ok(self.last_seq()? + 1),
        }
    }

    fn number(&self, sql: &str) -> Result<Option<i64>> {
        Ok(self.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    fn ids(&self, sql: &str, values: impl rusqlite::Params) -> Result<Vec<ProcessId>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(values)?;
        let mut ids = Vec::new();
        while let Some(row) = rows.next()? {
            ids.extend(read_id(row)?);
        }
        Ok(ids)
    }
}

/// Maximum number of values that are passed as separate SQL parameters; more are passed as one JSON array. SQLite accepts
/// at most 32,766 parameters.
const MAX_PARAMETERS: usize = 100;

/// Adds the condition that a column has one of these values.
fn one_of<'a>(column: &str, texts: impl Iterator<Item = &'a str>, sql: &mut String, values: &mut Vec<Value>) {
    let texts: Vec<&str> = texts.collect();
    if texts.len() > MAX_PARAMETERS {
        values.push(Value::Text(serde_json::Value::from(texts).to_string()));
        return sql.push_str(&format!(" AND {column} IN (SELECT value FROM json_each(?))"));
    }
    let placeholders = vec!["?"; texts.len()].join(", ");
    sql.push_str(&format!(" AND {column} IN ({placeholders})"));
    values.extend(texts.into_iter().map(|text| Value::Text(text.to_owned())));
}

/// The SQL condition of a filter, and the values of its parameters.
fn condition(filter: &Filter) -> (String, Vec<Value>) {
    let mut sql = "true".to_owned();
    let mut values = Vec::new();
    if let Some(owners) = &filter.owners {
        one_of("owner", owners.iter().map(String::as_str), &mut sql, &mut values);
    }
    if let Some(name) = &filter.name {
        sql.push_str(" AND name = ?");
        values.push(Value::Text(name.clone()));
    }
    if !filter.statuses.is_empty() {
        // Most processes are finished. If they are selected together with another status, scanning in list order (`+`
        // keeps SQLite from using the index of the column) is faster than selecting by status and sorting.
        let many = filter.statuses.len() > 1 && filter.statuses.contains(&Status::Finished);
        let column = if many { "+status" } else { "status" };
        one_of(column, filter.statuses.iter().map(|status| status.name()), &mut sql, &mut values);
    }
    for (column, period) in [("created_us", &filter.created), ("ended_us", &filter.ended)] {
        let bounds = [(" >= ?", period.from), (" < ?", period.to)];
        for (comparison, at) in bounds.into_iter().filter_map(|(comparison, at)| Some((comparison, at?))) {
            sql.push_str(&format!(" AND {column}{comparison}"));
            values.push(Value::Integer(i64::try_from(at.0).unwrap_or(i64::MAX)));
        }
    }
    for (key, value) in &filter.labels {
        sql.push_str(
            " AND EXISTS (SELECT 1 FROM json_each(history, '$.intent.spec.labels') AS label
              WHERE label.key = ? AND label.value = ?)",
        );
        values.extend([Value::Text(key.clone()), Value::Text(value.clone())]);
    }
    (sql, values)
}

/// The id in the first column; `None` if it is not a valid id (damage that SQLite does not detect).
fn read_id(row: &Row<'_>) -> Result<Option<ProcessId>> {
    Ok(ProcessId::parse(&row.get::<_, String>(0)?).ok())
}

fn read_event(row: &Row<'_>) -> Result<Option<Event>> {
    let (seq, kind, at): (i64, String, i64) = (row.get(1)?, row.get(3)?, row.get(4)?);
    let kind = EventKind::ALL.into_iter().find(|known| known.name() == kind);
    let (Some(process), Some(kind)) = (read_id(row)?, kind) else { return Ok(None) };
    let (owner, payload, n): (_, _, i64) = (row.get(2)?, row.get(5)?, row.get(6)?);
    Ok(Some(Event { seq: seq as u64, process, owner, kind, n: n as u64, at: Moment(at as u64), payload }))
}

fn clamp(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
