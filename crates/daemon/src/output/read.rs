//! Reading output: by cursor, by budget, by pattern, by stream; as text with exact accounts, or raw.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::{OutputPage, OutputQuery, Range};
use pinfold_model::facts::History;
use pinfold_model::output_view::{
    LEAST_BUDGET, Options, SearchOptions, Searcher, Source, View, parse_pattern, render, tokens_to_bytes,
};
use pinfold_model::spec::Streams;
use pinfold_model::units::{Moment, parse_duration, parse_size};
use pinfold_store::marks::{Run, Stream};
use pinfold_store::reader::{OutputReader, Piece};

use crate::clock::{now, rfc3339};
use crate::core::{Core, blocking};
use crate::output::filter::{Scope, filter};
use crate::refusal::Refusal;
use crate::registry::records::{api_outcome, api_status, reader};
use crate::registry::{Found, State};
use crate::waits::wait::limit;
use crate::waits::{until_closed, until_exit, until_output};

/// Text when neither `budget` nor `max_bytes` is given.
const BUDGET: usize = 32 * 1024;
/// The most of either.
const BUDGET_MOST: u64 = 16 << 20;
/// Raw bytes when nothing is said.
const RAW: usize = 1 << 20;
/// Lines that a grep gives at most.
const MATCHES: usize = 500;
/// Raw bytes read at each end of a budgeted view: more than the budget, since progress bars collapse.
const READ_FACTOR: usize = 8;
/// A process that is silent for this long may be buffering.
const SILENT: Duration = Duration::from_secs(10);
/// The most bytes scanned for the beginning of the last lines.
const TAIL_SCAN: u64 = 16 << 20;

/// A query, checked.
#[derive(Debug)]
pub(crate) struct Wanted {
    start: Start,
    most: Most,
    options: Options,
    stream: Option<Stream>,
    times: bool,
    grep: Option<Searcher>,
}

#[derive(Debug)]
enum Start {
    Cursor(u64),
    TailBytes(u64),
    TailLines(usize),
}

#[derive(Debug)]
enum Most {
    /// Contiguous.
    Bytes(usize),
    /// The whole range, shown within this.
    Budget(usize),
}

/// A view, where it begins, and what is missing before it.
#[derive(Debug, Default)]
struct Shown {
    view: View,
    start: u64,
    gap: Option<Range>,
}

/// Raw bytes with their accounts.
#[derive(Debug)]
pub(crate) struct RawPage {
    pub(crate) piece: Piece,
    pub(crate) state: State,
}

impl Core {
    /// Output as text.
    pub(crate) async fn output(self: &Arc<Self>, found: &Found, query: &OutputQuery) -> Result<OutputPage, Refusal> {
        check(query, streams_of(found))?;
        let wait = limit(Some(query.wait.as_deref().unwrap_or("0")))?;
        let deadline = tokio::time::Instant::now() + wait;
        self.wait_for_output(found, query).await?;
        loop {
            let page = self.read_page(found, query).await?;
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let news = page.next_cursor > query.cursor.unwrap_or(0) || query.until.is_some() || page.closed;
            match found {
                // The beginning of a character or of a line that may yet match is no news: its rest may be.
                Found::Here(entry) if !news && !left.is_zero() => until_output(entry, page.end, left).await,
                _ => return Ok(page),
            };
        }
    }

    /// Output as bytes.
    pub(crate) async fn raw_output(self: &Arc<Self>, found: &Found, query: &OutputQuery) -> Result<RawPage, Refusal> {
        let wanted = check(query, streams_of(found))?;
        self.wait_for_output(found, query).await?;
        let (state, directory) = (found.snapshot(), self.home.process(found.id()));
        let most = match (&query.max_bytes, wanted.most) {
            (Some(_), Most::Bytes(most)) => most,
            _ => RAW,
        };
        let piece = blocking(move || {
            let reader = reader(&state, &directory);
            let cursor = start(&reader, &wanted.start)?;
            read_piece(&reader, wanted.stream, cursor, most).map(|piece| RawPage { piece, state })
        });
        piece.await?.map_err(Refusal::internal)
    }

    async fn wait_for_output(self: &Arc<Self>, found: &Found, query: &OutputQuery) -> Result<(), Refusal> {
        let Some(wait) = &query.wait else { return Ok(()) };
        let time = limit(Some(wait))?;
        let Found::Here(entry) = found else { return Ok(()) };
        match query.until.as_deref().unwrap_or("output") {
            "output" => {
                until_output(entry, query.cursor.unwrap_or(0), time).await;
            }
            "exit" => {
                until_exit(entry, time).await;
            }
            "closed" => {
                until_closed(entry, time).await;
            }
            other => return Err(Refusal::invalid(format!("until `{other}`: use output, exit or closed"))),
        }
        Ok(())
    }

    /// What is there now, without waiting.
    pub(crate) async fn read_page(self: &Arc<Self>, found: &Found, query: &OutputQuery) -> Result<OutputPage, Refusal> {
        let wanted = check(query, streams_of(found))?;
        let state = found.snapshot();
        // Whether more may come is asked before the read: what is called closed is complete.
        let directory = self.home.process(found.id());
        if state.history.finish.as_ref().is_some_and(|finish| finish.output_bytes == 0) {
            let matches = wanted.grep.map(|_| vec![]);
            return Ok(OutputPage { matches, ..page(&state.history, Shown::default(), 0) });
        }
        blocking(move || read(&state, directory, wanted)).await?.map_err(Refusal::internal)
    }
}

fn streams_of(found: &Found) -> Streams {
    found.intent().spec.streams
}

/// Whether such output can be read so.
pub(crate) fn check(query: &OutputQuery, streams: Streams) -> Result<Wanted, Refusal> {
    let size = |text: &String| parse_size(text).map(|size| size.min(BUDGET_MOST) as usize);
    let stream = match query.stream.as_deref() {
        None => None,
        Some("stdout") => Some(Stream::Stdout),
        Some("stderr") => Some(Stream::Stderr),
        Some(other) => return Err(Refusal::invalid(format!("stream `{other}`: use stdout or stderr"))),
    };
    if stream.is_some() && streams == Streams::Merged {
        let message = "its streams are merged: start it with `streams: separate` to read them apart";
        return Err(Refusal::invalid(message));
    }
    if let Some(format) = query.format.as_deref().filter(|format| !matches!(*format, "text" | "raw")) {
        return Err(Refusal::invalid(format!("format `{format}`: use text or raw")));
    }
    if let Some(wait) = &query.wait {
        parse_duration(wait)?;
    }
    let budget = match (&query.budget, query.budget_tokens) {
        (Some(budget), _) => Some(size(budget)?),
        (None, Some(tokens)) => Some(tokens_to_bytes(tokens).min(BUDGET_MOST) as usize),
        (None, None) => None,
    };
    let most = match (&query.max_bytes, budget) {
        (Some(_), Some(_)) => return Err(Refusal::invalid("give `max_bytes` or a budget, not both")),
        (Some(most), None) => Most::Bytes(size(most)?.max(1)),
        (None, budget) => Most::Budget(budget.unwrap_or(BUDGET)),
    };
    let grep = match &query.grep {
        None => None,
        Some(pattern) => {
            let context = query.context.unwrap_or(0) as usize;
            let options = SearchOptions { before: context, after: context, most: MATCHES };
            Some(Searcher::new(parse_pattern(pattern)?, options))
        }
    };
    Ok(Wanted {
        start: parse_start(query)?,
        options: Options {
            budget: match most {
                Most::Budget(budget) => budget,
                Most::Bytes(_) => usize::MAX,
            },
            strip_ansi: query.strip_ansi.unwrap_or(false),
            collapse_cr: query.collapse_cr.unwrap_or(matches!(most, Most::Budget(_))),
        },
        most,
        stream,
        times: query.times.unwrap_or(false),
        grep,
    })
}

fn parse_start(query: &OutputQuery) -> Result<Start, Refusal> {
    match (&query.tail, query.cursor) {
        (Some(_), Some(_)) => Err(Refusal::invalid("give `cursor` or `tail`, not both")),
        (None, cursor) => Ok(Start::Cursor(cursor.unwrap_or(0))),
        (Some(tail), None) => {
            let lines = tail.trim().strip_suffix("lines").or_else(|| tail.trim().strip_suffix("line"));
            match lines {
                Some(lines) => {
                    let bad = |_| Refusal::invalid(format!("tail `{tail}`: write `20 lines` or a size such as `4k`"));
                    Ok(Start::TailLines(lines.trim().parse().map_err(bad)?))
                }
                None => Ok(Start::TailBytes(parse_size(tail)?)),
            }
        }
    }
}

fn start(reader: &OutputReader, start: &Start) -> std::io::Result<u64> {
    match start {
        Start::Cursor(cursor) => Ok(*cursor),
        Start::TailBytes(bytes) => reader.tail_start(*bytes),
        Start::TailLines(lines) => reader.tail_lines(*lines, TAIL_SCAN),
    }
}

fn read_piece(reader: &OutputReader, stream: Option<Stream>, cursor: u64, most: usize) -> std::io::Result<Piece> {
    match stream {
        None => reader.read(cursor, most),
        Some(stream) => reader.read_stream(stream, cursor, most),
    }
}

fn read(state: &State, directory: PathBuf, wanted: Wanted) -> std::io::Result<OutputPage> {
    let history = &state.history;
    let reader = reader(state, &directory);
    let cursor = start(&reader, &wanted.start)?;
    let closed = is_closed(history);
    if wanted.grep.is_some() {
        return grep(history, &reader, cursor, wanted);
    }
    let shown = match wanted.most {
        Most::Budget(budget) if wanted.stream.is_none() && !wanted.times => {
            budgeted(&reader, cursor, budget, closed, &wanted.options)?
        }
        // One stream, or lines with times: within the budget from the cursor on, without a hole.
        Most::Budget(_) | Most::Bytes(_) => {
            let begun = history.start.as_ref().map_or(history.intent.at, |start| start.at);
            straight(&reader, cursor, &wanted, (closed, begun))?
        }
    };
    Ok(page(history, shown, reader.extent()?.end))
}

/// Bytes as they lie, from the cursor on; more than asked for only if one character or sequence does not fit.
fn straight(
    reader: &OutputReader,
    cursor: u64,
    wanted: &Wanted,
    (closed, begun): (bool, Moment),
) -> std::io::Result<Shown> {
    let (mut most, room) = match wanted.most {
        Most::Bytes(most) => (most, usize::MAX),
        Most::Budget(budget) => (budget.max(LEAST_BUDGET), budget.max(LEAST_BUDGET)),
    };
    let mut grown = false;
    loop {
        let (mut piece, mut runs) = match wanted.stream.is_some() || wanted.times {
            true => reader.read_runs(cursor, most)?,
            false => (reader.read(cursor, most)?, vec![]),
        };
        // Short of what was asked for it ends at a gap: nothing completes what is unfinished there.
        let last = piece.next >= piece.end;
        let complete = if last { closed } else { piece.next - piece.at < most as u64 };
        if let Some(stream) = wanted.stream {
            runs.retain(|run| run.stream == stream);
            piece.bytes = piece.bytes_of(&runs);
        }
        let shown = contiguous(&piece, &runs, complete, wanted, begun);
        if shown.view.next == piece.at && !last && most < RAW {
            (most, grown) = (most * 2, true);
        } else if shown.view.text.len() > room && !grown {
            most /= 2;
        } else {
            return Ok(shown);
        }
    }
}

/// A piece as text. The runs, where there are any, are those of its bytes.
fn contiguous(piece: &Piece, runs: &[Run], complete: bool, wanted: &Wanted, begun: Moment) -> Shown {
    let end = piece.at + piece.bytes.len() as u64;
    let source = Source { start: piece.at, head: &piece.bytes, tail: &[], end, more_may_come: !complete };
    let options = Options { budget: usize::MAX, ..wanted.options };
    let mut view = render(&source, &options);
    let taken = (view.next - piece.at) as usize;
    if wanted.times {
        view.text = with_times(&piece.bytes[..taken], runs, &options, begun);
    }
    if wanted.stream.is_some() {
        view.next = cursor_of(taken as u64, runs).unwrap_or(piece.next);
    }
    Shown { view, start: piece.at, gap: piece.gap.as_ref().map(range) }
}

/// The cursor of the byte at this place among those of the runs.
fn cursor_of(mut place: u64, runs: &[Run]) -> Option<u64> {
    for run in runs {
        let length = run.range.end - run.range.start;
        if place < length {
            return Some(run.range.start + place);
        }
        place -= length;
    }
    None
}

/// The whole range from the cursor on, its middle left out where it does not fit.
fn budgeted(
    reader: &OutputReader,
    cursor: u64,
    budget: usize,
    closed: bool,
    options: &Options,
) -> std::io::Result<Shown> {
    let each = budget.saturating_mul(READ_FACTOR).clamp(64 * 1024, 4 << 20);
    let head = reader.read(cursor, each)?;
    let end = head.end.max(head.next);
    let mut tail = Vec::new();
    let mut at = head.next.max(end.saturating_sub(each as u64));
    while at < end {
        let piece = reader.read(at, (end - at) as usize)?;
        if piece.bytes.is_empty() {
            break;
        }
        if piece.gap.is_some() {
            tail.clear();
        }
        at = piece.next;
        tail.extend(piece.bytes);
    }
    let source =
        Source { start: head.at, head: &head.bytes, tail: &tail, end: at.max(head.next), more_may_come: !closed };
    Ok(Shown { view: render(&source, options), start: head.at, gap: head.gap.as_ref().map(range) })
}

fn grep(history: &History, reader: &OutputReader, cursor: u64, wanted: Wanted) -> std::io::Result<OutputPage> {
    let Wanted { grep: Some(searcher), stream, most: Most::Bytes(budget) | Most::Budget(budget), .. } = wanted else {
        return Ok(page(history, Shown::default(), 0));
    };
    let scope = Scope { cursor, stream, budget: budget.max(LEAST_BUDGET), closed: is_closed(history) };
    let found = filter(reader, scope, searcher)?;
    let (shown_bytes, next) = (found.text.len() as u64, found.next);
    let view = View { text: found.text, original_bytes: next - cursor, shown_bytes, next, ..View::default() };
    let page = page(history, Shown { view, start: cursor, gap: found.gap }, reader.extent()?.end);
    Ok(OutputPage { hint: found.hint, matches: Some(found.lines), ..page })
}

/// Each line behind the time at which its first byte arrived.
fn with_times(bytes: &[u8], runs: &[Run], options: &Options, begun: Moment) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    let mut runs = runs.iter().map(|run| (run.range.end - run.range.start, run.at)).peekable();
    // Bytes of the current run before the line.
    let mut before = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        while let Some((length, _)) = runs.next_if(|(length, _)| *length <= before) {
            before -= length;
        }
        let time = runs.peek().and_then(|(_, at)| *at).unwrap_or(begun);
        let end = line.len() as u64;
        let source = Source { start: 0, head: line, tail: &[], end, more_may_come: false };
        text.push_str(&rfc3339(time));
        text.push(' ');
        text.push_str(&render(&source, options).text);
        before += end;
    }
    text
}

fn is_closed(history: &History) -> bool {
    history.closed_at.is_some() || history.status().is_over()
}

fn range(range: &std::ops::Range<u64>) -> Range {
    Range { from: range.start, to: range.end }
}

fn page(history: &History, Shown { view, start, gap }: Shown, end: u64) -> OutputPage {
    OutputPage {
        id: history.intent.id.to_string(),
        cursor: start,
        next_cursor: view.next,
        end: end.max(view.next),
        gap,
        omitted: view.omitted.as_ref().map(range),
        original_bytes: view.original_bytes,
        shown_bytes: view.shown_bytes,
        omitted_bytes: view.omitted_bytes,
        collapsed_bytes: view.collapsed_bytes,
        text: view.text,
        matches: None,
        exited: history.exit.is_some() || history.status().is_over(),
        closed: is_closed(history),
        status: api_status(history.status()),
        outcome: history.outcome().map(api_outcome),
        hint: silent_hint(history, end),
    }
}

/// A process that runs and says nothing may only be buffering.
fn silent_hint(history: &History, end: u64) -> Option<String> {
    let start = history.start.as_ref()?;
    let silent = end == 0 && history.exit.is_none() && now().since(start.at) >= SILENT;
    silent.then(|| {
        "no output yet: a program that writes to a pipe may hold its output back until it has a block of it; \
         ask it for unbuffered output (python -u, stdbuf -oL), or start it with `pty`"
            .to_owned()
    })
}
