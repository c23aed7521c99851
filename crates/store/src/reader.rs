//! Reading what a process printed, by cursor, while it is written or long after.
//!
//! Owns the view of the segments: extents, gaps, pieces, lines. Changes nothing, keeps no state between
//! calls, and tolerates segments that vanish under it.
//!
//! Invariant S3, *what is retained plus what is dropped is what was written*: every offset below the end is
//! either in a retained range or in a gap, never both and never neither.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::marks::{Run, Stream, push_run, runs_of_segment};
use crate::output::segment_path;

/// No piece is longer; ask again with its `next`.
pub const PIECE_MOST: usize = 16 << 20;
/// Bytes per step when lines are looked for from the end.
const BLOCK: u64 = 64 * 1024;
/// How often a read begins anew because segments vanished under it, before it answers with nothing new.
const TRIES: usize = 16;

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
    /// Ascending, not touching.
    pub retained: Vec<Range<u64>>,
    /// Bytes below the end that are not retained.
    pub dropped: u64,
}

/// One read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The offset of the first of `bytes`.
    pub at: u64,
    pub bytes: Vec<u8>,
    /// What is missing between the cursor and `at`.
    pub gap: Option<Range<u64>>,
    /// The cursor for the next read.
    pub next: u64,
    /// The end of the output when this was read.
    pub end: u64,
}

impl Piece {
    /// The bytes of these runs, which lie in it.
    pub fn bytes_of(&self, runs: &[Run]) -> Vec<u8> {
        let place = |run: &Run| (run.range.start - self.at) as usize..(run.range.end - self.at) as usize;
        runs.iter().flat_map(|run| &self.bytes[place(run)]).copied().collect()
    }
}

/// A segment as found in the directory.
#[derive(Clone, Debug)]
struct Found {
    start: u64,
    end: u64,
}

impl OutputReader {
    /// Looks at nothing yet.
    pub fn open(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), known_end: 0 }
    }

    /// Bytes that were lost at the very end are in no file: give the end that the exit record tells.
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

    /// The bytes from the cursor on, or from the first retained one after it; at most so many, and not beyond
    /// the next gap. A cursor at or beyond the end gets no bytes and itself as `next`.
    pub fn read(&self, cursor: u64, most: usize) -> io::Result<Piece> {
        for _ in 0..TRIES {
            let (found, end) = self.segments()?;
            if let Some(piece) = self.read_from(&found, cursor, most.min(PIECE_MOST), end)? {
                return Ok(piece);
            }
        }
        Ok(Piece { at: cursor, bytes: vec![], gap: None, next: cursor, end: self.segments()?.1 })
    }

    /// As [`Self::read`], but of the piece only the bytes of one stream; `next` is after the whole piece.
    pub fn read_stream(&self, stream: Stream, cursor: u64, most: usize) -> io::Result<Piece> {
        let (mut piece, mut runs) = self.read_runs(cursor, most)?;
        runs.retain(|run| run.stream == stream);
        piece.bytes = piece.bytes_of(&runs);
        Ok(piece)
    }

    /// As [`Self::read`], with the stream and time of every stretch of the piece.
    pub fn read_runs(&self, cursor: u64, most: usize) -> io::Result<(Piece, Vec<Run>)> {
        let mut piece = self.read(cursor, most)?;
        for _ in 0..TRIES {
            let runs = self.runs(piece.at..piece.next)?;
            let known: u64 = runs.iter().map(|run| run.range.end - run.range.start).sum();
            if known == piece.bytes.len() as u64 {
                return Ok((piece, runs));
            }
            piece = self.read(cursor, most)?;
        }
        Ok((Piece { at: cursor, bytes: vec![], gap: None, next: cursor, end: piece.end }, vec![]))
    }

    /// Stream and time of each stretch of the range, as far as it is retained.
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
            // Marks are dropped after their segment: if it is still there, they were whole.
            if segment_path(&self.dir, segment.start).exists() {
                of_segment.into_iter().for_each(|run| push_run(&mut runs, run));
            }
        }
        Ok(runs)
    }

    /// The cursor so many bytes before the end.
    pub fn tail_start(&self, bytes: u64) -> io::Result<u64> {
        Ok(self.segments()?.1.saturating_sub(bytes))
    }

    /// The cursor at which the last lines begin; an unterminated last line is one. Looks back over at most so
    /// many bytes and not beyond a gap: there it stops, in the middle of a line or with fewer of them.
    pub fn tail_lines(&self, lines: usize, most_bytes: u64) -> io::Result<u64> {
        let extent = self.extent()?;
        let last = match extent.retained.last() {
            Some(last) if lines > 0 => last.clone(),
            _ => return Ok(extent.end),
        };
        let floor = last.start.max(last.end.saturating_sub(most_bytes));
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

    /// `None` if every segment that should be read is gone: look again.
    fn read_from(&self, found: &[Found], cursor: u64, most: usize, end: u64) -> io::Result<Option<Piece>> {
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
            let begun = at.map(|at: u64| at + bytes.len() as u64);
            if begun.is_some_and(|next| next != from || bytes.len() >= most) {
                break;
            }
            let fits = (segment.end - from).min((most - bytes.len()) as u64) as usize;
            match read_segment(&self.dir, segment.start, from, fits, &mut bytes)? {
                Seen::Gone if begun.is_some() => break,
                Seen::Gone => continue,
                Seen::Read => at = at.or(Some(from)),
            }
        }
        let Some(at) = at else { return Ok(None) };
        let gap = (at > cursor).then_some(cursor..at);
        Ok(Some(Piece { at, next: at + bytes.len() as u64, bytes, gap, end }))
    }

    /// The segments in order, the empty ones left out, and the end of the output.
    fn segments(&self) -> io::Result<(Vec<Found>, u64)> {
        let (mut found, mut end) = (Vec::new(), 0);
        for _ in 0..TRIES {
            let latest;
            (found, latest) = self.look()?;
            // Should the latest be gone by now, all before it are, and the output goes at least up to it.
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

    /// The segments up to the latest one listed, and the start of that, which may be gone already.
    fn look(&self) -> io::Result<(Vec<Found>, Option<u64>)> {
        let mut starts = self.list()?;
        let latest = starts.last().copied();
        let mut found = self.measure(&starts)?;
        if has_gap(&found) {
            // A listing may miss a file made meanwhile and yet show a later one, which looks like a gap. What
            // the first listing showed was made before the second began, so up to there the second is whole.
            starts = self.list()?;
            starts.retain(|&start| Some(start) <= latest);
            found = self.measure(&starts)?;
        }
        Ok((found, latest))
    }

    fn list(&self) -> io::Result<Vec<u64>> {
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

    /// Lengths are taken after the listing: a segment is full before the next one is made.
    fn measure(&self, starts: &[u64]) -> io::Result<Vec<Found>> {
        let mut found: Vec<Found> = Vec::with_capacity(starts.len());
        for &start in starts {
            let metadata = match std::fs::symlink_metadata(segment_path(&self.dir, start)) {
                Ok(metadata) if metadata.is_file() => metadata,
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if let Some(before) = found.last_mut() {
                before.end = before.end.min(start);
            }
            found.push(Found { start, end: start.saturating_add(metadata.len()) });
        }
        Ok(found)
    }
}

fn has_gap(found: &[Found]) -> bool {
    found.first().is_some_and(|first| first.start > 0) || found.windows(2).any(|pair| pair[0].end != pair[1].start)
}

enum Seen {
    Read,
    Gone,
}

/// Appends `len` bytes at the offset `from` to `bytes`; they are there, for segments only grow.
fn read_segment(dir: &Path, start: u64, from: u64, len: usize, bytes: &mut Vec<u8>) -> io::Result<Seen> {
    let file = match File::open(segment_path(dir, start)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Seen::Gone),
        Err(error) => return Err(error),
    };
    let before = bytes.len();
    bytes.resize(before + len, 0);
    match file.read_exact_at(&mut bytes[before..], from - start) {
        Ok(()) => Ok(Seen::Read),
        Err(error) => {
            bytes.truncate(before);
            Err(error)
        }
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
