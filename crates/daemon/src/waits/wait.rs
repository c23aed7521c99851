//! Wait requests: until a process exits, closes its output, prints, falls quiet, listens; any or all of many.
//! Every wait is bounded (D4), reports why it ended and holds no lock. It watches the entry's state, so it misses no
//! output; the keeper reports new output only while a wait needs that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{WaitAnswer, WaitManyAnswer, WaitManyRequest, WaitMode, WaitQuery, WaitReason};
use pinfold_model::facts::Status;
use pinfold_model::output_view::{Line, SearchOptions, Searcher, parse_pattern, strip_ansi};
use pinfold_model::units::parse_duration;
use pinfold_os::{ports, tree};
use regex::bytes::Regex;

use super::until::{has_closed, has_exited, is_over, until_output, until_ready, watch};
use crate::clock::now;
use crate::core::{Core, blocking};
use crate::registry::records;
use crate::registry::{Entry, FoundProcess, ReleasableWait, State, Viewer};
use crate::request_error::RequestError;

/// Maximum and default timeout.
const MAX_WAIT: Duration = Duration::from_secs(3600);
const DEFAULT_WAIT: Duration = Duration::from_secs(30);
/// Practically without a timeout.
const NO_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);
const DEFAULT_QUIET: Duration = Duration::from_secs(2);
/// How often listening ports are checked.
const PORT_INTERVAL: Duration = Duration::from_millis(50);
/// How long to wait for the leader's exit after its output closed.
const EXIT_DELAY: Duration = Duration::from_millis(200);
/// Bytes per read when output is searched.
const READ_SIZE: usize = 256 * 1024;
/// Maximum number of processes in one wait.
const MAX_PROCESSES: usize = 256;

/// The condition of a wait.
#[derive(Debug)]
pub(crate) enum Until {
    Exit,
    Closed,
    Finished,
    Output { cursor: Option<u64>, exclude: Option<Regex> },
    Match { cursor: u64, pattern: Regex, exclude: Option<Regex> },
    Port(Option<u16>),
    Quiet(Duration),
    Ready,
    Input,
}

/// How a wait ended.
#[derive(Debug, Default)]
struct WaitEnd {
    reason: Option<WaitReason>,
    cursor: u64,
    matched: Option<String>,
    port: Option<u16>,
}

impl WaitEnd {
    fn because(reason: WaitReason) -> Self {
        Self { reason: Some(reason), ..Self::default() }
    }
}

/// The output is closed. A program that exits closes its output just before: wait briefly for its outcome.
async fn ended_before(entry: &Entry) -> WaitEnd {
    watch(entry, EXIT_DELAY, has_exited).await;
    WaitEnd::because(WaitReason::EndedBefore)
}

/// Waits until the process waits for input.
async fn wait_input(entry: &Entry, limit: Duration) -> Result<WaitEnd, RequestError> {
    let takes_input = entry.state.borrow().history.intent.spec.takes_input();
    if !takes_input {
        let message = "it has no stdin, so it never waits for input: start it with `stdin: pipe` or `pty`";
        return Err(RequestError::new(ErrorCode::NoStdin, message).about(&entry.id));
    }
    let waits = |state: &State| state.waiting.now == Some(true);
    let reached = watch(entry, limit, |state| waits(state) || is_over(state)).await;
    let reason = match reached {
        true if is_over(&entry.state.borrow()) => WaitReason::EndedBefore,
        true => WaitReason::Input,
        false => WaitReason::Timeout,
    };
    Ok(WaitEnd::because(reason))
}

impl Core {
    /// Handles one wait request.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        viewer: &Viewer,
        found: FoundProcess,
        query: WaitQuery,
    ) -> Result<WaitAnswer, RequestError> {
        let limit = limit(query.timeout.as_deref())?;
        let traced = self.telemetry.as_ref().map(|_| (now(), query.until.clone()));
        let until = parse(query)?;
        let started = Instant::now();
        let mut release = self.releasable_wait(viewer, &found);
        let end = match &found {
            FoundProcess::Here(entry) => tokio::select! {
                end = self.wait_here(entry, until, limit) => end?,
                () = release.released() => WaitEnd::because(WaitReason::Cancelled),
            },
            FoundProcess::Ended(history) => {
                let entry = Entry::new((**history).clone());
                self.wait_here(&entry, until, Duration::ZERO).await?
            }
        };
        let reason = end.reason.unwrap_or(WaitReason::Timeout);
        if let (Some(telemetry), Some((from, until))) = (&self.telemetry, traced) {
            telemetry.waited(&found.snapshot().history, from, (until.as_deref().unwrap_or("exit"), reason));
        }
        let record = self.record(&found).await?;
        Ok(WaitAnswer {
            reason,
            cursor: if end.matched.is_some() { end.cursor } else { end.cursor.max(record.output.bytes) },
            record,
            matched: end.matched,
            port: end.port,
            waited_ms: started.elapsed().as_millis() as u64,
        })
    }

    /// The owner whose releases end a wait: the caller, or for the operator the owner of the process.
    pub(crate) fn releasable_wait(&self, viewer: &Viewer, found: &FoundProcess) -> ReleasableWait {
        match viewer {
            Viewer::Owner(owner) => self.owners.releasable_wait(owner),
            Viewer::Operator => self.owners.releasable_wait(found.snapshot().history.owner()),
        }
    }

    async fn wait_here(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        until: Until,
        limit: Duration,
    ) -> Result<WaitEnd, RequestError> {
        let simple = |reached: bool, reason| WaitEnd::because(if reached { reason } else { WaitReason::Timeout });
        match until {
            Until::Exit => Ok(simple(watch(entry, limit, has_exited).await, WaitReason::Exited)),
            Until::Closed => Ok(simple(watch(entry, limit, has_closed).await, WaitReason::Closed)),
            Until::Finished => Ok(simple(watch(entry, limit, is_over).await, WaitReason::Finished)),
            Until::Output { cursor, exclude } => self.wait_output(entry, cursor, exclude, limit).await,
            Until::Match { cursor, pattern, exclude } => {
                self.wait_match(entry, cursor, (pattern, exclude), limit).await
            }
            Until::Port(port) => self.wait_port(entry, port, limit).await,
            Until::Quiet(quiet) => Ok(self.wait_quiet(entry, quiet, limit).await),
            Until::Ready => wait_ready(entry, limit).await,
            Until::Input => wait_input(entry, limit).await,
        }
    }

    async fn wait_output(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        cursor: Option<u64>,
        exclude: Option<Regex>,
        limit: Duration,
    ) -> Result<WaitEnd, RequestError> {
        let cursor = match cursor {
            Some(cursor) => cursor,
            None => self.output_end(entry).await?,
        };
        if let Some(exclude) = exclude {
            let any = parse_pattern("")?;
            let end = self.wait_match(entry, cursor, (any, Some(exclude)), limit).await?;
            let reason =
                end.reason.map(|reason| if reason == WaitReason::Matched { WaitReason::Output } else { reason });
            return Ok(WaitEnd { reason, ..end });
        }
        let deadline = Instant::now() + limit;
        let here = self.output_end(entry).await? > cursor;
        let reached = here || until_output(entry, cursor, limit).await;
        let reason = match reached {
            true => WaitReason::Output,
            false if Instant::now() < deadline || has_closed(&entry.state.borrow()) => {
                return Ok(ended_before(entry).await);
            }
            false => WaitReason::Timeout,
        };
        Ok(WaitEnd::because(reason))
    }

    /// The current end of the output.
    pub(crate) async fn output_end(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<u64, RequestError> {
        let (state, directory) = (entry.snapshot(), self.home.process(&entry.id));
        let extent = blocking(move || records::reader(&state, &directory).extent()).await?;
        Ok(extent.map_or(0, |extent| extent.end))
    }

    async fn wait_match(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        cursor: u64,
        (pattern, exclude): (Regex, Option<Regex>),
        limit: Duration,
    ) -> Result<WaitEnd, RequestError> {
        let deadline = Instant::now() + limit;
        let mut search = Search { searcher: None, cursor, pattern, exclude };
        loop {
            // Read before the search: if the output was closed by then, the search sees all of it.
            let closed = has_closed(&entry.state.borrow());
            let (state, directory) = (entry.snapshot(), self.home.process(&entry.id));
            let (hit, back) = blocking(move || {
                let hit = search.run(&records::reader(&state, &directory), closed);
                (hit, search)
            })
            .await?;
            search = back;
            if let Some((cursor, line)) = hit.map_err(RequestError::internal)? {
                return Ok(WaitEnd { reason: Some(WaitReason::Matched), cursor, matched: Some(line), port: None });
            }
            if closed {
                return Ok(ended_before(entry).await);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(WaitEnd::because(WaitReason::Timeout));
            }
            until_output(entry, search.cursor, left).await;
        }
    }

    /// The first matching line from the beginning; pending forever if none comes.
    pub(crate) async fn until_line(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        pattern: Regex,
    ) -> Result<String, RequestError> {
        match self.wait_match(entry, 0, (pattern, None), NO_LIMIT).await?.matched {
            Some(line) => Ok(line),
            None => std::future::pending().await,
        }
    }

    async fn wait_port(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        port: Option<u16>,
        limit: Duration,
    ) -> Result<WaitEnd, RequestError> {
        let deadline = Instant::now() + limit;
        loop {
            let over = is_over(&entry.state.borrow());
            let history = entry.snapshot().history;
            let listening = blocking(move || listening(&history, port)).await?;
            // A listener below the keeper of an ended process belongs to the keeper's next process.
            if over || is_over(&entry.state.borrow()) {
                return Ok(WaitEnd::because(WaitReason::EndedBefore));
            }
            if let Some(port) = listening {
                return Ok(WaitEnd { reason: Some(WaitReason::Port), port: Some(port), ..WaitEnd::default() });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(WaitEnd::because(WaitReason::Timeout));
            }
            watch(entry, left.min(PORT_INTERVAL), is_over).await;
        }
    }

    async fn wait_quiet(self: &Arc<Self>, entry: &Arc<Entry>, quiet: Duration, limit: Duration) -> WaitEnd {
        let deadline = Instant::now() + limit;
        let mut cursor = self.output_end(entry).await.unwrap_or(0);
        loop {
            if has_closed(&entry.state.borrow()) {
                return ended_before(entry).await;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let started = Instant::now();
            let spoke = until_output(entry, cursor, quiet.min(left)).await;
            if !spoke && started.elapsed() >= quiet {
                return WaitEnd::because(WaitReason::Quiet);
            }
            if !spoke && !has_closed(&entry.state.borrow()) && left <= quiet {
                return WaitEnd::because(WaitReason::Timeout);
            }
            cursor = cursor.max(entry.state.borrow().output_bytes);
        }
    }

    /// Handles a wait for any or all of many processes.
    pub(crate) async fn wait_many(
        self: &Arc<Self>,
        viewer: &Viewer,
        request: WaitManyRequest,
    ) -> Result<WaitManyAnswer, RequestError> {
        if request.ids.is_empty() || request.ids.len() > MAX_PROCESSES {
            return Err(RequestError::invalid(format!(
                "`ids` has {} entries: give 1 to {MAX_PROCESSES}",
                request.ids.len()
            )));
        }
        let limit = limit(request.timeout.as_ref().map(|span| span.text()).as_deref())?;
        let (holds, reason): (fn(&State) -> bool, _) = match request.until.as_deref().unwrap_or("exit") {
            "exit" => (has_exited, WaitReason::Exited),
            "closed" => (has_closed, WaitReason::Closed),
            "finished" => (is_over, WaitReason::Finished),
            other => return Err(RequestError::invalid(format!("until `{other}`: use exit, closed or finished"))),
        };
        let (started, from) = (Instant::now(), self.telemetry.as_ref().map(|_| now()));
        let mut found = Vec::with_capacity(request.ids.len());
        for id in &request.ids {
            found.push(self.find(viewer, id).await?);
        }
        let mut releases: Vec<_> = found.iter().take(1).map(|one| self.releasable_wait(viewer, one)).collect();
        let mut waits = tokio::task::JoinSet::new();
        for one in &found {
            if let FoundProcess::Here(entry) = one {
                let entry = Arc::clone(entry);
                waits.spawn(async move { watch(&entry, limit, holds).await });
            }
        }
        let all = request.mode == Some(WaitMode::All);
        let mut here = found.iter().any(|one| matches!(one, FoundProcess::Ended(_)));
        let mut cancelled = false;
        while all || !here {
            let released = async {
                match releases.first_mut() {
                    Some(release) => release.released().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = waits.join_next() => match ended {
                    Some(reached) => here |= reached.unwrap_or(false),
                    None => break,
                },
                () = released => {
                    cancelled = true;
                    break;
                }
            }
        }
        waits.abort_all();
        let (mut done, mut pending) = (Vec::new(), Vec::new());
        for one in &found {
            let list = if holds(&one.snapshot()) { &mut done } else { &mut pending };
            list.push(self.record(one).await?);
        }
        let reached = if all { pending.is_empty() } else { !done.is_empty() };
        let reason = match (reached, cancelled) {
            (true, _) => reason,
            (false, true) => WaitReason::Cancelled,
            (false, false) => WaitReason::Timeout,
        };
        if let (Some(telemetry), Some(from)) = (&self.telemetry, from) {
            let until = request.until.as_deref().unwrap_or("exit");
            found.iter().for_each(|one| telemetry.waited(&one.snapshot().history, from, (until, reason)));
        }
        Ok(WaitManyAnswer { reason, done, pending, waited_ms: started.elapsed().as_millis() as u64 })
    }
}

/// Waits until it is ready, not ready in time, or over.
async fn wait_ready(entry: &Entry, limit: Duration) -> Result<WaitEnd, RequestError> {
    if entry.state.borrow().history.intent.spec.service.ready.is_none() {
        let message = "it was started without `ready`: start it with one, or wait for until=port, match or output";
        return Err(RequestError::invalid(message).about(&entry.id));
    }
    let reason = until_ready(entry, limit).await;
    let port = entry.state.borrow().history.readiness.as_ref().and_then(|readiness| readiness.port);
    Ok(WaitEnd { reason: Some(reason), port, ..WaitEnd::default() })
}

/// A search through growing output.
struct Search {
    searcher: Option<Searcher>,
    /// Where the next read starts.
    cursor: u64,
    pattern: Regex,
    exclude: Option<Regex>,
}

impl Search {
    /// The first matching line in new output; once the output is closed, an unfinished last line counts too. Stops at
    /// the end that the output had when it began: an endless writer does not keep it busy.
    fn run(
        &mut self,
        reader: &pinfold_store::reader::OutputReader,
        closed: bool,
    ) -> std::io::Result<Option<(u64, String)>> {
        let Self { searcher, cursor, pattern, exclude } = self;
        let options = SearchOptions { before: 0, after: 0, max_matches: usize::MAX };
        let searcher = searcher.get_or_insert_with(|| Searcher::new(pattern.clone(), options));
        let (mut hit, mut end) = (None, None);
        let give = |line: Line<'_>, hit: &mut Option<_>| {
            if let (Line::Matched(found), None) = (&line, &hit)
                && !exclude.as_ref().is_some_and(|exclude| exclude.is_match(&strip_ansi(found.line)))
            {
                let text = String::from_utf8_lossy(&strip_ansi(found.line)).into_owned();
                *hit = Some((found.line_start, text));
            }
        };
        while hit.is_none() {
            let piece = reader.read(*cursor, READ_SIZE)?;
            let end = *end.get_or_insert(piece.end);
            searcher.feed(piece.at, &piece.bytes, &mut |line| give(line, &mut hit));
            *cursor = piece.next;
            if piece.bytes.is_empty() || piece.next >= end {
                break;
            }
        }
        if closed {
            searcher.flush(&mut |line| give(line, &mut hit));
        }
        // A prompt has no line end: a match in the unfinished line counts too, unless an earlier line matched.
        if let Some(found) = searcher.peek() {
            give(Line::Matched(found), &mut hit);
        }
        Ok(hit)
    }
}

fn listening(history: &pinfold_model::facts::History, port: Option<u16>) -> Option<u16> {
    if history.status() == Status::Starting {
        return None;
    }
    let pids: Vec<u32> = tree::descendants(history.intent.keeper.pid).iter().map(|member| member.pid).collect();
    match port {
        Some(port) => ports::is_listening(&pids, port).then_some(port),
        None => ports::listening_ports(&pids).into_values().flatten().min(),
    }
}

/// Parses a timeout; one above the maximum is shortened, not refused.
pub(crate) fn limit(text: Option<&str>) -> Result<Duration, RequestError> {
    Ok(text.map(parse_duration).transpose()?.unwrap_or(DEFAULT_WAIT).min(MAX_WAIT))
}

/// The condition of a wait.
pub(crate) fn parse(query: WaitQuery) -> Result<Until, RequestError> {
    let exclude = query.exclude.as_deref().map(parse_pattern).transpose()?;
    match query.until.as_deref().unwrap_or("exit") {
        "exit" => Ok(Until::Exit),
        "closed" => Ok(Until::Closed),
        "finished" => Ok(Until::Finished),
        "output" => Ok(Until::Output { cursor: query.cursor, exclude }),
        "match" => {
            let pattern = query.pattern.as_deref().filter(|pattern| !pattern.is_empty());
            let pattern = pattern.ok_or_else(|| RequestError::invalid("until=match needs a `pattern`"))?;
            Ok(Until::Match { cursor: query.cursor.unwrap_or(0), pattern: parse_pattern(pattern)?, exclude })
        }
        "port" => Ok(Until::Port(query.port)),
        "quiet" => {
            let quiet = query.quiet.as_deref().map(parse_duration).transpose()?.unwrap_or(DEFAULT_QUIET);
            Ok(Until::Quiet(quiet))
        }
        "ready" => Ok(Until::Ready),
        "input" => Ok(Until::Input),
        other => {
            let expected = "use exit, closed, finished, output, match, port, quiet, ready or input";
            Err(RequestError::invalid(format!("until `{}`: {expected}", other.chars().take(40).collect::<String>())))
        }
    }
}
