//! The record of one process: an append-only file of facts, one line each, `<crc32 of the json> <json>\n`.
//!
//! Owns the record's format and its write order. Decides nothing: what a fact means is the model's matter.
//!
//! Invariant S1, *at most one exit record, never replaced*: nothing is appended after `Finished` or `Lost`,
//! neither by the keeper ([`RecordWriter`]) nor in its stead ([`append_lost`]).
//!
//! Who appends holds an exclusive `flock` on the record: the keeper from the moment it makes the file until the end is
//! written, whoever writes in its stead for that one line. And each append first checks that the file ends where its writer
//! left it: an older pinfold writes without the lock.
//!
//! A line is whole when its newline is there. A last line without one is torn: it was being written when its
//! writer died, so nobody was told of it, and it does not count. Anything else that is wrong is damage.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
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
/// What may be left out, such as a note, leaves this much room for what may not.
const ESSENTIAL_ROOM: u64 = 1 << 20;
/// Eight hex digits and a space before each line's json.
const PREFIX: usize = 9;
/// What makes an intent's JSON that of [`Fact::Intended`], in the place of its opening brace.
const INTENDED: &str = r#"{"fact":"intended","#;

/// The file of a record, as far as the record's rules need it. Implemented for real files, and in memory for tests.
pub trait RecordFile {
    fn length(&self) -> io::Result<u64>;
    fn read_range(&self, buffer: &mut [u8], from: u64) -> io::Result<()>;
    /// One write; it may write less than all.
    fn write_once(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Returns when the content is on disk.
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

/// Writes the record of one process. There is one writer: its keeper.
#[derive(Debug)]
pub struct RecordWriter<F = File> {
    file: Arc<F>,
    durability: Durability,
    /// Where the next line begins: after the last whole one.
    end: u64,
    over: bool,
    line: Vec<u8>,
}

impl RecordWriter {
    /// A writer for a directory just prepared: its record is empty.
    pub fn new(dir: &ProcessDir, durability: Durability) -> Self {
        Self::of(dir.record(), durability)
    }

    /// The file, whose lock tells that its keeper lives.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl<F: RecordFile> RecordWriter<F> {
    /// A writer for a file that is empty.
    pub fn of(file: Arc<F>, durability: Durability) -> Self {
        Self { file, durability, end: 0, over: false, line: Vec::new() }
    }

    /// Appends the first fact, what was asked for.
    pub fn begin(&mut self, intent: &Spelled<Intent>) -> io::Result<()> {
        let fields = intent.json().strip_prefix('{');
        let fields = fields.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an intent that is no object"))?;
        clear(&mut self.line);
        self.line.extend_from_slice(INTENDED.as_bytes());
        self.line.extend_from_slice(fields.as_bytes());
        self.write(false, RECORD_MOST - ESSENTIAL_ROOM)
    }

    /// Appends a fact: one `pwrite`. A failed append leaves nothing that counts, and can be repeated, unless it failed with
    /// [`is_over`]: then the record holds the end already. Returns its JSON.
    pub fn append(&mut self, fact: &Fact) -> io::Result<&str> {
        spell(fact, &mut self.line)?;
        self.write(is_end(fact), if is_essential(fact) { RECORD_MOST } else { RECORD_MOST - ESSENTIAL_ROOM })?;
        Ok(str::from_utf8(&self.line[PREFIX..]).expect("JSON is text").trim_end())
    }

    /// Appends the line, still without its sum and its end.
    fn write(&mut self, is_end: bool, most: u64) -> io::Result<()> {
        if self.over {
            return Err(already_over());
        }
        seal(&mut self.line);
        if self.end + self.line.len() as u64 > most {
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

    /// Leaves the record with whole lines of ours alone, or says that somebody else ended it.
    fn check_end(&mut self) -> io::Result<()> {
        let length = self.file.length()?;
        if length > self.end {
            let beyond = read_beyond(&*self.file, self.end, length)?;
            // This very line may be there, in part or not yet synced, from a try that failed.
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
    let mut bytes = vec![0; length.min(RECORD_MOST).saturating_sub(from) as usize];
    file.read_range(&mut bytes, from)?;
    Ok(bytes)
}

/// Whether whole lines among these tell an end.
fn holds_end(bytes: &[u8]) -> bool {
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    let mut lines = bytes[..whole].split(|&byte| byte == b'\n');
    lines.any(|line| decode(line, false).is_ok_and(|fact| is_end(&fact)))
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
    #[error("{path} is locked by its keeper, or by a child that the keeper was starting: they are not gone yet")]
    Held { path: PathBuf },
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
/// besides the keeper; a torn tail goes first. Refused while the keeper holds its lock on the record.
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
        Err(TryLockError::WouldBlock) => return Err(LostError::Held { path }),
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    // Read under the lock: what an end is written after is what was there.
    let bytes = read_whole(&file).map_err(io)?;
    append_lost_locked(&file, path, &bytes, fact, durability)
}

/// The rest of [`append_lost`], for a file that the caller has locked and read.
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
        spell(fact, &mut line)?;
        seal(&mut line);
        file.truncate(end)?;
        crash_point!("store.loss_append");
        write_line(file, &line, end, durability)?;
        crash_point!("store.loss_appended");
        Ok(())
    };
    write().map_err(|source| LostError::Io { path, source })
}

/// Writes the record of a process whose directory was deleted: that it was asked for, started if it was, and is lost.
pub fn write_anew(processes: &Path, history: &History, lost: &Fact, durability: Durability) -> io::Result<()> {
    let directory = ProcessDir::restore(processes, &history.intent.id)?;
    let mut writer = RecordWriter::new(&directory, durability);
    writer.begin(&history.intent)?;
    if let Some(start) = &history.start {
        writer.append(&Fact::Started(start.clone()))?;
    }
    writer.append(lost).map(drop)
}

/// Whether there is a record in this directory.
pub fn exists(dir: &Path) -> bool {
    dir.join(RECORD).exists()
}

/// Whether a living keeper holds this record. Before version 6 of the protocol keepers held no lock.
pub fn is_held(dir: &Path) -> io::Result<bool> {
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

/// What must be written for the end to be told; the rest can be done without.
fn is_essential(fact: &Fact) -> bool {
    !matches!(fact, Fact::HandedOver(_) | Fact::Readiness(_) | Fact::Noted { .. })
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

fn write_line(file: &impl RecordFile, line: &[u8], at: u64, durability: Durability) -> io::Result<()> {
    if file.write_once(line, at)? != line.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "the line was written only in part"));
    }
    match durability {
        Durability::Programs => Ok(()),
        Durability::Power => file.sync(),
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

/// A fifo or device in the record's place is refused, not waited for.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let flags = fsio::NO_FOLLOW | fsio::NO_WAIT;
    read_whole(&OpenOptions::new().read(true).custom_flags(flags).open(path)?)
}

/// At most one byte more than a record may have.
fn read_whole(file: &File) -> io::Result<Vec<u8>> {
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
