//! Searching the output of many processes: newest process first, within a process oldest line first.
//!
//! The order is that of creation, which never changes, so that the next page neither repeats nor skips a process, even if one
//! ended in between. A live process is searched as far as its output goes when the search reaches it, its unfinished line
//! included. Bounds: [`MAX_HITS`], [`MAX_BYTES`] and [`MAX_TIME`] per page, [`MAX_SEARCHES`] searches at once. The work is
//! done in slices of [`SLICE`]: when the client leaves, its request is dropped and no further slice begins.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Hit, ListQuery, SearchBound, SearchPage, SearchQuery};
use pinfold_model::id::ProcessId;
use pinfold_model::output_view::{Line, SearchOptions, Searcher, parse_pattern, strip_ansi};
use pinfold_model::units::{Moment, parse_duration};
use pinfold_store::queries::Filter;
use pinfold_store::reader::OutputReader;

use crate::core::{Core, blocking};
use crate::processes::list::{fits, key, parse_filter};
use crate::registry::records::reader;
use crate::registry::{Entry, State, Viewer};
use crate::request_error::RequestError;

const HITS: u32 = 100;
const MAX_HITS: u32 = 1000;
/// Bytes of a line that are shown.
const MAX_TEXT: usize = 1000;
/// Bytes that are searched for one page.
const MAX_BYTES: u64 = 1 << 30;
const TIME: Duration = Duration::from_secs(5);
const MAX_TIME: Duration = Duration::from_secs(30);
/// Searches that run at once, of eight threads for all blocking work; others wait for their turn.
pub(crate) const MAX_SEARCHES: usize = 2;
/// How long a thread works before it is given back.
const SLICE: Duration = Duration::from_millis(50);
/// Bytes read at a time.
const PIECE: usize = 256 * 1024;
/// Processes that are looked up at a time.
const BATCH: usize = 100;

/// Where a page begins: in this process, at this cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    created: Moment,
    id: ProcessId,
    cursor: u64,
}

/// A page that is being made. It moves to a blocking thread and back for each slice.
struct Search {
    pattern: regex::bytes::Regex,
    limit: usize,
    deadline: Instant,
    queue: VecDeque<Candidate>,
    current: Option<Scan>,
    page: SearchPage,
    stopped: Option<(SearchBound, Position)>,
}

/// A process to search.
struct Candidate {
    state: State,
    reader: OutputReader,
    cursor: u64,
}

/// A process that is being searched.
struct Scan {
    candidate: Candidate,
    searcher: Searcher,
    at: u64,
    /// How far the output went when it was first read.
    end: Option<u64>,
}

impl Core {
    /// One page of a search.
    pub(crate) async fn search(
        self: &Arc<Self>,
        viewer: &Viewer,
        query: SearchQuery,
    ) -> Result<SearchPage, RequestError> {
        let _counted = Counted::new(self);
        let time = query.timeout.as_deref().map(parse_duration).transpose()?.unwrap_or(TIME).min(MAX_TIME);
        let deadline = Instant::now() + time;
        let limit = query.limit.unwrap_or(HITS).clamp(1, MAX_HITS) as usize;
        let pattern = parse_pattern(&pattern_text(&query)?)?;
        let position = query.page.as_deref().map(parse_position).transpose()?;
        let filter =
            Filter { owners: self.owners_in_view(viewer, query.owner.as_deref())?, ..parse_filter(&filters(&query))? };
        let mut search = Search {
            pattern,
            limit,
            deadline,
            queue: VecDeque::new(),
            current: None,
            page: SearchPage::default(),
            stopped: None,
        };
        let only = match &query.process {
            Some(process) => Some(self.find(viewer, process).await?.snapshot()),
            None => None,
        };
        // Where the next batch begins; `None` after the last.
        let mut next = Some(None);
        if let Some(state) = only {
            let cursor = position.filter(|position| position.id == state.history.intent.id).map_or(0, |at| at.cursor);
            if fits(&state, &filter) {
                search.queue.push_back(self.candidate(state, cursor));
            }
            next = None;
        } else if let Some(position) = position {
            let state = self.state_of(&position.id).await?;
            let state = state.filter(|state| self.sees(viewer, &state.history) && fits(state, &filter));
            search.queue.extend(state.map(|state| self.candidate(state, position.cursor)));
            next = Some(Some((position.created, position.id)));
        }
        let turn = tokio::time::timeout_at(deadline.into(), self.searches.acquire()).await.map_err(|_| {
            let message = format!("{MAX_SEARCHES} searches are running already: try again");
            RequestError::new(ErrorCode::LimitReached, message)
        })?;
        let _turn = turn.map_err(RequestError::internal)?;
        loop {
            if search.queue.is_empty()
                && search.current.is_none()
                && let Some(before) = next.take()
            {
                let batch = self.batch(&filter, before).await?;
                next = batch.last().map(|state| Some(key(state)));
                search.queue.extend(batch.into_iter().map(|state| self.candidate(state, 0)));
            }
            if search.queue.is_empty() && search.current.is_none() && next.is_none() {
                return Ok(search.page);
            }
            let before = search.page.searched_bytes;
            let slice = blocking(move || search.work().map(|()| search)).await?;
            search = slice.map_err(RequestError::internal)?;
            self.metrics.search_bytes.fetch_add(search.page.searched_bytes - before, Ordering::Relaxed);
            if let Some((bound, position)) = search.stopped {
                let next = Some(render_position(&position));
                return Ok(SearchPage { next, stopped_by: Some(bound), ..search.page });
            }
        }
    }

    fn candidate(&self, state: State, cursor: u64) -> Candidate {
        let reader = reader(&state, &self.home.process(&state.history.intent.id));
        Candidate { state, reader, cursor }
    }

    /// What is known of a process, in memory or in the index.
    pub(crate) async fn state_of(self: &Arc<Self>, id: &ProcessId) -> Result<Option<State>, RequestError> {
        if let Some(entry) = self.registry.get(id) {
            return Ok(Some(entry.snapshot()));
        }
        let id = id.clone();
        let found = self.query(move |queries| queries.get(&id)).await?;
        Ok(found.map(|(history, _)| Entry::new(history).snapshot()))
    }

    /// The next processes that fit, newest first.
    async fn batch(
        self: &Arc<Self>,
        filter: &Filter,
        before: Option<(Moment, ProcessId)>,
    ) -> Result<Vec<State>, RequestError> {
        let mut states: Vec<State> = Vec::new();
        self.registry.live_before(before.clone(), |entry| {
            if fits(&entry.state.borrow(), filter) {
                states.push(entry.snapshot());
            }
            states.len() < BATCH
        });
        let ended = self.registry.unindexed().into_iter().map(|entry| entry.snapshot());
        let is_next = |state: &State| before.as_ref().is_none_or(|before| key(state) < *before);
        states.extend(ended.filter(|state| is_next(state) && fits(state, filter)));
        let asked = filter.clone();
        let indexed = self.query(move |queries| queries.list(&asked, before, BATCH)).await?;
        states.extend(indexed.into_iter().map(|history| Entry::new(history).snapshot()));
        states.sort_by_key(|state| std::cmp::Reverse(key(state)));
        let mut seen = HashSet::new();
        states.retain(|state| seen.insert(state.history.intent.id.clone()));
        states.truncate(BATCH);
        Ok(states)
    }
}

impl Search {
    /// Searches for one slice, or until the page is full.
    fn work(&mut self) -> std::io::Result<()> {
        let end = Instant::now() + SLICE;
        while self.stopped.is_none() && Instant::now() < end {
            let scan = match self.current.take() {
                Some(scan) => scan,
                None => match self.queue.pop_front() {
                    Some(candidate) => Scan::new(candidate, &self.pattern),
                    None => return Ok(()),
                },
            };
            self.step(scan)?;
        }
        Ok(())
    }

    /// Searches the next piece of a process.
    fn step(&mut self, mut scan: Scan) -> std::io::Result<()> {
        let bound = match () {
            () if Instant::now() >= self.deadline => Some(SearchBound::Time),
            () if self.page.searched_bytes >= MAX_BYTES => Some(SearchBound::Bytes),
            () => None,
        };
        if let Some(bound) = bound {
            self.stopped = Some((bound, scan.position(scan.searcher.unfinished().unwrap_or(scan.at))));
            return Ok(());
        }
        if scan.end.is_none() {
            self.page.searched_processes += 1;
        }
        let piece = scan.candidate.reader.read(scan.at, PIECE)?;
        let end = *scan.end.get_or_insert(piece.end);
        self.page.searched_bytes += piece.bytes.len() as u64;
        let (hits, limit, state) = (&mut self.page.hits, self.limit, &scan.candidate.state);
        // Where the first line starts that does not fit.
        let mut full = None;
        let mut give = |line: Line<'_>| match line {
            Line::Matched(found) if hits.len() < limit => hits.push(hit(state, found.line_start, found.line)),
            Line::Matched(found) => full = full.or(Some(found.line_start)),
            Line::Context(_) => {}
        };
        scan.searcher.feed(piece.at, &piece.bytes, &mut give);
        let is_last = piece.next <= scan.at || piece.next >= end;
        if is_last {
            scan.searcher.flush(&mut give);
        }
        scan.at = piece.next;
        match full {
            Some(cursor) => self.stopped = Some((SearchBound::Limit, scan.position(cursor))),
            None if is_last => {}
            None => self.current = Some(scan),
        }
        Ok(())
    }
}

impl Scan {
    fn new(candidate: Candidate, pattern: &regex::bytes::Regex) -> Self {
        let options = SearchOptions { before: 0, after: 0, max_matches: usize::MAX };
        let (searcher, at) = (Searcher::new(pattern.clone(), options), candidate.cursor);
        Self { candidate, searcher, at, end: None }
    }

    fn position(&self, cursor: u64) -> Position {
        let (created, id) = key(&self.candidate.state);
        Position { created, id, cursor }
    }
}

fn hit(state: &State, cursor: u64, line: &[u8]) -> Hit {
    let history = &state.history;
    let mut text = String::from_utf8_lossy(&strip_ansi(line)).into_owned();
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    Hit {
        process: history.intent.id.to_string(),
        name: history.intent.spec.name.clone(),
        owner: history.owner().to_owned(),
        status: history.status(),
        cursor,
        text,
    }
}

fn pattern_text(query: &SearchQuery) -> Result<String, RequestError> {
    if query.pattern.is_empty() {
        return Err(RequestError::invalid("pattern: give a regular expression, or a text with `literal=true`"));
    }
    let escaped = match query.literal {
        Some(true) => regex::escape(&query.pattern),
        _ => query.pattern.clone(),
    };
    Ok(if query.ignore_case == Some(true) { format!("(?i){escaped}") } else { escaped })
}

/// The filters of a search, as those of a list.
fn filters(query: &SearchQuery) -> ListQuery {
    ListQuery {
        status: query.status.clone(),
        name: query.name.clone(),
        label: query.label.clone(),
        created_after: query.created_after.clone(),
        created_before: query.created_before.clone(),
        finished_after: query.finished_after.clone(),
        finished_before: query.finished_before.clone(),
        ..ListQuery::default()
    }
}

pub(crate) fn render_position(Position { created, id, cursor }: &Position) -> String {
    format!("{}-{id}-{cursor}", created.0)
}

pub(crate) fn parse_position(text: &str) -> Result<Position, RequestError> {
    let bad = || RequestError::invalid("page: give the `next` of the previous page, unchanged");
    let parts: Vec<&str> = text.split('-').collect();
    let [created, id, cursor] = parts[..] else { return Err(bad()) };
    Ok(Position {
        created: created.parse().map(Moment).map_err(|_| bad())?,
        id: ProcessId::parse(id).map_err(|_| bad())?,
        cursor: cursor.parse().map_err(|_| bad())?,
    })
}

/// Counts a search while it runs. Dropped with its request, also when the client leaves.
struct Counted(Arc<Core>);

impl Counted {
    fn new(core: &Arc<Core>) -> Self {
        core.metrics.searches.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(core))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.searches.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_as_text() {
        let position =
            Position { created: Moment(1_700_000_000_000_000), id: ProcessId::from_number(7, 1), cursor: 42 };
        assert_eq!(parse_position(&render_position(&position)), Ok(position));
        for bad in ["", "start", "1-2", "1-2-3-4", "x-k3v9x2-1", "1-k3v9x2-", "1--1"] {
            assert!(parse_position(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_literal_pattern_means_its_characters() {
        let text = |pattern: &str, literal, ignore_case| {
            let (literal, ignore_case) = (Some(literal), Some(ignore_case));
            pattern_text(&SearchQuery { pattern: pattern.into(), literal, ignore_case, ..SearchQuery::default() })
        };
        assert_eq!(text("a.b", false, false).as_deref(), Ok("a.b"));
        assert_eq!(text("a.b", true, true).as_deref(), Ok("(?i)a\\.b"));
        assert!(text("", true, false).is_err());
    }
}
