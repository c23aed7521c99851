//! The tables of the index, their version, and its larger statements.
//!
//! Invariant S4 is enforced here: `UNIQUE (process, kind, n)` in `events`. Comments inside the CREATE statements are
//! stored in the database file: changing one changes the file.

/// `PRAGMA user_version` of the database.
pub(crate) const VERSION: i64 = 2;

/// The tables of this version.
pub(crate) const TABLES: [&str; 5] = ["processes", "events", "owners", "consumers", "outbox"];

/// Data that is filtered or sorted by has a column; the rest is in `history`, as JSON.
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
    history    TEXT NOT NULL,
    -- The owner that started it, whose idempotency key it has; `owner` changes with a handover.
    starter    TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX processes_newest ON processes (created_us, id);
CREATE INDEX processes_owner ON processes (owner, created_us, id);
CREATE INDEX processes_status ON processes (status, created_us, id);
CREATE INDEX processes_ended ON processes (ended_us, id, bytes);
CREATE UNIQUE INDEX processes_key ON processes (starter, idem_key) WHERE idem_key IS NOT NULL;

CREATE TABLE events (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    process  TEXT NOT NULL,
    owner    TEXT NOT NULL,
    kind     TEXT NOT NULL,
    -- Tells matches, heartbeats and handovers of one process apart; 0 for all that happens once.
    n        INTEGER NOT NULL,
    announce INTEGER NOT NULL,
    at_us    INTEGER NOT NULL,
    payload  TEXT NOT NULL,
    -- S4: one event per process, kind and number, however often it is reported.
    UNIQUE (process, kind, n)
) STRICT;
CREATE INDEX events_owner ON events (owner, seq);
CREATE INDEX events_announce ON events (owner, seq) WHERE announce = 1;

-- So that the sequence has a row before the first event.
INSERT INTO sqlite_sequence (name, seq) VALUES ('events', 0);
";

/// The tables added in version 2: parents of owners, consumers of events, pending deliveries.
pub(crate) const CREATE_V2: &str = "
CREATE TABLE owners (
    owner  TEXT PRIMARY KEY,
    parent TEXT NOT NULL
) STRICT;

CREATE TABLE consumers (
    -- The owner it belongs to; empty for the operator's own.
    scope           TEXT NOT NULL,
    name            TEXT NOT NULL,
    cursor          INTEGER NOT NULL,
    leased_through  INTEGER,
    leased_until_us INTEGER,
    PRIMARY KEY (scope, name)
) STRICT;

CREATE TABLE outbox (
    event    INTEGER NOT NULL,
    target   TEXT NOT NULL,
    process  TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    due_us   INTEGER NOT NULL,
    PRIMARY KEY (event, target)
) STRICT;
CREATE INDEX outbox_due ON outbox (due_us, event);
CREATE INDEX outbox_process ON outbox (process, target, event);
";

/// Upgrades from version 1, whose events have no `n` and no `announce`. Every event keeps its number.
pub(crate) const FROM_V1: &str = "
ALTER TABLE processes ADD COLUMN starter TEXT NOT NULL DEFAULT '';
UPDATE processes SET starter = owner;
DROP INDEX processes_key;
CREATE UNIQUE INDEX processes_key ON processes (starter, idem_key) WHERE idem_key IS NOT NULL;
ALTER TABLE events RENAME TO events_v1;
DROP INDEX events_owner;
CREATE TABLE events (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    process  TEXT NOT NULL,
    owner    TEXT NOT NULL,
    kind     TEXT NOT NULL,
    n        INTEGER NOT NULL,
    announce INTEGER NOT NULL,
    at_us    INTEGER NOT NULL,
    payload  TEXT NOT NULL,
    UNIQUE (process, kind, n)
) STRICT;
CREATE INDEX events_owner ON events (owner, seq);
CREATE INDEX events_announce ON events (owner, seq) WHERE announce = 1;
INSERT INTO events (seq, process, owner, kind, n, announce, at_us, payload)
    SELECT seq, process, owner, kind, 0, 0, at_us, payload FROM events_v1 ORDER BY seq;
INSERT INTO sqlite_sequence (name, seq) SELECT 'events', 0
    WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'events');
UPDATE sqlite_sequence SET seq = max(seq, (SELECT seq FROM sqlite_sequence WHERE name = 'events_v1'))
    WHERE name = 'events';
DROP TABLE events_v1;
";

/// A process that has ended stays so, in whatever order reports arrive (S1 in the index).
pub(crate) const PUT_PROCESS: &str = "
INSERT INTO processes (id, owner, name, status, created_us, ended_us, bytes, idem_key, history, starter)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (id) DO UPDATE SET
    owner = excluded.owner, name = excluded.name, status = excluded.status, created_us = excluded.created_us,
    ended_us = excluded.ended_us, bytes = excluded.bytes, idem_key = excluded.idem_key, history = excluded.history,
    starter = excluded.starter
WHERE processes.ended_us IS NULL OR excluded.ended_us IS NOT NULL";

/// Fails if the event is already in the log. Not `OR IGNORE`: an ignored row would use up a number, and the latest number
/// would belong to no event. Not `WHERE NOT EXISTS`: for that SQLite creates a temporary table.
pub(crate) const INSERT_EVENT: &str =
    "INSERT INTO events (process, owner, kind, n, announce, at_us, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// Keeps the events of processes that are still listed, so that S4 holds as long as an event could be reported again.
pub(crate) const PRUNE_EVENTS: &str = "
DELETE FROM events
WHERE seq <= (SELECT seq FROM events ORDER BY seq DESC LIMIT 1 OFFSET ?1)
  AND NOT EXISTS (SELECT 1 FROM processes WHERE processes.id = events.process)";

/// Deletes owners without processes, consumers and children.
pub(crate) const PRUNE_OWNERS: &str = "
DELETE FROM owners
WHERE NOT EXISTS (SELECT 1 FROM processes WHERE processes.owner = owners.owner)
  AND NOT EXISTS (SELECT 1 FROM consumers WHERE consumers.scope = owners.owner)
  AND NOT EXISTS (SELECT 1 FROM owners AS child WHERE child.parent = owners.owner)";
