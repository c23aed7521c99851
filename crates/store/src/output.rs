//! Writes the output of a process: segment files `out.<start offset>` in its directory, with a size limit and exact
//! offsets.
//!
//! Owns the segments' names, sizes and write order, and which are dropped. Reading is in `reader`.
//!
//! Invariant S2, *a cursor names the same byte for ever*: a cursor is the offset of a byte since the start of the
//! process. A segment is named after the offset of its first byte; bytes are only appended, and only dropped together
//! with their whole segment. Bytes that cannot be written are counted and leave a gap: the next bytes start a new segment
//! at their true offset.
//!
//! Bounds: an eighth of `limit` is the head, which is never dropped. After it come tail segments of a sixteenth each; the
//! oldest is dropped before a new one would exceed the limit. Marks count like output. So the files never exceed `limit`,
//! and hold at least half of it once that much was written. Segments cut short by errors are limited in number too
//! ([`MAX_HEAD_SEGMENTS`], [`MAX_TAIL_SEGMENTS`]).

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pinfold_model::units::Moment;
use pinfold_os::{crash_point, fsio};

use crate::layout::FILE_MODE;
use crate::marks::{MARK_BYTES, MARK_EVERY, Mark, Stream, marks_path};

/// A smaller limit is raised to this, so that every segment has room for a mark and some bytes.
pub const MIN_LIMIT: u64 = 4096;
/// Maximum number of head segments; normally one, more only after failed writes.
pub const MAX_HEAD_SEGMENTS: usize = 16;
/// Maximum number of tail segments; normally fourteen, more only after failed writes.
pub const MAX_TAIL_SEGMENTS: usize = 64;
/// A head with less room than this is full.
const MIN_SEGMENT: u64 = 64;

/// Writes the output of one process. Only its keeper writes. Writing never fails: see [`Self::lost`].
#[derive(Debug)]
pub struct OutputWriter {
    dir: PathBuf,
    limit: u64,
    started: Moment,
    /// Bytes since the start, written or not: the offset of the next byte.
    total: u64,
    lost: u64,
    current: Option<Segment>,
    /// Total size and number of the closed head segments.
    head: (u64, usize),
    /// The closed tail segments, oldest first.
    tail: VecDeque<ClosedSegment>,
}

/// The segment being written.
#[derive(Debug)]
struct Segment {
    file: File,
    start: u64,
    /// Bytes in the file.
    len: u64,
    /// Maximum bytes of output and marks together.
    max: u64,
    part: Part,
    marks: Option<File>,
    marks_len: u64,
    last_mark: Option<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    Tail,
}

#[derive(Debug)]
struct ClosedSegment {
    start: u64,
    /// Bytes of output and marks.
    size: u64,
}

impl OutputWriter {
    /// A writer for the directory of a process that has just started. Creates no file before the first byte.
    pub fn new(dir: &Path, limit: u64, started: Moment) -> Self {
        let limit = limit.max(MIN_LIMIT);
        let (dir, head, tail) = (dir.to_owned(), (0, 0), VecDeque::new());
        Self { dir, limit, started, total: 0, lost: 0, current: None, head, tail }
    }

    /// The directory of the process.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes since the start, stored or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes that could not be written to disk.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Appends bytes. Bytes that cannot be written are counted as lost; the next append tries to write again.
    pub fn append(&mut self, stream: Stream, bytes: &[u8], at: Moment) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write_some(stream, rest, at) {
                Ok(written) => rest = &rest[written..],
                Err(_) => {
                    self.abandon_segment();
                    self.total += rest.len() as u64;
                    self.lost += rest.len() as u64;
                    return;
                }
            }
        }
    }

    fn write_some(&mut self, stream: Stream, bytes: &[u8], at: Moment) -> io::Result<usize> {
        self.make_room(stream, at)?;
        let Some(segment) = &mut self.current else { return Err(io::ErrorKind::NotFound.into()) };
        let fits = bytes.len().min(usize::try_from(segment.left()).unwrap_or(usize::MAX));
        let written = match segment.file.write_at(&bytes[..fits], segment.len) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        crash_point!("store.segment_written");
        segment.len += written as u64;
        self.total += written as u64;
        Ok(written)
    }

    /// Makes sure that the current segment has room for at least one byte, and a mark for this stream and time.
    fn make_room(&mut self, stream: Stream, at: Moment) -> io::Result<()> {
        if let Some(segment) = &self.current
            && segment.left() <= segment.mark_cost(stream, at, self.started)
        {
            self.close_segment();
        }
        if self.current.is_none() {
            self.open_segment()?;
        }
        let Some(segment) = &mut self.current else { return Ok(()) };
        if !segment.needs_mark(stream, at, self.started) {
            return Ok(());
        }
        let same_stream = segment.last_mark.map_or(Stream::Stdout, |mark| mark.stream) == stream;
        match segment.write_mark(&self.dir, Mark { offset: self.total, stream, at }) {
            // Without the mark only the time is inexact. Bytes attributed to the wrong stream would be wrong data.
            Err(_) if same_stream => Ok(()),
            result => result,
        }
    }

    fn open_segment(&mut self) -> io::Result<()> {
        let head_left = (self.limit / 8).saturating_sub(self.head.0);
        let in_head = self.tail.is_empty() && self.head.1 < MAX_HEAD_SEGMENTS && head_left >= MIN_SEGMENT;
        let (part, max) = if in_head { (Part::Head, head_left) } else { (Part::Tail, self.limit / 16) };
        if part == Part::Tail {
            self.drop_oldest_for(max);
        }
        let start = self.total;
        let file = create(&segment_path(&self.dir, start))?;
        crash_point!("store.segment_made");
        let (marks, last_mark) = (None, None);
        self.current = Some(Segment { file, start, len: 0, max, part, marks, marks_len: 0, last_mark });
        Ok(())
    }

    /// Drops the oldest tail segments until a new one of this size fits. Removes a segment before its marks, so that a
    /// reader cannot mistake a segment whose marks were removed for one without marks.
    fn drop_oldest_for(&mut self, size: u64) {
        let mut used: u64 = self.head.0 + self.tail.iter().map(|closed| closed.size).sum::<u64>();
        while used + size > self.limit || self.tail.len() >= MAX_TAIL_SEGMENTS {
            let Some(oldest) = self.tail.pop_front() else { return };
            used -= oldest.size;
            let _ = std::fs::remove_file(segment_path(&self.dir, oldest.start));
            crash_point!("store.segment_dropped");
            let _ = std::fs::remove_file(marks_path(&self.dir, oldest.start));
        }
    }

    fn close_segment(&mut self) {
        let Some(segment) = self.current.take() else { return };
        let size = segment.len + segment.marks_len;
        match segment.part {
            Part::Head => self.head = (self.head.0 + size, self.head.1 + 1),
            Part::Tail => self.tail.push_back(ClosedSegment { start: segment.start, size }),
        }
        crash_point!("store.segment_closed");
    }

    /// After an error, closes the current segment, so that the next bytes start a new one. Removes it if it is empty,
    /// because the offset in its name would not be that of the next byte.
    fn abandon_segment(&mut self) {
        let Some(segment) = &self.current else { return };
        if segment.len > 0 {
            let _ = segment.file.set_len(segment.len);
            return self.close_segment();
        }
        let _ = std::fs::remove_file(segment_path(&self.dir, segment.start));
        let _ = std::fs::remove_file(marks_path(&self.dir, segment.start));
        self.current = None;
    }
}

impl Segment {
    fn left(&self) -> u64 {
        self.max.saturating_sub(self.len + self.marks_len)
    }

    fn needs_mark(&self, stream: Stream, at: Moment, started: Moment) -> bool {
        match self.last_mark {
            Some(last) => last.is_outdated(stream, at),
            None => stream == Stream::Stderr || at.since(started) >= MARK_EVERY,
        }
    }

    fn mark_cost(&self, stream: Stream, at: Moment, started: Moment) -> u64 {
        if self.needs_mark(stream, at, started) { MARK_BYTES } else { 0 }
    }

    fn write_mark(&mut self, dir: &Path, mark: Mark) -> io::Result<()> {
        let file = match &mut self.marks {
            Some(file) => file,
            none => none.insert(create(&marks_path(dir, self.start))?),
        };
        crash_point!("store.mark_append");
        if file.write_at(&mark.encode(), self.marks_len)? as u64 != MARK_BYTES {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.marks_len += MARK_BYTES;
        self.last_mark = Some(mark);
        crash_point!("store.mark_written");
        Ok(())
    }
}

/// The segment whose first byte has this offset.
pub(crate) fn segment_path(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("out.{start:020}"))
}

/// Whether a process's directory contains output. If so, the process ran, whatever its record says.
pub fn has_output(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("out."))
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE).custom_flags(fsio::NO_FOLLOW).open(path)
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
