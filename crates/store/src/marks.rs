//! Marks: which stream each byte of output came from, and when. They are stored beside each segment.
//!
//! Owns the format of `marks.<segment start>`: entries of 24 bytes, little endian, {offset u64, time in microseconds u64,
//! stream u8, 7 zero bytes}. Each means "from this offset on: this stream, this time". Bytes before the first mark, and
//! all bytes of a segment without a marks file, are stdout within the first [`MARK_EVERY`] of the process, so that a
//! short command needs no marks file.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinfold_model::units::Moment;

/// Bytes of one mark.
pub const MARK_BYTES: u64 = 24;
/// The resolution of the times: bytes within this time of a mark share the mark.
pub const MARK_EVERY: Duration = Duration::from_millis(100);

/// The stream that bytes came from. Merged output is all `Stdout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A range of output from one stream at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub range: Range<u64>,
    pub stream: Stream,
    /// `None` means within [`MARK_EVERY`] of the process's start.
    pub at: Option<Moment>,
}

/// One entry of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) offset: u64,
    pub(crate) stream: Stream,
    pub(crate) at: Moment,
}

impl Mark {
    pub(crate) fn encode(self) -> [u8; MARK_BYTES as usize] {
        let mut bytes = [0; MARK_BYTES as usize];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.at.0.to_le_bytes());
        bytes[16] = self.stream as u8;
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |place: usize| Some(u64::from_le_bytes(bytes.get(place..place + 8)?.try_into().ok()?));
        let stream = match number(16)? {
            0 => Stream::Stdout,
            1 => Stream::Stderr,
            _ => return None,
        };
        Some(Self { offset: number(0)?, stream, at: Moment(number(8)?) })
    }

    /// Whether bytes of this stream at this time need a new mark after this one.
    pub(crate) fn is_outdated(self, stream: Stream, at: Moment) -> bool {
        self.stream != stream || at.since(self.at) >= MARK_EVERY || self.at.since(at) >= MARK_EVERY
    }
}

/// The marks file of the segment that starts at `start`.
pub(crate) fn marks_path(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("marks.{start:020}"))
}

/// The runs of `range`, which is inside the segment that starts at `start`. Invalid entries (a torn last one, an offset
/// that goes back) are skipped.
pub(crate) fn runs_of_segment(dir: &Path, start: u64, range: Range<u64>) -> io::Result<Vec<Run>> {
    let mut marks = match File::open(marks_path(dir, start)) {
        Ok(file) => Some(BufReader::with_capacity(64 * 1024, file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut runs = Vec::new();
    let (mut from, mut stream, mut at) = (range.start, Stream::Stdout, None);
    let mut latest = 0;
    while let Some(bytes) = next_entry(marks.as_mut())? {
        let Some(mark) = Mark::decode(&bytes).filter(|mark| mark.offset >= latest) else { continue };
        if mark.offset >= range.end {
            break;
        }
        latest = mark.offset;
        if mark.offset > from {
            push_run(&mut runs, Run { range: from..mark.offset, stream, at });
            from = mark.offset;
        }
        (stream, at) = (mark.stream, Some(mark.at));
    }
    if from < range.end {
        push_run(&mut runs, Run { range: from..range.end, stream, at });
    }
    Ok(runs)
}

fn next_entry(marks: Option<&mut BufReader<File>>) -> io::Result<Option<[u8; MARK_BYTES as usize]>> {
    let Some(marks) = marks else { return Ok(None) };
    let mut entry = [0; MARK_BYTES as usize];
    match marks.read_exact(&mut entry) {
        Ok(()) => Ok(Some(entry)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Adds a run, merged with the previous one if that has the same stream and time and ends where it starts.
pub(crate) fn push_run(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.range.end == run.range.start && (last.stream, last.at) == (run.stream, run.at) => {
            last.range.end = run.range.end;
        }
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn marks_are_read_back_and_invalid_entries_are_skipped() {
        let scratch = Scratch::new();
        let mark = |offset, stream, at| Mark { offset, stream, at: Moment(at) }.encode();
        let mut bytes = Vec::new();
        bytes.extend(mark(110, Stream::Stderr, 1));
        bytes.extend(mark(5, Stream::Stdout, 2));
        bytes.extend([7; 24]);
        bytes.extend(mark(120, Stream::Stdout, 3));
        bytes.extend(&mark(130, Stream::Stderr, 4)[..23]);
        std::fs::write(marks_path(scratch.path(), 100), bytes).expect("write");
        let runs = runs_of_segment(scratch.path(), 100, 105..140).expect("runs");
        let run = |range, stream, at: Option<u64>| Run { range, stream, at: at.map(Moment) };
        assert_eq!(
            runs,
            [
                run(105..110, Stream::Stdout, None),
                run(110..120, Stream::Stderr, Some(1)),
                run(120..140, Stream::Stdout, Some(3)),
            ]
        );
        let inside = runs_of_segment(scratch.path(), 100, 112..115).expect("runs");
        assert_eq!(inside, [run(112..115, Stream::Stderr, Some(1))]);
    }
}
