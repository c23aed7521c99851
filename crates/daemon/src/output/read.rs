//! Reading output: by cursor, budget, pattern or stream; as text with exact byte counts, or raw.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::{OutputPage, OutputQuery, Range};
use pinfold_model::facts::History;
use pinfold_model::output_view::{
    MIN_BUDGET, Options, SearchOptions, Searcher, View, ViewInput, parse_pattern, render, tokens_to_bytes,
};
use pinfold_model::spec::Streams;
use pinfold_model::units::{Moment, parse_duration, parse_size};
use pinfold_store::marks::{Run, Stream};
use pinfold_store::reader::{OutputReader, Piece};

use crate::clock::{now, parse_moment, rfc3339};
use crate::core::{Core, blocking};
use crate::output::filter::{FilterInput, filter};
use crate::registry::records::reader;
use crate::registry::{FoundProcess, State};
use crate::request_error::RequestError;
use crate::waits::wait::limit;
use crate::waits::{until_closed, until_exit, until_output};

/// Default budget, if neither `budget` nor `max_bytes` is given.
const DEFAULT_BUDGET: usize = 32 * 1024;
/// Maximum of either.
const MAX_BUDGET: u64 = 16 << 20;
/// Default maximum of a raw read.
const DEFAULT_RAW: usize = 1 << 20;
/// Maximum number of lines of a grep.
const MAX_MATCHES: usize = 500;
/// Bytes read at each end of a budgeted view, as a multiple of the budget: progress bars collapse to less.
const READ_FACTOR: usize = 8;
/// A process without output for this long may be buffering.
const SILENCE_HINT_AFTER: Duration = Duration::from_secs(10);
/// Maximum bytes scanned for the start of the last lines.
const MAX_TAIL_SCAN: u64 = 16 << 20;

/// A checked query.
#[derive(Debug)]
pub(crate) struct ReadQuery {
    pub(super) start: Start,
    limit: ReadLimit,
    options: Options,
    pub(super) stream: Option<Stream>,
    times: bool,
    grep: Option<Searcher>,
}

#[derive(Debug)]
pub(super) enum Start {
    Cursor(u64),
    TailBytes(u64),
    TailLines(usize),
    /// What arrived at this time or later.
    Since(Moment),
}

#[derive(Debug)]
enum ReadLimit {
    /// A contiguous range.
    Bytes(usize),
    /// The whole range, its middle left out if it does not fit.
    Budget(usize),
}

/// A rendered view, where it begins, and the gap before it.
#[derive(Debug, Default)]
struct RenderedRange {
    view: View,
    start: u64,
    gap: Option<Range>,
}

/// Raw bytes and the state of the process.
#[derive(Debug)]
pub(crate) struct RawPage {
    pub(crate) piece: Piece,
    pub(crate) state: State,
}

impl Core {
    /// Output as text.
    pub(crate) async fn output(
        self: &Arc<Self>,
        found: &FoundProcess,
        query: &OutputQuery,
    ) -> Result<OutputPage, RequestError> {
        check(query, streams_of(found))?;
        let wait = limit(Some(query.wait.as_deref().unwrap_or("0")))?;
        let deadline = tokio::time::Instant::now() + wait;
        self.wait_for_output(found, query).await?;
        loop {
            let page = self.read_page(found, query).await?;
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let news = page.next_cursor > query.cursor.unwrap_or(0) || query.until.is_some() || page.closed;
            match found {
                // An unfinished character, or an unfinished line that may still match, is not returned: wait for more.
                FoundProcess::Here(entry) if !news && !left.is_zero() => until_output(entry, page.end, left).await,
                _ => return Ok(page),
            };
        }
    }

    /// Output as bytes.
    pub(crate) async fn raw_output(
        self: &Arc<Self>,
        found: &FoundProcess,
        query: &OutputQuery,
    ) -> Result<RawPage, RequestError> {
        let parsed = check(query, streams_of(found))?;
        self.wait_for_output(found, query).await?;
        let (state, directory) = (found.snapshot(), self.home.process(found.id()));
        let max_bytes = match (&query.max_bytes, parsed.limit) {
            (Some(_), ReadLimit::Bytes(max_bytes)) => max_bytes,
            _ => DEFAULT_RAW,
        };
        let piece = blocking(move || {
            let reader = reader(&state, &directory);
            let cursor = start(&reader, &state.history, &parsed.start)?;
            read_piece(&reader, parsed.stream, cursor, max_bytes).map(|piece| RawPage { piece, state })
        });
        piece.await?.map_err(RequestError::internal)
    }

    async fn wait_for_output(self: &Arc<Self>, found: &FoundProcess, query: &OutputQuery) -> Result<(), RequestError> {
        let Some(wait) = &query.wait else { return Ok(()) };
        let time = limit(Some(wait))?;
        let FoundProcess::Here(entry) = found else { return Ok(()) };
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
            other => return Err(RequestError::invalid(format!("until `{other}`: use output, exit or closed"))),
        }
        Ok(())
    }

    /// A page of the output that exists now, without waiting.
    pub(crate) async fn read_page(
        self: &Arc<Self>,
        found: &FoundProcess,
        query: &OutputQuery,
    ) -> Result<OutputPage, RequestError> {
        let parsed = check(query, streams_of(found))?;
        let state = found.snapshot();
        // The state was taken before the read: output called closed is complete.
        let directory = self.home.process(found.id());
        if state.history.finish.as_ref().is_some_and(|finish| finish.output_bytes == 0) {
            let matches = parsed.grep.map(|_| vec![]);
            return Ok(OutputPage { matches, ..page(&state.history, RenderedRange::default(), 0) });
        }
        blocking(move || read(&state, directory, parsed)).await?.map_err(RequestError::internal)
    }
}

pub(super) fn streams_of(found: &FoundProcess) -> Streams {
    found.intent().spec.streams
}

/// Checks a query against the streams of a process.
pub(crate) fn check(query: &OutputQuery, streams: Streams) -> Result<ReadQuery, RequestError> {
    let size = |text: &String| parse_size(text).map(|size| size.min(MAX_BUDGET) as usize);
    let stream = match query.stream.as_deref() {
        None => None,
        Some("stdout") => Some(Stream::Stdout),
        Some("stderr") => Some(Stream::Stderr),
        Some(other) => return Err(RequestError::invalid(format!("stream `{other}`: use stdout or stderr"))),
    };
    if stream.is_some() && streams == Streams::Merged {
        let message = "its stdout and stderr are merged: start it with `streams: separate` to read one of them";
        return Err(RequestError::invalid(message));
    }
    if let Some(format) = query.format.as_deref().filter(|format| !matches!(*format, "text" | "raw")) {
        return Err(RequestError::invalid(format!("format `{format}`: use text or raw")));
    }
    if let Some(wait) = &query.wait {
        parse_duration(wait)?;
    }
    let budget = match (&query.budget, query.budget_tokens) {
        (Some(budget), _) => Some(size(budget)?),
        (None, Some(tokens)) => Some(tokens_to_bytes(tokens).min(MAX_BUDGET) as usize),
        (None, None) => None,
    };
    let limit = match (&query.max_bytes, budget) {
        (Some(_), Some(_)) => return Err(RequestError::invalid("give `max_bytes` or a budget, not both")),
        (Some(bytes), None) => ReadLimit::Bytes(size(bytes)?.max(1)),
        (None, budget) => ReadLimit::Budget(budget.unwrap_or(DEFAULT_BUDGET)),
    };
    let grep = match &query.grep {
        None => None,
        Some(pattern) => {
            let context = query.context.unwrap_or(0) as usize;
            let options = SearchOptions { before: context, after: context, max_matches: MAX_MATCHES };
            Some(Searcher::new(parse_pattern(pattern)?, options))
        }
    };
    Ok(ReadQuery {
        start: parse_start(query)?,
        options: Options {
            budget: match limit {
                ReadLimit::Budget(budget) => budget,
                ReadLimit::Bytes(_) => usize::MAX,
            },
            strip_ansi: query.strip_ansi.unwrap_or(false),
            collapse_cr: query.collapse_cr.unwrap_or(matches!(limit, ReadLimit::Budget(_))),
        },
        limit,
        stream,
        times: query.times.unwrap_or(false),
        grep,
    })
}

fn parse_start(query: &OutputQuery) -> Result<Start, RequestError> {
    if let Some(since) = &query.since {
        let alone = query.tail.is_none() && query.cursor.is_none();
        let time = parse_moment("since", since)?;
        let both = || RequestError::invalid("give `since` or `cursor` or `tail`, only one of them");
        return alone.then_some(Start::Since(time)).ok_or_else(both);
    }
    match (&query.tail, query.cursor) {
        (Some(_), Some(_)) => Err(RequestError::invalid("give `cursor` or `tail`, not both")),
        (None, cursor) => Ok(Start::Cursor(cursor.unwrap_or(0))),
        (Some(tail), None) => {
            let lines = tail.trim().strip_suffix("lines").or_else(|| tail.trim().strip_suffix("line"));
            match lines {
                Some(lines) => {
                    let bad =
                        |_| RequestError::invalid(format!("tail `{tail}`: write `20 lines` or a size such as `4k`"));
                    Ok(Start::TailLines(lines.trim().parse().map_err(bad)?))
                }
                None => Ok(Start::TailBytes(parse_size(tail)?)),
            }
        }
    }
}

pub(super) fn start(reader: &OutputReader, history: &History, start: &Start) -> std::io::Result<u64> {
    match start {
        Start::Cursor(cursor) => Ok(*cursor),
        Start::TailBytes(bytes) => reader.tail_start(*bytes),
        Start::TailLines(lines) => reader.tail_lines(*lines, MAX_TAIL_SCAN),
        Start::Since(time) => reader.first_since(*time, started_at(history)),
    }
}

pub(super) fn read_piece(
    reader: &OutputReader,
    stream: Option<Stream>,
    cursor: u64,
    max_bytes: usize,
) -> std::io::Result<Piece> {
    match stream {
        None => reader.read(cursor, max_bytes),
        Some(stream) => reader.read_stream(stream, cursor, max_bytes),
    }
}

fn read(state: &State, directory: PathBuf, parsed: ReadQuery) -> std::io::Result<OutputPage> {
    let history = &state.history;
    let reader = reader(state, &directory);
    let cursor = start(&reader, history, &parsed.start)?;
    let closed = is_closed(history);
    if parsed.grep.is_some() {
        return grep(history, &reader, cursor, parsed);
    }
    let rendered = match parsed.limit {
        ReadLimit::Budget(budget) if parsed.stream.is_none() && !parsed.times => {
            budgeted_view(&reader, cursor, budget, closed, &parsed.options)?
        }
        // One stream, or lines with times: a contiguous range within the budget.
        ReadLimit::Budget(_) | ReadLimit::Bytes(_) => {
            contiguous_view(&reader, cursor, &parsed, (closed, started_at(history)))?
        }
    };
    Ok(page(history, rendered, reader.extent()?.end))
}

/// A contiguous range from the cursor on; exceeds the limit only if one character or escape sequence does not fit.
fn contiguous_view(
    reader: &OutputReader,
    cursor: u64,
    parsed: &ReadQuery,
    (closed, started): (bool, Moment),
) -> std::io::Result<RenderedRange> {
    let (mut max_bytes, room) = match parsed.limit {
        ReadLimit::Bytes(max_bytes) => (max_bytes, usize::MAX),
        ReadLimit::Budget(budget) => (budget.max(MIN_BUDGET), budget.max(MIN_BUDGET)),
    };
    let mut grown = false;
    loop {
        let (mut piece, mut runs) = match parsed.stream.is_some() || parsed.times {
            true => reader.read_runs(cursor, max_bytes)?,
            false => (reader.read(cursor, max_bytes)?, vec![]),
        };
        // A short read ends at a gap or at the end: an unfinished character before a gap is never completed.
        let last = piece.next >= piece.end;
        let complete = if last { closed } else { piece.next - piece.at < max_bytes as u64 };
        if let Some(stream) = parsed.stream {
            runs.retain(|run| run.stream == stream);
            piece.bytes = piece.bytes_of(&runs);
        }
        let rendered = contiguous(&piece, &runs, complete, parsed, started);
        if rendered.view.next == piece.at && !last && max_bytes < DEFAULT_RAW {
            (max_bytes, grown) = (max_bytes * 2, true);
        } else if rendered.view.text.len() > room && !grown {
            max_bytes /= 2;
        } else {
            return Ok(rendered);
        }
    }
}

/// Renders a piece as text. The runs, if any, are those of its bytes.
fn contiguous(piece: &Piece, runs: &[Run], complete: bool, parsed: &ReadQuery, started: Moment) -> RenderedRange {
    let end = piece.at + piece.bytes.len() as u64;
    let source = ViewInput { start: piece.at, head: &piece.bytes, tail: &[], end, more_may_come: !complete };
    let options = Options { budget: usize::MAX, ..parsed.options };
    let mut view = render(&source, &options);
    let taken = (view.next - piece.at) as usize;
    if parsed.times {
        view.text = with_times(&piece.bytes[..taken], runs, &options, started);
    }
    if parsed.stream.is_some() {
        view.next = cursor_of(taken as u64, runs).unwrap_or(piece.next);
    }
    RenderedRange { view, start: piece.at, gap: piece.gap.as_ref().map(range) }
}

/// The cursor of the nth byte of the runs.
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

/// The whole range from the cursor on, its middle left out if it does not fit.
fn budgeted_view(
    reader: &OutputReader,
    cursor: u64,
    budget: usize,
    closed: bool,
    options: &Options,
) -> std::io::Result<RenderedRange> {
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
        ViewInput { start: head.at, head: &head.bytes, tail: &tail, end: at.max(head.next), more_may_come: !closed };
    Ok(RenderedRange { view: render(&source, options), start: head.at, gap: head.gap.as_ref().map(range) })
}

fn grep(history: &History, reader: &OutputReader, cursor: u64, parsed: ReadQuery) -> std::io::Result<OutputPage> {
    let ReadQuery { grep: Some(searcher), stream, limit: ReadLimit::Bytes(budget) | ReadLimit::Budget(budget), .. } =
        parsed
    else {
        return Ok(page(history, RenderedRange::default(), 0));
    };
    let input = FilterInput { cursor, stream, budget: budget.max(MIN_BUDGET), closed: is_closed(history) };
    let found = filter(reader, input, searcher)?;
    let (shown_bytes, next) = (found.text.len() as u64, found.next);
    let view = View { text: found.text, original_bytes: next - cursor, shown_bytes, next, ..View::default() };
    let page = page(history, RenderedRange { view, start: cursor, gap: found.gap }, reader.extent()?.end);
    Ok(OutputPage { hint: found.hint, matches: Some(found.lines), ..page })
}

/// The lines, each after the time at which its first byte arrived.
fn with_times(bytes: &[u8], runs: &[Run], options: &Options, started: Moment) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    let mut runs = runs.iter().map(|run| (run.range.end - run.range.start, run.at)).peekable();
    // Bytes of the current run before the line.
    let mut before = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        while let Some((length, _)) = runs.next_if(|(length, _)| *length <= before) {
            before -= length;
        }
        let time = runs.peek().and_then(|(_, at)| *at).unwrap_or(started);
        let end = line.len() as u64;
        let source = ViewInput { start: 0, head: line, tail: &[], end, more_may_come: false };
        text.push_str(&rfc3339(time));
        text.push(' ');
        text.push_str(&render(&source, options).text);
        before += end;
    }
    text
}

/// The time of output without a mark.
fn started_at(history: &History) -> Moment {
    history.start.as_ref().map_or(history.intent.at, |start| start.at)
}

fn is_closed(history: &History) -> bool {
    history.closed_at.is_some() || history.status().is_over()
}

fn range(range: &std::ops::Range<u64>) -> Range {
    Range { from: range.start, to: range.end }
}

fn page(history: &History, RenderedRange { view, start, gap }: RenderedRange, end: u64) -> OutputPage {
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
        status: history.status(),
        outcome: history.outcome().map(Into::into),
        hint: silent_hint(history, end),
    }
}

/// A hint for a running process without output: it may be buffering.
fn silent_hint(history: &History, end: u64) -> Option<String> {
    let start = history.start.as_ref()?;
    let silent = end == 0 && history.exit.is_none() && now().since(start.at) >= SILENCE_HINT_AFTER;
    silent.then(|| {
        "no output yet: a program that writes to a pipe may buffer its output; \
         run it unbuffered (python -u, stdbuf -oL), or start it with `pty`"
            .to_owned()
    })
}
