//! Lines that match a pattern, with their cursors: for a filtered read and for a wait until a pattern appears.
//!
//! Bytes come in chunks; lines are put together again across them. Bounds: a line longer than [`LINE_MOST`]
//! is searched in pieces of that size (a match across two pieces is missed); context is at most
//! [`CONTEXT_MOST`] lines; a pattern compiles to at most [`PATTERN_MOST`] bytes. Matching is linear in time.

use std::collections::VecDeque;

use regex::bytes::{Regex, RegexBuilder};

use super::escape::strip_ansi;

/// The longest line that is searched as one.
pub const LINE_MOST: usize = 64 * 1024;
/// The most context lines on each side; more are treated as this.
pub const CONTEXT_MOST: usize = 100;
/// The most bytes that a pattern may compile to.
pub const PATTERN_MOST: usize = 1 << 20;

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// It is no regular expression.
    #[error(
        "pattern `{pattern}` is not a regular expression: {problem}: \
         write a backslash before characters meant literally, such as `\\(` or `\\[`"
    )]
    Syntax { pattern: String, problem: String },
    /// It is one, but too large.
    #[error("pattern `{pattern}` compiles to more than 1 MiB: use smaller repeat counts or a simpler pattern")]
    TooLarge { pattern: String },
}

/// Takes a regular expression; `^` and `$` also match at a carriage return inside a line.
pub fn parse_pattern(text: &str) -> Result<Regex, BadPattern> {
    let built = RegexBuilder::new(text)
        .size_limit(PATTERN_MOST)
        .dfa_size_limit(PATTERN_MOST)
        .multi_line(true)
        .crlf(true)
        .build();
    built.map_err(|error| {
        let pattern = text.chars().take(80).collect();
        match error {
            regex::Error::CompiledTooBig(_) => BadPattern::TooLarge { pattern },
            error => BadPattern::Syntax { pattern, problem: problem_of(&error) },
        }
    })
}

/// The sentence of an error that draws its pattern over several lines.
fn problem_of(error: &regex::Error) -> String {
    let drawing = error.to_string();
    let sentence = drawing.lines().last().unwrap_or_default().trim();
    sentence.strip_prefix("error: ").unwrap_or(sentence).to_owned()
}

/// How much is given of what matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchOptions {
    /// Context lines before each match.
    pub before: usize,
    /// Context lines after each match.
    pub after: usize,
    /// The most matching lines.
    pub most: usize,
}

/// A line as it was written, without its newline; for a line longer than [`LINE_MOST`], a piece of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match<'a> {
    /// Cursor of its first byte.
    pub line_start: u64,
    /// Its raw bytes, escape sequences included.
    pub line: &'a [u8],
}

/// A line that a search gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// It matches.
    Matched(Match<'a>),
    /// It stands near one that matches.
    Context(Match<'a>),
}

/// A search under way. Feed it chunks in order; each line is given once.
#[derive(Debug)]
pub struct Searcher {
    pattern: Regex,
    options: SearchOptions,
    /// The line whose end has not come, and the cursor of its first byte.
    partial: Vec<u8>,
    partial_start: u64,
    /// Bytes inside that line which are not searched.
    skipped: u64,
    /// Lines not given that may stand before the next match.
    before: VecDeque<(u64, Vec<u8>)>,
    /// Lines still to be given after the last match.
    after: usize,
    found: usize,
    more: Option<u64>,
}

impl Searcher {
    /// A search that begins at the first chunk it is fed.
    pub fn new(pattern: Regex, mut options: SearchOptions) -> Self {
        options.before = options.before.min(CONTEXT_MOST);
        options.after = options.after.min(CONTEXT_MOST);
        Self {
            pattern,
            options,
            partial: vec![],
            partial_start: 0,
            skipped: 0,
            before: VecDeque::new(),
            after: 0,
            found: 0,
            more: None,
        }
    }

    /// Searches the lines that end in this chunk. Bytes fed before are skipped; a gap ends the line before it.
    pub fn feed(&mut self, cursor: u64, chunk: &[u8], give: &mut dyn FnMut(Line<'_>)) {
        let Some(mut rest) = self.join(cursor, chunk, give) else { return };
        while let Some(newline) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, next) = (&rest[..newline], &rest[newline + 1..]);
            self.end_line(line, give);
            self.partial_start += 1;
            rest = next;
        }
        self.extend(rest, give);
    }

    /// The bytes up to this cursor are not to be searched, and the line goes on behind them.
    pub fn skip(&mut self, cursor: u64) {
        let skipped = cursor.saturating_sub(self.next_cursor());
        if self.partial.is_empty() { self.partial_start += skipped } else { self.skipped += skipped }
    }

    /// Ends the last line, although no newline came: nothing follows.
    pub fn flush(&mut self, give: &mut dyn FnMut(Line<'_>)) {
        if !self.partial.is_empty() {
            self.end_line(&[], give);
        }
    }

    /// The line whose end has not come, if it matches as it is. It is given again once it is complete.
    pub fn peek(&self) -> Option<Match<'_>> {
        let matches = !self.partial.is_empty() && self.more.is_none() && is_match(&self.pattern, &self.partial);
        matches.then_some(Match { line_start: self.partial_start, line: &self.partial })
    }

    /// Cursor of the line whose end has not come, if there is one.
    pub fn unfinished(&self) -> Option<u64> {
        (!self.partial.is_empty()).then_some(self.partial_start)
    }

    /// How many matching lines were given.
    pub fn found(&self) -> usize {
        self.found
    }

    /// Where the first matching line starts that was left out, if more matched than asked for; no more is given then.
    pub fn more(&self) -> Option<u64> {
        self.more
    }

    /// Cursor of the next byte to feed.
    pub fn next_cursor(&self) -> u64 {
        self.partial_start + self.partial.len() as u64 + self.skipped
    }

    /// Lays a chunk to what was fed before; `None` if it holds nothing new.
    fn join<'a>(&mut self, cursor: u64, chunk: &'a [u8], give: &mut dyn FnMut(Line<'_>)) -> Option<&'a [u8]> {
        let next = self.next_cursor();
        if cursor > next {
            self.flush(give);
            self.before.clear();
            self.after = 0;
            self.partial_start = cursor;
            return Some(chunk);
        }
        let known = usize::try_from(next - cursor).ok()?;
        chunk.get(known..).filter(|new| !new.is_empty())
    }

    /// Adds to the partial line.
    fn extend(&mut self, bytes: &[u8], give: &mut dyn FnMut(Line<'_>)) {
        let rest = self.fill(bytes, give);
        self.partial.extend_from_slice(rest);
    }

    /// Searches the line that ends with these bytes.
    fn end_line(&mut self, bytes: &[u8], give: &mut dyn FnMut(Line<'_>)) {
        let rest = self.fill(bytes, give);
        self.end_piece(rest, give);
    }

    /// Searches each piece of [`LINE_MOST`] that a longer line fills; what is left fits.
    fn fill<'a>(&mut self, mut bytes: &'a [u8], give: &mut dyn FnMut(Line<'_>)) -> &'a [u8] {
        while self.partial.len() + bytes.len() > LINE_MOST {
            let (piece, rest) = bytes.split_at(LINE_MOST - self.partial.len());
            self.end_piece(piece, give);
            bytes = rest;
        }
        bytes
    }

    fn end_piece(&mut self, bytes: &[u8], give: &mut dyn FnMut(Line<'_>)) {
        let mut partial = std::mem::take(&mut self.partial);
        let line = if partial.is_empty() {
            bytes
        } else {
            partial.extend_from_slice(bytes);
            &partial
        };
        self.search(Match { line_start: self.partial_start, line }, give);
        self.partial_start += line.len() as u64 + std::mem::take(&mut self.skipped);
        partial.clear();
        self.partial = partial;
    }

    fn search(&mut self, line: Match<'_>, give: &mut dyn FnMut(Line<'_>)) {
        if self.more.is_some() {
            return;
        }
        if is_match(&self.pattern, line.line) {
            if self.found >= self.options.most {
                self.more = Some(line.line_start);
                return;
            }
            for (line_start, line) in self.before.drain(..) {
                give(Line::Context(Match { line_start, line: &line }));
            }
            self.found += 1;
            self.after = self.options.after;
            give(Line::Matched(line));
        } else if self.after > 0 {
            self.after -= 1;
            give(Line::Context(line));
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
