//! `logs` of several processes: their lines in the order in which they arrived, each after the name of its process.
//!
//! Bounds: [`MAX_PROCESSES`] processes, one page of each in memory.

use std::collections::VecDeque;

use pinfold_api::plain::visible;
use pinfold_api::types::{OutputPage, OutputQuery, Record, Status};
use serde::Serialize;
use tokio::task::{JoinSet, LocalSet};

use super::logs::{LogsArgs, end_cursor, tail_of};
use crate::console::Console;
use crate::failure::Failure;
use crate::render::quantity::render_size;
use crate::render::table::{cut, one_line};
use crate::session::Session;

/// More would leave no room to tell them apart.
const MAX_PROCESSES: usize = 32;
/// Bytes of one read.
const PAGE: u64 = 256 * 1024;
/// How long one read waits for output with `--follow`.
const MAX_WAIT: &str = "5m";
/// Longer names are cut.
const MAX_LABEL: usize = 20;

/// A line of output and when it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// RFC 3339 in UTC, all of the same length: in the order of time if compared as text.
    time: String,
    text: String,
}

/// A line as `--json` prints it.
#[derive(Debug, Serialize)]
struct JsonLine<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    time: &'a str,
    line: &'a str,
}

/// One of the processes, and how far its output was read.
#[derive(Clone, Debug)]
struct Source {
    id: String,
    name: Option<String>,
    query: OutputQuery,
    /// Stop at this cursor.
    end: Option<u64>,
    lines: VecDeque<Line>,
    /// The last line so far, if more of it may come.
    unfinished: Option<Line>,
    /// Everything that exists now was read.
    is_caught_up: bool,
    /// Nothing more will come.
    is_over: bool,
}

/// Prints the lines of all processes, and follows them with `--follow`.
pub(super) async fn run(session: &Session, args: &LogsArgs, console: &mut Console) -> Result<u8, Failure> {
    if args.ids.len() > MAX_PROCESSES {
        let message = format!("{} processes are too many: give at most {MAX_PROCESSES}", args.ids.len());
        return Err(Failure::invalid(message));
    }
    let mut sources = Vec::new();
    for id in &args.ids {
        let record = session.ask(async |client| client.show(id).await).await?;
        if !sources.iter().any(|source: &Source| source.id == record.id) {
            sources.push(Source::new(session, args, record).await?);
        }
    }
    let labels = labels(&sources);
    print_existing(session, &mut sources, &labels, args, console).await?;
    if args.follow {
        follow(session, sources, &labels, args, console).await?;
    }
    Ok(0)
}

/// Prints what exists now, merged by time.
async fn print_existing(
    session: &Session,
    sources: &mut [Source],
    labels: &[String],
    args: &LogsArgs,
    console: &mut Console,
) -> Result<(), Failure> {
    loop {
        for source in sources.iter_mut() {
            while source.lines.is_empty() && !source.is_caught_up {
                source.read(session, None, console).await?;
            }
            if !args.follow {
                source.finish_line();
            }
        }
        let first = sources
            .iter()
            .enumerate()
            .filter_map(|(place, source)| Some((source.lines.front()?, place)))
            .min_by(|(one, _), (other, _)| one.time.cmp(&other.time));
        let Some((_, place)) = first else { return Ok(()) };
        let Some(line) = sources[place].lines.pop_front() else { return Ok(()) };
        print(&sources[place], &line, (&labels[place], place), args, console)?;
    }
}

/// Prints new lines as they arrive, until every process has closed its output.
async fn follow(
    session: &Session,
    sources: Vec<Source>,
    labels: &[String],
    args: &LogsArgs,
    console: &mut Console,
) -> Result<(), Failure> {
    let (mut reads, here) = (JoinSet::new(), LocalSet::new());
    let read = |reads: &mut JoinSet<_>, place: usize, mut source: Source| {
        let session = session.clone();
        let task = async move {
            let result = source.read(&session, Some(MAX_WAIT), &Console::new(false)).await;
            result.map(|()| (place, source))
        };
        reads.spawn_local_on(task, &here);
    };
    for (place, source) in sources.into_iter().enumerate().filter(|(_, source)| !source.is_over) {
        read(&mut reads, place, source);
    }
    let print_all = async {
        while let Some(done) = reads.join_next().await {
            let (place, mut source) = done.map_err(std::io::Error::other)??;
            while let Some(line) = source.lines.pop_front() {
                print(&source, &line, (&labels[place], place), args, console)?;
            }
            if !source.is_over {
                read(&mut reads, place, source);
            }
        }
        Ok(())
    };
    here.run_until(print_all).await
}

fn print(
    source: &Source,
    line: &Line,
    (label, place): (&str, usize),
    args: &LogsArgs,
    console: &mut Console,
) -> Result<(), Failure> {
    if console.json {
        let name = source.name.as_deref();
        return console.json_line(&JsonLine { id: &source.id, name, time: &line.time, line: &line.text });
    }
    let time = if args.times { format!("{} ", line.time) } else { String::new() };
    let prefix = console.paint().label(place, &format!("{label} |"));
    console.bytes(format!("{prefix} {time}{}\n", visible(&line.text)).as_bytes())
}

/// The names of the processes, or their ids, all of the same width.
fn labels(sources: &[Source]) -> Vec<String> {
    let label = |source: &Source| cut(&one_line(source.name.as_deref().unwrap_or(&source.id)), MAX_LABEL);
    let mut labels: Vec<String> = sources.iter().map(label).collect();
    for place in 0..labels.len() {
        if labels.iter().filter(|other| **other == labels[place]).count() > 1 {
            labels[place] = sources[place].id.clone();
        }
    }
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    labels.iter().map(|label| format!("{label:width$}")).collect()
}

impl Source {
    async fn new(session: &Session, args: &LogsArgs, record: Record) -> Result<Self, Failure> {
        let end = end_cursor(session, &record.id, args).await?;
        let query = OutputQuery {
            cursor: args.cursor,
            since: args.since.clone(),
            tail: args.tail.as_deref().map(tail_of),
            stream: args.stream().map(str::to_owned),
            strip_ansi: Some(true),
            collapse_cr: Some(true),
            times: Some(true),
            ..OutputQuery::default()
        };
        Ok(Source {
            id: record.id,
            name: record.name,
            query,
            end,
            lines: VecDeque::new(),
            unfinished: None,
            is_caught_up: end == Some(0),
            is_over: false,
        })
    }

    /// Reads one more page; `wait` is for output that does not exist yet.
    async fn read(&mut self, session: &Session, wait: Option<&str>, console: &Console) -> Result<(), Failure> {
        let room = match (self.end, self.query.cursor) {
            (Some(end), Some(cursor)) => PAGE.min(end.saturating_sub(cursor)),
            (Some(end), None) => PAGE.min(end),
            (None, _) => PAGE,
        };
        self.query.max_bytes = Some(room.to_string());
        self.query.wait = wait.map(str::to_owned);
        let page = session.ask(async |client| client.output(&self.id, &self.query).await).await?;
        if let Some(gap) = page.gap {
            let size = render_size(gap.to.saturating_sub(gap.from));
            console.note(&format!("{}: {size} of output was dropped (bytes {}..{})", self.id, gap.from, gap.to));
        }
        self.take(&page);
        Ok(())
    }

    fn take(&mut self, page: &OutputPage) {
        for text in page.text.split_inclusive('\n') {
            let (time, text) = text.split_once(' ').unwrap_or_default();
            let whole = text.ends_with('\n');
            let new = Line { time: time.to_owned(), text: text.trim_end_matches(['\n', '\r']).to_owned() };
            let line = match self.unfinished.take() {
                Some(begin) => Line { text: begin.text + &new.text, ..begin },
                None => new,
            };
            match whole {
                true => self.lines.push_back(line),
                false => self.unfinished = Some(line),
            }
        }
        self.is_caught_up =
            page.next_cursor >= self.end.unwrap_or(page.end) || self.query.cursor == Some(page.next_cursor);
        let is_complete = page.closed || matches!(page.status, Status::Finished | Status::Lost);
        self.is_over = self.is_caught_up && (is_complete || self.end.is_some());
        (self.query.cursor, self.query.since, self.query.tail) = (Some(page.next_cursor), None, None);
        if self.is_over {
            self.finish_line();
        }
    }

    /// Prints the last line as it is.
    fn finish_line(&mut self) {
        if self.is_caught_up {
            self.lines.extend(self.unfinished.take());
        }
    }
}
