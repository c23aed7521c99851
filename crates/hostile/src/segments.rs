//! Output on disk: segments that overlap, leave gaps or have impossible offsets, with arbitrary marks.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pinfold_store::marks::Stream;
use pinfold_store::reader::OutputReader;

use crate::feed::Feed;

const MAX_SEGMENTS: u8 = 6;
const MAX_BYTES: usize = 512;

pub(crate) fn target(data: &[u8]) {
    let mut feed = Feed(data);
    let directory = Scratch::new();
    let known_end = (feed.byte() & 1 != 0).then(|| feed.small() as u64);
    let (cursor, max, lines) = (feed.small() as u64, feed.small().max(1), usize::from(feed.byte()));
    for _ in 0..feed.byte() % MAX_SEGMENTS {
        directory.add_segment(&mut feed);
    }
    let reader = OutputReader::open(&directory.0).with_known_end(known_end);
    let extent = reader.extent().expect("an extent");
    let kept: u64 = extent.retained.iter().map(|range| range.end - range.start).sum();
    assert_eq!(kept + extent.dropped, extent.end, "what is retained plus what is dropped is what was written");
    assert!(extent.retained.windows(2).all(|pair| pair[0].end < pair[1].start), "{extent:?}");
    assert_eq!(walk(&reader, max), extent.retained, "a reader sees what is retained");
    let piece = reader.read(cursor, max).expect("a piece");
    assert!(piece.bytes.len() <= max && piece.next == piece.at + piece.bytes.len() as u64);
    assert!(piece.at >= cursor && piece.gap.as_ref().is_none_or(|gap| *gap == (cursor..piece.at)), "{piece:?}");
    check_streams(&reader, cursor, max);
    let from = reader.tail_lines(lines, MAX_BYTES as u64).expect("the last lines");
    assert!(from <= extent.end, "{from} of {extent:?}");
    assert_eq!(reader.tail_start(max as u64).expect("a tail"), extent.end.saturating_sub(max as u64));
}

/// The ranges found by reading from piece to piece.
fn walk(reader: &OutputReader, max: usize) -> Vec<std::ops::Range<u64>> {
    let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
    let mut cursor = 0;
    loop {
        let piece = reader.read(cursor, max).expect("a piece");
        match ranges.last_mut() {
            _ if piece.bytes.is_empty() => {
                assert_eq!(piece.next, piece.end.max(cursor), "no bytes before the end: {piece:?}");
                return ranges;
            }
            Some(last) if last.end == piece.at => last.end = piece.next,
            _ => ranges.push(piece.at..piece.next),
        }
        assert!(piece.next > cursor, "no progress: {piece:?}");
        cursor = piece.next;
    }
}

/// Checks that the runs are contiguous and that both streams together are the whole piece.
fn check_streams(reader: &OutputReader, cursor: u64, max: usize) {
    let (piece, runs) = reader.read_runs(cursor, max).expect("runs");
    let mut at = piece.at;
    for run in &runs {
        assert!(run.range.start == at && run.range.end > at, "{runs:?}");
        at = run.range.end;
    }
    assert_eq!(at, piece.next, "every byte is in a run");
    let stream = |stream| reader.read_stream(stream, cursor, max).expect("a stream").bytes.len();
    assert_eq!(stream(Stream::Stdout) + stream(Stream::Stderr), piece.bytes.len());
}

/// A process directory. Removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("pinfold-hostile-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let shared_memory = Path::new("/dev/shm");
        let base = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
        let path = base.join(name);
        std::fs::create_dir(&path).expect("a directory can be made");
        Scratch(path)
    }

    fn add_segment(&self, feed: &mut Feed<'_>) {
        let kind = feed.byte();
        // Most are near each other; some have an arbitrary offset.
        let start = if kind & 1 == 0 { feed.small() as u64 } else { feed.long() };
        let length = feed.small() % MAX_BYTES;
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(self.0.join(format!("{name}.{start:020}")), bytes).expect("a file can be written");
        };
        write("out", feed.bytes(length));
        if kind & 2 != 0 {
            let length = feed.small() % MAX_BYTES;
            write("marks", feed.bytes(length));
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
