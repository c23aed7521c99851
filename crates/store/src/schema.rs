//! The tables of the index, and the version they are of.
//!
//! Invariant S4 stands here and nowhere else: `UNIQUE (process, kind)` in `events`.

/// `PRAGMA user_version` of the database.
pub(crate) const VERSION: i64 = 1;

/// Names that a database of this version has.
pub(crate) const TABLES: [&str; 2] = ["processes", "events"];

/// Columns that filters and orders need are beside the history; the rest is in it.
pub(crate) const CREATE: &str = "
CREATE TABLE processes (
    id         TEXT PRIMARY KEY,
    owner      TEXT NOT NULL,
    name       TEXT,
    status     TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    ended_us   INTEGER,
    bytes      INTEGER NOT NULL,
    idem_key   TEXT,
    history    TEXT NOT NULL
) STRICT;
CREATE INDEX processes_newest ON processes (created_us, id);
CREATE INDEX processes_owner ON processes (owner, created_us, id);
CREATE INDEX processes_status ON processes (status, created_us, id);
CREATE INDEX processes_ended ON processes (ended_us, id, bytes);
CREATE UNIQUE INDEX processes_key ON processes (owner, idem_key) WHERE idem_key IS NOT NULL;

CREATE TABLE events (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    process TEXT NOT NULL,
    owner   TEXT NOT NULL,
    kind    TEXT NOT NULL,
    at_us   INTEGER NOT NULL,
    payload TEXT NOT NULL,
    -- S4: one event per process and kind, however often it is reported.
    UNIQUE (process, kind)
) STRICT;
CREATE INDEX events_owner ON events (owner, seq);

-- So that the sequence has a row before the first event.
INSERT INTO sqlite_sequence (name, seq) VALUES ('events', 0);
";

/// An ended process never becomes un-ended, whatever order reports come in (S1, seen from the index).
pub(crate) const PUT: &str = "
INSERT INTO processes (id, owner, name, status, created_us, ended_us, bytes, idem_key, history)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (id) DO UPDATE SET
    owner = excluded.owner, name = excluded.name, status = excluded.status, created_us = excluded.created_us,
    ended_us = excluded.ended_us, bytes = excluded.bytes, idem_key = excluded.idem_key, history = excluded.history
WHERE processes.ended_us IS NULL OR excluded.ended_us IS NOT NULL";

/// Not `INSERT OR IGNORE`: an ignored row would use up a number, and the latest number would be nobody's.
pub(crate) const TELL: &str = "
INSERT INTO events (process, owner, kind, at_us, payload) SELECT ?1, ?2, ?3, ?4, ?5
WHERE NOT EXISTS (SELECT 1 FROM events WHERE process = ?1 AND kind = ?3)
RETURNING seq";

/// Events of processes that are still listed stay, so that S4 holds for as long as they could be reported.
pub(crate) const PRUNE: &str = "
DELETE FROM events
WHERE seq <= (SELECT seq FROM events ORDER BY seq DESC LIMIT 1 OFFSET ?1)
  AND NOT EXISTS (SELECT 1 FROM processes WHERE processes.id = events.process)";
