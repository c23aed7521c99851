//! A filtered read: the matching lines of the output that exists now.
//!
//! Bounds: it stops at the end that the output had when it began, so an endless writer does not keep it busy; it
//! returns at most as much text as the budget, and only the beginning of a longer line. An unfinished last line is
//! returned if it matches as it is, else left to the next read, which sees it whole.

use pinfold_api::types::{Match, Range};
use pinfold_model::output_view::{Line, Searcher, strip_ansi};
use pinfold_store::marks::Stream;
use pinfold_store::reader::OutputReader;

/// Bytes per read.
const READ_SIZE: usize = 256 * 1024;

/// What to search, and how much text to return.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterInput {
    pub(super) cursor: u64,
    pub(super) stream: Option<Stream>,
    /// Maximum bytes of text, at least one.
    pub(super) budget: usize,
    /// Whether the output is closed.
    pub(super) closed: bool,
}

/// The result of a filtered read.
#[derive(Debug)]
pub(super) struct Filtered {
    pub(super) lines: Vec<Match>,
    pub(super) text: String,
    pub(super) gap: Option<Range>,
    /// Where the next read continues.
    pub(super) next: u64,
    pub(super) hint: Option<String>,
}

/// Searches for matching lines.
pub(super) fn filter(reader: &OutputReader, input: FilterInput, mut searcher: Searcher) -> std::io::Result<Filtered> {
    let mut collected =
        MatchCollector { lines: vec![], text: String::new(), budget: input.budget, full: None, cut: false };
    let (mut at, mut gap, mut end) = (input.cursor, None, None);
    loop {
        let (piece, runs) = match input.stream {
            None => (reader.read(at, READ_SIZE)?, vec![]),
            Some(_) => reader.read_runs(at, READ_SIZE)?,
        };
        gap = gap.or(piece.gap.as_ref().map(|gap| Range { from: gap.start, to: gap.end }));
        let end = *end.get_or_insert(piece.end);
        let mut add = |line: Line<'_>| collected.add(line);
        match input.stream {
            None => searcher.feed(piece.at, &piece.bytes, &mut add),
            Some(stream) => {
                for run in runs {
                    match run.stream == stream {
                        true => searcher.feed(run.range.start, &piece.bytes_of(std::slice::from_ref(&run)), &mut add),
                        false => searcher.skip(run.range.end),
                    }
                }
            }
        }
        let advanced = piece.next > at;
        at = piece.next;
        if !advanced || at >= end || collected.full.is_some() || searcher.next_match().is_some() {
            break;
        }
    }
    if input.closed || searcher.peek().is_some() {
        searcher.flush(&mut |line| collected.add(line));
    }
    let more = collected.full.or(searcher.next_match());
    let hint = match (more, collected.cut) {
        (_, true) => Some("a line longer than the budget was cut: read it from its cursor with max_bytes"),
        (Some(_), false) => Some("more lines match: read on from next_cursor"),
        (None, false) => None,
    };
    let next = more.or(searcher.unfinished()).unwrap_or(at);
    Ok(Filtered { lines: collected.lines, text: collected.text, gap, next, hint: hint.map(str::to_owned) })
}

/// Collects lines within the budget.
#[derive(Debug)]
struct MatchCollector {
    lines: Vec<Match>,
    text: String,
    budget: usize,
    /// The start of the first line that did not fit.
    full: Option<u64>,
    /// Whether the only line was cut.
    cut: bool,
}

impl MatchCollector {
    fn add(&mut self, line: Line<'_>) {
        let (found, context) = match line {
            Line::Matched(found) => (found, false),
            Line::Context(found) => (found, true),
        };
        if self.full.is_some() {
            return;
        }
        let mut shown = String::from_utf8_lossy(&strip_ansi(found.line)).into_owned();
        let room = self.budget - self.text.len();
        if shown.len() >= room {
            if !self.lines.is_empty() {
                self.full = Some(found.line_start);
                return;
            }
            shown.truncate(shown.floor_char_boundary(room - 1));
            self.cut = true;
        }
        self.text.push_str(&shown);
        self.text.push('\n');
        self.lines.push(Match { cursor: found.line_start, text: shown, context });
    }
}
