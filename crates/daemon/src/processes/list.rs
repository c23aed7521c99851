//! Lists: live processes first, then the ended ones, newest first, in pages that neither skip nor repeat.

use std::collections::HashSet;
use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{ListQuery, ProcessList};
use pinfold_model::facts::Status;
use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;
use pinfold_store::queries::{Filter, Queries};

use crate::core::{Core, blocking};
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::records::{self, Look};
use crate::registry::{Entry, Scope, State};

const LIMIT: u32 = 50;
const LIMIT_MOST: u32 = 500;

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Live(Option<(Moment, ProcessId)>),
    Ended(Option<(Moment, ProcessId)>),
}

impl Core {
    pub(crate) async fn list(self: &Arc<Self>, scope: &Scope, query: ListQuery) -> Result<ProcessList, Refusal> {
        let limit = query.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MOST) as usize;
        let owners = self.owners_in_view(scope, query.owner.as_deref())?;
        let filter = Filter { owners, ..parse_filter(&query)? };
        let place = query.page.as_deref().map_or(Ok(Place::Live(None)), parse_place)?;
        let mut states = Vec::new();
        let mut last = None;
        if let Place::Live(before) = &place {
            self.registry.live_before(before.clone(), |entry| {
                if !fits(entry, &filter) {
                    return true;
                }
                if states.len() == limit {
                    last = states.last().map(|state: &State| Place::Live(Some(key(state))));
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
        let (total_ended, ended) = match self.ended(&filter, &place, room, live).await {
            Err(refusal) if refusal.0.code == ErrorCode::StoreUnwritable => {
                notes.push(format!("{}: ended processes may be missing", refusal.0.message));
                self.ended_in_memory(&filter, &place, room)
            }
            ended => ended?,
        };
        if last.is_none() && ended.len() > room {
            last = Some(match ended.get(room.wrapping_sub(1)) {
                Some(state) => Place::Ended(Some(key(state))),
                None => Place::Ended(None),
            });
        }
        states.extend(ended.into_iter().take(room));
        let total = total_ended + total_live;
        let given_up = self.given_up(states.iter().map(|state| &state.history)).await;
        let core = Arc::clone(self);
        let show = move |state: &State| {
            let mut record = core.show(state);
            if let Some(life) = &mut record.life {
                life.gave_up = given_up.get(&state.history.intent.id).cloned();
            }
            record
        };
        let processes = blocking(move || states.iter().map(show).collect()).await?;
        let unreadable = if *scope == Scope::Operator { lock(&self.unreadable).clone() } else { vec![] };
        let next = last.map(|place| render_place(&place));
        Ok(ProcessList { processes, total, next, unreadable, notes })
    }

    /// How many ended processes fit, and one more than `room` of them from the place on; without those that have
    /// ended since they were counted as live.
    async fn ended(
        self: &Arc<Self>,
        filter: &Filter,
        place: &Place,
        room: usize,
        live: Vec<Arc<Entry>>,
    ) -> Result<(u64, Vec<State>), Refusal> {
        if !filter.statuses.is_empty() && !filter.statuses.iter().any(|status| status.is_over()) {
            return Ok((0, vec![]));
        }
        // In the same moment as `live`: nothing ends in between on this thread.
        let unindexed = ended_that_fit(self.registry.unindexed(), filter);
        let (filter, before) = (filter.clone(), before(place));
        let ask = move |queries: &Queries| {
            // What this count saw to be over is over in memory too, so that none escapes who is looked for after it.
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

    /// The same without the index.
    fn ended_in_memory(&self, filter: &Filter, place: &Place, room: usize) -> (u64, Vec<State>) {
        let ended = ended_that_fit(self.registry.ended(), filter);
        (ended.len() as u64, page(ended.into_iter(), before(place).as_ref(), room))
    }

    fn live_that_fit(&self, filter: &Filter) -> Vec<Arc<Entry>> {
        let mut live = Vec::new();
        self.registry.live_before(None, |entry| {
            live.extend(fits(entry, filter).then(|| Arc::clone(entry)));
            true
        });
        live
    }

    fn show(&self, state: &State) -> pinfold_api::types::Record {
        let look = if state.history.status().is_over() { Look::Away } else { Look::Closely };
        let record = records::record(state, &self.home.process(&state.history.intent.id), look);
        self.with_due(record, &state.history)
    }
}

fn ended_that_fit(entries: Vec<Arc<Entry>>, filter: &Filter) -> Vec<State> {
    entries.iter().filter(|entry| fits(entry, filter)).map(|entry| entry.snapshot()).collect()
}

/// One more than `room` of those created before a place, newest first.
fn page(states: impl Iterator<Item = State>, before: Option<&(Moment, ProcessId)>, room: usize) -> Vec<State> {
    let mut states: Vec<State> = states.filter(|state| before.is_none_or(|before| key(state) < *before)).collect();
    states.sort_by_key(|state| std::cmp::Reverse(key(state)));
    states.truncate(room + 1);
    states
}

/// Where the ended ones of a page begin.
fn before(place: &Place) -> Option<(Moment, ProcessId)> {
    match place {
        Place::Live(_) => None,
        Place::Ended(before) => before.clone(),
    }
}

fn key(state: &State) -> (Moment, ProcessId) {
    (state.history.intent.at, state.history.intent.id.clone())
}

fn fits(entry: &Entry, filter: &Filter) -> bool {
    let state = entry.state.borrow();
    let (status, spec) = (state.history.status(), &state.history.intent.spec);
    (filter.statuses.is_empty() || filter.statuses.contains(&status))
        && filter.owners.as_ref().is_none_or(|owners| owners.iter().any(|owner| owner == state.history.owner()))
        && filter.name.as_ref().is_none_or(|name| Some(name) == spec.name.as_ref())
        && filter.label.as_ref().is_none_or(|(key, value)| spec.labels.get(key) == Some(value))
}

pub(crate) fn parse_filter(query: &ListQuery) -> Result<Filter, Refusal> {
    let label = match &query.label {
        None => None,
        Some(label) => {
            let bad = || Refusal::invalid(format!("label `{label}`: write `key=value`"));
            let (key, value) = label.split_once('=').ok_or_else(bad)?;
            Some((key.to_owned(), value.to_owned()))
        }
    };
    let mut statuses = Vec::new();
    for status in query.status.iter().flat_map(|statuses| statuses.split(',')) {
        statuses.extend(parse_status(status.trim())?);
    }
    Ok(Filter { owners: None, statuses, name: query.name.clone(), label })
}

fn parse_status(text: &str) -> Result<Vec<Status>, Refusal> {
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
            return Err(Refusal::invalid(format!("status `{other}`: {known}")));
        }
    })
}

pub(crate) fn render_place(place: &Place) -> String {
    let (kind, key) = match place {
        Place::Live(key) => ("live", key),
        Place::Ended(key) => ("ended", key),
    };
    match key {
        Some((at, id)) => format!("{kind}-{}-{id}", at.0),
        None => kind.to_owned(),
    }
}

pub(crate) fn parse_place(text: &str) -> Result<Place, Refusal> {
    let bad = || Refusal::invalid("page: give the `next` of the page before, as it was");
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
        Some("live") => Ok(Place::Live(key)),
        Some("ended") => Ok(Place::Ended(key)),
        _ => Err(bad()),
    }
}
