//! Pattern watches: output lines that match an owner's patterns become events.
//!
//! One task per process with patterns. It sleeps until there is new output, reads at most [`MAX_SCAN`] bytes at a time,
//! and then pauses at least as long as it worked: an endless writer costs at most half a core, and output that
//! retention drops before it is scanned is not searched.
//!
//! A match is announced once, even if the daemon crashes: the event's number is the cursor of its line, and a later
//! daemon continues after the last one. The watch, never the process, ends after `max_events` matches, after too many
//! matches within the cooldown, or at the end of the output.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_api::types::Event;
use pinfold_model::event::EventKind;
use pinfold_model::notify::{MAX_SUPPRESSED, MatchDecision, Notify, PatternWatch};
use pinfold_model::output_view::{Line, MAX_LINE, Match, SearchOptions, Searcher, parse_pattern, strip_ansi};
use pinfold_store::index::Change;
use pinfold_store::reader::OutputReader;
use regex::bytes::Regex;

use crate::clock::now;
use crate::core::{Core, blocking};
use crate::events::compose::event_change;
use crate::registry::Entry;
use crate::registry::records;
use crate::request_error::RequestError;
use crate::waits::{has_closed, until_output};

/// Bytes per read, and per scan.
const READ_SIZE: usize = 256 * 1024;
const MAX_SCAN: u64 = 4 << 20;
/// Minimum pause between two scans, so that single lines are scanned together.
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// Timeout of one wait for output; then it waits again.
const OUTPUT_WAIT: Duration = Duration::from_secs(3600);
/// Maximum bytes of a line in an event, and how many of them may precede the match.
const MAX_TEXT: usize = 500;
const CONTEXT_BEFORE: usize = 100;

/// Watches one process until its output or the watch ends.
pub(super) async fn run(core: Arc<Core>, entry: Arc<Entry>) {
    let watched = async {
        match PatternWatcher::resume(&core, &entry).await? {
            Some(watcher) => scan_until_end(&core, &entry, watcher).await,
            None => Ok(()),
        }
    };
    if let Err(error) = watched.await {
        tracing::warn!(process = %entry.id, error = %error.0, "pattern watch failed");
    }
}

async fn scan_until_end(core: &Arc<Core>, entry: &Arc<Entry>, mut watcher: PatternWatcher) -> Result<(), RequestError> {
    loop {
        // Read before the scan: if the output was closed by then, the scan sees all of it.
        let closed = has_closed(&entry.state.borrow());
        let (state, directory) = (entry.snapshot(), core.home.process(&entry.id));
        let (started, here) = (Instant::now(), Arc::clone(entry));
        let (scan, back) = blocking(move || {
            let scan = watcher.scan(&records::reader(&state, &directory), &here, closed);
            (scan, watcher)
        })
        .await?;
        watcher = back;
        let scan = scan.unwrap_or_else(|error| Scan::ended(format!("its output cannot be read: {error}"), 0));
        if entry.stop_requested() {
            return Ok(());
        }
        let over = scan.is_over;
        write_events(core, entry, scan.events).await;
        if over {
            return Ok(());
        }
        tokio::time::sleep(started.elapsed().max(MIN_PAUSE)).await;
        if !scan.more {
            until_output(entry, watcher.cursor, OUTPUT_WAIT).await;
        }
    }
}

/// Writes the events of a scan in one batch.
async fn write_events(core: &Core, entry: &Entry, events: Vec<PatternEvent>) {
    if events.is_empty() {
        return;
    }
    let history = entry.snapshot().history;
    let event = |events: PatternEvent| -> Change {
        let (kind, number, at) = match &events {
            PatternEvent::Matched { cursor, .. } => (EventKind::Matched, *cursor, now()),
            PatternEvent::Ended { .. } => (EventKind::WatchEnded, 0, now()),
        };
        let event = records::event(&history, kind, at);
        let event = match events {
            PatternEvent::Matched { cursor, text, suppressed } => {
                Event { cursor: Some(cursor), text: Some(text), suppressed: Some(suppressed), ..event }
            }
            PatternEvent::Ended { reason, suppressed } => {
                Event { text: Some(reason), suppressed: Some(suppressed), ..event }
            }
        };
        event_change(&history, event, (kind, number, at))
    };
    core.index_writer.apply(events.into_iter().map(event).collect()).await;
}

/// An event for the owner.
#[derive(Debug, PartialEq, Eq)]
enum PatternEvent {
    Matched { cursor: u64, text: String, suppressed: u64 },
    Ended { reason: String, suppressed: u64 },
}

/// The result of one scan of new output.
#[derive(Debug, Default)]
struct Scan {
    events: Vec<PatternEvent>,
    /// Whether output is left for the next scan.
    more: bool,
    /// Whether the watch is finished.
    is_over: bool,
}

impl Scan {
    fn ended(reason: String, suppressed: u64) -> Self {
        Self { events: vec![PatternEvent::Ended { reason, suppressed }], more: false, is_over: true }
    }
}

/// The state of a watch.
struct PatternWatcher {
    lines: Searcher,
    matcher: LineMatcher,
    /// Where the next read starts.
    cursor: u64,
}

/// Decides which lines become events.
struct LineMatcher {
    patterns: Vec<Regex>,
    exclude: Option<Regex>,
    watch: PatternWatch,
    max_events: u32,
    /// The cursor of the last line that an earlier daemon announced.
    last_announced: Option<u64>,
}

impl PatternWatcher {
    /// A new watch, or one that continues where an earlier daemon stopped; `None` if it is finished.
    async fn resume(core: &Arc<Core>, entry: &Arc<Entry>) -> Result<Option<Self>, RequestError> {
        let notify = entry.snapshot().history.intent.spec.notify.clone();
        let id = entry.id.clone();
        let known = core.query(move |queries| {
            let ended = queries.latest_of(&id, EventKind::WatchEnded)?.is_some();
            Ok((queries.numbers_of(&id, EventKind::Matched)?, ended))
        });
        let (numbers, ended) = known.await?;
        let watcher = Self::new(&notify, &numbers, entry.shown())?;
        Ok(Some(watcher).filter(|watcher| !ended && !watcher.matcher.watch.is_over()))
    }

    fn new(notify: &Notify, numbers: &[u64], shown: u64) -> Result<Self, RequestError> {
        let parse = |pattern: &String| parse_pattern(pattern);
        let last_announced = numbers.last().copied();
        // A line of which only the beginning was shown is scanned again as a whole.
        let cursor = last_announced.unwrap_or(0).max(shown.saturating_sub(MAX_LINE as u64));
        let options = SearchOptions { before: 0, after: 0, max_matches: usize::MAX };
        Ok(Self {
            lines: Searcher::new(parse_pattern("")?, options),
            matcher: LineMatcher {
                patterns: notify.patterns.iter().map(parse).collect::<Result<_, _>>()?,
                exclude: notify.exclude.as_ref().map(parse).transpose()?,
                watch: PatternWatch::new(notify, numbers.len() as u32),
                max_events: notify.max_events,
                last_announced,
            },
            cursor,
        })
    }

    /// Scans new output up to its current end. If the output is closed, an unfinished last line counts too.
    fn scan(&mut self, reader: &OutputReader, entry: &Entry, closed: bool) -> std::io::Result<Scan> {
        let Self { lines, matcher, cursor } = self;
        let mut scan = Scan::default();
        let started = *cursor;
        loop {
            let piece = reader.read(*cursor, READ_SIZE)?;
            lines.feed(piece.at, &piece.bytes, &mut |line| matcher.check(&line, entry, &mut scan));
            let advanced = piece.next > *cursor;
            *cursor = piece.next;
            if scan.is_over {
                return Ok(scan);
            }
            if !advanced || piece.next >= piece.end {
                break;
            }
            if *cursor - started >= MAX_SCAN {
                scan.more = true;
                return Ok(scan);
            }
        }
        if closed {
            lines.flush(&mut |line| matcher.check(&line, entry, &mut scan));
            if !scan.is_over && matcher.watch.suppressed() > 0 {
                let reason = "the output ended before suppressed matches could be announced";
                scan.end(reason.to_owned(), matcher.watch.suppressed());
            }
            scan.is_over = true;
        }
        Ok(scan)
    }
}

impl Scan {
    fn end(&mut self, reason: String, suppressed: u64) {
        self.events.push(PatternEvent::Ended { reason, suppressed });
        self.is_over = true;
    }
}

impl LineMatcher {
    fn check(&mut self, line: &Line<'_>, entry: &Entry, scan: &mut Scan) {
        let Line::Matched(Match { line_start, line }) = *line else { return };
        if scan.is_over || self.last_announced.is_some_and(|announced| line_start <= announced) {
            return;
        }
        let text = strip_ansi(line);
        let Some(place) = self.patterns.iter().find_map(|pattern| pattern.find(&text)) else { return };
        let excluded = self.exclude.as_ref().is_some_and(|exclude| exclude.is_match(&text));
        if excluded || line_start + line.len() as u64 <= entry.shown() {
            return;
        }
        let matched = |suppressed| PatternEvent::Matched {
            cursor: line_start,
            text: excerpt(&text, place.start(), place.end()),
            suppressed,
        };
        match self.watch.matched(now()) {
            MatchDecision::Suppress => {}
            MatchDecision::Announce { suppressed } => scan.events.push(matched(suppressed)),
            MatchDecision::AnnounceLast { suppressed } => {
                scan.events.push(matched(suppressed));
                let max = self.max_events;
                scan.end(format!("{max} matches were announced, the maximum (max_events)"), 0);
            }
            MatchDecision::TooNoisy { suppressed } => {
                let reason = format!(
                    "too many lines match: {MAX_SUPPRESSED} after the last one announced, within the cooldown; \
                     watch for a narrower pattern"
                );
                scan.end(reason, suppressed);
            }
        }
    }
}

/// The text of a line for an event: its beginning, or the part around the match if that is further on.
fn excerpt(line: &[u8], start: usize, end: usize) -> String {
    let from = if end <= MAX_TEXT { 0 } else { start.saturating_sub(CONTEXT_BEFORE) };
    let continues = |at: &usize| line.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let from = (from..line.len()).find(|at| !continues(at)).unwrap_or(from);
    let to = (from + MAX_TEXT).min(line.len());
    let to = (from..=to).rev().find(|at| !continues(at)).unwrap_or(to);
    let text = String::from_utf8_lossy(&line[from..to]);
    let text = text.trim_end_matches('\r');
    let (before, after) = (if from > 0 { "…" } else { "" }, if to < line.len() { "…" } else { "" });
    format!("{before}{text}{after}")
}

#[cfg(test)]
#[path = "patterns_tests.rs"]
mod tests;
