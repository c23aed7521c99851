//! Searches a log line by line, up or down, in pieces: the next one is read while one is searched.
//!
//! Done here and not by the daemon's `grep`, which goes down only, and so that a match is exactly what the screen marks.

use std::ops::Range;

use pinfold_api::client::{ClientError, RawOutput};
use tokio::time::timeout;

use super::logs::read_from;
use super::worker::{REQUEST_TIMEOUT, Shared, reason};
use crate::log::line_search::{LineScanner, LineSearch, Stretch};
use crate::message::{Direction, LogToken, Message, SearchProgress, SearchRequest};

/// Bytes that are read at once. Large, because each request has its cost; the daemon returns at most 16 MiB.
const PIECE: u64 = 4 << 20;

pub(super) async fn run(shared: Shared, token: LogToken, wanted: SearchRequest) {
    let direction = wanted.direction;
    let result = Searching { shared: &shared, token, wanted: &wanted }.run().await;
    shared.send(Message::LogWasSearched { token, direction, result }).await;
}

struct Searching<'a> {
    shared: &'a Shared,
    token: LogToken,
    wanted: &'a SearchRequest,
}

/// What was read of a range: its stored parts, and where the output ends.
#[derive(Default)]
struct Fetched {
    stretches: Vec<Stretch>,
    end: u64,
    /// Where a downward search goes on: further than the range if the range is in a gap.
    next: u64,
}

impl Searching<'_> {
    /// The start of the nearest matching line in the direction.
    async fn run(&self) -> Result<Option<u64>, String> {
        let SearchRequest { direction, from, skips_line, .. } = *self.wanted;
        let mut scanner = Some(LineScanner::new(LineSearch::new(&self.wanted.pattern)?, direction, skips_line));
        let Some(first) = self.range(from) else { return Ok(None) };
        let mut fetched = self.fetch(first.clone()).await?;
        let mut range = first;
        // What is written from now on is not searched, or a process that writes fast would keep it busy for ever.
        let end = fetched.end;
        loop {
            let place = match direction {
                Direction::Down => fetched.next.max(range.end),
                Direction::Up => range.start,
            };
            let next = self.range(place).filter(|next| direction == Direction::Up || next.start < end);
            let is_last = next.is_none();
            let Some(mut own) = scanner.take() else { return Ok(None) };
            let stretches = std::mem::take(&mut fetched.stretches);
            // Beside the event loop: keys, polls and attachments go on.
            let scan = tokio::task::spawn_blocking(move || {
                let found = own.scan(stretches, is_last);
                (own, found)
            });
            let prefetch = async {
                match &next {
                    Some(next) => self.fetch(next.clone()).await.map(Some),
                    None => Ok(None),
                }
            };
            let (scanned, prefetched) = tokio::join!(scan, prefetch);
            let (own, found) = scanned.map_err(|error| format!("the search failed: {error}"))?;
            if found.is_some() {
                return Ok(found);
            }
            scanner = Some(own);
            self.report(place, end).await;
            match (next, prefetched?) {
                (Some(next), Some(read)) => (range, fetched) = (next, read),
                _ => return Ok(None),
            }
        }
    }

    /// The range to read from this place on.
    fn range(&self, place: u64) -> Option<Range<u64>> {
        let dropped = &self.wanted.dropped;
        match self.wanted.direction {
            Direction::Down => Some(place..place + PIECE),
            Direction::Up => {
                // Nothing is stored in the dropped part: go on before it.
                let end = if dropped.contains(&place.saturating_sub(1)) { dropped.start } else { place };
                (end > 0).then(|| end.saturating_sub(PIECE)..end)
            }
        }
    }

    async fn report(&self, place: u64, end: u64) {
        let from = self.wanted.from;
        let progress = match self.wanted.direction {
            Direction::Down => {
                SearchProgress { searched: place.min(end).saturating_sub(from), total: end.saturating_sub(from) }
            }
            Direction::Up => SearchProgress { searched: from - place.min(from), total: from },
        };
        self.shared.send(Message::LogSearchWentOn { token: self.token, progress }).await;
    }

    /// Reads all that is stored of a range. One read ends at a gap, so there may be several.
    async fn fetch(&self, range: Range<u64>) -> Result<Fetched, String> {
        let mut fetched = Fetched::default();
        let mut at = range.start;
        loop {
            let raw = self.request(at, range.end - at).await?;
            (fetched.end, fetched.next) = (raw.end, raw.next_cursor);
            if raw.bytes.is_empty() || raw.cursor >= range.end {
                // The part of a piece beyond the range is read again with the next range.
                fetched.next = raw.cursor.max(at);
                return Ok(fetched);
            }
            let length = (range.end - raw.cursor).min(raw.bytes.len() as u64) as usize;
            fetched.stretches.push(Stretch {
                at: raw.cursor,
                bytes: raw.bytes[..length].to_vec(),
                starts_line: raw.cursor == 0 || raw.gap.is_some(),
            });
            at = raw.cursor + length as u64;
            fetched.next = at;
            if at >= range.end || at >= raw.end {
                return Ok(fetched);
            }
        }
    }

    async fn request(&self, from: u64, most: u64) -> Result<RawOutput, String> {
        match timeout(REQUEST_TIMEOUT, read_from(&self.shared.client, &self.wanted.id, from, most)).await {
            Ok(result) => result.map_err(|error: ClientError| reason(&error)),
            Err(_) => Err("the daemon does not answer: the search was given up".to_owned()),
        }
    }
}
