//! Output for a model: within a budget, with its end always shown and every byte accounted for.
//!
//! Decides what is shown, what is omitted and how the omission is marked. Reads no files: the caller passes bytes
//! with their cursors. Invariants, each with a test of its name in `output_view_tests.rs`:
//! - every byte is counted once: `original = shown + omitted + collapsed + held back`.
//! - the text never exceeds the budget, marker included.
//! - the tail is never cut at its end.
//! - valid UTF-8 is never split, neither by a cut nor between two reads.

mod escape;
mod render;
mod search;

use std::borrow::Cow;
use std::ops::Range;

pub use escape::{MAX_SEQUENCE, strip_ansi};
pub use search::{BadPattern, Line, MAX_CONTEXT, MAX_LINE, MAX_PATTERN, Match, SearchOptions, Searcher, parse_pattern};

use render::{Following, RenderedText};

/// The smallest budget: anything less is treated as this, so that marker and tail always fit.
pub const MIN_BUDGET: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The most bytes of text.
    pub budget: usize,
    /// Whether escape sequences are removed.
    pub strip_ansi: bool,
    /// Whether a line rewritten with carriage returns shows only its last state.
    pub collapse_cr: bool,
}

/// The requested range `[start, end)`, and the part of it that the caller read.
#[derive(Clone, Copy, Debug)]
pub struct ViewInput<'a> {
    /// Cursor of the first byte.
    pub start: u64,
    /// The first bytes of the range.
    pub head: &'a [u8],
    /// The last bytes of the range; those that are in `head` too are ignored.
    pub tail: &'a [u8],
    /// Cursor after the last byte.
    pub end: u64,
    /// Whether more bytes may follow later: then an incomplete character or escape sequence at the end is held back.
    pub more_may_come: bool,
}

/// The rendered text of a range, and the count of its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub text: String,
    /// Raw bytes in the range.
    pub original_bytes: u64,
    /// Raw bytes shown.
    pub shown_bytes: u64,
    /// Raw bytes omitted because of the budget, or not read.
    pub omitted_bytes: u64,
    /// Raw bytes removed as escape sequences or overwritten parts of a line.
    pub collapsed_bytes: u64,
    /// The omitted range, which the marker names.
    pub omitted: Option<Range<u64>>,
    /// Where the next read starts; less than `end` only if an incomplete sequence is held back.
    pub next: u64,
}

/// Bytes for a budget in tokens, at an estimated 4 bytes a token, which fits English text and code.
pub fn tokens_to_bytes(tokens: u64) -> u64 {
    tokens.saturating_mul(4)
}

/// Renders a range. Pass at least [`MAX_SEQUENCE`] bytes, if there are that many, so that `next` is sure to advance.
pub fn render(source: &ViewInput<'_>, options: &Options) -> View {
    let end = source.end.max(source.start);
    let following = if source.more_may_come { Following::More } else { Following::Nothing };
    match read_parts(source, end) {
        Parts::Whole(bytes) => {
            let rendered = RenderedText::new(&bytes, following, options);
            if rendered.text().len() <= options.budget.max(MIN_BUDGET) {
                return whole(&rendered, source.start, end);
            }
            let side = Side { rendered: &rendered, start: source.start };
            head_and_tail(side, side, end, options)
        }
        Parts::Apart { head, tail } => {
            // A character or sequence cut by the gap is omitted as a whole.
            let tail = &tail[continuation_bytes(tail)..];
            let first = RenderedText::new(head, Following::More, options);
            let last = RenderedText::new(tail, following, options);
            let head = Side { rendered: &first, start: source.start };
            let tail = Side { rendered: &last, start: end - tail.len() as u64 };
            head_and_tail(head, tail, end, options)
        }
    }
}

/// The bytes that were read: the whole range, or its two ends.
enum Parts<'a> {
    Whole(Cow<'a, [u8]>),
    Apart { head: &'a [u8], tail: &'a [u8] },
}

fn read_parts<'a>(source: &ViewInput<'a>, end: u64) -> Parts<'a> {
    let length = usize::try_from(end - source.start).unwrap_or(usize::MAX);
    let head = &source.head[..source.head.len().min(length)];
    let remaining = length - head.len();
    let tail = &source.tail[source.tail.len().saturating_sub(remaining)..];
    match (head.is_empty(), tail.is_empty()) {
        _ if tail.len() < remaining => Parts::Apart { head, tail },
        (_, true) => Parts::Whole(Cow::Borrowed(head)),
        (true, _) => Parts::Whole(Cow::Borrowed(tail)),
        (false, false) => Parts::Whole(Cow::Owned([head, tail].concat())),
    }
}

/// How many leading bytes belong to a character that started earlier.
fn continuation_bytes(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| (0x80..0xC0).contains(*byte)).count()
}

fn whole(rendered: &RenderedText, start: u64, end: u64) -> View {
    let all = rendered.prefix(rendered.text().len());
    View {
        text: rendered.text().to_owned(),
        original_bytes: end - start,
        shown_bytes: all.shown,
        omitted_bytes: 0,
        collapsed_bytes: all.collapsed,
        omitted: None,
        next: start + all.raw(),
    }
}

/// Rendered bytes, and the cursor of the first.
#[derive(Clone, Copy)]
struct Side<'a> {
    rendered: &'a RenderedText,
    start: u64,
}

/// Renders head, marker and tail. Both sides may be the same text, if it is longer than the budget.
fn head_and_tail(head: Side<'_>, tail: Side<'_>, end: u64, options: &Options) -> View {
    let room = options.budget.max(MIN_BUDGET) - max_marker_len(end);
    let (head_text, tail_text) = (head.rendered.text(), tail.rendered.text());
    let head_room = (room / 4).max(room.saturating_sub(tail_text.len()));
    let head_text = &head_text[..head_cut(head_text, head_room)];
    let tail_text = &tail_text[tail_cut(tail_text, room - head_text.len())..];

    let before = head.rendered.prefix(head_text.len());
    let after = tail.rendered.suffix(tail_text.len());
    let next = tail.start + tail.rendered.raw();
    let hole = head.start + before.raw()..next - after.raw();
    View {
        text: [head_text, &marker(&hole), tail_text].concat(),
        original_bytes: end - head.start,
        shown_bytes: before.shown + after.shown,
        omitted_bytes: hole.end - hole.start,
        collapsed_bytes: before.collapsed + after.collapsed,
        omitted: Some(hole),
        next,
    }
}

fn marker(hole: &Range<u64>) -> String {
    format!("\n[pinfold: {} bytes omitted here, cursor {}..{}]\n", hole.end - hole.start, hole.start, hole.end)
}

/// The longest possible marker: no number in it has more digits than the range's end.
fn max_marker_len(end: u64) -> usize {
    let digits = end.to_string().len();
    marker(&(0..0)).len() + 3 * (digits - 1)
}

/// Where a head of at most `room` bytes ends: after a newline, unless that leaves half of the room unused.
fn head_cut(text: &str, room: usize) -> usize {
    if text.len() <= room {
        return text.len();
    }
    let max = text.floor_char_boundary(room);
    match text[..max].rfind('\n') {
        Some(newline) if newline >= room / 2 => newline + 1,
        _ => max,
    }
}

/// Where a tail of at most `room` bytes starts: after a newline, unless that leaves half of the room unused.
fn tail_cut(text: &str, room: usize) -> usize {
    if text.len() <= room {
        return 0;
    }
    let min = text.ceil_char_boundary(text.len() - room);
    if text[..min].ends_with('\n') {
        return min;
    }
    match text[min..].find('\n') {
        Some(newline) if newline < room / 2 => min + newline + 1,
        _ => min,
    }
}

#[cfg(test)]
#[path = "output_view_tests.rs"]
mod tests;
