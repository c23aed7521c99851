//! Reads the end of a process's output with few system calls, and checks cheaply whether it has changed since.
//!
//! A stamp compares the directory's modification time (a new segment changes it) and the length of the last segment (bytes
//! are only appended). File times have a coarse resolution: a stamp taken right after a change of the directory is never
//! considered current, because another segment may have been created within the same tick.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use pinfold_model::units::Moment;

use crate::output::segment_path;
use crate::reader::OutputReader;

/// A directory that changed more recently than this may change again without a new modification time.
const TIME_RESOLUTION: Duration = Duration::from_millis(100);

/// The state of the output when its end was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    directory: Moment,
    /// Start and length of the last segment.
    last: Option<(u64, u64)>,
    is_settled: bool,
}

/// The end of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    pub bytes: Vec<u8>,
    /// When the last byte was written; `None` if there is none.
    pub written_at: Option<Moment>,
    /// The offset after the last byte.
    pub end: u64,
    pub stamp: Stamp,
}

impl OutputReader {
    /// At most `max` bytes from the end of the output.
    pub fn tail(&self, max: usize, now: Moment) -> io::Result<Tail> {
        // Before the bytes are read: what is written meanwhile makes the stamp outdated.
        let directory = modified(&std::fs::metadata(self.dir())?);
        let is_settled = now.since(directory) > TIME_RESOLUTION;
        let Some(start) = self.list()?.last().copied() else {
            let stamp = Stamp { directory, last: None, is_settled };
            return Ok(Tail { bytes: vec![], written_at: None, end: 0, stamp });
        };
        let file = File::open(segment_path(self.dir(), start))?;
        let metadata = file.metadata()?;
        let len = metadata.len();
        let stamp = Stamp { directory, last: Some((start, len)), is_settled };
        let written_at = (start + len > 0).then(|| modified(&metadata));
        let missing = (max as u64).min(start + len);
        let bytes = if len >= missing {
            let mut bytes = vec![0; missing as usize];
            file.read_exact_at(&mut bytes, len - missing)?;
            bytes
        } else {
            self.read_adjacent(start + len - missing, start + len)?
        };
        Ok(Tail { bytes, written_at, end: start + len, stamp })
    }

    /// The retained bytes of a range that follow its last gap.
    fn read_adjacent(&self, mut from: u64, to: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while from < to {
            let piece = self.read(from, (to - from) as usize)?;
            if piece.gap.is_some() {
                bytes.clear();
            }
            if piece.next <= from {
                break;
            }
            from = piece.next;
            bytes.extend(piece.bytes);
        }
        Ok(bytes)
    }
}

impl Stamp {
    /// Whether the output in this directory is certainly the same as when the stamp was taken.
    pub fn is_current(&self, dir: &Path) -> bool {
        let directory = std::fs::metadata(dir).map(|metadata| modified(&metadata));
        if !self.is_settled || directory.ok() != Some(self.directory) {
            return false;
        }
        match self.last {
            None => true,
            Some((start, len)) => std::fs::metadata(segment_path(dir, start)).is_ok_and(|file| file.len() == len),
        }
    }
}

fn modified(metadata: &Metadata) -> Moment {
    let micros = metadata.mtime().saturating_mul(1_000_000).saturating_add(metadata.mtime_nsec() / 1000);
    Moment(u64::try_from(micros).unwrap_or(0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::marks::Stream;
    use crate::output::OutputWriter;
    use crate::testing::Scratch;

    const LATER: Moment = Moment(u64::MAX / 2);

    #[test]
    fn the_end_is_read_across_segments_and_not_across_a_gap() {
        let home = Scratch::new();
        let mut writer = OutputWriter::new(home.path(), 4096, Moment(0));
        let reader = OutputReader::open(home.path());
        assert_eq!(reader.tail(10, LATER).unwrap().bytes, b"");
        let all: Vec<u8> = (0..6000u32).flat_map(|n| format!("{n:05}").into_bytes()).collect();
        for piece in all.chunks(7) {
            writer.append(Stream::Stdout, piece, Moment(0));
        }
        for max in [1, 10, 64, 200, 400] {
            assert_eq!(reader.tail(max, LATER).unwrap().bytes, all[all.len() - max..], "{max}");
        }
        let kept = reader.extent().unwrap().retained.last().cloned().unwrap();
        assert!(kept.start > 0, "some of it was dropped");
        assert_eq!(reader.tail(usize::MAX, LATER).unwrap().bytes, all[kept.start as usize..]);
    }

    #[test]
    fn a_stamp_is_current_until_a_byte_is_added() {
        let home = Scratch::new();
        let mut writer = OutputWriter::new(home.path(), 1 << 20, Moment(0));
        let reader = OutputReader::open(home.path());
        let none = reader.tail(10, LATER).unwrap();
        assert!(none.written_at.is_none() && none.stamp.is_current(home.path()));
        writer.append(Stream::Stdout, b"one", Moment(0));
        assert!(!none.stamp.is_current(home.path()));
        let one = reader.tail(10, LATER).unwrap();
        assert!(one.written_at.is_some() && one.stamp.is_current(home.path()));
        writer.append(Stream::Stdout, b"two", Moment(0));
        assert!(!one.stamp.is_current(home.path()));
        let fresh = reader.tail(10, modified(&std::fs::metadata(home.path()).unwrap())).unwrap();
        assert!(!fresh.stamp.is_current(home.path()), "within one tick of the file system's clock");
    }
}
