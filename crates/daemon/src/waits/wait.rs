//! Waits: until a process exits, closes, says something, falls quiet, listens; any or all of many.
//!
//! Every wait is bounded (D4), says why it ended, holds no lock and loses no bytes: it watches the entry's
//! state, and asks the keeper to tell of output only while somebody waits for it.

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
use crate::core::{Core, blocking};
use crate::refusal::Refusal;
use crate::registry::records;
use crate::registry::{Entry, Found, Releasable, Scope, State};

/// The longest wait, and the one applied when none is given.
const MOST: Duration = Duration::from_secs(3600);
const DEFAULT: Duration = Duration::from_secs(30);
/// Longer than anybody looks for a line.
const LONG: Duration = Duration::from_secs(7 * 24 * 3600);
const QUIET: Duration = Duration::from_secs(2);
/// How often listening ports are looked for.
const PORT_LOOK: Duration = Duration::from_millis(50);
/// How long after the end of output the end of the leader is waited for.
const A_MOMENT: Duration = Duration::from_millis(200);
/// Bytes read at a time when output is searched.
const SEARCH: usize = 256 * 1024;
/// Processes in one wait at most.
const MANY: usize = 256;

/// What is waited for.
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
struct End {
    reason: Option<WaitReason>,
    cursor: u64,
    matched: Option<String>,
    port: Option<u16>,
}

impl End {
    fn because(reason: WaitReason) -> Self {
        Self { reason: Some(reason), ..Self::default() }
    }
}

/// No more output can come. A program that ends closes its output a moment before: its outcome is worth that moment.
async fn ended_before(entry: &Entry) -> End {
    watch(entry, A_MOMENT, has_exited).await;
    End::because(WaitReason::EndedBefore)
}

/// Waits until it waits for input.
async fn wait_input(entry: &Entry, limit: Duration) -> Result<End, Refusal> {
    let takes_input = entry.state.borrow().history.intent.spec.takes_input();
    if !takes_input {
        let message = "it has no stdin to wait at: start it with `stdin: pipe` or `pty`";
        return Err(Refusal::new(ErrorCode::NoStdin, message).about(&entry.id));
    }
    let waits = |state: &State| state.waiting.now == Some(true);
    let reached = watch(entry, limit, |state| waits(state) || is_over(state)).await;
    let reason = match reached {
        true if is_over(&entry.state.borrow()) => WaitReason::EndedBefore,
        true => WaitReason::Input,
        false => WaitReason::Timeout,
    };
    Ok(End::because(reason))
}

impl Core {
    /// One wait.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        scope: &Scope,
        found: Found,
        query: WaitQuery,
    ) -> Result<WaitAnswer, Refusal> {
        let limit = limit(query.timeout.as_deref())?;
        let until = parse(query)?;
        let begun = Instant::now();
        let mut gate = self.gate(scope, &found);
        let end = match &found {
            Found::Here(entry) => tokio::select! {
                end = self.wait_here(entry, until, limit) => end?,
                () = gate.released() => End::because(WaitReason::Cancelled),
            },
            Found::Ended(history) => {
                let entry = Entry::new((**history).clone());
                self.wait_here(&entry, until, Duration::ZERO).await?
            }
        };
        let record = self.record(&found).await?;
        Ok(WaitAnswer {
            reason: end.reason.unwrap_or(WaitReason::Timeout),
            cursor: if end.matched.is_some() { end.cursor } else { end.cursor.max(record.output.bytes) },
            record,
            matched: end.matched,
            port: end.port,
            waited_ms: begun.elapsed().as_millis() as u64,
        })
    }

    /// What releases a wait: its caller's owner, or for the operator the owner of what is waited for.
    pub(crate) fn gate(&self, scope: &Scope, found: &Found) -> Releasable {
        match scope {
            Scope::Owner(owner) => self.owners.releasable(owner),
            Scope::Operator => self.owners.releasable(found.snapshot().history.owner()),
        }
    }

    async fn wait_here(self: &Arc<Self>, entry: &Arc<Entry>, until: Until, limit: Duration) -> Result<End, Refusal> {
        let simple = |reached: bool, reason| End::because(if reached { reason } else { WaitReason::Timeout });
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
    ) -> Result<End, Refusal> {
        let cursor = match cursor {
            Some(cursor) => cursor,
            None => self.output_end(entry).await?,
        };
        if let Some(exclude) = exclude {
            let any = parse_pattern("")?;
            let end = self.wait_match(entry, cursor, (any, Some(exclude)), limit).await?;
            let reason =
                end.reason.map(|reason| if reason == WaitReason::Matched { WaitReason::Output } else { reason });
            return Ok(End { reason, ..end });
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
        Ok(End::because(reason))
    }

    /// How much output there is now.
    pub(crate) async fn output_end(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<u64, Refusal> {
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
    ) -> Result<End, Refusal> {
        let deadline = Instant::now() + limit;
        let mut search = Search { searcher: None, cursor, pattern, exclude };
        loop {
            // Whether this is all there will be is asked before the read, so that nothing is missed after it.
            let closed = has_closed(&entry.state.borrow());
            let (state, directory) = (entry.snapshot(), self.home.process(&entry.id));
            let (hit, back) = blocking(move || {
                let hit = search.run(&records::reader(&state, &directory), closed);
                (hit, search)
            })
            .await?;
            search = back;
            if let Some((cursor, line)) = hit.map_err(Refusal::internal)? {
                return Ok(End { reason: Some(WaitReason::Matched), cursor, matched: Some(line), port: None });
            }
            if closed {
                return Ok(ended_before(entry).await);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(End::because(WaitReason::Timeout));
            }
            until_output(entry, search.cursor, left).await;
        }
    }

    /// The first line that matches, from the beginning on; never, if none does.
    pub(crate) async fn until_line(self: &Arc<Self>, entry: &Arc<Entry>, pattern: Regex) -> Result<String, Refusal> {
        match self.wait_match(entry, 0, (pattern, None), LONG).await?.matched {
            Some(line) => Ok(line),
            None => std::future::pending().await,
        }
    }

    async fn wait_port(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        port: Option<u16>,
        limit: Duration,
    ) -> Result<End, Refusal> {
        let deadline = Instant::now() + limit;
        loop {
            let over = is_over(&entry.state.borrow());
            let history = entry.snapshot().history;
            let listening = blocking(move || listening(&history, port)).await?;
            // Whatever listens below the keeper of a process that is over is another's: keepers go on.
            if over || is_over(&entry.state.borrow()) {
                return Ok(End::because(WaitReason::EndedBefore));
            }
            if let Some(port) = listening {
                return Ok(End { reason: Some(WaitReason::Port), port: Some(port), ..End::default() });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(End::because(WaitReason::Timeout));
            }
            watch(entry, left.min(PORT_LOOK), is_over).await;
        }
    }

    async fn wait_quiet(self: &Arc<Self>, entry: &Arc<Entry>, quiet: Duration, limit: Duration) -> End {
        let deadline = Instant::now() + limit;
        let mut cursor = self.output_end(entry).await.unwrap_or(0);
        loop {
            if has_closed(&entry.state.borrow()) {
                return ended_before(entry).await;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let begun = Instant::now();
            let spoke = until_output(entry, cursor, quiet.min(left)).await;
            if !spoke && begun.elapsed() >= quiet {
                return End::because(WaitReason::Quiet);
            }
            if !spoke && !has_closed(&entry.state.borrow()) && left <= quiet {
                return End::because(WaitReason::Timeout);
            }
            cursor = cursor.max(entry.state.borrow().output_bytes);
        }
    }

    /// Any or all of many.
    pub(crate) async fn wait_many(
        self: &Arc<Self>,
        scope: &Scope,
        request: WaitManyRequest,
    ) -> Result<WaitManyAnswer, Refusal> {
        if request.ids.is_empty() || request.ids.len() > MANY {
            return Err(Refusal::invalid(format!("`ids` has {} entries: give 1 to {MANY}", request.ids.len())));
        }
        let limit = limit(request.timeout.as_ref().map(|span| span.text()).as_deref())?;
        let (fits, reason): (fn(&State) -> bool, _) = match request.until.as_deref().unwrap_or("exit") {
            "exit" => (has_exited, WaitReason::Exited),
            "closed" => (has_closed, WaitReason::Closed),
            "finished" => (is_over, WaitReason::Finished),
            other => return Err(Refusal::invalid(format!("until `{other}`: use exit, closed or finished"))),
        };
        let begun = Instant::now();
        let mut found = Vec::with_capacity(request.ids.len());
        for id in &request.ids {
            found.push(self.find(scope, id).await?);
        }
        let mut gates: Vec<_> = found.iter().take(1).map(|one| self.gate(scope, one)).collect();
        let mut waits = tokio::task::JoinSet::new();
        for one in &found {
            if let Found::Here(entry) = one {
                let entry = Arc::clone(entry);
                waits.spawn(async move { watch(&entry, limit, fits).await });
            }
        }
        let all = request.mode == Some(WaitMode::All);
        let mut here = found.iter().any(|one| matches!(one, Found::Ended(_)));
        let mut cancelled = false;
        while all || !here {
            let released = async {
                match gates.first_mut() {
                    Some(gate) => gate.released().await,
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
            let list = if fits(&one.snapshot()) { &mut done } else { &mut pending };
            list.push(self.record(one).await?);
        }
        let reached = if all { pending.is_empty() } else { !done.is_empty() };
        let reason = match (reached, cancelled) {
            (true, _) => reason,
            (false, true) => WaitReason::Cancelled,
            (false, false) => WaitReason::Timeout,
        };
        Ok(WaitManyAnswer { reason, done, pending, waited_ms: begun.elapsed().as_millis() as u64 })
    }
}

/// Waits for the verdict on its readiness, or for its end.
async fn wait_ready(entry: &Entry, limit: Duration) -> Result<End, Refusal> {
    if entry.state.borrow().history.intent.spec.service.ready.is_none() {
        let message = "it was started without `ready`, so nothing says when it is: start it with one, or wait until=port, match or output";
        return Err(Refusal::invalid(message).about(&entry.id));
    }
    let reason = until_ready(entry, limit).await;
    let port = entry.state.borrow().history.readiness.as_ref().and_then(|readiness| readiness.port);
    Ok(End { reason: Some(reason), port, ..End::default() })
}

/// A search through output as it comes.
struct Search {
    searcher: Option<Searcher>,
    /// Where to read on.
    cursor: u64,
    pattern: Regex,
    exclude: Option<Regex>,
}

impl Search {
    /// The first line that matches in what has come since; at the end the unfinished line counts too. Looks no
    /// further than the output went when it began: a writer without end does not keep it.
    fn run(
        &mut self,
        reader: &pinfold_store::reader::OutputReader,
        closed: bool,
    ) -> std::io::Result<Option<(u64, String)>> {
        let Self { searcher, cursor, pattern, exclude } = self;
        let options = SearchOptions { before: 0, after: 0, most: usize::MAX };
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
            let piece = reader.read(*cursor, SEARCH)?;
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
        // A prompt has no line end: a match in the unfinished line counts as it stands, unless one came before.
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

/// The time of a wait: within bounds, and never refused for being long.
pub(crate) fn limit(text: Option<&str>) -> Result<Duration, Refusal> {
    Ok(text.map(parse_duration).transpose()?.unwrap_or(DEFAULT).min(MOST))
}

/// What is waited for.
pub(crate) fn parse(query: WaitQuery) -> Result<Until, Refusal> {
    let exclude = query.exclude.as_deref().map(parse_pattern).transpose()?;
    match query.until.as_deref().unwrap_or("exit") {
        "exit" => Ok(Until::Exit),
        "closed" => Ok(Until::Closed),
        "finished" => Ok(Until::Finished),
        "output" => Ok(Until::Output { cursor: query.cursor, exclude }),
        "match" => {
            let pattern = query.pattern.as_deref().filter(|pattern| !pattern.is_empty());
            let pattern = pattern.ok_or_else(|| Refusal::invalid("until=match needs a `pattern`"))?;
            Ok(Until::Match { cursor: query.cursor.unwrap_or(0), pattern: parse_pattern(pattern)?, exclude })
        }
        "port" => Ok(Until::Port(query.port)),
        "quiet" => {
            let quiet = query.quiet.as_deref().map(parse_duration).transpose()?.unwrap_or(QUIET);
            Ok(Until::Quiet(quiet))
        }
        "ready" => Ok(Until::Ready),
        "input" => Ok(Until::Input),
        other => {
            let most = "use exit, closed, finished, output, match, port, quiet, ready or input";
            Err(Refusal::invalid(format!("until `{}`: {most}", other.chars().take(40).collect::<String>())))
        }
    }
}
