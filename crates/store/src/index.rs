//! The index: one SQLite database beside the process directories, for lists, history and the event log; rebuilt from them if
//! damaged.
//!
//! Owns the database's file, version, opening and every write; only the daemon writes. The process directories are the
//! source of truth: a missing or damaged index is moved aside and rebuilt from them.
//!
//! Invariant S4, *one event per process and kind*: a UNIQUE constraint in `schema`. [`Index::apply`] returns only new
//! events, so a caller that announces what it returns announces each event once.
//!
//! Event numbers never go backwards: a rebuilt index continues from the current time in microseconds, which is higher
//! than any earlier number (otherwise there would have been more than one event per microsecond).

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinfold_model::event::EventKind;
use pinfold_model::facts::History;
use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;
use pinfold_os::crash_point;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, params};

use crate::Durability;
use crate::consumers::ConsumerKey;
use crate::layout::{FILE_MODE, Home};
use crate::outbox::{self, Target};
use crate::queries::{Event, Queries};
use crate::retention::list_process_dirs;
use crate::schema;

/// A database below this size is checked from end to end when it is opened.
const CHECK_BELOW: u64 = 64 << 20;
/// How long to wait for a lock. Our own two connections never block each other (WAL), so only another program can hold
/// one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// The same for the reading connection.
const READER_BUSY_TIMEOUT: Duration = Duration::from_millis(250);

/// No locking inside SQLite: the Rust type already ensures that only one thread at a time uses a connection.
const NO_MUTEX: OpenFlags = OpenFlags::SQLITE_OPEN_NO_MUTEX;

/// The index, for writing and reading. For reading only: [`Index::reader`].
#[derive(Debug)]
pub struct Index {
    queries: Queries,
    /// The reader that holds the lease of a consumer, if it has a name. At most one entry per consumer.
    pub(crate) holders: HashMap<ConsumerKey, String>,
}

/// The result of opening the index.
#[derive(Debug)]
pub enum Opened {
    Ready(Index),
    /// It is empty and must be rebuilt from the process directories.
    Rebuild {
        index: Index,
        reason: String,
    },
}

/// Why the index failed.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("{path} was written by a newer pinfold (version {found}, this one supports up to {ours}): upgrade pinfold")]
    Newer { path: PathBuf, found: i64, ours: i64 },
    #[error("idempotency key `{key}` of owner `{owner}` already belongs to another process")]
    KeyTaken { owner: String, key: String },
    #[error("the history of process {id} in the index is damaged: remove it with `pinfold gc`")]
    BadHistory { id: String },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("the index failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl IndexError {
    /// Whether another program has locked the database.
    pub fn is_locked(&self) -> bool {
        let IndexError::Sqlite(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }
}

/// A change to the index.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Insert or update a process: its history, and the size of its directory in bytes.
    Put(Box<History>, u64),
    /// Add an event.
    Event(Box<NewEvent>),
    /// Delete a process. Apply it after its directory was removed, never before: a directory without a row counts as a
    /// process that the index does not know yet.
    Forget(ProcessId),
}

/// An event that has no number yet.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    pub process: ProcessId,
    pub owner: String,
    pub kind: EventKind,
    /// Distinguishes events of a kind that may occur more than once; otherwise 0.
    pub n: u64,
    /// Whether its owner is notified of it.
    pub announce: bool,
    pub at: Moment,
    pub payload: String,
    /// Where to deliver it, in addition to the log.
    pub targets: Vec<Target>,
}

impl Index {
    /// Opens the home's index, or creates one. The numbers of a rebuilt index start at `now`.
    pub fn open(home: &Home, durability: Durability, now: Moment) -> Result<Opened, IndexError> {
        let path = home.index();
        let io = |source| IndexError::Io { path: path.clone(), source };
        let len = match std::fs::metadata(&path) {
            Ok(metadata) => Some(metadata.len()).filter(|&len| len > 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(io(source)),
        };
        let reason = match len {
            Some(len) => match open_existing(&path, len, durability)? {
                Existing::Sound(index) => return Ok(Opened::Ready(index)),
                Existing::Blank => reason_to_rebuild(home).map_err(io)?,
                Existing::Damaged(what) => {
                    let aside = set_aside(&path, now).map_err(io)?;
                    Some(format!("the index was damaged ({what}) and was moved to {}", aside.display()))
                }
            },
            None => reason_to_rebuild(home).map_err(io)?,
        };
        remove_companions(&path);
        // In microseconds: events are written more slowly, so another rebuild soon after this one reuses no number.
        let first = reason.as_ref().map_or(0, |_| now.0 as i64);
        let index = create(&path, durability, first)?;
        Ok(match reason {
            Some(reason) => Opened::Rebuild { index, reason },
            None => Opened::Ready(index),
        })
    }

    /// A second connection that only reads, for use beside the writer.
    pub fn reader(path: &Path) -> Result<Queries, IndexError> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | NO_MUTEX)?;
        connection.busy_timeout(READER_BUSY_TIMEOUT)?;
        Ok(Queries::new(connection))
    }

    /// Applies all changes or none, and returns the new events in order.
    pub fn apply(&mut self, changes: &[Change]) -> Result<Vec<Event>, IndexError> {
        let transaction = self.queries.connection_mut().transaction()?;
        let mut events = Vec::new();
        for change in changes {
            match change {
                Change::Put(history, bytes) => put(&transaction, history, *bytes)?,
                Change::Event(event) => events.extend(insert_event(&transaction, event)?),
                Change::Forget(id) => {
                    transaction.prepare_cached("DELETE FROM processes WHERE id = ?1")?.execute([id.as_str()])?;
                }
            }
        }
        crash_point!("store.index_applied");
        transaction.commit()?;
        crash_point!("store.index_committed");
        Ok(events)
    }

    /// Starts a transaction, for the modules of the other tables.
    pub(crate) fn transaction(&mut self) -> Result<Transaction<'_>, IndexError> {
        Ok(self.queries.connection_mut().transaction()?)
    }

    /// Deletes all but the latest events, and keeps those of processes that are still listed. Returns how many were
    /// deleted.
    pub fn prune_events(&mut self, keep_latest: u64) -> Result<usize, IndexError> {
        let keep = i64::try_from(keep_latest).unwrap_or(i64::MAX);
        let deleted = self.connection().prepare_cached(schema::PRUNE_EVENTS)?.execute([keep])?;
        self.connection().execute(schema::PRUNE_OWNERS, [])?;
        Ok(deleted)
    }
}

impl Deref for Index {
    type Target = Queries;

    fn deref(&self) -> &Queries {
        &self.queries
    }
}

fn put(transaction: &Transaction<'_>, history: &History, bytes: u64) -> Result<(), IndexError> {
    let intent = &history.intent;
    let spec = &intent.spec;
    let json = serde_json::to_string(history).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let result = transaction.prepare_cached(schema::PUT_PROCESS)?.execute(params![
        intent.id.as_str(),
        history.owner(),
        spec.name,
        history.status().name(),
        intent.at.0 as i64,
        history.ended_at().map(|at| at.0 as i64),
        bytes as i64,
        spec.idempotency_key,
        json,
        spec.owner,
    ]);
    match (result, &spec.idempotency_key) {
        (Err(error), Some(key)) if is_duplicate(&error) => {
            return Err(IndexError::KeyTaken { owner: spec.owner.clone(), key: key.clone() });
        }
        (result, _) => result?,
    };
    put_parents(transaction, &spec.owner, &spec.ancestors)?;
    history.handovers.iter().try_for_each(|handover| put_parents(transaction, &handover.to, &handover.ancestors))
}

impl Index {
    /// Stores the parent of an owner that has no process yet. The first parent of an owner is final.
    pub fn add_parent(&mut self, owner: &str, parent: &str) -> Result<(), IndexError> {
        let transaction = self.transaction()?;
        put_parents(&transaction, owner, &[parent.to_owned()])?;
        transaction.commit()?;
        Ok(())
    }
}

/// Stores the ancestors of an owner, nearest first. The first parent of an owner is final.
fn put_parents(transaction: &Transaction<'_>, owner: &str, ancestors: &[String]) -> Result<(), IndexError> {
    let mut child = owner;
    for parent in ancestors {
        let sql = "INSERT OR IGNORE INTO owners (owner, parent) VALUES (?1, ?2)";
        transaction.prepare_cached(sql)?.execute([child, parent])?;
        child = parent;
    }
    Ok(())
}

/// Adds an event and its deliveries; `None` if it is already in the log.
fn insert_event(transaction: &Transaction<'_>, event: &NewEvent) -> Result<Option<Event>, IndexError> {
    let NewEvent { process, owner, kind, n, announce, at, payload, targets } = event;
    let values = params![process.as_str(), owner, kind.name(), *n as i64, announce, at.0 as i64, payload];
    // Not RETURNING, for which SQLite creates a temporary table.
    match transaction.prepare_cached(schema::INSERT_EVENT)?.execute(values) {
        Err(error) if is_duplicate(&error) => return Ok(None),
        result => result?,
    };
    let seq = transaction.last_insert_rowid();
    for target in targets {
        outbox::add(transaction, (seq, *target), process, *at)?;
    }
    Ok(Some(Event {
        seq: seq as u64,
        process: process.clone(),
        owner: owner.clone(),
        kind: *kind,
        n: *n,
        at: *at,
        payload: payload.clone(),
    }))
}

/// Why an empty index must be rebuilt; `None` in a home that never had a process.
fn reason_to_rebuild(home: &Home) -> io::Result<Option<String>> {
    let known = home.ids().try_exists()? || !list_process_dirs(home)?.is_empty();
    Ok(known.then(|| "the index was missing".to_owned()))
}

enum Existing {
    Sound(Index),
    /// The daemon that created it died before it had made the tables.
    Blank,
    Damaged(String),
}

fn open_existing(path: &Path, len: u64, durability: Durability) -> Result<Existing, IndexError> {
    match try_existing(path, len, durability) {
        Err(IndexError::Sqlite(error)) if is_damage(&error) => Ok(Existing::Damaged(error.to_string())),
        result => result,
    }
}

fn try_existing(path: &Path, len: u64, durability: Durability) -> Result<Existing, IndexError> {
    let mut connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Write nothing until the version is known, not even when closing.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > schema::VERSION {
        return Err(IndexError::Newer { path: path.to_owned(), found, ours: schema::VERSION });
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    match found {
        schema::VERSION => {}
        1 => upgrade(&mut connection)?,
        0 if is_blank(&connection)? => return Ok(Existing::Blank),
        _ => return Ok(Existing::Damaged(format!("its version is {found}"))),
    }
    for table in schema::TABLES {
        let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)";
        if !connection.query_row(sql, [table], |row| row.get::<_, bool>(0))? {
            return Ok(Existing::Damaged(format!("it has no table `{table}`")));
        }
    }
    if len < CHECK_BELOW {
        let result: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if result != "ok" {
            return Ok(Existing::Damaged(result));
        }
    }
    configure(&connection, durability)?;
    Ok(Existing::Sound(Index { queries: Queries::new(connection), holders: HashMap::new() }))
}

fn is_blank(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
}

/// Upgrades from version 1, in one transaction.
fn upgrade(connection: &mut Connection) -> Result<(), IndexError> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(schema::FROM_V1)?;
    transaction.execute_batch(schema::CREATE_V2)?;
    transaction.pragma_update(None, "user_version", schema::VERSION)?;
    crash_point!("store.index_upgraded");
    Ok(transaction.commit()?)
}

/// Whether a UNIQUE constraint was violated.
fn is_duplicate(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Creates the file before SQLite does, so that it gets mode 0600; SQLite gives its `-wal` and `-shm` files the same mode.
/// The tables and the first event number are written in one transaction: after a crash there are both or neither.
fn create(path: &Path, durability: Durability, first: i64) -> Result<Index, IndexError> {
    let mut options = OpenOptions::new();
    let made = options.write(true).create(true).truncate(false).mode(FILE_MODE).open(path);
    made.map_err(|source| IndexError::Io { path: path.to_owned(), source })?;
    crash_point!("store.index_made");
    let mut connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    configure(&connection, durability)?;
    crash_point!("store.index_configured");
    let transaction = connection.transaction()?;
    transaction.execute_batch(schema::CREATE)?;
    transaction.execute_batch(schema::CREATE_V2)?;
    transaction.execute("UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'events'", [first])?;
    transaction.pragma_update(None, "user_version", schema::VERSION)?;
    transaction.commit()?;
    crash_point!("store.index_created");
    Ok(Index { queries: Queries::new(connection), holders: HashMap::new() })
}

fn configure(connection: &Connection, durability: Durability) -> Result<(), IndexError> {
    connection.pragma_update(None, "journal_mode", "wal")?;
    // NORMAL survives the crash of any program, and the database stays consistent after a power failure. FULL also keeps
    // every commit then.
    let synchronous = match durability {
        Durability::Programs => "normal",
        Durability::Power => "full",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Renames a damaged database and its `-wal` and `-shm` files, and keeps them for inspection.
fn set_aside(path: &Path, now: Moment) -> io::Result<PathBuf> {
    let aside = suffixed(path, &format!(".damaged-{}", now.0 / 1_000_000));
    std::fs::rename(path, &aside)?;
    crash_point!("store.index_set_aside");
    for companion in ["-wal", "-shm"] {
        let _ = std::fs::rename(suffixed(path, companion), suffixed(&aside, companion));
    }
    Ok(aside)
}

/// Removes leftover `-wal` and `-shm` files: SQLite would apply an old log to the new database.
fn remove_companions(path: &Path) {
    for companion in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(suffixed(path, companion));
    }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
