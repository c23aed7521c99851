//! Reading: cursors at and beyond the end, lines from the end, and gaps after a full disk.

use pinfold_model::units::Moment;

use super::*;
use crate::output::OutputWriter;
use crate::testing::Scratch;

const START: Moment = Moment(1_000_000_000);

fn printed(text: &[u8]) -> (Scratch, OutputReader) {
    let scratch = Scratch::new();
    OutputWriter::new(scratch.path(), 1 << 20, START).append(Stream::Stdout, text, START);
    let reader = OutputReader::open(scratch.path());
    (scratch, reader)
}

#[test]
fn reads_at_and_beyond_the_end_are_empty_and_do_not_move_the_cursor() {
    let (_scratch, reader) = printed(b"hello");
    let piece = reader.read(2, 2).expect("read");
    assert_eq!(piece, Piece { at: 2, bytes: b"ll".to_vec(), gap: None, next: 4, end: 5 });
    for cursor in [5, 6, u64::MAX] {
        let piece = reader.read(cursor, 100).expect("read");
        assert_eq!(piece, Piece { at: cursor, bytes: vec![], gap: None, next: cursor, end: 5 });
    }
    assert_eq!(reader.read(1, 0).expect("read").next, 1);
    assert_eq!(reader.read(0, usize::MAX).expect("read").bytes, b"hello");
}

#[test]
fn a_process_without_output_and_a_removed_directory_are_empty() {
    let (_scratch, reader) = printed(b"");
    assert_eq!(reader.extent().expect("extent"), Extent { end: 0, retained: vec![], dropped: 0 });
    let gone = OutputReader::open(Path::new("/nowhere/at/all"));
    assert_eq!(gone.read(0, 10).expect("read").next, 0);
    assert_eq!(gone.tail_lines(3, 100).expect("lines"), 0);
}

#[test]
fn bytes_lost_at_the_very_end_are_a_gap_up_to_the_known_end() {
    let (_scratch, reader) = printed(b"hello");
    let reader = reader.with_known_end(Some(9));
    assert_eq!(
        reader.extent().expect("extent"),
        Extent { end: 9, retained: std::iter::once(0..5).collect(), dropped: 4 }
    );
    assert_eq!(reader.read(3, 10).expect("read").next, 5);
    let piece = reader.read(5, 10).expect("read");
    assert_eq!(piece, Piece { at: 9, bytes: vec![], gap: Some(5..9), next: 9, end: 9 });
}

#[test]
fn files_that_are_not_segments_are_ignored() {
    let (scratch, reader) = printed(b"hello");
    for name in ["out.5", "out.000000000000000000xx", "out.99999999999999999999", "output", "marks.x"] {
        std::fs::write(scratch.path().join(name), "noise").expect("written");
    }
    assert_eq!(reader.extent().expect("extent").end, 5);
}

#[test]
fn the_last_lines_are_counted_as_people_count_them() {
    let cases: [(&[u8], usize, u64); 9] = [
        (b"", 3, 0),
        (b"one\ntwo\nthree\n", 1, 8),
        (b"one\ntwo\nthree\n", 2, 4),
        (b"one\ntwo\nthree\n", 3, 0),
        (b"one\ntwo\nthree\n", 99, 0),
        (b"one\ntwo\nthree", 1, 8),
        (b"one\n\n\n", 2, 4),
        (b"\n", 1, 0),
        (b"one\ntwo\n", 0, 8),
    ];
    for (text, lines, expected) in cases {
        let (_scratch, reader) = printed(text);
        assert_eq!(reader.tail_lines(lines, 1 << 20).expect("lines"), expected, "{lines} of {text:?}");
    }
}

#[test]
fn the_search_for_lines_is_bounded_and_stops_at_a_gap() {
    let text: Vec<u8> = (0..100_000).flat_map(|line| format!("{line}\n").into_bytes()).collect();
    let (_scratch, reader) = printed(&text[..500_000]);
    let all = |lines, max| reader.tail_lines(lines, max).expect("lines");
    assert_eq!(all(usize::MAX, 1000), 499_000);
    // Each of the last lines has five digits and a newline.
    assert_eq!(all(30_000, u64::MAX), 500_000 - 30_000 * 6);

    let scratch = Scratch::new();
    OutputWriter::new(scratch.path(), 64 * 1024, START).append(Stream::Stdout, &text, START);
    let reader = OutputReader::open(scratch.path());
    let tail = reader.extent().expect("extent").retained[1].clone();
    assert_eq!(reader.tail_lines(usize::MAX, u64::MAX).expect("lines"), tail.start);
    assert_eq!(reader.tail_start(10).expect("tail"), tail.end - 10);
}

#[test]
fn the_streams_can_be_read_separately_and_together() {
    let scratch = Scratch::new();
    let mut writer = OutputWriter::new(scratch.path(), 1 << 20, START);
    for (stream, text) in [(Stream::Stdout, "out1 "), (Stream::Stderr, "err1 "), (Stream::Stdout, "out2 ")] {
        writer.append(stream, text.as_bytes(), START);
    }
    let reader = OutputReader::open(scratch.path());
    assert_eq!(reader.read(0, 100).expect("read").bytes, b"out1 err1 out2 ");
    let piece = reader.read_stream(Stream::Stdout, 2, 100).expect("read");
    assert_eq!((piece.bytes.as_slice(), piece.at, piece.next), (b"t1 out2 ".as_slice(), 2, 15));
    assert_eq!(reader.read_stream(Stream::Stderr, 0, 7).expect("read").bytes, b"er");
    let streams: Vec<_> = reader.runs(3..12).expect("runs").into_iter().map(|run| (run.range, run.stream)).collect();
    assert_eq!(streams, [(3..5, Stream::Stdout), (5..10, Stream::Stderr), (10..12, Stream::Stdout)]);
}
