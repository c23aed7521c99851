//! Segments, checked against a simple model: a vector of all bytes ever printed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::reader::OutputReader;
use crate::testing::{Scratch, mode_of};

const START: Moment = Moment(1_000_000_000);

fn later(millis: u64) -> Moment {
    Moment(START.0 + millis * 1000)
}

/// The byte at an offset, so that any reader can check any piece.
fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn bytes_at(offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len).map(byte_at).collect()
}

fn on_disk(dir: &Path) -> u64 {
    std::fs::read_dir(dir).expect("dir").map(|entry| entry.expect("entry").metadata().expect("metadata").len()).sum()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("dir");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn nothing_is_created_before_the_first_byte_and_short_quiet_output_has_no_marks() {
    let scratch = Scratch::new();
    let mut writer = OutputWriter::new(scratch.path(), 1 << 20, START);
    assert_eq!(on_disk(scratch.path()), 0);
    writer.append(Stream::Stdout, b"", later(1));
    assert!(names(scratch.path()).is_empty());
    writer.append(Stream::Stdout, b"hi\n", later(99));
    assert_eq!(names(scratch.path()), ["out.00000000000000000000"]);
    writer.append(Stream::Stderr, b"oh\n", later(99));
    assert_eq!(names(scratch.path()), ["marks.00000000000000000000", "out.00000000000000000000"]);
    for name in names(scratch.path()) {
        assert_eq!(mode_of(&scratch.path().join(name)), 0o600);
    }
    assert_eq!((writer.total(), writer.lost()), (6, 0));
}

#[test]
fn a_mark_is_written_when_the_stream_or_the_tenth_of_a_second_changes() {
    let scratch = Scratch::new();
    let mut writer = OutputWriter::new(scratch.path(), 1 << 20, START);
    let size = |scratch: &Scratch| std::fs::metadata(marks_path(scratch.path(), 0)).map_or(0, |found| found.len());
    let steps = [
        (Stream::Stdout, 50, 0),
        (Stream::Stdout, 100, 1),
        (Stream::Stdout, 199, 1),
        (Stream::Stdout, 200, 2),
        (Stream::Stderr, 200, 3),
        (Stream::Stderr, 201, 3),
        (Stream::Stdout, 202, 4),
        // The clock was set back: better a mark too many than an hour without.
        (Stream::Stdout, 10, 5),
    ];
    for (stream, millis, marks) in steps {
        writer.append(stream, b"x", later(millis));
        assert_eq!(size(&scratch), marks * MARK_BYTES, "at {millis}");
    }
}

#[test]
fn head_and_tail_are_kept_and_the_middle_is_dropped_and_counted() {
    let scratch = Scratch::new();
    let limit = 64 * 1024;
    let mut writer = OutputWriter::new(scratch.path(), limit, START);
    for _ in 0..1000 {
        let bytes = bytes_at(writer.total(), 777);
        writer.append(Stream::Stdout, &bytes, START);
        assert!(on_disk(scratch.path()) <= limit);
    }
    let extent = OutputReader::open(scratch.path()).extent().expect("extent");
    assert_eq!(extent.end, 777_000);
    assert_eq!(extent.retained.len(), 2);
    assert_eq!(extent.retained[0], 0..limit / 8);
    assert_eq!(extent.retained[1].end, 777_000);
    let kept: u64 = extent.retained.iter().map(|range| range.end - range.start).sum();
    assert_eq!(kept + extent.dropped, 777_000);
    assert!(kept >= limit * 15 / 16, "{kept}");
}

#[test]
fn alternating_streams_stay_within_the_limit_marks_included() {
    let scratch = Scratch::new();
    let limit = 16 * 1024;
    let mut writer = OutputWriter::new(scratch.path(), limit, START);
    for step in 0..20_000 {
        let stream = if step % 2 == 0 { Stream::Stdout } else { Stream::Stderr };
        writer.append(stream, &[byte_at(step)], START);
        if step % 500 == 0 {
            assert!(on_disk(scratch.path()) <= limit);
        }
    }
    assert!((limit / 2..=limit).contains(&on_disk(scratch.path())));
    let reader = OutputReader::open(scratch.path());
    let piece = reader.read_stream(Stream::Stderr, 19_900, 100).expect("read");
    assert_eq!(piece.bytes, (19_900..20_000).filter(|step| step % 2 == 1).map(byte_at).collect::<Vec<_>>());
}

/// One thing that happens to a writer.
#[derive(Clone, Debug)]
enum Op {
    Append {
        stream: Stream,
        len: u64,
        wait: u64,
    },
    /// This many bytes are written while the disk is full.
    Fail {
        len: u64,
    },
}

fn stream() -> impl Strategy<Value = Stream> {
    prop_oneof![3 => Just(Stream::Stdout), 1 => Just(Stream::Stderr)]
}

fn op() -> impl Strategy<Value = Op> {
    let wait = prop_oneof![3 => Just(0u64), 1 => 0u64..250];
    let len = prop_oneof![Just(0u64), 1u64..40, 1u64..3000];
    prop_oneof![
        9 => (stream(), len, wait).prop_map(|(stream, len, wait)| Op::Append { stream, len, wait }),
        1 => (1u64..2000).prop_map(|len| Op::Fail { len }),
    ]
}

/// What was printed, in full.
#[derive(Default)]
struct Printed {
    bytes: Vec<(Stream, Moment, bool)>,
    millis: u64,
}

impl Printed {
    fn total(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn apply(&mut self, writer: &mut OutputWriter, op: &Op) {
        match *op {
            Op::Append { stream, len, wait } => {
                self.millis += wait;
                writer.append(stream, &bytes_at(self.total(), len), later(self.millis));
                self.note(stream, len, true);
            }
            Op::Fail { len } => {
                writer.abandon_segment();
                let blocker = segment_path(&writer.dir, writer.total());
                std::fs::create_dir(&blocker).expect("blocker");
                let lost = writer.lost();
                writer.append(Stream::Stdout, &bytes_at(self.total(), len), later(self.millis));
                assert_eq!(writer.lost(), lost + len);
                std::fs::remove_dir(&blocker).expect("unblocked");
                self.note(Stream::Stdout, len, false);
            }
        }
    }

    fn note(&mut self, stream: Stream, len: u64, written: bool) {
        self.bytes.extend((0..len).map(|_| (stream, later(self.millis), written)));
    }
}

fn check_all_reads(reader: &OutputReader, printed: &Printed, max: usize) -> Result<u64, TestCaseError> {
    let (mut cursor, mut kept, mut missing) = (0, 0, 0);
    while cursor < printed.total() {
        let piece = reader.read(cursor, max).expect("read");
        prop_assert_eq!(piece.end, printed.total());
        prop_assert_eq!(piece.gap.clone(), (piece.at > cursor).then_some(cursor..piece.at));
        prop_assert_eq!(&piece.bytes, &bytes_at(piece.at, piece.bytes.len() as u64));
        prop_assert_eq!(piece.next, piece.at + piece.bytes.len() as u64);
        prop_assert!(piece.next > cursor, "no progress at {}", cursor);
        kept += piece.bytes.len() as u64;
        missing += piece.at - cursor;
        cursor = piece.next;
    }
    let extent = reader.extent().expect("extent");
    prop_assert_eq!((extent.end, extent.dropped), (kept + missing, missing));
    Ok(kept)
}

fn check_runs(reader: &OutputReader, printed: &Printed) -> Result<u64, TestCaseError> {
    let mut known = 0;
    for run in reader.runs(0..printed.total()).expect("runs") {
        for offset in run.range {
            let (stream, at, written) = printed.bytes[offset as usize];
            prop_assert!(written, "byte {} was never written", offset);
            prop_assert_eq!(run.stream, stream, "stream of byte {}", offset);
            let age = at.since(run.at.unwrap_or(START));
            prop_assert!(age < Duration::from_millis(100), "byte {} is {:?} off", offset, age);
            known += 1;
        }
    }
    Ok(known)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// S2 and S3 over random histories of one process's output.
    #[test]
    fn s2_a_cursor_names_the_same_byte_for_ever(
        ops in prop::collection::vec(op(), 1..60),
        limit in prop_oneof![Just(0u64), 4096u64..40_000],
        max in 1usize..5000,
    ) {
        let scratch = Scratch::new();
        let mut writer = OutputWriter::new(scratch.path(), limit, START);
        let limit = limit.max(MIN_LIMIT);
        let mut printed = Printed::default();
        let mut head = 0;
        for op in &ops {
            printed.apply(&mut writer, op);
            prop_assert_eq!(writer.total(), printed.total());
            prop_assert!(on_disk(scratch.path()) <= limit);
            let extent = OutputReader::open(scratch.path()).extent().expect("extent");
            let first = extent.retained.first().filter(|range| range.start == 0).map_or(0, |range| range.end);
            prop_assert!(first >= head, "the head shrank from {} to {}", head, first);
            head = first.min(limit / 16);
        }
        let lost = printed.bytes.iter().filter(|(_, _, written)| !written).count() as u64;
        prop_assert_eq!(writer.lost(), lost);
        let reader = OutputReader::open(scratch.path()).with_known_end(Some(writer.total()));
        let kept = check_all_reads(&reader, &printed, max)?;
        prop_assert_eq!(check_runs(&reader, &printed)?, kept);
        if lost == 0 {
            prop_assert!(on_disk(scratch.path()) >= printed.total().min(limit / 2));
        }
    }
}

#[test]
fn s3_a_reader_beside_the_writer_sees_true_bytes_and_true_gaps() {
    let scratch = Scratch::new();
    let done = AtomicBool::new(false);
    let stream_of = |offset: u64| if (offset / 1000).is_multiple_of(2) { Stream::Stdout } else { Stream::Stderr };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = OutputWriter::new(scratch.path(), 16 * 1024, START);
            while writer.total() < 6_000_000 {
                let at = writer.total();
                writer.append(stream_of(at), &bytes_at(at, 500), START);
            }
            assert_eq!(writer.lost(), 0);
            done.store(true, Ordering::Release);
        });
        let reader = OutputReader::open(scratch.path());
        let (mut cursor, mut seen, mut missing) = (0, 0, 0);
        loop {
            let last_round = done.load(Ordering::Acquire);
            let piece = reader.read(cursor, 10_000).expect("read");
            assert_eq!(piece.bytes, bytes_at(piece.at, piece.bytes.len() as u64));
            if piece.gap.is_some() {
                let again = reader.read(cursor, 1).expect("read");
                assert!(again.at >= piece.at, "gap {:?}, and yet {again:?}", piece.gap);
            }
            missing += piece.gap.clone().map_or(0, |gap| gap.end - gap.start);
            seen += piece.bytes.len() as u64;
            let errors = reader.read_stream(Stream::Stderr, cursor, 3000).expect("read");
            let expected = (errors.at..errors.next).filter(|&offset| stream_of(offset) == Stream::Stderr);
            assert_eq!(errors.bytes, expected.map(byte_at).collect::<Vec<_>>());
            assert!(piece.end >= cursor, "the end went back to {} from {cursor}", piece.end);
            cursor = piece.next;
            if last_round && cursor == piece.end {
                break;
            }
        }
        assert_eq!((cursor, seen + missing), (6_000_000, 6_000_000));
    });
}
