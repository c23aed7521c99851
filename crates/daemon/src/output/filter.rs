//! A filtered read: the lines that match, found in what is there now.
//!
//! Bounds: it looks no further than the output went when it began, so a writer without end does not keep it; it
//! gives at most as much text as the budget, and the beginning of a line that is longer. A line whose end has not
//! come is given if it matches as it stands, and else left to the next read, which then sees it whole.

use pinfold_api::types::{Match, Range};
use pinfold_model::output_view::{Line, Searcher, strip_ansi};
use pinfold_store::marks::Stream;
use pinfold_store::reader::OutputReader;

/// Bytes read at a time.
const PIECE: usize = 256 * 1024;

/// What to look through, and how much of it to give.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    pub(super) cursor: u64,
    pub(super) stream: Option<Stream>,
    /// The most bytes of text, at least one.
    pub(super) budget: usize,
    /// Whether nothing more can come.
    pub(super) closed: bool,
}

/// What a filtered read found.
#[derive(Debug)]
pub(super) struct Filtered {
    pub(super) lines: Vec<Match>,
    pub(super) text: String,
    pub(super) gap: Option<Range>,
    /// Where the next read continues.
    pub(super) next: u64,
    pub(super) hint: Option<String>,
}

/// Looks for lines.
pub(super) fn filter(reader: &OutputReader, scope: Scope, mut searcher: Searcher) -> std::io::Result<Filtered> {
    let mut given = Given { lines: vec![], text: String::new(), budget: scope.budget, full: None, cut: false };
    let (mut at, mut gap, mut end) = (scope.cursor, None, None);
    loop {
        let (piece, runs) = match scope.stream {
            None => (reader.read(at, PIECE)?, vec![]),
            Some(_) => reader.read_runs(at, PIECE)?,
        };
        gap = gap.or(piece.gap.as_ref().map(|gap| Range { from: gap.start, to: gap.end }));
        let end = *end.get_or_insert(piece.end);
        let mut give = |line: Line<'_>| given.take(line);
        match scope.stream {
            None => searcher.feed(piece.at, &piece.bytes, &mut give),
            Some(stream) => {
                for run in runs {
                    match run.stream == stream {
                        true => searcher.feed(run.range.start, &piece.bytes_of(std::slice::from_ref(&run)), &mut give),
                        false => searcher.skip(run.range.end),
                    }
                }
            }
        }
        let advanced = piece.next > at;
        at = piece.next;
        if !advanced || at >= end || given.full.is_some() || searcher.more().is_some() {
            break;
        }
    }
    if scope.closed || searcher.peek().is_some() {
        searcher.flush(&mut |line| given.take(line));
    }
    let more = given.full.or(searcher.more());
    let hint = match (more, given.cut) {
        (_, true) => Some("a line longer than the budget is cut: read it from its cursor with max_bytes"),
        (Some(_), false) => Some("more lines match: read on from next_cursor"),
        (None, false) => None,
    };
    let next = more.or(searcher.unfinished()).unwrap_or(at);
    Ok(Filtered { lines: given.lines, text: given.text, gap, next, hint: hint.map(str::to_owned) })
}

/// Lines as they are found, within the budget.
#[derive(Debug)]
struct Given {
    lines: Vec<Match>,
    text: String,
    budget: usize,
    /// Where the first line begins that did not fit.
    full: Option<u64>,
    /// Whether the one line given is only its beginning.
    cut: bool,
}

impl Given {
    fn take(&mut self, line: Line<'_>) {
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
