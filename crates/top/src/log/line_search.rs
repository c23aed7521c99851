//! Finds the first or last matching line in pieces of a log.
//!
//! A line matches if its text as it is shown matches: without escape sequences. Most output is plain text, which is searched
//! as a whole instead of line by line.

use regex::Regex;

use crate::message::Direction;
use crate::text::{is_plain, plain};

/// A piece is searched in blocks of about this size, whole lines each: upwards, its end comes first, and one block with
/// escape sequences does not slow down the others.
const BLOCK: usize = 256 << 10;
/// A line that is longer than this is searched in parts.
const MAX_LINE: usize = 4 << 20;
/// The most memory of a compiled pattern; a larger one is refused.
const MAX_REGEX: usize = 1 << 20;

/// A contiguous part of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stretch {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
    /// Whether it starts with a line: at the start of the output, or after a gap.
    pub(crate) starts_line: bool,
}

/// A pattern for lines.
#[derive(Debug)]
pub(crate) struct LineSearch {
    line: Regex,
    /// The pattern for a text of many lines: where it does not match, no line matches. `None` if that cannot be said of the
    /// pattern.
    text: Option<regex::bytes::Regex>,
}

impl LineSearch {
    pub(crate) fn new(pattern: &str) -> Result<Self, String> {
        let line = compile(pattern)?;
        // Anchors of the text and inline flags mean something else in a text of many lines.
        let is_simple = !["\\A", "\\z", "(?"].iter().any(|special| pattern.contains(special));
        let mut builder = regex::bytes::RegexBuilder::new(pattern);
        builder.multi_line(true).case_insensitive(!matches_case(pattern)).size_limit(MAX_REGEX);
        let text = if is_simple { builder.build().ok() } else { None };
        Ok(LineSearch { line, text })
    }

    /// Where the first matching line starts, in a text that starts with a line.
    fn first(&self, bytes: &[u8]) -> Option<usize> {
        let mut start = 0;
        while start < bytes.len() {
            let middle = (start + BLOCK).min(bytes.len());
            let end = bytes[middle..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| middle + at + 1);
            let block = &bytes[start..end];
            let found = match &self.text {
                Some(text) if is_plain(block) => self.matches_in_text(text, block).next(),
                _ => self.matches_by_line(block).next(),
            };
            if let Some(at) = found {
                return Some(start + at);
            }
            start = end;
        }
        None
    }

    /// Where the last matching line starts.
    fn last(&self, bytes: &[u8]) -> Option<usize> {
        let mut end = bytes.len();
        while end > 0 {
            let middle = end.saturating_sub(BLOCK);
            let start = bytes[..middle].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let block = &bytes[start..end];
            let found = match &self.text {
                Some(text) if is_plain(block) => self.matches_in_text(text, block).last(),
                _ => self.matches_by_line(block).last(),
            };
            if let Some(at) = found {
                return Some(start + at);
            }
            end = start;
        }
        None
    }

    fn matches_in_text<'a>(
        &'a self,
        text: &'a regex::bytes::Regex,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = usize> + 'a {
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < bytes.len() {
                let found = text.find_at(bytes, at)?.start();
                let start = bytes[..found].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let end =
                    bytes[start..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| start + at + 1);
                at = end;
                // The match may go over the end of the line, as of `\s+`: the line itself decides.
                if start < bytes.len() && self.line.is_match(&plain(&bytes[start..end])) {
                    return Some(start);
                }
            }
            None
        })
    }

    fn matches_by_line<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let mut at = 0;
        bytes.split_inclusive(|byte| *byte == b'\n').filter_map(move |line| {
            let start = at;
            at += line.len();
            self.line.is_match(&plain(line)).then_some(start)
        })
    }
}

/// Searches piece after piece in one direction; a line at the border of two pieces is put together.
#[derive(Debug)]
pub(crate) struct LineScanner {
    search: LineSearch,
    direction: Direction,
    /// The line at the border: its beginning when going down, its end when going up.
    carry: Stretch,
    /// Downwards: the line that comes first is left out.
    skips_line: bool,
}

impl LineScanner {
    pub(crate) fn new(search: LineSearch, direction: Direction, skips_line: bool) -> Self {
        LineScanner { search, direction, carry: Stretch::default(), skips_line }
    }

    /// The nearest matching line of the next parts of the log, which are in the order of the log.
    pub(crate) fn scan(&mut self, stretches: Vec<Stretch>, is_last: bool) -> Option<u64> {
        match self.direction {
            Direction::Down => stretches.into_iter().find_map(|stretch| self.scan_down(stretch)).or_else(|| {
                let rest = std::mem::take(&mut self.carry);
                if is_last {
                    return self.first(&rest);
                }
                self.carry = rest;
                None
            }),
            Direction::Up => stretches.into_iter().rev().find_map(|stretch| self.scan_up(stretch)).or_else(|| {
                let rest = std::mem::take(&mut self.carry);
                if is_last {
                    return self.last(&rest);
                }
                self.carry = rest;
                None
            }),
        }
    }

    fn scan_down(&mut self, mut stretch: Stretch) -> Option<u64> {
        if self.skips_line {
            let end = stretch.bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            self.skips_line = end.is_none();
            let rest = stretch.bytes.split_off(end.unwrap_or(stretch.bytes.len()));
            stretch = Stretch { at: stretch.at + stretch.bytes.len() as u64, bytes: rest, starts_line: true };
        }
        let carry = std::mem::take(&mut self.carry);
        let joins = !carry.bytes.is_empty() && carry.at + carry.bytes.len() as u64 == stretch.at;
        let mut whole = match joins {
            true => Stretch { bytes: [carry.bytes, stretch.bytes].concat(), ..carry },
            // Before a gap: that line has no end.
            false => match self.first(&carry) {
                Some(found) => return Some(found),
                None => stretch,
            },
        };
        let end = whole.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if end > 0 || whole.bytes.len() < MAX_LINE {
            let rest = whole.bytes.split_off(end);
            self.carry = Stretch { at: whole.at + end as u64, bytes: rest, starts_line: true };
        }
        self.first(&whole)
    }

    fn scan_up(&mut self, stretch: Stretch) -> Option<u64> {
        let carry = std::mem::take(&mut self.carry);
        let joins = !carry.bytes.is_empty() && stretch.at + stretch.bytes.len() as u64 == carry.at;
        let mut whole = match joins {
            true => Stretch { bytes: [stretch.bytes, carry.bytes].concat(), ..stretch },
            false => match self.last(&carry) {
                Some(found) => return Some(found),
                None => stretch,
            },
        };
        if !whole.starts_line {
            let start = whole.bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let start = match start {
                Some(start) => start,
                None if whole.bytes.len() < MAX_LINE => whole.bytes.len(),
                None => 0,
            };
            let lines = whole.bytes.split_off(start);
            self.carry =
                Stretch { at: whole.at, bytes: std::mem::replace(&mut whole.bytes, lines), starts_line: false };
            whole.at += start as u64;
        }
        self.last(&whole)
    }

    fn first(&self, stretch: &Stretch) -> Option<u64> {
        self.search.first(&stretch.bytes).map(|at| stretch.at + at as u64)
    }

    fn last(&self, stretch: &Stretch) -> Option<u64> {
        self.search.last(&stretch.bytes).map(|at| stretch.at + at as u64)
    }
}

/// Whether case matters: only if the pattern has an upper-case letter.
fn matches_case(pattern: &str) -> bool {
    pattern.chars().any(char::is_uppercase)
}

/// A pattern as a regular expression.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let mut builder = regex::RegexBuilder::new(pattern);
    let regex = builder.case_insensitive(!matches_case(pattern)).size_limit(MAX_REGEX).build();
    regex.map_err(|error| {
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or("not a regular expression").trim_start_matches("error: ");
        format!("/{pattern}: {reason}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, direction: Direction, pieces: &[(u64, &[u8], bool)]) -> Option<u64> {
        find(LineScanner::new(LineSearch::new(pattern).expect("a pattern"), direction, false), pieces)
    }

    fn find(mut scanner: LineScanner, pieces: &[(u64, &[u8], bool)]) -> Option<u64> {
        let last = pieces.len() - 1;
        pieces.iter().enumerate().find_map(|(index, (at, bytes, starts_line))| {
            let stretch = Stretch { at: *at, bytes: bytes.to_vec(), starts_line: *starts_line };
            scanner.scan(vec![stretch], index == last)
        })
    }

    #[test]
    fn matches_are_lines_as_they_are_shown() {
        let log: &[u8] = b"red\n\x1b[31mred\x1b[0m apple\nx\rred apple\n";
        let search = LineSearch::new("red apple").expect("a pattern");
        assert_eq!(search.matches_by_line(log).collect::<Vec<_>>(), [4, 23]);
        assert_eq!((search.first(log), search.last(log)), (Some(4), Some(23)));
    }

    #[test]
    fn plain_text_gives_the_same_lines_as_line_by_line() {
        let log = b"one\ntwo  \n\nthree four\n four\nend".as_slice();
        for pattern in
            ["o", "^t", "e$", "\\s+four", "^$", "o\\s", "[^x]+r$", "\\bfour\\b", "missing", "\\Atwo", "(?-m)^four", ""]
        {
            let search = LineSearch::new(pattern).expect("a pattern");
            let by_line: Vec<usize> = search.matches_by_line(log).collect();
            if let Some(text) = &search.text {
                assert_eq!(search.matches_in_text(text, log).collect::<Vec<_>>(), by_line, "{pattern}");
            }
            assert_eq!(
                (search.first(log), search.last(log)),
                (by_line.first().copied(), by_line.last().copied()),
                "{pattern}"
            );
        }
    }

    #[test]
    fn a_line_at_the_border_of_two_pieces_is_found_once_and_whole() {
        let down: &[(u64, &[u8], bool)] = &[(0, b"a\nnee", true), (5, b"dle\nb", false), (10, b"ottom", false)];
        assert_eq!(found("needle", Direction::Down, down), Some(2));
        assert_eq!(found("^bottom$", Direction::Down, down), Some(9));
        assert_eq!(found("^ottom", Direction::Down, down), None);
        let up: &[(u64, &[u8], bool)] = &[(10, b"ottom", false), (5, b"dle\nb", false), (0, b"a\nnee", true)];
        assert_eq!(found("needle", Direction::Up, up), Some(2));
        assert_eq!(found("^bottom$", Direction::Up, up), Some(9));
        assert_eq!(found("^a$", Direction::Up, up), Some(0));
        assert_eq!(found("^dle", Direction::Up, up), None);
    }

    #[test]
    fn the_line_that_was_found_is_not_found_again() {
        let pieces: &[(u64, &[u8], bool)] = &[(2, b"needle nee", true), (12, b"dle\nx\nneedle", false)];
        let search = LineSearch::new("needle").expect("a pattern");
        assert_eq!(find(LineScanner::new(search, Direction::Down, true), pieces), Some(18));
    }

    #[test]
    fn a_gap_ends_a_line_and_starts_one() {
        let down: &[(u64, &[u8], bool)] = &[(0, b"head", true), (100, b"tail\n", true)];
        assert_eq!(found("^head$", Direction::Down, down), Some(0));
        assert_eq!(found("^tail$", Direction::Down, down), Some(100));
        assert_eq!(found("headtail", Direction::Down, down), None);
        let up: &[(u64, &[u8], bool)] = &[(100, b"tail\n", true), (0, b"head", true)];
        assert_eq!(found("^head$", Direction::Up, up), Some(0));
        assert_eq!(found("^tail$", Direction::Up, up), Some(100));
    }

    #[test]
    fn a_line_longer_than_the_limit_is_searched_in_parts() {
        let long = [vec![b'x'; MAX_LINE], b"needle".to_vec()].concat();
        assert_eq!(
            found("needle", Direction::Down, &[(0, &long, true), (long.len() as u64, b"\nend\n", false)]),
            Some(0)
        );
        let pieces: &[(u64, &[u8], bool)] = &[(7, &long, false), (0, b"before\n", true)];
        assert_eq!(found("needle", Direction::Up, pieces), Some(7));
        assert_eq!(found("before", Direction::Up, pieces), Some(0));
    }
}
