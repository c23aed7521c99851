//! Views by example and, for the invariants, against random bytes.

use proptest::prelude::*;

use super::*;

const PLAIN: Options = Options { budget: 16 * 1024, strip_ansi: false, collapse_cr: false };
const CLEAN: Options = Options { budget: 16 * 1024, strip_ansi: true, collapse_cr: true };

fn source(bytes: &[u8]) -> ViewInput<'_> {
    ViewInput { start: 0, head: bytes, tail: &[], end: bytes.len() as u64, more_may_come: false }
}

/// A range of which only the two ends were read, as of a long log.
fn ends(bytes: &[u8], start: u64, read: usize) -> ViewInput<'_> {
    let read = read.min(bytes.len());
    let (head, tail) = (&bytes[..read], &bytes[bytes.len() - read..]);
    ViewInput { start, head, tail, end: start + bytes.len() as u64, more_may_come: false }
}

fn assert_counted(view: &View, end: u64) {
    let held_back = end - view.next;
    assert_eq!(
        view.original_bytes,
        view.shown_bytes + view.omitted_bytes + view.collapsed_bytes + held_back,
        "{view:?}"
    );
    let hole = view.omitted.clone().unwrap_or(0..0);
    assert_eq!(view.omitted_bytes, hole.end - hole.start);
    assert_eq!(view.omitted_bytes > 0, view.omitted.is_some());
}

/// The text without its marker.
fn content(view: &View) -> String {
    match &view.omitted {
        Some(hole) => view.text.replacen(&marker(hole), "", 1),
        None => view.text.clone(),
    }
}

#[test]
fn no_loss_5mb() {
    let mut bytes = b"y\n".repeat(2_500_000);
    bytes.extend_from_slice(b"END\n");
    let whole = render(&source(&bytes), &PLAIN);
    let partly = render(&ends(&bytes, 0, 32 * 1024), &PLAIN);
    for view in [&whole, &partly] {
        assert_eq!(view.original_bytes, 5_000_004);
        assert!(view.text.starts_with("y\ny\n") && view.text.ends_with("y\nEND\n"));
        assert_eq!(content(view).len() as u64, view.shown_bytes);
        assert_counted(view, 5_000_004);
    }
    assert_eq!(whole.text, partly.text);
}

#[test]
fn tail_never_cut() {
    let bytes: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    for budget in [0, 256, 300, 1000, 4096, 32 * 1024, 100_000] {
        let view = render(&source(bytes.as_bytes()), &Options { budget, ..PLAIN });
        assert!(view.text.ends_with("\n20000\n") && view.text.starts_with("1\n2\n"), "{budget}");
        assert!(view.text.len() <= budget.max(256));
    }
}

#[test]
fn contiguous_not_split() {
    let bytes: String = (1..=213).map(|number| format!("{number:079}\n")).collect();
    let options = Options { budget: 32 * 1024, ..PLAIN };
    for read in [bytes.len() / 2, bytes.len() / 2 + 1, bytes.len()] {
        let view = render(&ends(bytes.as_bytes(), 0, read), &options);
        assert_eq!(view.text, bytes);
        assert_eq!((view.omitted_bytes, view.omitted), (0, None));
    }
}

#[test]
fn omission_exact() {
    let lines: String = (0..).map(|number| format!("line {number}\n")).take(100).collect();
    for text in [lines, "x".repeat(10_000), "☃".repeat(1000)] {
        for length in (0..=900).chain([text.len()]).filter(|length| text.is_char_boundary(*length)) {
            let view = render(&source(&text.as_bytes()[..length]), &Options { budget: 300, ..PLAIN });
            assert_counted(&view, length as u64);
            let hole = view.omitted.clone().map_or(length..length, |hole| hole.start as usize..hole.end as usize);
            assert_eq!(content(&view), [&text[..hole.start], &text[hole.end..length]].concat());
            assert_eq!(view.omitted.is_some(), length > 300);
        }
    }
}

#[test]
fn the_marker_names_the_omitted_range() {
    let bytes = vec![b'x'; 10_000];
    let view = render(&ends(&bytes, 500, 2000), &Options { budget: 1000, ..PLAIN });
    let hole = view.omitted.clone().expect("a hole");
    let expected =
        format!("\n[pinfold: {} bytes omitted here, cursor {}..{}]\n", view.omitted_bytes, hole.start, hole.end);
    assert!(view.text.contains(&expected), "{}", view.text);
    assert!((990..=1000).contains(&view.text.len()));
}

#[test]
fn cuts_are_at_line_ends_if_lines_are_short() {
    let bytes = "0123456789\n".repeat(1000);
    let view = render(&source(bytes.as_bytes()), &Options { budget: 1000, ..PLAIN });
    let hole = view.omitted.expect("a hole");
    assert_eq!((hole.start % 11, hole.end % 11), (0, 0));
}

#[test]
fn the_end_of_a_last_line_longer_than_the_budget_is_shown() {
    for length in 1..600 {
        let bytes = format!("first\n{}end\n", "x".repeat(length));
        let view = render(&source(bytes.as_bytes()), &Options { budget: 256, ..PLAIN });
        assert!(view.text.ends_with("xend\n"), "{length}: {}", view.text);
    }
}

#[test]
fn cr_progress_final_state() {
    let mut bytes: String = (1..=500).map(|number| format!("\rprogress {number}/500")).collect();
    bytes.push_str(" done\n");
    let view = render(&source(bytes.as_bytes()), &CLEAN);
    assert_eq!(view.text, "progress 500/500 done\n");
    assert_eq!((view.omitted_bytes, view.shown_bytes), (0, 22));
    assert_counted(&view, bytes.len() as u64);
    let partly = render(&ends(bytes.as_bytes(), 0, 600), &Options { budget: 256, ..CLEAN });
    assert!(partly.text.ends_with("progress 500/500 done\n"), "{}", partly.text);
    assert_counted(&partly, bytes.len() as u64);
}

#[test]
fn a_rewritten_line_shows_its_last_visible_state() {
    let cases = [
        ("a\rb\rc\n", "c\n"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("50%\r100%\r", "100%"),
        ("50%\r\r100%\r\n", "100%\n"),
        ("kept\n50%\r100%\n\n", "kept\n100%\n\n"),
        ("x\r\x1b[2K\x1b[32mgreen\x1b[0m\n", "green\n"),
        ("done\r\x1b[K\n", "done\n"),
        ("\r\r\n", "\n"),
        ("\r", ""),
    ];
    for (raw, text) in cases {
        let view = render(&source(raw.as_bytes()), &CLEAN);
        assert_eq!(view.text, text, "{raw:?}");
        assert_counted(&view, raw.len() as u64);
    }
    let colours = Options { strip_ansi: false, ..CLEAN };
    assert_eq!(render(&source(b"x\r\x1b[32mgreen\x1b[0m\n"), &colours).text, "\x1b[32mgreen\x1b[0m\n");
}

#[test]
fn ansi_stripped_on_request() {
    let raw = "\x1b]0;title\x07\x1b[1;31mred\x1b[0m é\r\n";
    assert_eq!(render(&source(raw.as_bytes()), &PLAIN).text, raw);
    let view = render(&source(raw.as_bytes()), &Options { strip_ansi: true, ..PLAIN });
    assert_eq!(view.text, "red é\r\n");
    assert_eq!((view.shown_bytes, view.collapsed_bytes), (8, raw.len() as u64 - 8));
}

#[test]
fn utf8_is_not_split_between_reads() {
    let text = "☃é🦀".repeat(200);
    for read in 0..300 {
        let view = render(&ends(text.as_bytes(), 0, read), &Options { budget: 400, ..CLEAN });
        assert!(!view.text.contains('\u{FFFD}'), "{read}");
        assert_counted(&view, text.len() as u64);
    }
}

#[test]
fn invalid_utf8() {
    let bytes = b"a\0\xff\xfe\xe2\x98b\xc3";
    let view = render(&source(bytes), &PLAIN);
    assert_eq!(view.text, String::from_utf8_lossy(bytes));
    assert_eq!((view.shown_bytes, view.next), (8, 8));
}

#[test]
fn partial_lines() {
    let bytes = "\n\nhalf a lin".as_bytes();
    let first = render(&ViewInput { more_may_come: true, ..source(bytes) }, &CLEAN);
    assert_eq!((first.text.as_str(), first.next), ("\n\nhalf a lin", 12));
    let second = render(&ViewInput { start: 12, head: b"e\n", tail: &[], end: 14, more_may_come: false }, &CLEAN);
    assert_eq!(second.text, "e\n");
}

#[test]
fn an_incomplete_sequence_is_held_back_only_while_more_may_come() {
    for (bytes, whole) in [
        (b"ab\xe2\x98".as_slice(), 2),
        (b"ab\x1b[3", 2),
        (b"ab\x1b]0;tit", 2),
        (b"ab\x1b]0;title\x1b", 2),
        (b"\xf0", 0),
    ] {
        let view = render(&ViewInput { more_may_come: true, ..source(bytes) }, &CLEAN);
        assert_eq!((view.next, view.text.len()), (whole, whole as usize));
        assert_counted(&view, bytes.len() as u64);
        assert_eq!(render(&source(bytes), &CLEAN).next, bytes.len() as u64);
    }
    let endless = [b"\x1b]".as_slice(), &[b'x'; MAX_SEQUENCE]].concat();
    let view = render(&ViewInput { more_may_come: true, ..source(&endless) }, &CLEAN);
    assert_eq!(view.next, endless.len() as u64);
}

#[test]
fn an_empty_range_is_an_empty_view() {
    let view = render(&ViewInput { start: 9, head: b"", tail: b"", end: 9, more_may_come: true }, &CLEAN);
    assert_eq!((view.text.as_str(), view.original_bytes, view.next), ("", 0, 9));
}

#[test]
fn a_tail_without_a_head_is_shown_after_the_marker() {
    let view = render(&ViewInput { start: 0, head: b"", tail: b"the end", end: 1000, more_may_come: false }, &CLEAN);
    assert_eq!(view.text, "\n[pinfold: 993 bytes omitted here, cursor 0..993]\nthe end");
}

#[test]
fn an_inconsistent_input_never_panics() {
    let wrong = [
        ViewInput { start: 5, head: b"abc", tail: b"def", end: 2, more_may_come: true },
        ViewInput { start: 0, head: b"abcdef", tail: b"abcdef", end: 4, more_may_come: false },
        ViewInput { start: 0, head: b"abc", tail: b"bcde", end: 5, more_may_come: false },
        ViewInput { start: 0, head: b"", tail: b"", end: u64::MAX, more_may_come: false },
        ViewInput { start: u64::MAX - 1, head: b"abc", tail: b"", end: u64::MAX, more_may_come: true },
    ];
    let texts = wrong.map(|source| {
        let view = render(&source, &CLEAN);
        assert_counted(&view, source.end.max(source.start));
        view.text
    });
    assert_eq!((texts[0].as_str(), texts[1].as_str(), texts[2].as_str()), ("", "abcd", "abcde"));
}

#[test]
fn token_budget() {
    assert_eq!(tokens_to_bytes(1000), 4000);
    assert_eq!(tokens_to_bytes(u64::MAX), u64::MAX);
}

/// Bytes as programs write them: words, progress, colours, broken characters.
fn output() -> impl Strategy<Value = Vec<u8>> {
    let chunk = prop_oneof![
        4 => "[a-z ☃é🦀]{0,40}".prop_map(String::into_bytes),
        3 => Just(b"\n".to_vec()),
        2 => Just(b"\r".to_vec()),
        1 => Just(b"\r\n".to_vec()),
        2 => "\x1b\\[[0-9;]{0,6}[mKH]".prop_map(String::into_bytes),
        1 => "\x1b\\]0;[a-z]{0,9}(\x07|\x1b\\\\)?".prop_map(String::into_bytes),
        1 => Just(b"\x1b".to_vec()),
        2 => prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(chunk, 0..120).prop_map(|chunks| chunks.concat())
}

fn options() -> impl Strategy<Value = Options> {
    (0usize..1500, any::<bool>(), any::<bool>()).prop_map(|(budget, strip_ansi, collapse_cr)| Options {
        budget,
        strip_ansi,
        collapse_cr,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_byte_is_counted_once_and_the_text_never_exceeds_the_budget(
        bytes in output(),
        options in options(),
        start in prop_oneof![Just(0), 0u64..1 << 40],
        read in (0usize..2000, 0usize..2000),
        more_may_come: bool,
    ) {
        let head = &bytes[..read.0.min(bytes.len())];
        let tail = &bytes[bytes.len().saturating_sub(read.1)..];
        let end = start + bytes.len() as u64;
        let view = render(&ViewInput { start, head, tail, end, more_may_come }, &options);
        assert_counted(&view, end);
        prop_assert!(view.text.len() <= options.budget.max(MIN_BUDGET));
        prop_assert!(more_may_come || view.next == end);
        prop_assert!(end - view.next <= MAX_SEQUENCE as u64);
        prop_assert_eq!(view.original_bytes, bytes.len() as u64);
    }

    #[test]
    fn the_shown_text_is_the_written_text(bytes in output(), budget in 0usize..1500) {
        let view = render(&source(&bytes), &Options { budget, ..PLAIN });
        let hole = view.omitted.clone().unwrap_or(0..0);
        let (head, tail) = (&bytes[..hole.start as usize], &bytes[hole.end as usize..]);
        let expected = [String::from_utf8_lossy(head), String::from_utf8_lossy(tail)].concat();
        prop_assert_eq!(content(&view), expected);
    }

    #[test]
    fn the_tail_is_never_cut_at_its_end(
        text in "([a-z☃]{0,60}\n){0,60}[a-z☃]{1,100}",
        options in options(),
        read in 400usize..3000,
    ) {
        let view = render(&ends(text.as_bytes(), 0, read), &options);
        let last: String = text.rsplit('\n').next().expect("a line").to_owned();
        let shown = view.text.rsplit('\n').next().expect("a line");
        prop_assert!(last.ends_with(shown) && !shown.is_empty());
        prop_assert!(shown == last || last.len() > 70, "{} of {}", shown, last);
    }

    #[test]
    fn valid_utf8_is_never_split(text in "[a-z☃é🦀\n\r]{0,600}", options in options(), read in 0usize..900) {
        let view = render(&ends(text.as_bytes(), 0, read), &options);
        prop_assert_eq!(view.text.matches(char::REPLACEMENT_CHARACTER).count(), 0);
    }

    #[test]
    fn two_reads_equal_one_without_duplication_or_loss(bytes in output(), at in 0usize..4000, strip_ansi: bool) {
        let options = Options { budget: 1 << 20, strip_ansi, collapse_cr: false };
        let at = at.min(bytes.len());
        let first = render(&ViewInput { more_may_come: true, ..source(&bytes[..at]) }, &options);
        let next = first.next as usize;
        let rest = ViewInput { start: first.next, head: &bytes[next..], ..source(&bytes) };
        let second = render(&rest, &options);
        let whole = render(&source(&bytes), &options);
        prop_assert_eq!(first.text + &second.text, whole.text);
        prop_assert_eq!(first.shown_bytes + second.shown_bytes, whole.shown_bytes);
        prop_assert_eq!(first.collapsed_bytes + second.collapsed_bytes, whole.collapsed_bytes);
    }

    #[test]
    fn the_last_state_of_every_line_is_shown(
        states in prop::collection::vec("[a-z]{1,9}", 1..300),
        read in 300usize..4000,
    ) {
        let line = states.join("\r") + "\r\n";
        let view = render(&ends(line.as_bytes(), 0, read), &Options { budget: 256, ..CLEAN });
        let last = format!("{}\n", states.last().expect("a state"));
        prop_assert!(view.text.ends_with(&last));
    }
}
