//! The record of one process: an append-only file of facts, one line each, `<crc32 of the json> <json>\n`.
//!
//! Owns the record's format and its write order. Decides nothing: what a fact means is the model's matter.
//!
//! Invariant S1, *at most one exit record, never replaced*: nothing is appended after `Finished` or `Lost`,
//! neither by the keeper ([`RecordWriter`]) nor in its stead ([`append_lost`]).
//!
//! A line is whole when its newline is there. A last line without one is torn: it was being written when its
//! writer died, so nobody was told of it, and it does not count. Anything else that is wrong is damage.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinfold_model::facts::{Fact, History, Intent};
use pinfold_model::spelled::Spelled;
use pinfold_os::{crash_point, fsio};
use serde::Deserialize;

use crate::Durability;
use crate::layout::{ProcessDir, RECORD};

/// The version of the record's format, written in its first line.
pub const RECORD_FORMAT: u32 = 1;
/// No record is longer; a longer one is refused when written and is damage when read.
pub const RECORD_MOST: u64 = 32 << 20;
/// Eight hex digits and a space before each line's json.
const PREFIX: usize = 9;
/// What makes an intent's JSON that of [`Fact::Intended`], in the place of its opening brace.
const INTENDED: &str = r#"{"fact":"intended","#;

/// Writes the record of one process. There is one writer: its keeper.
#[derive(Debug)]
pub struct RecordWriter {
    file: Arc<File>,
    durability: Durability,
    /// Where the next line begins: after the last whole one.
    end: u64,
    /// Whether a failed append may have left something behind `end`.
    dirty: bool,
    over: bool,
    line: Vec<u8>,
}

impl RecordWriter {
    /// A writer for a directory just prepared: its record is empty.
    pub fn new(dir: &ProcessDir, durability: Durability) -> Self {
        Self { file: dir.record(), durability, end: 0, dirty: false, over: false, line: Vec::new() }
    }

    /// Appends the first fact, what was asked for.
    pub fn begin(&mut self, intent: &Spelled<Intent>) -> io::Result<()> {
        let fields = intent.json().strip_prefix('{');
        let fields = fields.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an intent that is no object"))?;
        clear(&mut self.line);
        self.line.extend_from_slice(INTENDED.as_bytes());
        self.line.extend_from_slice(fields.as_bytes());
        self.write(false)
    }

    /// Appends a fact: one `pwrite`. A failed append leaves nothing that counts, and can be repeated. Returns its JSON.
    pub fn append(&mut self, fact: &Fact) -> io::Result<&str> {
        spell(fact, &mut self.line)?;
        self.write(is_end(fact))?;
        Ok(str::from_utf8(&self.line[PREFIX..]).expect("JSON is text").trim_end())
    }

    /// Appends the line, still without its sum and its end.
    fn write(&mut self, is_end: bool) -> io::Result<()> {
        if self.over {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the record already holds the end"));
        }
        seal(&mut self.line);
        if self.end + self.line.len() as u64 > RECORD_MOST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the record would be too long"));
        }
        if self.dirty {
            self.file.set_len(self.end)?;
            self.dirty = false;
        }
        if is_end && self.file.metadata()?.len() != self.end {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "somebody else wrote to the record"));
        }
        self.dirty = true;
        crash_point!("store.record_append");
        write_line(&self.file, &self.line, self.end, self.durability)?;
        self.dirty = false;
        self.end += self.line.len() as u64;
        self.over = is_end;
        crash_point!("store.record_appended");
        Ok(())
    }
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// At least one, the first an intent.
    pub facts: Vec<Fact>,
    /// Whether a torn line follows them, which does not count.
    pub torn: bool,
}

impl Record {
    /// What the facts add up to.
    pub fn history(&self) -> Option<History> {
        let mut facts = self.facts.iter();
        let Some(Fact::Intended(intent)) = facts.next() else { return None };
        let mut history = History::new((**intent).clone());
        facts.for_each(|fact| history.add(fact.clone()));
        Some(history)
    }

    /// Whether the end is recorded.
    pub fn is_over(&self) -> bool {
        self.facts.iter().any(is_end)
    }
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{path} is missing")]
    Missing { path: PathBuf },
    #[error("{path} holds nothing yet")]
    Empty { path: PathBuf },
    #[error("{path} is damaged in line {line}: {what}")]
    Damaged { path: PathBuf, line: usize, what: String },
    #[error("{path} was written by a newer pinfold (format {found}, this one knows {RECORD_FORMAT}): upgrade pinfold")]
    Newer { path: PathBuf, found: u64 },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Why no `Lost` was appended.
#[derive(Debug, thiserror::Error)]
pub enum LostError {
    #[error("{path} already holds the end of the process, which is never replaced")]
    Over { path: PathBuf },
    #[error("only `lost` is written in a keeper's stead")]
    NotLost,
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Reads the record in a process's directory. `Empty` when not even its first line is whole.
pub fn read_record(dir: &Path) -> Result<Record, RecordError> {
    load(dir).map(|(record, _)| record)
}

/// Writes that a process is lost, in the stead of its keeper, which is dead. The only writer of a record
/// besides the keeper; a torn tail goes first.
pub fn append_lost(dir: &Path, fact: &Fact, durability: Durability) -> Result<(), LostError> {
    if !matches!(fact, Fact::Lost { .. }) {
        return Err(LostError::NotLost);
    }
    let path = dir.join(RECORD);
    let (record, end) = load(dir)?;
    if record.is_over() {
        return Err(LostError::Over { path });
    }
    let write = || {
        let mut line = Vec::new();
        spell(fact, &mut line)?;
        seal(&mut line);
        let file = OpenOptions::new().write(true).custom_flags(fsio::NO_FOLLOW).open(&path)?;
        file.set_len(end)?;
        crash_point!("store.loss_append");
        write_line(&file, &line, end, durability)?;
        crash_point!("store.loss_appended");
        Ok(())
    };
    write().map_err(|source| LostError::Io { path: path.clone(), source })
}

fn is_end(fact: &Fact) -> bool {
    matches!(fact, Fact::Finished(_) | Fact::Lost { .. })
}

/// The fact as JSON, after the place of its sum.
fn spell(fact: &Fact, line: &mut Vec<u8>) -> io::Result<()> {
    clear(line);
    Ok(serde_json::to_writer(line, fact)?)
}

/// Leaves nothing of a line but the place of its sum.
fn clear(line: &mut Vec<u8>) {
    line.clear();
    line.resize(PREFIX, b' ');
}

/// Makes JSON a line: its sum before it, its end behind it.
fn seal(line: &mut Vec<u8>) {
    let sum = format!("{:08x}", crc32fast::hash(&line[PREFIX..]));
    line[..PREFIX - 1].copy_from_slice(sum.as_bytes());
    line.push(b'\n');
}

fn write_line(file: &File, line: &[u8], at: u64, durability: Durability) -> io::Result<()> {
    if file.write_at(line, at)? != line.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "the line was written only in part"));
    }
    match durability {
        Durability::Programs => Ok(()),
        Durability::Power => file.sync_data(),
    }
}

/// The record, and where its whole lines end.
fn load(dir: &Path) -> Result<(Record, u64), RecordError> {
    let path = dir.join(RECORD);
    match read_bounded(&path) {
        Ok(bytes) => parse_record(path, &bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(RecordError::Missing { path }),
        Err(source) => Err(RecordError::Io { path, source }),
    }
}

/// The record that the file there holds, and where its whole lines end.
pub fn parse_record(path: PathBuf, bytes: &[u8]) -> Result<(Record, u64), RecordError> {
    if bytes.len() as u64 > RECORD_MOST {
        return Err(RecordError::Damaged { path, line: 1, what: format!("it is longer than {RECORD_MOST} bytes") });
    }
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    if end == 0 {
        return Err(RecordError::Empty { path });
    }
    let mut facts = Vec::new();
    for (number, line) in bytes[..end - 1].split(|&byte| byte == b'\n').enumerate() {
        match decode(line, number == 0) {
            Ok(fact) => facts.push(fact),
            Err(Flaw::Newer(found)) => return Err(RecordError::Newer { path, found }),
            Err(Flaw::Damage(what)) => return Err(RecordError::Damaged { path, line: number + 1, what }),
        }
    }
    Ok((Record { facts, torn: end < bytes.len() }, end as u64))
}

/// At most one byte more than a record may have. A fifo or device in its place is refused, not waited for.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let flags = fsio::NO_FOLLOW | fsio::NO_WAIT;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
    }
    let mut bytes = Vec::with_capacity(metadata.len().min(RECORD_MOST) as usize + 1);
    file.take(RECORD_MOST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

enum Flaw {
    Newer(u64),
    Damage(String),
}

fn decode(line: &[u8], first: bool) -> Result<Fact, Flaw> {
    let damage = |what: &str| Flaw::Damage(what.to_owned());
    let (prefix, json) = line.split_at_checked(PREFIX).ok_or_else(|| damage("it is too short"))?;
    if format!("{:08x} ", crc32fast::hash(json)).as_bytes() != prefix {
        return Err(damage("its checksum does not match"));
    }
    if first {
        check_format(json)?;
    }
    let fact: Fact = serde_json::from_slice(json).map_err(|error| Flaw::Damage(format!("it is no fact ({error})")))?;
    if first != matches!(fact, Fact::Intended(_)) {
        return Err(damage("the first line, and only the first, must be `intended`"));
    }
    Ok(fact)
}

/// Before anything else is understood of a first line: whether we can.
fn check_format(json: &[u8]) -> Result<(), Flaw> {
    #[derive(Deserialize)]
    struct Versioned {
        format: u64,
    }
    match serde_json::from_slice(json) {
        Ok(Versioned { format }) if format > u64::from(RECORD_FORMAT) => Err(Flaw::Newer(format)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
