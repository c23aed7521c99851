//! Tests of the log view, fed with the chunks that the daemon would send.

use super::window::Piece;
use super::*;

const COLUMNS: u16 = 20;
const ROWS: usize = 5;

fn view() -> LogView {
    let mut log = LogView::new("a".into(), 1);
    log.resize(COLUMNS, ROWS);
    log
}

/// A log of numbered lines of ten bytes each.
fn text(lines: u64) -> Vec<u8> {
    (0..lines).flat_map(|line| format!("line {line:04}\n").into_bytes()).collect()
}

/// Answers every read of a log from these bytes; a follow that has nothing to wait for is left open.
fn serve(log: &mut LogView, all: &[u8]) {
    for _ in 0..1000 {
        let effects = log.wants();
        let mut answered = false;
        for effect in effects {
            let Effect::ReadLog { read, .. } = effect else { continue };
            let length = all.len() as u64;
            let (from, to) = match read {
                LogRead::Tail => (length.saturating_sub(STEP), length),
                LogRead::Around { cursor } => (cursor.saturating_sub(STEP / 2), cursor.saturating_sub(STEP / 2) + STEP),
                LogRead::Before { end } => (end.saturating_sub(STEP), end),
                LogRead::After { from } => (from, from + STEP),
                LogRead::Follow { from } if from >= length => continue,
                LogRead::Follow { from } => (from, from + STEP),
            };
            let to = to.min(length);
            let piece = Piece { at: from, bytes: all[from as usize..to as usize].to_vec(), after_gap: false };
            log.take(read, Ok(RawPiece { piece, next: to, end: length, closed: false }));
            answered = true;
        }
        if !answered {
            return;
        }
    }
    panic!("it reads for ever");
}

fn on_screen(log: &LogView) -> Vec<String> {
    log.visible().iter().map(|row| plain(log.window.items()[row.index].bytes()).into_owned()).collect()
}

#[test]
fn a_log_opens_at_its_end_and_follows() {
    let (mut log, mut all) = (view(), text(100));
    serve(&mut log, &all);
    assert_eq!(on_screen(&log), ["line 0095", "line 0096", "line 0097", "line 0098", "line 0099"]);
    assert!(log.waiting);
    all.extend(b"new\n");
    let piece = Piece { at: 1000, bytes: b"new\n".to_vec(), after_gap: false };
    log.take(LogRead::Follow { from: 1000 }, Ok(RawPiece { piece, next: 1004, end: 1004, closed: false }));
    assert_eq!(on_screen(&log)[4], "new");
    serve(&mut log, &all);
    assert!(log.waiting, "it goes on following");
}

#[test]
fn scrolling_up_stops_following_and_the_lines_stay() {
    let (mut log, all) = (view(), text(100));
    serve(&mut log, &all);
    log.go(Move::Lines(-2));
    assert!(!log.follow);
    assert_eq!(on_screen(&log)[4], "line 0097");
    let piece = Piece { at: 1000, bytes: b"new\n".to_vec(), after_gap: false };
    log.take(LogRead::Follow { from: 1000 }, Ok(RawPiece { piece, next: 1004, end: 1004, closed: false }));
    assert_eq!(on_screen(&log)[4], "line 0097");
    log.go(Move::Last);
    serve(&mut log, &[all, b"new\n".to_vec()].concat());
    assert_eq!(on_screen(&log)[4], "new");
}

#[test]
fn a_large_log_is_read_in_windows_wherever_the_reader_goes() {
    let (mut log, all) = (view(), text(600_000));
    serve(&mut log, &all);
    let bounded = |log: &LogView| log.window.items().len() <= window::MAX_LINES;
    log.go(Move::First);
    serve(&mut log, &all);
    assert_eq!(on_screen(&log)[0], "line 0000");
    assert!(bounded(&log) && log.window.start() == 0);
    for _ in 0..10_000 {
        log.go(Move::HalfPages(2));
        serve(&mut log, &all);
        assert!(bounded(&log));
    }
    assert_eq!(on_screen(&log)[0], "line 40000");
    log.go(Move::Last);
    serve(&mut log, &all);
    assert_eq!(on_screen(&log)[4], "line 599999");
    for _ in 0..5_000 {
        log.go(Move::HalfPages(-2));
        serve(&mut log, &all);
    }
    assert_eq!(on_screen(&log)[4], format!("line {}", 599_999 - 20_000));
}

#[test]
fn a_process_that_writes_faster_than_it_is_read_is_skipped_to_its_end() {
    let (mut log, all) = (view(), text(100));
    serve(&mut log, &all);
    let piece = Piece { at: 1000, bytes: text(20_000), after_gap: false };
    let raw = RawPiece { piece, next: 1000 + 200_000, end: 50 << 20, closed: false };
    log.take(LogRead::Follow { from: 1000 }, Ok(raw));
    let effects = log.wants();
    assert!(
        matches!(effects.as_slice(), [Effect::ReadLog { read: LogRead::Tail, pause: true, .. }]),
        "it reads the end, after a pause: {effects:?}"
    );
}

#[test]
fn wrapped_lines_are_scrolled_row_by_row() {
    let mut log = view();
    let all = b"short\nabcdefghijklmnopqrstuvwxyz0123456789abcdefghij\nlast\nx\ny\nz\n".to_vec();
    serve(&mut log, &all);
    log.go(Move::First);
    let rows = |log: &LogView| log.visible().iter().map(|row| (row.index, row.row)).collect::<Vec<_>>();
    assert_eq!(rows(&log), [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]);
    log.go(Move::Lines(2));
    assert_eq!(rows(&log)[0], (1, 1));
    log.go(Move::Lines(-1));
    assert_eq!(rows(&log)[0], (1, 0));
    log.wrap = false;
    assert_eq!(rows(&log), [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
}

#[test]
fn a_search_goes_up_from_the_end_and_down_from_elsewhere() {
    let (mut log, all) = (view(), text(100));
    serve(&mut log, &all);
    let Ok(Effect::SearchLog { request, .. }) = log.search("LINE 005") else { panic!("no search") };
    assert_eq!((request.from, request.direction), (1000, Direction::Up));
    assert!(
        log.search.as_ref().is_some_and(|search| !search.regex.is_match("line 0050")),
        "case matters with upper case"
    );
    assert!(log.take_found(Direction::Up, Ok(None)).is_some_and(|note| note.contains("no match above")));
    log.search("line 005").expect("a pattern");
    assert_eq!(log.take_found(Direction::Up, Ok(Some(590))), None);
    serve(&mut log, &all);
    assert!(on_screen(&log).contains(&"line 0059".to_owned()));
    let Some(Effect::SearchLog { request, .. }) = log.search_on(Direction::Down) else { panic!("no search") };
    assert_eq!((request.from, request.skips_line), (590, true));
    let Some(Effect::SearchLog { request, .. }) = log.search_on(Direction::Up) else { panic!("no search") };
    assert_eq!(request.from, 590);
    assert_eq!(log.copied(), "line 0059");
}

#[test]
fn a_match_far_away_is_shown_in_its_context() {
    let (mut log, all) = (view(), text(600_000));
    serve(&mut log, &all);
    log.search("0100").expect("a pattern");
    log.take_found(Direction::Up, Ok(Some(1000)));
    serve(&mut log, &all);
    let shown = on_screen(&log);
    assert!(shown.contains(&"line 0100".to_owned()) && shown.contains(&"line 0099".to_owned()), "{shown:?}");
}

#[test]
fn n_and_its_opposite_land_on_matches_far_away_in_a_large_log() {
    let (mut log, mut all) = (view(), text(600_000));
    let far = [10_000, 3_000_000, all.len() - 1_000_000];
    for at in far {
        let line = all[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        all[line..line + 6].copy_from_slice(b"needle");
    }
    serve(&mut log, &all);
    log.search("needle").expect("a pattern");
    // As the search does it, in pieces that end in the middle of lines.
    let find = |request: SearchRequest| {
        let search = line_search::LineSearch::new(&request.pattern).expect("a pattern");
        let mut scanner = line_search::LineScanner::new(search, request.direction, request.skips_line);
        let piece = |from: usize, to: usize| {
            vec![line_search::Stretch { at: from as u64, bytes: all[from..to].to_vec(), starts_line: from == 0 }]
        };
        let from = request.from as usize;
        match request.direction {
            Direction::Down => (from..all.len())
                .step_by(777_777)
                .find_map(|at| scanner.scan(piece(at, (at + 777_777).min(all.len())), at + 777_777 >= all.len())),
            Direction::Up => (0..from.div_ceil(777_777))
                .map(|step| from - step * 777_777)
                .find_map(|end| scanner.scan(piece(end.saturating_sub(777_777), end), end <= 777_777)),
        }
    };
    let mut next = |direction: Direction| {
        let Some(Effect::SearchLog { request, .. }) = log.search_on(direction) else { panic!("no search") };
        let found = find(request);
        let note = log.take_found(direction, Ok(found));
        serve(&mut log, &all);
        if let Some(found) = found {
            let shown: Vec<u64> = log.visible().iter().map(|row| log.window.items()[row.index].at).collect();
            assert!(shown.contains(&found), "{found} is not among {shown:?}");
            assert!(on_screen(&log).iter().any(|line| line.contains("needle")));
        }
        (found.map(|at| far.iter().filter(|far| **far as u64 >= at).count()), note.is_some())
    };
    let (up, down) = (Direction::Up, Direction::Down);
    assert_eq!(
        [next(up), next(up), next(up), next(up)],
        [(Some(1), false), (Some(2), false), (Some(3), false), (None, true)]
    );
    assert_eq!([next(down), next(down), next(down)], [(Some(2), false), (Some(1), false), (None, true)]);
}

#[test]
fn a_pattern_that_is_none_says_what_is_wrong() {
    let error = view().search("a(b").expect_err("not a pattern");
    assert!(error.starts_with("/a(b: ") && error.contains("unclosed group"), "{error}");
}

#[test]
fn selected_lines_are_copied_without_their_colours() {
    let mut log = view();
    serve(&mut log, b"one\n\x1b[31mtwo\x1b[0m\nthree\n");
    log.start_selection();
    log.go(Move::Lines(-1));
    assert_eq!(log.copied(), "two\nthree");
    log.go(Move::First);
    assert_eq!(log.copied(), "one\ntwo\nthree");
}

#[test]
fn times_belong_to_the_lines_they_were_read_for() {
    let mut log = view();
    serve(&mut log, b"one\ntwo\n");
    log.times = true;
    let effects = log.wants();
    assert!(matches!(effects.as_slice(), [Effect::ReadTimes { from: 0, .. }]), "{effects:?}");
    log.take_times(0, Ok("2026-01-01T00:00:01Z one\n2026-01-01T00:00:02Z two\n".into()));
    let times: Vec<_> = log.window.items().iter().map(|item| log.time_of(item)).collect();
    assert_eq!(times, [Some("00:00:01"), Some("00:00:02")]);
    assert!(log.wants().is_empty());
    log.times_of.clear();
    log.wants();
    log.take_times(0, Err("away".into()));
    assert!(!log.wants().iter().any(|effect| matches!(effect, Effect::ReadTimes { from: 0, .. })), "asked once");
}

#[test]
fn what_the_daemon_dropped_is_a_gap_and_the_head_is_read_before_it() {
    let mut log = view();
    log.take(
        LogRead::Tail,
        Ok(RawPiece {
            piece: Piece { at: 5000, bytes: b"tail\n".to_vec(), after_gap: true },
            next: 5005,
            end: 5005,
            closed: true,
        }),
    );
    log.dropped = 100..5000;
    let effects = log.wants();
    assert!(matches!(effects.as_slice(), [Effect::ReadLog { read: LogRead::Before { end: 100 }, .. }]), "{effects:?}");
    let head = Piece { at: 0, bytes: b"head\n".to_vec(), after_gap: false };
    log.take(LogRead::Before { end: 100 }, Ok(RawPiece { piece: head, next: 5, end: 5005, closed: true }));
    assert_eq!(log.window.items().len(), 3);
    assert!(log.wants().is_empty());
}

#[test]
fn a_daemon_that_fails_is_asked_again_later_and_not_at_once() {
    let mut log = view();
    assert_eq!(log.wants().len(), 1);
    log.take(LogRead::Tail, Err("away".into()));
    assert!(log.wants().is_empty());
    log.retry();
    assert_eq!(log.wants().len(), 1);
}
