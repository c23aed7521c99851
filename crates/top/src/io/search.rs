//! Searches a log line by line, up or down, in pieces: never more than one piece is in memory.
//!
//! Done here and not by the daemon's `grep`, which goes down only, and so that a match is exactly what the screen marks.

use pinfold_api::client::ClientError;
use regex::Regex;
use tokio::time::timeout;

use super::logs::read_from;
use super::worker::{REQUEST_TIMEOUT, Shared, reason};
use crate::message::{Direction, LogToken, Message};
use crate::text::plain;

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// What is searched for.
pub(super) struct Wanted {
    pub(super) id: String,
    pub(super) token: LogToken,
    pub(super) regex: Regex,
    pub(super) from: u64,
    pub(super) direction: Direction,
}

pub(super) async fn run(shared: Shared, wanted: Wanted) {
    let result = match wanted.direction {
        Direction::Down => search_down(&shared, &wanted).await,
        Direction::Up => search_up(&shared, &wanted).await,
    };
    let Wanted { token, direction, .. } = wanted;
    shared.send(Message::LogWasSearched { token, direction, result }).await;
}

/// The first matching line from the cursor on.
async fn search_down(shared: &Shared, wanted: &Wanted) -> Result<Option<u64>, String> {
    let mut from = wanted.from;
    loop {
        let raw = request(shared, &wanted.id, from, PIECE).await?;
        if raw.bytes.is_empty() {
            return Ok(None);
        }
        let at_end = raw.next_cursor >= raw.end;
        let whole = match whole_lines(&raw.bytes) {
            // One line is longer than a piece, or the last one has no end yet.
            0 => raw.bytes.len(),
            _ if at_end => raw.bytes.len(),
            whole => whole,
        };
        if let Some(at) = matches(&raw.bytes[..whole], &wanted.regex).next() {
            return Ok(Some(raw.cursor + at));
        }
        from = raw.cursor + whole as u64;
        if at_end {
            return Ok(None);
        }
    }
}

/// The last matching line that ends before the cursor.
async fn search_up(shared: &Shared, wanted: &Wanted) -> Result<Option<u64>, String> {
    let mut end = wanted.from;
    while end > 0 {
        let from = end.saturating_sub(PIECE);
        let raw = request(shared, &wanted.id, from, end - from).await?;
        // What is before is no longer stored, or the piece starts after a gap.
        let length = end.saturating_sub(raw.cursor).min(raw.bytes.len() as u64) as usize;
        let bytes = &raw.bytes[..length];
        let is_line_start = raw.cursor == 0 || raw.gap.is_some();
        let first = match bytes.iter().position(|byte| *byte == b'\n') {
            _ if is_line_start => 0,
            Some(at) if at + 1 < bytes.len() => at + 1,
            _ => 0,
        };
        if let Some(at) = matches(&bytes[first..], &wanted.regex).last() {
            return Ok(Some(raw.cursor + first as u64 + at));
        }
        end = match raw.gap {
            Some(gap) => gap.from.min(from),
            None => (raw.cursor + first as u64).min(end - 1),
        };
    }
    Ok(None)
}

async fn request(
    shared: &Shared,
    id: &str,
    from: u64,
    max_bytes: u64,
) -> Result<pinfold_api::client::RawOutput, String> {
    match timeout(REQUEST_TIMEOUT, read_from(&shared.client, id, from, max_bytes)).await {
        Ok(result) => result.map_err(|error: ClientError| reason(&error)),
        Err(_) => Err("the daemon does not answer: the search was given up".to_owned()),
    }
}

/// The length up to the last line break.
fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

/// Where the matching lines start.
fn matches(bytes: &[u8], regex: &Regex) -> impl Iterator<Item = u64> {
    let mut at = 0;
    bytes.split_inclusive(|byte| *byte == b'\n').filter_map(move |line| {
        let start = at;
        at += line.len() as u64;
        regex.is_match(&plain(line)).then_some(start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_lines_as_they_are_shown() {
        let regex = Regex::new("red apple").expect("a pattern");
        let log = b"red\n\x1b[31mred\x1b[0m apple\nx\rred apple\n";
        assert_eq!(matches(log, &regex).collect::<Vec<_>>(), [4, 23]);
        assert_eq!((whole_lines(b"a\nb"), whole_lines(b"ab")), (2, 0));
    }
}
