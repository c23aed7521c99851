//! Reads the output of a process by cursor, while it is being written or afterwards.
//!
//! Owns the view of the segments: extents, gaps, pieces, lines. Read-only, keeps no state between calls, and tolerates
//! segments that are removed while it reads.
//!
//! Invariant S3, *what is retained plus what is dropped is what was written*: every offset below the end is either in a
//! retained range or in a gap, never in both and never in neither.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pinfold_model::units::Moment;

use crate::marks::{Run, Stream, push_run, runs_of_segment};
use crate::output::segment_path;

/// Maximum length of a piece; read the rest from its `next` on.
pub const MAX_PIECE: usize = 16 << 20;
/// Bytes per step when searching for lines from the end.
const BLOCK: u64 = 64 * 1024;
/// Attempts to read when segments are removed during the read. After that the read returns no bytes.
const MAX_ATTEMPTS: usize = 16;

/// Reads the output in one process's directory.
#[derive(Clone, Debug)]
pub struct OutputReader {
    dir: PathBuf,
    known_end: u64,
}

/// How much output there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The offset after the last byte.
    pub end: u64,
    /// In ascending order, not adjacent.
    pub retained: Vec<Range<u64>>,
    /// Bytes below the end that are not retained.
    pub dropped: u64,
}

/// The result of one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The offset of the first of `bytes`.
    pub at: u64,
    pub bytes: Vec<u8>,
    /// The missing range between the cursor and `at`.
    pub gap: Option<Range<u64>>,
    /// The cursor for the next read.
    pub next: u64,
    /// The end of the output when this was read.
    pub end: u64,
}

impl Piece {
    /// The bytes of these runs, which must be inside the piece.
    pub fn bytes_of(&self, runs: &[Run]) -> Vec<u8> {
        let place = |run: &Run| (run.range.start - self.at) as usize..(run.range.end - self.at) as usize;
        runs.iter().flat_map(|run| &self.bytes[place(run)]).copied().collect()
    }
}

/// A segment file in the directory.
#[derive(Clone, Debug)]
struct SegmentFile {
    start: u64,
    end: u64,
}

impl OutputReader {
    /// Does not access the disk yet.
    pub fn open(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), known_end: 0 }
    }

    /// Sets the end of the output from the exit record: bytes lost at the very end are in no file.
    pub fn with_known_end(mut self, end: Option<u64>) -> Self {
        self.known_end = end.unwrap_or(0);
        self
    }

    pub fn extent(&self) -> io::Result<Extent> {
        let (found, end) = self.segments()?;
        let mut retained: Vec<Range<u64>> = Vec::new();
        for segment in found {
            match retained.last_mut() {
                Some(last) if last.end == segment.start => last.end = segment.end,
                _ => retained.push(segment.start..segment.end),
            }
        }
        let kept: u64 = retained.iter().map(|range| range.end - range.start).sum();
        Ok(Extent { end, retained, dropped: end - kept })
    }

    /// The bytes from the cursor on, or from the first retained byte after it: at most `max`, and up to the next gap. For
    /// a cursor at or beyond the end there are no bytes, and `next` is the cursor itself.
    pub fn read(&self, cursor: u64, max: usize) -> io::Result<Piece> {
        for _ in 0..MAX_ATTEMPTS {
            let (found, end) = self.segments()?;
            if let Some(piece) = self.read_from(&found, cursor, max.min(MAX_PIECE), end)? {
                return Ok(piece);
            }
        }
        Ok(Piece { at: cursor, bytes: vec![], gap: None, next: cursor, end: self.segments()?.1 })
    }

    /// Like [`Self::read`], but only the bytes of one stream; `next` is after the whole piece.
    pub fn read_stream(&self, stream: Stream, cursor: u64, max: usize) -> io::Result<Piece> {
        let (mut piece, mut runs) = self.read_runs(cursor, max)?;
        runs.retain(|run| run.stream == stream);
        piece.bytes = piece.bytes_of(&runs);
        Ok(piece)
    }

    /// Like [`Self::read`], with the stream and time of every part of the piece.
    pub fn read_runs(&self, cursor: u64, max: usize) -> io::Result<(Piece, Vec<Run>)> {
        let mut piece = self.read(cursor, max)?;
        for _ in 0..MAX_ATTEMPTS {
            let runs = self.runs(piece.at..piece.next)?;
            let known: u64 = runs.iter().map(|run| run.range.end - run.range.start).sum();
            if known == piece.bytes.len() as u64 {
                return Ok((piece, runs));
            }
            piece = self.read(cursor, max)?;
        }
        Ok((Piece { at: cursor, bytes: vec![], gap: None, next: cursor, end: piece.end }, vec![]))
    }

    /// Stream and time of each retained part of the range.
    pub fn runs(&self, range: Range<u64>) -> io::Result<Vec<Run>> {
        let mut runs = Vec::new();
        if range.is_empty() {
            return Ok(runs);
        }
        for segment in self.segments()?.0 {
            let part = segment.start.max(range.start)..segment.end.min(range.end);
            if part.is_empty() {
                continue;
            }
            let of_segment = runs_of_segment(&self.dir, segment.start, part)?;
            // Marks are removed after their segment: if the segment still exists, the marks were complete.
            if segment_path(&self.dir, segment.start).exists() {
                of_segment.into_iter().for_each(|run| push_run(&mut runs, run));
            }
        }
        Ok(runs)
    }

    /// The cursor of the first retained byte that arrived at this time or later, else the end. `started` is when the
    /// process started: the time of bytes without a mark.
    pub fn first_since(&self, time: Moment, started: Moment) -> io::Result<u64> {
        let (segments, end) = self.segments()?;
        for segment in segments {
            let runs = runs_of_segment(&self.dir, segment.start, segment.start..segment.end)?;
            if let Some(run) = runs.into_iter().find(|run| run.at.unwrap_or(started) >= time) {
                return Ok(run.range.start);
            }
        }
        Ok(end)
    }

    /// The cursor this many bytes before the end.
    pub fn tail_start(&self, bytes: u64) -> io::Result<u64> {
        Ok(self.segments()?.1.saturating_sub(bytes))
    }

    /// The cursor where the last lines start; an unterminated last line counts as one. Searches at most `max_bytes` back,
    /// and not beyond a gap. If it stops there, the cursor may be in the middle of a line, and there may be fewer lines.
    pub fn tail_lines(&self, lines: usize, max_bytes: u64) -> io::Result<u64> {
        let extent = self.extent()?;
        let last = match extent.retained.last() {
            Some(last) if lines > 0 => last.clone(),
            _ => return Ok(extent.end),
        };
        let floor = last.start.max(last.end.saturating_sub(max_bytes));
        let mut wanted = lines;
        let mut upper = last.end;
        while upper > floor {
            let lower = upper.saturating_sub(BLOCK).max(floor);
            let piece = self.read(lower, (upper - lower) as usize)?;
            if piece.at != lower || piece.next != upper {
                return Ok(upper);
            }
            for (place, _) in piece.bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
                let after = lower + place as u64 + 1;
                if after == last.end {
                    continue;
                }
                wanted -= 1;
                if wanted == 0 {
                    return Ok(after);
                }
            }
            upper = lower;
        }
        Ok(floor)
    }

    /// `None` if every segment to read was removed meanwhile: list them again.
    fn read_from(&self, found: &[SegmentFile], cursor: u64, max: usize, end: u64) -> io::Result<Option<Piece>> {
        let mut wanted = found.iter().filter(|segment| segment.end > cursor).peekable();
        if wanted.peek().is_none() {
            let next = cursor.max(end);
            let gap = (cursor < end).then_some(cursor..end);
            return Ok(Some(Piece { at: next, bytes: vec![], gap, next, end }));
        }
        let mut bytes = Vec::new();
        let mut at = None;
        for segment in wanted {
            let from = segment.start.max(cursor);
            let next = at.map(|at: u64| at + bytes.len() as u64);
            if next.is_some_and(|next| next != from || bytes.len() >= max) {
                break;
            }
            let fits = (segment.end - from).min((max - bytes.len()) as u64) as usize;
            match read_segment(&self.dir, segment.start, from, fits, &mut bytes)? {
                SegmentRead::Removed if next.is_some() => break,
                SegmentRead::Removed => continue,
                SegmentRead::Done => at = at.or(Some(from)),
            }
        }
        let Some(at) = at else { return Ok(None) };
        let gap = (at > cursor).then_some(cursor..at);
        Ok(Some(Piece { at, next: at + bytes.len() as u64, bytes, gap, end }))
    }

    /// The segments in order, without empty ones, and the end of the output.
    fn segments(&self) -> io::Result<(Vec<SegmentFile>, u64)> {
        let (mut found, mut end) = (Vec::new(), 0);
        for _ in 0..MAX_ATTEMPTS {
            let latest;
            (found, latest) = self.list_and_measure()?;
            // If the latest segment is removed by now, so are all before it, and the output extends at least to its start.
            end = latest.unwrap_or(0);
            if let Some(last) = found.last().filter(|last| Some(last.start) == latest) {
                end = last.end;
                break;
            }
            if latest.is_none() {
                break;
            }
        }
        found.retain(|segment| segment.start < segment.end);
        Ok((found, end.max(self.known_end)))
    }

    /// The segments up to the latest one listed, and the start of the latest, which may have been removed already.
    fn list_and_measure(&self) -> io::Result<(Vec<SegmentFile>, Option<u64>)> {
        let mut starts = self.list()?;
        let latest = starts.last().copied();
        let mut found = self.measure(&starts)?;
        if has_gap(&found) {
            // A directory listing may miss a file created during the listing and yet contain a later one, which looks
            // like a gap. Everything in the first listing was created before the second listing began, so up to there
            // the second listing is complete.
            starts = self.list()?;
            starts.retain(|&start| Some(start) <= latest);
            found = self.measure(&starts)?;
        }
        Ok((found, latest))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The starts of all segments, in order.
    pub(crate) fn list(&self) -> io::Result<Vec<u64>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            Err(error) => return Err(error),
        };
        let mut starts = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let digits = name.to_str().and_then(|name| name.strip_prefix("out."));
            let plain = digits.filter(|digits| digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()));
            starts.extend(plain.and_then(|digits| digits.parse::<u64>().ok()));
        }
        starts.sort_unstable();
        Ok(starts)
    }

    /// Reads the lengths after the listing: a segment is complete before the next one is created.
    fn measure(&self, starts: &[u64]) -> io::Result<Vec<SegmentFile>> {
        let mut found: Vec<SegmentFile> = Vec::with_capacity(starts.len());
        for &start in starts {
            let metadata = match std::fs::symlink_metadata(segment_path(&self.dir, start)) {
                Ok(metadata) if metadata.is_file() => metadata,
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if let Some(previous) = found.last_mut() {
                previous.end = previous.end.min(start);
            }
            found.push(SegmentFile { start, end: start.saturating_add(metadata.len()) });
        }
        Ok(found)
    }
}

fn has_gap(found: &[SegmentFile]) -> bool {
    found.first().is_some_and(|first| first.start > 0) || found.windows(2).any(|pair| pair[0].end != pair[1].start)
}

enum SegmentRead {
    Done,
    Removed,
}

/// Appends `len` bytes from the offset `from` on to `bytes`. The caller has seen that they exist, and segments only grow.
fn read_segment(dir: &Path, start: u64, from: u64, len: usize, bytes: &mut Vec<u8>) -> io::Result<SegmentRead> {
    let file = match File::open(segment_path(dir, start)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SegmentRead::Removed),
        Err(error) => return Err(error),
    };
    let before = bytes.len();
    bytes.resize(before + len, 0);
    match file.read_exact_at(&mut bytes[before..], from - start) {
        Ok(()) => Ok(SegmentRead::Done),
        Err(error) => {
            bytes.truncate(before);
            Err(error)
        }
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
