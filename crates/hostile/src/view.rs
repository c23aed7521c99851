//! The budgeted view of output: the invariants of `model::output_view`, for any bytes, budget and source.

use pinfold_model::output_view::{MAX_SEQUENCE, MIN_BUDGET, Options, View, ViewInput, render};

use crate::feed::Feed;

/// Bytes of the end that must always be shown. The smallest budget leaves the tail twice as many.
const TAIL: usize = 32;

pub(crate) fn target(data: &[u8]) {
    let mut feed = Feed(data);
    let flags = feed.byte();
    let options = Options { budget: feed.small(), strip_ansi: flags & 1 != 0, collapse_cr: flags & 2 != 0 };
    let (first, last, seam) = (feed.small(), feed.small(), feed.small());
    let start = feed.long();
    let bytes = feed.0;
    // Also covers cursors near the maximum.
    let start = start.min(u64::MAX - bytes.len() as u64);
    let whole =
        ViewInput { start, head: bytes, tail: &[], end: start + bytes.len() as u64, more_may_come: flags & 4 != 0 };
    let ends = ViewInput {
        head: &bytes[..first.min(bytes.len())],
        tail: &bytes[bytes.len() - last.min(bytes.len())..],
        ..whole
    };
    let all = render(&whole, &Options { budget: usize::MAX, ..options });
    assert_eq!(all.omitted, None, "nothing is omitted without need");
    for source in [whole, ends] {
        let view = render(&source, &options);
        check(&view, &source, &options);
        let read_whole = source.head.len() + source.tail.len() >= bytes.len();
        let kept = if read_whole { tail(&all.text, TAIL) } else { "" };
        assert!(view.text.ends_with(kept), "the tail is cut: {kept:?} {view:?}");
        if read_whole && view.omitted.is_none() {
            assert_eq!(view.text, all.text, "the same text whether the source is read in one part or two");
        }
    }
    if !options.collapse_cr {
        check_seam(&whole, seam.min(bytes.len()), &options);
    }
}

fn check(view: &View, source: &ViewInput<'_>, options: &Options) {
    assert!(view.text.len() <= options.budget.max(MIN_BUDGET), "the budget: {view:?}");
    assert!((source.start..=source.end).contains(&view.next), "the cursor: {view:?}");
    let held_back = source.end - view.next;
    let max = if source.more_may_come { MAX_SEQUENCE as u64 } else { 0 };
    assert!(held_back <= max, "held back: {view:?}");
    assert_eq!(view.original_bytes, source.end - source.start, "{view:?}");
    let accounted = view.shown_bytes + view.omitted_bytes + view.collapsed_bytes + held_back;
    assert_eq!(view.original_bytes, accounted, "every byte is counted once: {view:?}");
    match &view.omitted {
        None => assert_eq!(view.omitted_bytes, 0, "{view:?}"),
        Some(hole) => {
            assert_eq!(hole.end - hole.start, view.omitted_bytes, "{view:?}");
            assert!(source.start <= hole.start && hole.end <= view.next, "the hole: {view:?}");
            assert!(view.text.contains(&format!("{} bytes omitted here", view.omitted_bytes)), "{view:?}");
        }
    }
}

/// Checks that reading up to a seam and then from its cursor on gives the same text as reading at once.
fn check_seam(whole: &ViewInput<'_>, seam: usize, options: &Options) {
    let options = Options { budget: usize::MAX, ..*options };
    let cut = whole.start + seam as u64;
    let first = render(&ViewInput { head: &whole.head[..seam], end: cut, more_may_come: true, ..*whole }, &options);
    let rest = &whole.head[(first.next - whole.start) as usize..];
    let second = render(&ViewInput { start: first.next, head: rest, ..*whole }, &options);
    let at_once = render(whole, &options);
    assert_eq!(first.text + &second.text, at_once.text, "a seam at {seam} is seen");
    assert_eq!(second.next, at_once.next);
}

/// At most so many bytes from the end.
fn tail(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}
