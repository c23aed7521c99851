//! The watch over a process's output: lines that match what its owner asked for become events.
//!
//! One task for each process with patterns, none for others. It sleeps until the keeper tells of output, looks at no
//! more than [`TURN`] bytes at a time, and rests at least as long as it worked: a writer without end costs half a
//! core at most, and what is dropped from the output before its turn comes is not looked at.
//!
//! A match is told once, however often the daemon dies: its number is the cursor of its line, and a later daemon goes
//! on behind the last one told. The watch ends, and never the process, with `max_events` matches, with noise, or with
//! the output.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_api::types::Event;
use pinfold_model::event::EventKind;
use pinfold_model::notify::{NOISE, Notify, Verdict, Watch};
use pinfold_model::output_view::{LINE_MOST, Line, Match, SearchOptions, Searcher, parse_pattern, strip_ansi};
use pinfold_store::index::Change;
use pinfold_store::reader::OutputReader;
use regex::bytes::Regex;

use crate::clock::now;
use crate::core::{Core, blocking};
use crate::events::compose::told;
use crate::refusal::Refusal;
use crate::registry::Entry;
use crate::registry::records;
use crate::waits::{has_closed, until_output};

/// Bytes read at a time, and looked at in one turn.
const PIECE: usize = 256 * 1024;
const TURN: u64 = 4 << 20;
/// The least rest between two turns: lines that come one by one are looked at together.
const REST: Duration = Duration::from_millis(20);
/// Output is waited for this long before it is waited for again.
const LONG: Duration = Duration::from_secs(3600);
/// Bytes of a line in an event, and how many of them may stand before the match.
const TEXT_MOST: usize = 500;
const TEXT_BEFORE: usize = 100;

/// Watches one process until its output or the watch ends.
pub(super) async fn watch(core: Arc<Core>, entry: Arc<Entry>) {
    let watched = async {
        match Watcher::take_up(&core, &entry).await? {
            Some(watcher) => run(&core, &entry, watcher).await,
            None => Ok(()),
        }
    };
    if let Err(refusal) = watched.await {
        tracing::warn!(process = %entry.id, error = %refusal.0, "its output is not watched");
    }
}

async fn run(core: &Arc<Core>, entry: &Arc<Entry>, mut watcher: Watcher) -> Result<(), Refusal> {
    loop {
        // Whether this is all there will be is asked before the read, so that nothing is missed after it.
        let closed = has_closed(&entry.state.borrow());
        let (state, directory) = (entry.snapshot(), core.home.process(&entry.id));
        let (begun, here) = (Instant::now(), Arc::clone(entry));
        let (turn, back) = blocking(move || {
            let turn = watcher.look(&records::reader(&state, &directory), &here, closed);
            (turn, watcher)
        })
        .await?;
        watcher = back;
        let turn = turn.unwrap_or_else(|error| Turn::ended(format!("its output cannot be read: {error}"), 0));
        if entry.stop_asked() {
            return Ok(());
        }
        let over = turn.is_over;
        tell(core, entry, turn.news).await;
        if over {
            return Ok(());
        }
        tokio::time::sleep(begun.elapsed().max(REST)).await;
        if !turn.more {
            until_output(entry, watcher.cursor, LONG).await;
        }
    }
}

/// Writes down what a turn found, all of it together.
async fn tell(core: &Core, entry: &Entry, news: Vec<News>) {
    if news.is_empty() {
        return;
    }
    let history = entry.snapshot().history;
    let event = |news: News| -> Change {
        let (kind, number, at) = match &news {
            News::Matched { cursor, .. } => (EventKind::Matched, *cursor, now()),
            News::Ended { .. } => (EventKind::WatchEnded, 0, now()),
        };
        let event = records::event(&history, kind, at);
        let event = match news {
            News::Matched { cursor, text, suppressed } => {
                Event { cursor: Some(cursor), text: Some(text), suppressed: Some(suppressed), ..event }
            }
            News::Ended { reason, suppressed } => Event { text: Some(reason), suppressed: Some(suppressed), ..event },
        };
        told(&history, event, (kind, number, at))
    };
    core.ledger.apply(news.into_iter().map(event).collect()).await;
}

/// What a turn found that the owner is told.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Matched { cursor: u64, text: String, suppressed: u64 },
    Ended { reason: String, suppressed: u64 },
}

/// One look at what has come.
#[derive(Debug, Default)]
struct Turn {
    news: Vec<News>,
    /// Whether there was more than one turn looks at.
    more: bool,
    /// Whether nothing more will be looked at.
    is_over: bool,
}

impl Turn {
    fn ended(reason: String, suppressed: u64) -> Self {
        Self { news: vec![News::Ended { reason, suppressed }], more: false, is_over: true }
    }
}

/// A watch under way.
struct Watcher {
    lines: Searcher,
    judge: Judge,
    /// Where to read on.
    cursor: u64,
}

/// What decides about a line.
struct Judge {
    patterns: Vec<Regex>,
    exclude: Option<Regex>,
    watch: Watch,
    max_events: u32,
    /// The cursor of the last line that was told before this daemon began.
    told_before: Option<u64>,
}

impl Watcher {
    /// A watch that begins, or goes on where an earlier daemon's ended; `None` if it is over.
    async fn take_up(core: &Arc<Core>, entry: &Arc<Entry>) -> Result<Option<Self>, Refusal> {
        let notify = entry.snapshot().history.intent.spec.notify.clone();
        let id = entry.id.clone();
        let known = core.query(move |queries| {
            let ended = queries.latest_of(&id, EventKind::WatchEnded)?.is_some();
            Ok((queries.numbers_of(&id, EventKind::Matched)?, ended))
        });
        let (numbers, ended) = known.await?;
        let watcher = Self::new(&notify, &numbers, entry.shown())?;
        Ok(Some(watcher).filter(|watcher| !ended && !watcher.judge.watch.is_over()))
    }

    fn new(notify: &Notify, numbers: &[u64], shown: u64) -> Result<Self, Refusal> {
        let parse = |pattern: &String| parse_pattern(pattern);
        let told_before = numbers.last().copied();
        // A line of which only the beginning was shown is looked at as a whole.
        let cursor = told_before.unwrap_or(0).max(shown.saturating_sub(LINE_MOST as u64));
        let options = SearchOptions { before: 0, after: 0, most: usize::MAX };
        Ok(Self {
            lines: Searcher::new(parse_pattern("")?, options),
            judge: Judge {
                patterns: notify.patterns.iter().map(parse).collect::<Result<_, _>>()?,
                exclude: notify.exclude.as_ref().map(parse).transpose()?,
                watch: Watch::new(notify, numbers.len() as u32),
                max_events: notify.max_events,
                told_before,
            },
            cursor,
        })
    }

    /// Looks at what has come; at the end of all output the unfinished line counts too. Looks no further than the
    /// output went when it began.
    fn look(&mut self, reader: &OutputReader, entry: &Entry, closed: bool) -> std::io::Result<Turn> {
        let Self { lines, judge, cursor } = self;
        let mut turn = Turn::default();
        let begun = *cursor;
        loop {
            let piece = reader.read(*cursor, PIECE)?;
            lines.feed(piece.at, &piece.bytes, &mut |line| judge.line(&line, entry, &mut turn));
            let advanced = piece.next > *cursor;
            *cursor = piece.next;
            if turn.is_over {
                return Ok(turn);
            }
            if !advanced || piece.next >= piece.end {
                break;
            }
            if *cursor - begun >= TURN {
                turn.more = true;
                return Ok(turn);
            }
        }
        if closed {
            lines.flush(&mut |line| judge.line(&line, entry, &mut turn));
            if !turn.is_over && judge.watch.suppressed() > 0 {
                let reason = "the output ended before matches that were held back could be announced";
                turn.end(reason.to_owned(), judge.watch.suppressed());
            }
            turn.is_over = true;
        }
        Ok(turn)
    }
}

impl Turn {
    fn end(&mut self, reason: String, suppressed: u64) {
        self.news.push(News::Ended { reason, suppressed });
        self.is_over = true;
    }
}

impl Judge {
    fn line(&mut self, line: &Line<'_>, entry: &Entry, turn: &mut Turn) {
        let Line::Matched(Match { line_start, line }) = *line else { return };
        if turn.is_over || self.told_before.is_some_and(|told| line_start <= told) {
            return;
        }
        let text = strip_ansi(line);
        let Some(place) = self.patterns.iter().find_map(|pattern| pattern.find(&text)) else { return };
        let excluded = self.exclude.as_ref().is_some_and(|exclude| exclude.is_match(&text));
        if excluded || line_start + line.len() as u64 <= entry.shown() {
            return;
        }
        let matched = |suppressed| News::Matched {
            cursor: line_start,
            text: excerpt(&text, place.start(), place.end()),
            suppressed,
        };
        match self.watch.matched(now()) {
            Verdict::Suppress => {}
            Verdict::Announce { suppressed } => turn.news.push(matched(suppressed)),
            Verdict::AnnounceLast { suppressed } => {
                turn.news.push(matched(suppressed));
                let most = self.max_events;
                turn.end(format!("{most} matches were announced, as many as asked for (max_events)"), 0);
            }
            Verdict::TooNoisy { suppressed } => {
                let reason = format!(
                    "too many lines match: {NOISE} after the last one announced, within the cooldown; \
                     watch for a narrower pattern"
                );
                turn.end(reason, suppressed);
            }
        }
    }
}

/// A line for an event: its beginning, or what is around the match if that lies further on.
fn excerpt(line: &[u8], start: usize, end: usize) -> String {
    let from = if end <= TEXT_MOST { 0 } else { start.saturating_sub(TEXT_BEFORE) };
    let continues = |at: &usize| line.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let from = (from..line.len()).find(|at| !continues(at)).unwrap_or(from);
    let to = (from + TEXT_MOST).min(line.len());
    let to = (from..=to).rev().find(|at| !continues(at)).unwrap_or(to);
    let text = String::from_utf8_lossy(&line[from..to]);
    let text = text.trim_end_matches('\r');
    let (before, after) = (if from > 0 { "…" } else { "" }, if to < line.len() { "…" } else { "" });
    format!("{before}{text}{after}")
}

#[cfg(test)]
#[path = "patterns_tests.rs"]
mod tests;
