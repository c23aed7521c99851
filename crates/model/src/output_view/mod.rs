//! Output as a model reads it: within a budget, its tail never cut, every byte accounted for.
//!
//! Owns what is shown, what is left out and how that is said. Reads no file: the caller hands in bytes with
//! their cursors. Invariants that live here, each with a test of its name in `output_view_tests.rs`:
//! - every byte is counted once: `original = shown + omitted + collapsed + held back`.
//! - the text never exceeds the budget, marker included.
//! - the tail is never cut at its end.
//! - valid UTF-8 is never split, neither by a cut nor by a seam between reads.

mod escape;
mod pieces;
mod search;

use std::borrow::Cow;
use std::ops::Range;

pub use escape::{SEQUENCE_MOST, strip_ansi};
pub use search::{
    BadPattern, CONTEXT_MOST, LINE_MOST, Line, Match, PATTERN_MOST, SearchOptions, Searcher, parse_pattern,
};

use pieces::{Edge, Pieces};

/// The least budget: a smaller one is treated as this, so that marker and tail always have room.
pub const LEAST_BUDGET: usize = 256;

/// How the text is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most bytes of text.
    pub budget: usize,
    /// Whether escape sequences are left out.
    pub strip_ansi: bool,
    /// Whether a line rewritten with carriage returns shows its last state only.
    pub collapse_cr: bool,
}

/// The range `[start, end)` that was asked for, and those of its bytes that the caller read.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Cursor of the first byte asked for.
    pub start: u64,
    /// The first bytes of the range.
    pub head: &'a [u8],
    /// The last bytes of the range; bytes that `head` holds already are ignored.
    pub tail: &'a [u8],
    /// Cursor after the last byte.
    pub end: u64,
    /// Whether bytes may follow at `end`: an unfinished character or escape sequence is then held back.
    pub more_may_come: bool,
}

/// What is shown of a range, and what became of the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The text, within the budget.
    pub text: String,
    /// Raw bytes in the range asked for.
    pub original_bytes: u64,
    /// Raw bytes that the text stands for.
    pub shown_bytes: u64,
    /// Raw bytes left out for the budget, or not read.
    pub omitted_bytes: u64,
    /// Raw bytes removed as escape sequences and overwritten states of a line.
    pub collapsed_bytes: u64,
    /// Cursors of the hole that the marker stands for.
    pub omitted: Option<Range<u64>>,
    /// Where the next read continues; less than `end` only while an unfinished sequence is held back.
    pub next: u64,
}

/// How many bytes of text a budget in tokens allows: 4 a token, an estimate that fits English text and code.
pub fn tokens_to_bytes(tokens: u64) -> u64 {
    tokens.saturating_mul(4)
}

/// Makes the text of a range. To be sure that `next` advances, give at least [`SEQUENCE_MOST`] bytes if there are.
pub fn render(source: &Source<'_>, options: &Options) -> View {
    let end = source.end.max(source.start);
    let edge = if source.more_may_come { Edge::Unfinished } else { Edge::Final };
    match read_parts(source, end) {
        Parts::Whole(bytes) => {
            let pieces = Pieces::new(&bytes, edge, options);
            if pieces.text().len() <= options.budget.max(LEAST_BUDGET) {
                return whole(&pieces, source.start, end);
            }
            let side = Side { pieces: &pieces, start: source.start };
            two_sided(side, side, end, options)
        }
        Parts::Apart { head, tail } => {
            // Characters and sequences that the hole cuts into go with it.
            let tail = &tail[continuation_bytes(tail)..];
            let first = Pieces::new(head, Edge::Unfinished, options);
            let last = Pieces::new(tail, edge, options);
            let head = Side { pieces: &first, start: source.start };
            let tail = Side { pieces: &last, start: end - tail.len() as u64 };
            two_sided(head, tail, end, options)
        }
    }
}

/// The bytes that were read: all of the range, or two ends of it.
enum Parts<'a> {
    Whole(Cow<'a, [u8]>),
    Apart { head: &'a [u8], tail: &'a [u8] },
}

fn read_parts<'a>(source: &Source<'a>, end: u64) -> Parts<'a> {
    let length = usize::try_from(end - source.start).unwrap_or(usize::MAX);
    let head = &source.head[..source.head.len().min(length)];
    let missing = length - head.len();
    let tail = &source.tail[source.tail.len().saturating_sub(missing)..];
    match (head.is_empty(), tail.is_empty()) {
        _ if tail.len() < missing => Parts::Apart { head, tail },
        (_, true) => Parts::Whole(Cow::Borrowed(head)),
        (true, _) => Parts::Whole(Cow::Borrowed(tail)),
        (false, false) => Parts::Whole(Cow::Owned([head, tail].concat())),
    }
}

/// How many bytes at the front belong to a character that began before.
fn continuation_bytes(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| (0x80..0xC0).contains(*byte)).count()
}

fn whole(pieces: &Pieces, start: u64, end: u64) -> View {
    let all = pieces.prefix(pieces.text().len());
    View {
        text: pieces.text().to_owned(),
        original_bytes: end - start,
        shown_bytes: all.shown,
        omitted_bytes: 0,
        collapsed_bytes: all.collapsed,
        omitted: None,
        next: start + all.raw(),
    }
}

/// Bytes made readable, and the cursor of the first.
#[derive(Clone, Copy)]
struct Side<'a> {
    pieces: &'a Pieces,
    start: u64,
}

/// Head, marker, tail. Both sides may be the same pieces: then they are longer than the budget.
fn two_sided(head: Side<'_>, tail: Side<'_>, end: u64, options: &Options) -> View {
    let room = options.budget.max(LEAST_BUDGET) - longest_marker(end);
    let (head_text, tail_text) = (head.pieces.text(), tail.pieces.text());
    let head_room = (room / 4).max(room.saturating_sub(tail_text.len()));
    let head_text = &head_text[..head_cut(head_text, head_room)];
    let tail_text = &tail_text[tail_cut(tail_text, room - head_text.len())..];

    let before = head.pieces.prefix(head_text.len());
    let after = tail.pieces.suffix(tail_text.len());
    let next = tail.start + tail.pieces.raw();
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

/// No number in a marker has more digits than the range's end.
fn longest_marker(end: u64) -> usize {
    let digits = end.to_string().len();
    marker(&(0..0)).len() + 3 * (digits - 1)
}

/// Where a head of at most `room` bytes ends: after a line, unless that wastes half of the room.
fn head_cut(text: &str, room: usize) -> usize {
    if text.len() <= room {
        return text.len();
    }
    let most = text.floor_char_boundary(room);
    match text[..most].rfind('\n') {
        Some(newline) if newline >= room / 2 => newline + 1,
        _ => most,
    }
}

/// Where a tail of at most `room` bytes begins: at a line, unless that wastes half of the room.
fn tail_cut(text: &str, room: usize) -> usize {
    if text.len() <= room {
        return 0;
    }
    let least = text.ceil_char_boundary(text.len() - room);
    if text[..least].ends_with('\n') {
        return least;
    }
    match text[least..].find('\n') {
        Some(newline) if newline < room / 2 => least + newline + 1,
        _ => least,
    }
}

#[cfg(test)]
#[path = "output_view_tests.rs"]
mod tests;
