//! The searcher: lines that span chunks, cursors, context, bounds.

use proptest::prelude::*;

use super::*;

const ALL: SearchOptions = SearchOptions { before: 0, after: 0, max_matches: usize::MAX };

/// The emitted lines: `=` for a match or `-` for context, the cursor, the line.
fn search(pattern: &str, options: SearchOptions, chunks: &[(u64, &[u8])]) -> (Vec<String>, Option<u64>) {
    let mut searcher = Searcher::new(parse_pattern(pattern).expect("a pattern"), options);
    let mut given = vec![];
    let mut emit = |line: Line<'_>| given.push(describe(line));
    for (cursor, chunk) in chunks {
        searcher.feed(*cursor, chunk, &mut emit);
    }
    searcher.flush(&mut emit);
    (given, searcher.next_match())
}

fn describe(line: Line<'_>) -> String {
    let (sign, line) = match line {
        Line::Matched(line) => ('=', line),
        Line::Context(line) => ('-', line),
    };
    format!("{sign}{} {}", line.line_start, String::from_utf8_lossy(line.line))
}

#[test]
fn a_pattern_over_two_chunks_matches_with_the_cursor_of_its_line() {
    let chunks: [(u64, &[u8]); 3] = [(100, b"boot\nlist"), (109, b"ening on :80"), (121, b"80\nend")];
    assert_eq!(search("listening on :8080", ALL, &chunks), (vec!["=105 listening on :8080".to_owned()], None));
}

#[test]
fn an_unterminated_last_line_matches_when_peeked_and_when_flushed() {
    let mut searcher = Searcher::new(parse_pattern("ready").expect("a pattern"), ALL);
    let mut given = 0;
    searcher.feed(7, b"x\nnot rea", &mut |_| given += 1);
    assert_eq!(searcher.peek(), None);
    searcher.feed(16, b"dy", &mut |_| given += 1);
    assert_eq!(searcher.peek(), Some(Match { line_start: 9, line: b"not ready" }));
    assert_eq!(given, 0);
    let mut lines = vec![];
    searcher.flush(&mut |line| lines.push(describe(line)));
    assert_eq!(lines, ["=9 not ready"]);
    assert_eq!(searcher.peek(), None);
}

#[test]
fn colours_and_carriage_returns_do_not_hide_a_match() {
    let raw: &[u8] = b"\x1b[1mlis\x1b[0mtening\r\n 50%\r100% done\n";
    assert_eq!(search("^listening$", ALL, &[(0, raw)]).0.len(), 1);
    assert_eq!(search("^100% done$", ALL, &[(0, raw)]).0.len(), 1);
}

#[test]
fn context_lines_are_emitted_once_and_in_order() {
    let text: &[u8] = b"a\nb\nhit 1\nc\nhit 2\nd\ne\nf\nhit 3\n";
    let options = SearchOptions { before: 1, after: 1, max_matches: 10 };
    let (given, more) = search("hit", options, &[(0, text)]);
    assert_eq!(given, ["-2 b", "=4 hit 1", "-10 c", "=12 hit 2", "-18 d", "-22 f", "=24 hit 3"]);
    assert_eq!(more, None);
}

#[test]
fn beyond_the_maximum_the_cursor_of_the_next_match_is_reported() {
    let options = SearchOptions { before: 0, after: 5, max_matches: 2 };
    let (given, more) = search("x", options, &[(0, b"x1\nx2\na\nx3\nb\nx4\n")]);
    assert_eq!(given, ["=0 x1", "=3 x2", "-6 a"]);
    assert_eq!(more, Some(8));
    assert_eq!(search("x", SearchOptions { max_matches: 0, ..options }, &[(0, b"x")]), (vec![], Some(0)));
}

#[test]
fn a_gap_ends_the_line_before_it_and_bytes_fed_twice_are_skipped() {
    let chunks: [(u64, &[u8]); 4] = [(0, b"ab"), (50, b"cd\nx"), (50, b"cd\n"), (52, b"\nxy\n")];
    assert_eq!(search(".", ALL, &chunks).0, ["=0 ab", "=50 cd", "=53 xy"]);
    let near = SearchOptions { before: 5, after: 5, max_matches: 5 };
    let chunks: [(u64, &[u8]); 3] = [(0, b"far\n"), (50, b"hit\n"), (90, b"far\n")];
    assert_eq!(search("hit", near, &chunks).0, ["=50 hit"]);
}

#[test]
fn a_line_continues_after_skipped_bytes() {
    let mut searcher = Searcher::new(parse_pattern("hello|bye").expect("a pattern"), ALL);
    let mut given = vec![];
    searcher.feed(0, b"x\nhel", &mut |line| given.push(describe(line)));
    searcher.skip(25);
    assert_eq!((searcher.unfinished(), searcher.next_cursor()), (Some(2), 25));
    searcher.feed(25, b"lo\n", &mut |line| given.push(describe(line)));
    searcher.skip(40);
    assert_eq!(searcher.unfinished(), None);
    searcher.feed(40, b"bye\n", &mut |line| given.push(describe(line)));
    assert_eq!(given, ["=2 hello", "=40 bye"]);
}

#[test]
fn a_line_of_ten_mebibytes_is_searched_in_pieces_of_bounded_size() {
    let chunk = vec![b'x'; 1 << 20];
    let mut searcher = Searcher::new(parse_pattern("needle").expect("a pattern"), ALL);
    let mut starts = vec![];
    let mut emit = |line: Line<'_>| match line {
        Line::Matched(line) | Line::Context(line) => {
            assert!(line.line.len() <= MAX_LINE);
            starts.push(line.line_start);
        }
    };
    for part in 0..10 {
        searcher.feed(part << 20, &chunk, &mut emit);
        assert!(searcher.partial.capacity() <= 2 * MAX_LINE);
    }
    searcher.feed(10 << 20, b"needle\nneedle\n", &mut emit);
    assert_eq!(starts, [(10 << 20), (10 << 20) + 7]);
    assert_eq!(searcher.next_cursor(), (10 << 20) + 14);
}

#[test]
fn an_invalid_pattern_is_refused_with_its_text_and_a_remedy() {
    let refusal = parse_pattern("a(b").expect_err("unclosed").to_string();
    assert!(
        refusal.contains("`a(b`") && refusal.contains("unclosed group") && refusal.contains("backslash"),
        "{refusal}"
    );
    assert!(!refusal.contains('\n'), "{refusal}");
    let refusal = parse_pattern(r"(\w{500}){500}").expect_err("large").to_string();
    assert!(refusal.contains("1 MiB") && refusal.contains("simpler"), "{refusal}");
}

proptest! {
    #[test]
    fn the_same_lines_are_found_however_the_bytes_are_chunked(
        text in "[ab\n]{0,200}",
        sizes in prop::collection::vec(1usize..20, 1..50),
    ) {
        let whole = search("a", ALL, &[(1000, text.as_bytes())]).0;
        let mut chunks = vec![];
        let (mut at, mut sizes) = (0, sizes.iter().cycle());
        while at < text.len() {
            let to = (at + sizes.next().expect("a cycle")).min(text.len());
            chunks.push((1000 + at as u64, &text.as_bytes()[at..to]));
            at = to;
        }
        prop_assert_eq!(search("a", ALL, &chunks).0, whole.clone());
        let expected = text.split('\n').filter(|line| line.contains('a')).count();
        prop_assert_eq!(whole.len(), expected);
    }
}
