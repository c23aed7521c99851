//! Lists of processes: live ones first, then ended ones, newest first, in pages that neither skip nor repeat.

use std::collections::HashSet;
use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{ListQuery, ProcessList};
use pinfold_model::facts::Status;
use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;
use pinfold_store::queries::{Filter, Period, Queries};

use crate::clock::parse_moment;
use crate::core::{Core, blocking};
use crate::mutex::lock;
use crate::registry::records::{self, TreeDetail};
use crate::registry::{Entry, State, Viewer};
use crate::request_error::RequestError;

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 2000;

/// Where a page begins: before this key, among the live or the ended processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageStart {
    Live(Option<(Moment, ProcessId)>),
    Ended(Option<(Moment, ProcessId)>),
}

impl Core {
    pub(crate) async fn list(self: &Arc<Self>, viewer: &Viewer, query: ListQuery) -> Result<ProcessList, RequestError> {
        let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT) as usize;
        let owners = self.owners_in_view(viewer, query.owner.as_deref())?;
        let filter = Filter { owners, ..parse_filter(&query)? };
        let start = query.page.as_deref().map_or(Ok(PageStart::Live(None)), parse_start)?;
        let mut states = Vec::new();
        let mut last = None;
        if let PageStart::Live(before) = &start {
            self.registry.live_before(before.clone(), |entry| {
                if !fits(&entry.state.borrow(), &filter) {
                    return true;
                }
                if states.len() == limit {
                    last = states.last().map(|state: &State| PageStart::Live(Some(key(state))));
                    return false;
                }
                states.push(entry.snapshot());
                true
            });
        }
        let live = self.live_that_fit(&filter);
        let total_live = live.len() as u64;
        let room = limit - states.len();
        let mut notes = self.recovery.notes();
        let (total_ended, ended) = match self.ended(&filter, &start, room, live).await {
            Err(error) if error.0.code == ErrorCode::StoreUnwritable => {
                notes.push(format!("{}: ended processes may be missing", error.0.message));
                self.ended_in_memory(&filter, &start, room)
            }
            ended => ended?,
        };
        if last.is_none() && ended.len() > room {
            last = Some(match ended.get(room.wrapping_sub(1)) {
                Some(state) => PageStart::Ended(Some(key(state))),
                None => PageStart::Ended(None),
            });
        }
        states.extend(ended.into_iter().take(room));
        let total = total_ended + total_live;
        let given_up = self.given_up(states.iter().map(|state| &state.history)).await;
        let (trees, usage) = (query.tree != Some(false), query.usage == Some(true));
        if usage {
            self.watch_usage(states.clone()).await?;
        }
        let core = Arc::clone(self);
        let show = move |state: &State| {
            let mut record = core.show(state, trees);
            if usage {
                core.add_usage(&mut record, &state.history.intent.id);
            }
            if let Some(life) = &mut record.life {
                life.gave_up = given_up.get(&state.history.intent.id).cloned();
            }
            record
        };
        let processes = blocking(move || states.iter().map(show).collect()).await?;
        let unreadable = if *viewer == Viewer::Operator { lock(&self.unreadable).clone() } else { vec![] };
        let next = last.map(|start| render_start(&start));
        Ok(ProcessList { processes, total, next, unreadable, notes })
    }

    /// The number of matching ended processes, and one more than `room` of them from `start` on; without those that
    /// ended since they were counted as live.
    async fn ended(
        self: &Arc<Self>,
        filter: &Filter,
        start: &PageStart,
        room: usize,
        live: Vec<Arc<Entry>>,
    ) -> Result<(u64, Vec<State>), RequestError> {
        if !filter.statuses.is_empty() && !filter.statuses.iter().any(|status| status.is_over()) {
            return Ok((0, vec![]));
        }
        // Taken together with `live`: this thread does not yield in between, so no process ends meanwhile.
        let unindexed = ended_that_fit(self.registry.unindexed(), filter);
        let (filter, before) = (filter.clone(), before(start));
        let ask = move |queries: &Queries| {
            // A process that this count includes has ended in memory too, so those counted twice can be found after it.
            let total = queries.count(&filter)?;
            let mut twice = HashSet::new();
            for entry in live.iter().filter(|entry| entry.status().is_over()) {
                twice.extend(queries.get(&entry.id)?.map(|_| entry.id.clone()));
            }
            let mut here = Vec::new();
            for state in unindexed {
                if queries.get(&state.history.intent.id)?.is_none() {
                    here.push(state);
                }
            }
            let mut histories = queries.list(&filter, before.clone(), room + 1 + twice.len())?;
            histories.retain(|history| !twice.contains(&history.intent.id));
            let total = total - twice.len() as u64 + here.len() as u64;
            let indexed = histories.into_iter().map(|history| Entry::new(history).snapshot());
            Ok((total, page(indexed.chain(here), before.as_ref(), room)))
        };
        self.query(move |queries| queries.at_one_moment(|| ask(queries))).await
    }

    /// The same from memory only.
    fn ended_in_memory(&self, filter: &Filter, start: &PageStart, room: usize) -> (u64, Vec<State>) {
        let ended = ended_that_fit(self.registry.ended(), filter);
        (ended.len() as u64, page(ended.into_iter(), before(start).as_ref(), room))
    }

    fn live_that_fit(&self, filter: &Filter) -> Vec<Arc<Entry>> {
        let mut live = Vec::new();
        self.registry.live_before(None, |entry| {
            live.extend(fits(&entry.state.borrow(), filter).then(|| Arc::clone(entry)));
            true
        });
        live
    }

    fn show(&self, state: &State, trees: bool) -> pinfold_api::types::Record {
        let detail = if state.history.status().is_over() || !trees { TreeDetail::Skip } else { TreeDetail::Read };
        let mut record = records::record(state, &self.home.process(&state.history.intent.id), detail);
        self.add_last_line(&mut record.output, state);
        self.with_due(record, &state.history)
    }
}

fn ended_that_fit(entries: Vec<Arc<Entry>>, filter: &Filter) -> Vec<State> {
    entries.iter().filter(|entry| fits(&entry.state.borrow(), filter)).map(|entry| entry.snapshot()).collect()
}

/// One more than `room` of the states created before a key, newest first.
fn page(states: impl Iterator<Item = State>, before: Option<&(Moment, ProcessId)>, room: usize) -> Vec<State> {
    let mut states: Vec<State> = states.filter(|state| before.is_none_or(|before| key(state) < *before)).collect();
    states.sort_by_key(|state| std::cmp::Reverse(key(state)));
    states.truncate(room + 1);
    states
}

/// The key before which the ended processes of a page begin.
fn before(start: &PageStart) -> Option<(Moment, ProcessId)> {
    match start {
        PageStart::Live(_) => None,
        PageStart::Ended(before) => before.clone(),
    }
}

pub(super) fn key(state: &State) -> (Moment, ProcessId) {
    (state.history.intent.at, state.history.intent.id.clone())
}

pub(super) fn fits(state: &State, filter: &Filter) -> bool {
    let (status, spec) = (state.history.status(), &state.history.intent.spec);
    (filter.statuses.is_empty() || filter.statuses.contains(&status))
        && filter.owners.as_ref().is_none_or(|owners| owners.iter().any(|owner| owner == state.history.owner()))
        && filter.name.as_ref().is_none_or(|name| Some(name) == spec.name.as_ref())
        && filter.labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value))
        && filter.created.contains(state.history.intent.at)
        && (filter.ended.is_unlimited() || state.history.ended_at().is_some_and(|at| filter.ended.contains(at)))
}

pub(crate) fn parse_filter(query: &ListQuery) -> Result<Filter, RequestError> {
    let mut labels = Vec::new();
    for label in &query.label {
        let bad = || RequestError::invalid(format!("label `{label}`: write `key=value`"));
        let (key, value) = label.split_once('=').ok_or_else(bad)?;
        labels.push((key.to_owned(), value.to_owned()));
    }
    let moment = |field: &str, text: &Option<String>| text.as_deref().map(|text| parse_moment(field, text)).transpose();
    let created = Period {
        from: moment("created_after", &query.created_after)?,
        to: moment("created_before", &query.created_before)?,
    };
    let ended = Period {
        from: moment("finished_after", &query.finished_after)?,
        to: moment("finished_before", &query.finished_before)?,
    };
    let mut statuses = Vec::new();
    for status in query.status.iter().flat_map(|statuses| statuses.split(',')) {
        statuses.extend(parse_status(status.trim())?);
    }
    Ok(Filter { owners: None, statuses, name: query.name.clone(), labels, created, ended })
}

fn parse_status(text: &str) -> Result<Vec<Status>, RequestError> {
    Ok(match text {
        "starting" => vec![Status::Starting],
        "running" => vec![Status::Running],
        "lingering" => vec![Status::Lingering],
        "finished" => vec![Status::Finished],
        "lost" => vec![Status::Lost],
        "live" => vec![Status::Starting, Status::Running, Status::Lingering],
        "ended" => vec![Status::Finished, Status::Lost],
        other => {
            let known = "use starting, running, lingering, finished, lost, live or ended";
            return Err(RequestError::invalid(format!("status `{other}`: {known}")));
        }
    })
}

pub(crate) fn render_start(start: &PageStart) -> String {
    let (kind, key) = match start {
        PageStart::Live(key) => ("live", key),
        PageStart::Ended(key) => ("ended", key),
    };
    match key {
        Some((at, id)) => format!("{kind}-{}-{id}", at.0),
        None => kind.to_owned(),
    }
}

pub(crate) fn parse_start(text: &str) -> Result<PageStart, RequestError> {
    let bad = || RequestError::invalid("page: give the `next` of the previous page, unchanged");
    let mut parts = text.splitn(3, '-');
    let kind = parts.next();
    let key = match (parts.next(), parts.next()) {
        (Some(at), Some(id)) => {
            let at = at.parse().map(Moment).map_err(|_| bad())?;
            Some((at, ProcessId::parse(id).map_err(|_| bad())?))
        }
        (None, None) => None,
        _ => return Err(bad()),
    };
    match kind {
        Some("live") => Ok(PageStart::Live(key)),
        Some("ended") => Ok(PageStart::Ended(key)),
        _ => Err(bad()),
    }
}
