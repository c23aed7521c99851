//! The record of one process: an append-only file of facts, one line each, `<crc32 of the json> <json>\n`.
//!
//! Owns the record's format and write order. What a fact means is decided in `model`.
//!
//! Invariant S1, *at most one exit record, never replaced*: nothing is appended after `Finished` or `Lost`, neither
//! by the keeper ([`RecordWriter`]) nor by the daemon after its death ([`append_lost`]).
//!
//! A writer holds an exclusive `flock` on the record: the keeper from creating the file until it ends, the daemon
//! while it appends `Lost`. Each append also checks that the file still ends where the writer left it, since an older
//! pinfold writes without the lock.
//!
//! A line is complete with its newline. A last line without one is torn: its writer died before sending it to anyone,
//! so it is ignored. Any other error is damage.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinfold_model::cached_json::CachedJson;
use pinfold_model::facts::{Fact, History, Intent};
use pinfold_os::{crash_point, fsio};
use serde::Deserialize;

use crate::Durability;
use crate::layout::{ProcessDir, RECORD};

/// The version of the record's format, written in its first line.
pub const RECORD_FORMAT: u32 = 1;
/// The maximum length; a longer record is refused when written and damaged when read.
pub const MAX_RECORD: u64 = 32 << 20;
/// Optional facts, such as notes, leave this much room for essential ones.
const ESSENTIAL_ROOM: u64 = 1 << 20;
/// Eight hex digits and a space before each line's json.
const PREFIX: usize = 9;
/// Replaces the opening brace of an intent's JSON to make it a [`Fact::Intended`].
const INTENDED: &str = r#"{"fact":"intended","#;

/// The file operations that a record needs; implemented for files, and in memory for tests.
pub trait RecordFile {
    fn length(&self) -> io::Result<u64>;
    fn read_range(&self, buffer: &mut [u8], from: u64) -> io::Result<()>;
    /// One write; may be short.
    fn write_once(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    fn truncate(&self, length: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
}

impl RecordFile for File {
    fn length(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn read_range(&self, buffer: &mut [u8], from: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, from)
    }

    fn write_once(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, at)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Writes the record of one process; used by its keeper only.
#[derive(Debug)]
pub struct RecordWriter<F = File> {
    file: Arc<F>,
    durability: Durability,
    /// Where the next line starts: after the last complete one.
    end: u64,
    over: bool,
    line: Vec<u8>,
}

impl RecordWriter {
    /// A writer for a newly prepared directory, whose record is empty.
    pub fn new(dir: &ProcessDir, durability: Durability) -> Self {
        Self::of(dir.record(), durability)
    }

    /// The file; its lock shows that the keeper is running.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl<F: RecordFile> RecordWriter<F> {
    /// A writer for an empty file.
    pub fn of(file: Arc<F>, durability: Durability) -> Self {
        Self { file, durability, end: 0, over: false, line: Vec::new() }
    }

    /// Appends the first fact, the intent.
    pub fn begin(&mut self, intent: &CachedJson<Intent>) -> io::Result<()> {
        let fields = intent.json().strip_prefix('{');
        let fields =
            fields.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the intent is not a JSON object"))?;
        start_line(&mut self.line);
        self.line.extend_from_slice(INTENDED.as_bytes());
        self.line.extend_from_slice(fields.as_bytes());
        self.write(false, MAX_RECORD - ESSENTIAL_ROOM)
    }

    /// Appends a fact with one `pwrite` and returns its JSON. A failed append leaves nothing that is read, and can be
    /// retried, unless the error is [`is_over`]: the record already holds an end.
    pub fn append(&mut self, fact: &Fact) -> io::Result<&str> {
        encode(fact, &mut self.line)?;
        self.write(is_end(fact), if is_essential(fact) { MAX_RECORD } else { MAX_RECORD - ESSENTIAL_ROOM })?;
        Ok(str::from_utf8(&self.line[PREFIX..]).expect("JSON is text").trim_end())
    }

    /// Completes the line with its checksum and newline, and appends it.
    fn write(&mut self, is_end: bool, max: u64) -> io::Result<()> {
        if self.over {
            return Err(already_over());
        }
        finish_line(&mut self.line);
        if self.end + self.line.len() as u64 > max {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the record would be too long"));
        }
        self.check_end()?;
        crash_point!("store.record_append");
        write_line(&*self.file, &self.line, self.end, self.durability)?;
        self.end += self.line.len() as u64;
        self.over = is_end;
        crash_point!("store.record_appended");
        Ok(())
    }

    /// Removes anything after our last line, or fails if another program has written an end there.
    fn check_end(&mut self) -> io::Result<()> {
        let length = self.file.length()?;
        if length > self.end {
            let beyond = read_beyond(&*self.file, self.end, length)?;
            // It may be this same line, partly written or not synced by an attempt that failed.
            self.over = !self.line.starts_with(&beyond) && holds_end(&beyond);
            if self.over {
                return Err(already_over());
            }
            self.file.truncate(self.end)?;
        }
        Ok(())
    }
}

fn already_over() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "the record already holds the end")
}

/// Whether an append failed because the record holds the end, and always will.
pub fn is_over(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}

fn read_beyond(file: &impl RecordFile, from: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length.min(MAX_RECORD).saturating_sub(from) as usize];
    file.read_range(&mut bytes, from)?;
    Ok(bytes)
}

/// Whether the complete lines contain an end.
fn holds_end(bytes: &[u8]) -> bool {
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    let mut lines = bytes[..whole].split(|&byte| byte == b'\n');
    lines.any(|line| decode(line, false).is_ok_and(|fact| is_end(&fact)))
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// At least one; the first is the intent.
    pub facts: Vec<Fact>,
    /// Whether a torn line follows, which is ignored.
    pub torn: bool,
}

impl Record {
    /// The history that the facts add up to.
    pub fn history(&self) -> Option<History> {
        let mut facts = self.facts.iter();
        let Some(Fact::Intended(intent)) = facts.next() else { return None };
        let mut history = History::new((**intent).clone());
        facts.for_each(|fact| history.add(fact.clone()));
        Some(history)
    }

    pub fn is_over(&self) -> bool {
        self.facts.iter().any(is_end)
    }
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{path} is missing")]
    Missing { path: PathBuf },
    #[error("{path} is empty")]
    Empty { path: PathBuf },
    #[error("{path} is damaged in line {line}: {what}")]
    Damaged { path: PathBuf, line: usize, what: String },
    #[error("{path} was written by a newer pinfold (format {found}, this one knows {RECORD_FORMAT}): upgrade pinfold")]
    Newer { path: PathBuf, found: u64 },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Why `Lost` was not appended.
#[derive(Debug, thiserror::Error)]
pub enum LostError {
    #[error("{path} already holds the end of the process, which is never replaced")]
    Over { path: PathBuf },
    #[error("{path} is locked by its keeper, or by a child that the keeper was starting: they have not ended yet")]
    Locked { path: PathBuf },
    #[error("only `lost` can be appended without the keeper")]
    NotLost,
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Reads the record in a process's directory; `Empty` if not even its first line is complete.
pub fn read_record(dir: &Path) -> Result<Record, RecordError> {
    load(dir).map(|(record, _)| record)
}

/// Records that a process is lost, after its keeper died. The only other writer besides the keeper; a torn last line
/// is removed. Refused while the record is locked.
pub fn append_lost(dir: &Path, fact: &Fact, durability: Durability) -> Result<(), LostError> {
    if !matches!(fact, Fact::Lost { .. }) {
        return Err(LostError::NotLost);
    }
    let path = dir.join(RECORD);
    let io = |source| LostError::Io { path: path.clone(), source };
    let flags = fsio::NO_FOLLOW | fsio::NO_WAIT;
    let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(RecordError::Missing { path }.into()),
        Err(source) => return Err(io(source)),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(LostError::Locked { path }),
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    // Read under the lock, so that nothing is appended in between.
    let bytes = read_whole(&file).map_err(io)?;
    append_lost_locked(&file, path, &bytes, fact, durability)
}

/// The second part of [`append_lost`], for a file that the caller has locked and read.
pub fn append_lost_locked(
    file: &impl RecordFile,
    path: PathBuf,
    bytes: &[u8],
    fact: &Fact,
    durability: Durability,
) -> Result<(), LostError> {
    if !matches!(fact, Fact::Lost { .. }) {
        return Err(LostError::NotLost);
    }
    let (record, end) = parse_record(path.clone(), bytes)?;
    if record.is_over() {
        return Err(LostError::Over { path });
    }
    let write = || {
        let mut line = Vec::new();
        encode(fact, &mut line)?;
        finish_line(&mut line);
        file.truncate(end)?;
        crash_point!("store.loss_append");
        write_line(file, &line, end, durability)?;
        crash_point!("store.loss_appended");
        Ok(())
    };
    write().map_err(|source| LostError::Io { path, source })
}

/// Writes a new record for a process whose directory was deleted: its intent, its start if it started, and the loss.
pub fn recreate_record(processes: &Path, history: &History, lost: &Fact, durability: Durability) -> io::Result<()> {
    let directory = ProcessDir::restore(processes, &history.intent.id)?;
    let mut writer = RecordWriter::new(&directory, durability);
    writer.begin(&history.intent)?;
    if let Some(start) = &history.start {
        writer.append(&Fact::Started(start.clone()))?;
    }
    writer.append(lost).map(drop)
}

pub fn exists(dir: &Path) -> bool {
    dir.join(RECORD).exists()
}

/// Whether a running keeper has locked this record. Keepers before protocol version 6 hold no lock.
pub fn is_locked(dir: &Path) -> io::Result<bool> {
    let flags = fsio::NO_FOLLOW | fsio::NO_WAIT;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(dir.join(RECORD))?;
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn is_end(fact: &Fact) -> bool {
    matches!(fact, Fact::Finished(_) | Fact::Lost { .. })
}

/// Whether the end cannot be reported without this fact.
fn is_essential(fact: &Fact) -> bool {
    !matches!(fact, Fact::HandedOver(_) | Fact::Readiness(_) | Fact::Noted { .. } | Fact::Refused { .. })
}

/// Encodes the fact as JSON, after room for its checksum.
fn encode(fact: &Fact, line: &mut Vec<u8>) -> io::Result<()> {
    start_line(line);
    Ok(serde_json::to_writer(line, fact)?)
}

/// Clears a line, leaving room for its checksum.
fn start_line(line: &mut Vec<u8>) {
    line.clear();
    line.resize(PREFIX, b' ');
}

/// Adds checksum and newline.
fn finish_line(line: &mut Vec<u8>) {
    let checksum = format!("{:08x}", crc32fast::hash(&line[PREFIX..]));
    line[..PREFIX - 1].copy_from_slice(checksum.as_bytes());
    line.push(b'\n');
}

fn write_line(file: &impl RecordFile, line: &[u8], at: u64, durability: Durability) -> io::Result<()> {
    if file.write_once(line, at)? != line.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "short write"));
    }
    match durability {
        Durability::Programs => Ok(()),
        Durability::Power => file.sync(),
    }
}

/// The record, and the offset after its last complete line.
fn load(dir: &Path) -> Result<(Record, u64), RecordError> {
    let path = dir.join(RECORD);
    match read_bounded(&path) {
        Ok(bytes) => parse_record(path, &bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(RecordError::Missing { path }),
        Err(source) => Err(RecordError::Io { path, source }),
    }
}

/// Parses a record; returns it with the offset after its last complete line.
pub fn parse_record(path: PathBuf, bytes: &[u8]) -> Result<(Record, u64), RecordError> {
    if bytes.len() as u64 > MAX_RECORD {
        return Err(RecordError::Damaged { path, line: 1, what: format!("it is longer than {MAX_RECORD} bytes") });
    }
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    if end == 0 {
        return Err(RecordError::Empty { path });
    }
    let mut facts = Vec::new();
    for (number, line) in bytes[..end - 1].split(|&byte| byte == b'\n').enumerate() {
        match decode(line, number == 0) {
            Ok(fact) => facts.push(fact),
            Err(LineError::Newer(found)) => return Err(RecordError::Newer { path, found }),
            Err(LineError::Damage(what)) => return Err(RecordError::Damaged { path, line: number + 1, what }),
        }
    }
    Ok((Record { facts, torn: end < bytes.len() }, end as u64))
}

/// Refuses a fifo or device in the record's place instead of blocking on it.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let flags = fsio::NO_FOLLOW | fsio::NO_WAIT;
    read_whole(&OpenOptions::new().read(true).custom_flags(flags).open(path)?)
}

/// Reads at most one byte more than the maximum.
fn read_whole(file: &File) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
    }
    let mut bytes = Vec::with_capacity(metadata.len().min(MAX_RECORD) as usize + 1);
    file.take(MAX_RECORD + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

enum LineError {
    Newer(u64),
    Damage(String),
}

fn decode(line: &[u8], first: bool) -> Result<Fact, LineError> {
    let damage = |what: &str| LineError::Damage(what.to_owned());
    let (prefix, json) = line.split_at_checked(PREFIX).ok_or_else(|| damage("it is too short"))?;
    if format!("{:08x} ", crc32fast::hash(json)).as_bytes() != prefix {
        return Err(damage("its checksum does not match"));
    }
    if first {
        check_format(json)?;
    }
    let fact: Fact =
        serde_json::from_slice(json).map_err(|error| LineError::Damage(format!("it is not a fact ({error})")))?;
    if first != matches!(fact, Fact::Intended(_)) {
        return Err(damage("the first line, and only the first, must be `intended`"));
    }
    Ok(fact)
}

/// Checks the format number before the rest of the first line is parsed.
fn check_format(json: &[u8]) -> Result<(), LineError> {
    #[derive(Deserialize)]
    struct Versioned {
        format: u64,
    }
    match serde_json::from_slice(json) {
        Ok(Versioned { format }) if format > u64::from(RECORD_FORMAT) => Err(LineError::Newer(format)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
