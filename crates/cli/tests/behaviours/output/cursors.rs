//! Cursors: a byte keeps its offset, for every reader, while it is written and afterwards.

use pinfold_api::types::{EventKind, EventsQuery, Outcome, OutputQuery, Range, StartRequest, Status, WaitReason};
use pinfold_testkit::Pinfold;

use super::gate::Gate;
use super::{assert_shows, lines_of_eight, read, read_next, read_raw, start_limited, view};
use crate::PINFOLD;

#[test]
fn middle_recoverable() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, _) = pinfold.run("seq -f 'line %09.0f' 0 6666");
    let all: String = (0..=6666).map(|line| format!("line {line:09}\n")).collect();
    assert!(view(&pinfold, &record.id, "1k").omitted.is_some_and(|hole| hole.from < 40_000 && hole.to > 40_000));
    let middle = read(&pinfold, &record.id, 40_000, "30");
    assert_eq!((middle.text.as_str(), middle.cursor, middle.next_cursor), (&all[40_000..40_030], 40_000, 40_030));
    let query = OutputQuery { grep: Some("^line 0+2666$".into()), ..OutputQuery::default() };
    let found = pinfold.output(&record.id, &query).matches.expect("matches");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].cursor, found[0].text.as_str()), (39_990, "line 000002666"));
    assert_eq!(read(&pinfold, &record.id, 0, "30").text, &all[..30]);
    let tail = pinfold.output(&record.id, &OutputQuery { tail: Some("30".into()), ..OutputQuery::default() });
    assert_eq!((tail.text.as_str(), tail.cursor), (&all[all.len() - 30..], all.len() as u64 - 30));
}

#[test]
fn cursor_reads() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "two");
    let id = pinfold.sh(&format!("echo one; {}; echo two", gate.wait())).id;
    let first = read_next(&pinfold, &id, 0);
    assert_eq!((first.text.as_str(), first.next_cursor), ("one\n", 4));
    assert_eq!(read(&pinfold, &id, 0, "1k"), first, "the same cursor, the same bytes");
    let nothing = read(&pinfold, &id, 4, "1k");
    assert_eq!((nothing.text.as_str(), nothing.cursor, nothing.next_cursor), ("", 4, 4));
    gate.open();
    pinfold.wait_exit(&id);
    assert_eq!(read(&pinfold, &id, 4, "1k").text, "two\n");
    assert_eq!(read(&pinfold, &id, 0, "1k").text, "one\ntwo\n", "another reader has lost nothing");
    assert_eq!(read(&pinfold, &id, 0, "4").text, "one\n");
    let end = read(&pinfold, &id, 8, "1k");
    assert_eq!((end.text.as_str(), end.next_cursor, end.exited, end.closed), ("", 8, true, true));
}

/// Follows the lines of eight to their end, this many bytes at a time, and checks each byte; returns the ranges that
/// arrived and those that are missing.
fn follow(pinfold: &Pinfold, id: &str, mut cursor: u64, max: &str) -> (Vec<Range>, Vec<Range>) {
    let (mut kept, mut gaps) = (Vec::new(), Vec::new());
    loop {
        let (wait, max_bytes) = (Some("60s".into()), Some(max.into()));
        let query = OutputQuery { cursor: Some(cursor), max_bytes, wait, ..OutputQuery::default() };
        let piece = pinfold.block(pinfold.client().output_raw(id, &query)).expect("raw output");
        let gap = (piece.cursor > cursor).then_some(Range { from: cursor, to: piece.cursor });
        assert_eq!(piece.gap, gap, "what is missing is said");
        assert_eq!(piece.next_cursor, piece.cursor + piece.bytes.len() as u64);
        assert!(piece.bytes == lines_of_eight(piece.cursor, piece.bytes.len()), "other bytes at {}", piece.cursor);
        gaps.extend(gap);
        kept.push(Range { from: piece.cursor, to: piece.next_cursor });
        cursor = piece.next_cursor;
        if piece.closed && cursor == piece.end {
            return (kept, gaps);
        }
    }
}

fn length(ranges: &[Range]) -> u64 {
    ranges.iter().map(|range| range.to - range.from).sum()
}

#[test]
fn cursor_past_retention() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = start_limited(&pinfold, "yes 0123456 | head -c 1000000", "64k").id;
    let output = pinfold.wait_finished(&id).output;
    let (kept, gaps) = follow(&pinfold, &id, 0, "16M");
    let [head, tail] = kept[..] else { panic!("{kept:?}") };
    let [gap] = gaps[..] else { panic!("{gaps:?}") };
    assert_eq!((head.from, gap.from, gap.to, tail.to), (0, head.to, tail.from, 1_000_000));
    assert_eq!((output.bytes, output.dropped, output.retained_from), (1_000_000, gap.to - gap.from, gap.to));
    let bytes = 1_000_000 - output.dropped;
    assert!((32 * 1024..=64 * 1024).contains(&bytes), "{bytes} of 64 KiB are kept");

    let inside = read(&pinfold, &id, 500_000, "16");
    assert_eq!(inside.gap, Some(Range { from: 500_000, to: gap.to }));
    assert_eq!((inside.cursor, inside.text), (gap.to, lines_of_eight(gap.to, 16)));
    let whole = view(&pinfold, &id, "1k");
    assert_shows(&whole, &lines_of_eight(0, 1_000_000));
    assert_eq!(whole.original_bytes, 1_000_000);
    let query = OutputQuery { cursor: Some(500_000), grep: Some("0".into()), ..OutputQuery::default() };
    let found = pinfold.output(&id, &query);
    assert_eq!(found.gap, Some(Range { from: 500_000, to: gap.to }));
}

#[test]
fn partial_lines() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "rest");
    let id = pinfold.sh(&format!(r"printf par; {}; printf 'tial\n\n\nlast'", gate.wait())).id;
    let part = read_next(&pinfold, &id, 0);
    assert_eq!((part.text.as_str(), part.next_cursor), ("par", 3));
    gate.open();
    pinfold.wait_exit(&id);
    assert_eq!(read(&pinfold, &id, 3, "1k").text, "tial\n\n\nlast");
    assert_eq!(pinfold.text(&id), "partial\n\n\nlast");
    for (tail, text) in
        [("1 line", "last"), ("2 lines", "\nlast"), ("3 lines", "\n\nlast"), ("9 lines", "partial\n\n\nlast")]
    {
        let page = pinfold.output(&id, &OutputQuery { tail: Some(tail.into()), ..OutputQuery::default() });
        assert_eq!(page.text, text, "{tail}");
    }
}

#[test]
fn late_subscriber() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.sh("echo here; exit 3").id;
    let finished = pinfold.wait_finished(&id);
    let page = read_next(&pinfold, &id, 0);
    assert_eq!((page.text.as_str(), page.exited, page.closed), ("here\n", true, true));
    assert_eq!((page.status, page.outcome), (Status::Finished, Some(Outcome::Exited { code: 3 })));
    assert_eq!(pinfold.wait_finished(&id), finished);
    let followed = pinfold.cli(&["logs", "-f", &id]);
    assert_eq!((followed.stdout.as_str(), followed.code), ("here\n", Some(0)));
    let end = pinfold.block(async {
        let query = EventsQuery { after: Some("0".into()), ..EventsQuery::default() };
        let mut stream = pinfold.client().events_stream(&query).await.expect("a stream");
        let mut event = stream.next().await.expect("no end").expect("an event");
        assert_eq!((event.kind, event.process.as_str()), (EventKind::Started, id.as_str()));
        while event.kind != EventKind::Finished {
            event = stream.next().await.expect("no end").expect("an event");
        }
        event
    });
    assert_eq!((end.process, end.outcome), (id, Some(Outcome::Exited { code: 3 })));
}

#[test]
fn last_line_race() {
    let pinfold = Pinfold::start(PINFOLD);
    for batch in 0..25 {
        let starts = (0..20).map(|one| {
            let (client, line) = (pinfold.client().clone(), format!("last {batch} {one}"));
            let request = StartRequest {
                command: Some(format!("seq 1 200; echo '{line}'")),
                wait: Some("60s".into()),
                ..StartRequest::default()
            };
            async move { (client.start(&request).await.expect("it starts"), line) }
        });
        let all = pinfold.block(async { starts.collect::<tokio::task::JoinSet<_>>().join_all().await });
        for (started, line) in all {
            let page = started.output_page.expect("a page");
            assert_eq!(started.waited.expect("a wait").reason, WaitReason::Exited);
            assert!(page.exited && page.text.ends_with(&format!("\n200\n{line}\n")), "{line}: {page:?}");
            assert_eq!(started.record.output.bytes, page.end);
        }
    }
}

#[test]
fn concurrent_read_write_stable() {
    let pinfold = Pinfold::start(PINFOLD);
    let all = lines_of_eight(0, 100_000_000);
    // So that one read happens while it writes, however fast it is.
    let gate = Gate::new(&pinfold, "rest");
    let id = pinfold.sh(&format!("yes 0123456 | head -c 50000000; {}; yes 0123456 | head -c 50000000", gate.wait())).id;
    let mut rest = Some(gate);
    loop {
        let page = pinfold.output(&id, &OutputQuery::default());
        assert_shows(&page, &all);
        let tail = pinfold.output(&id, &OutputQuery { tail: Some("4k".into()), ..OutputQuery::default() });
        assert_shows(&tail, &all);
        let raw = read_raw(&pinfold, &id, page.next_cursor / 2, "64k");
        assert!(raw.bytes == all.as_bytes()[raw.cursor as usize..raw.next_cursor as usize]);
        if page.closed {
            assert_eq!((page.next_cursor, page.original_bytes), (100_000_000, 100_000_000));
            assert!(rest.is_none(), "it was over before a look");
            break;
        }
        if page.next_cursor > 0 {
            rest.take().into_iter().for_each(|gate| gate.open());
        }
    }
}

#[test]
fn slow_consumer_no_drop() {
    let pinfold = Pinfold::start(PINFOLD);
    // If the limit is large enough, every byte arrives, however late the reader.
    let id = pinfold.sh("yes 0123456 | head -c 3000000").id;
    let (kept, gaps) = follow(&pinfold, &id, 0, "10000");
    assert_eq!((length(&kept), gaps), (3_000_000, vec![]));
    // Otherwise the reader learns exactly which bytes it missed.
    let gate = Gate::new(&pinfold, "more");
    let command = format!("yes 0123456 | head -c 1000; {}; yes 0123456 | head -c 3000000", gate.wait());
    let id = start_limited(&pinfold, &command, "64k").id;
    let read = read_next(&pinfold, &id, 0).next_cursor;
    gate.open();
    pinfold.wait_finished(&id);
    let (kept, gaps) = follow(&pinfold, &id, read, "10000");
    assert_eq!(read + length(&kept) + length(&gaps), 3_001_000);
    assert_eq!(length(&gaps), pinfold.show(&id).output.dropped);
}
