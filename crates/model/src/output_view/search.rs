//! Searches output for lines that match a pattern: for filtered reads and for waiting until a pattern appears.
//!
//! Bytes come in chunks, and lines may span chunks. Bounds: a line longer than [`MAX_LINE`] is searched in pieces of
//! that size (a match across two pieces is missed); context is at most [`MAX_CONTEXT`] lines; a pattern compiles to
//! at most [`MAX_PATTERN`] bytes. Matching takes linear time.

use std::collections::VecDeque;

use regex::bytes::{Regex, RegexBuilder};

use super::escape::strip_ansi;

/// The longest line that is searched as a whole.
pub const MAX_LINE: usize = 64 * 1024;
/// The most context lines on each side.
pub const MAX_CONTEXT: usize = 100;
/// The largest compiled size of a pattern.
pub const MAX_PATTERN: usize = 1 << 20;

/// Why a text is not a valid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    #[error(
        "pattern `{pattern}` is not a regular expression: {problem}: \
         write a backslash before characters meant literally, such as `\\(` or `\\[`"
    )]
    Syntax { pattern: String, problem: String },
    #[error("pattern `{pattern}` compiles to more than 1 MiB: use smaller repeat counts or a simpler pattern")]
    TooLarge { pattern: String },
}

/// Compiles a regular expression; `^` and `$` also match at a carriage return inside a line.
pub fn parse_pattern(text: &str) -> Result<Regex, BadPattern> {
    let built =
        RegexBuilder::new(text).size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN).multi_line(true).crlf(true).build();
    built.map_err(|error| {
        let pattern = text.chars().take(80).collect();
        match error {
            regex::Error::CompiledTooBig(_) => BadPattern::TooLarge { pattern },
            error => BadPattern::Syntax { pattern, problem: problem_of(&error) },
        }
    })
}

/// The last line of a regex error, without the drawing of the pattern above it.
fn problem_of(error: &regex::Error) -> String {
    let drawing = error.to_string();
    let sentence = drawing.lines().last().unwrap_or_default().trim();
    sentence.strip_prefix("error: ").unwrap_or(sentence).to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchOptions {
    /// Context lines before each match.
    pub before: usize,
    /// Context lines after each match.
    pub after: usize,
    /// The most matching lines to return.
    pub max_matches: usize,
}

/// A raw line without its newline; for a line longer than [`MAX_LINE`], a piece of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match<'a> {
    pub line_start: u64,
    pub line: &'a [u8],
}

/// A line found by a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Matched(Match<'a>),
    /// A line near a match.
    Context(Match<'a>),
}

/// A search in progress. Feed it chunks in order; each line is emitted once.
#[derive(Debug)]
pub struct Searcher {
    pattern: Regex,
    options: SearchOptions,
    /// The line that is not complete yet, and the cursor of its first byte.
    partial: Vec<u8>,
    partial_start: u64,
    /// Bytes inside that line that are not searched.
    skipped: u64,
    /// Lines that may become context before the next match.
    before: VecDeque<(u64, Vec<u8>)>,
    /// How many more lines are context after the last match.
    after: usize,
    match_count: usize,
    next_match: Option<u64>,
}

impl Searcher {
    pub fn new(pattern: Regex, mut options: SearchOptions) -> Self {
        options.before = options.before.min(MAX_CONTEXT);
        options.after = options.after.min(MAX_CONTEXT);
        Self {
            pattern,
            options,
            partial: vec![],
            partial_start: 0,
            skipped: 0,
            before: VecDeque::new(),
            after: 0,
            match_count: 0,
            next_match: None,
        }
    }

    /// Searches the lines that end in this chunk. Bytes fed before are skipped; after a gap the line before it counts
    /// as complete.
    pub fn feed(&mut self, cursor: u64, chunk: &[u8], emit: &mut dyn FnMut(Line<'_>)) {
        let Some(mut rest) = self.join(cursor, chunk, emit) else { return };
        while let Some(newline) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, next) = (&rest[..newline], &rest[newline + 1..]);
            self.end_line(line, emit);
            self.partial_start += 1;
            rest = next;
        }
        self.extend(rest, emit);
    }

    /// Skips the bytes up to this cursor; the current line continues after them.
    pub fn skip(&mut self, cursor: u64) {
        let skipped = cursor.saturating_sub(self.next_cursor());
        if self.partial.is_empty() { self.partial_start += skipped } else { self.skipped += skipped }
    }

    /// Searches the last line although it has no newline, because no bytes follow.
    pub fn flush(&mut self, emit: &mut dyn FnMut(Line<'_>)) {
        if !self.partial.is_empty() {
            self.end_line(&[], emit);
        }
    }

    /// The incomplete line, if it matches already. It is emitted again when it is complete.
    pub fn peek(&self) -> Option<Match<'_>> {
        let matches = !self.partial.is_empty() && self.next_match.is_none() && is_match(&self.pattern, &self.partial);
        matches.then_some(Match { line_start: self.partial_start, line: &self.partial })
    }

    /// Cursor of the incomplete line, if there is one.
    pub fn unfinished(&self) -> Option<u64> {
        (!self.partial.is_empty()).then_some(self.partial_start)
    }

    /// Matching lines emitted so far.
    pub fn match_count(&self) -> usize {
        self.match_count
    }

    /// Cursor of the first matching line beyond `max_matches`; nothing is emitted after that.
    pub fn next_match(&self) -> Option<u64> {
        self.next_match
    }

    /// Cursor of the next byte to feed.
    pub fn next_cursor(&self) -> u64 {
        self.partial_start + self.partial.len() as u64 + self.skipped
    }

    /// The part of a chunk that was not fed before; `None` if nothing is new.
    fn join<'a>(&mut self, cursor: u64, chunk: &'a [u8], emit: &mut dyn FnMut(Line<'_>)) -> Option<&'a [u8]> {
        let next = self.next_cursor();
        if cursor > next {
            self.flush(emit);
            self.before.clear();
            self.after = 0;
            self.partial_start = cursor;
            return Some(chunk);
        }
        let known = usize::try_from(next - cursor).ok()?;
        chunk.get(known..).filter(|new| !new.is_empty())
    }

    /// Appends to the incomplete line.
    fn extend(&mut self, bytes: &[u8], emit: &mut dyn FnMut(Line<'_>)) {
        let rest = self.fill(bytes, emit);
        self.partial.extend_from_slice(rest);
    }

    /// Completes a line with these bytes and searches it.
    fn end_line(&mut self, bytes: &[u8], emit: &mut dyn FnMut(Line<'_>)) {
        let rest = self.fill(bytes, emit);
        self.end_piece(rest, emit);
    }

    /// Searches every full piece of [`MAX_LINE`] bytes; returns the rest.
    fn fill<'a>(&mut self, mut bytes: &'a [u8], emit: &mut dyn FnMut(Line<'_>)) -> &'a [u8] {
        while self.partial.len() + bytes.len() > MAX_LINE {
            let (piece, rest) = bytes.split_at(MAX_LINE - self.partial.len());
            self.end_piece(piece, emit);
            bytes = rest;
        }
        bytes
    }

    fn end_piece(&mut self, bytes: &[u8], emit: &mut dyn FnMut(Line<'_>)) {
        let mut partial = std::mem::take(&mut self.partial);
        let line = if partial.is_empty() {
            bytes
        } else {
            partial.extend_from_slice(bytes);
            &partial
        };
        self.search(Match { line_start: self.partial_start, line }, emit);
        self.partial_start += line.len() as u64 + std::mem::take(&mut self.skipped);
        partial.clear();
        self.partial = partial;
    }

    fn search(&mut self, line: Match<'_>, emit: &mut dyn FnMut(Line<'_>)) {
        if self.next_match.is_some() {
            return;
        }
        if is_match(&self.pattern, line.line) {
            if self.match_count >= self.options.max_matches {
                self.next_match = Some(line.line_start);
                return;
            }
            for (line_start, line) in self.before.drain(..) {
                emit(Line::Context(Match { line_start, line: &line }));
            }
            self.match_count += 1;
            self.after = self.options.after;
            emit(Line::Matched(line));
        } else if self.after > 0 {
            self.after -= 1;
            emit(Line::Context(line));
        } else if self.options.before > 0 {
            if self.before.len() == self.options.before {
                self.before.pop_front();
            }
            self.before.push_back((line.line_start, line.line.to_vec()));
        }
    }
}

fn is_match(pattern: &Regex, line: &[u8]) -> bool {
    pattern.is_match(&strip_ansi(line))
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
