//! Finds a process by id, prefix of an id, or name.

use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_model::cached_json::CachedJson;
use pinfold_model::facts::{History, Intent};
use pinfold_model::id::{ProcessId, is_prefix};
use pinfold_store::queries::Filter;

use crate::core::Core;
use crate::mutex::lock;
use crate::registry::entries::{Entry, State};
use crate::registry::similar_names::nearest;
use crate::registry::view::Viewer;
use crate::request_error::RequestError;

/// Maximum number of ids listed for an ambiguous name or prefix.
const MAX_CANDIDATES: usize = 5;

/// A process that was found: in memory, or only in the index.
#[derive(Clone, Debug)]
pub(crate) enum FoundProcess {
    Here(Arc<Entry>),
    Ended(Box<History>),
}

impl FoundProcess {
    pub(crate) fn snapshot(&self) -> State {
        match self {
            FoundProcess::Here(entry) => entry.snapshot(),
            FoundProcess::Ended(history) => Entry::new((**history).clone()).snapshot(),
        }
    }

    /// Its intent.
    pub(crate) fn intent(&self) -> Arc<CachedJson<Intent>> {
        match self {
            FoundProcess::Here(entry) => Arc::clone(&entry.state.borrow().history.intent),
            FoundProcess::Ended(history) => Arc::clone(&history.intent),
        }
    }

    pub(crate) fn id(&self) -> &ProcessId {
        match self {
            FoundProcess::Here(entry) => &entry.id,
            FoundProcess::Ended(history) => &history.intent.id,
        }
    }
}

impl Core {
    /// Finds a process by id, by the name of a live one, by the name of the latest that ended, or by an unambiguous
    /// prefix of an id, in this order: a name always wins over the prefix of another process's id. A process out of
    /// view is reported as not found (D5).
    pub(crate) async fn find(
        self: &Arc<Self>,
        viewer: &Viewer,
        id_or_name: &str,
    ) -> Result<FoundProcess, RequestError> {
        let in_view = |entry: &Arc<Entry>| self.sees(viewer, &entry.state.borrow().history);
        if let Ok(id) = ProcessId::parse(id_or_name)
            && let Some(entry) = self.registry.get(&id).filter(in_view)
        {
            return Ok(FoundProcess::Here(entry));
        }
        let mut named = self.registry.named(id_or_name);
        named.retain(in_view);
        match named.as_slice() {
            [] => {}
            [entry] => return Ok(FoundProcess::Here(Arc::clone(entry))),
            several => {
                let ids: Vec<_> = several.iter().take(MAX_CANDIDATES).map(|entry| entry.id.as_str()).collect();
                let more = if several.len() > MAX_CANDIDATES { ", …" } else { "" };
                let (count, ids) = (several.len(), ids.join(", "));
                let message = format!("{count} live processes are named `{id_or_name}` ({ids}{more}): use an id");
                return Err(RequestError::new(ErrorCode::AmbiguousId, message));
            }
        }
        let mut waiting = self.chains.named(id_or_name);
        waiting.retain(|history| self.sees(viewer, history));
        match (waiting.pop(), waiting.len()) {
            (Some(history), 0) => {
                return Ok(match self.registry.get(&history.intent.id) {
                    Some(entry) => FoundProcess::Here(entry),
                    None => FoundProcess::Ended(Box::new(history)),
                });
            }
            (Some(_), others) => {
                let message =
                    format!("{} processes named `{id_or_name}` are waiting to be restarted: use an id", others + 1);
                return Err(RequestError::new(ErrorCode::AmbiguousId, message));
            }
            (None, _) => {}
        }
        let by_id = if is_prefix(id_or_name) { self.find_by_prefix(viewer, id_or_name).await } else { Ok(None) };
        if let Ok(Some(found)) = &by_id
            && found.id().as_str() == id_or_name
        {
            return by_id?.ok_or_else(|| self.missing(viewer, id_or_name));
        }
        match self.latest_ended(viewer, id_or_name).await? {
            Some(named) => Ok(named),
            None => by_id?.ok_or_else(|| self.missing(viewer, id_or_name)),
        }
    }

    /// The latest ended process of this name.
    async fn latest_ended(self: &Arc<Self>, viewer: &Viewer, name: &str) -> Result<Option<FoundProcess>, RequestError> {
        let started = |found: &FoundProcess| {
            let intent = found.intent();
            (intent.at, intent.id.clone())
        };
        let is_named = |entry: &Arc<Entry>| {
            let state = entry.state.borrow();
            state.history.intent.spec.name.as_deref() == Some(name) && self.sees(viewer, &state.history)
        };
        let here = self.registry.known().into_iter().filter(is_named).map(FoundProcess::Here);
        let filter =
            Filter { owners: self.owners_in_view(viewer, None)?, name: Some(name.to_owned()), ..Filter::default() };
        let indexed = self.query(move |queries| queries.list(&filter, None, 1)).await?;
        let indexed = indexed.into_iter().map(|history| FoundProcess::Ended(Box::new(history)));
        // The same process may be in both: the one in memory is newer.
        Ok(indexed.chain(here).max_by_key(started))
    }

    async fn find_by_prefix(
        self: &Arc<Self>,
        viewer: &Viewer,
        prefix: &str,
    ) -> Result<Option<FoundProcess>, RequestError> {
        let (text, owners) = (prefix.to_owned(), self.owners_in_view(viewer, None)?);
        let mut ids = self.query(move |queries| queries.prefix(&text, owners.as_deref(), MAX_CANDIDATES)).await?;
        let mut here = self.registry.prefix(prefix);
        here.retain(|entry| self.sees(viewer, &entry.state.borrow().history));
        ids.extend(here.iter().take(MAX_CANDIDATES).map(|entry| entry.id.clone()));
        ids.sort();
        ids.dedup();
        let exact = ids.iter().position(|id| id.as_str() == prefix);
        let id = match (exact, ids.len()) {
            (Some(place), _) => ids.swap_remove(place),
            (None, 0) => return Ok(None),
            (None, 1) => ids.swap_remove(0),
            (None, _) => {
                let ids: Vec<_> = ids.iter().map(ProcessId::as_str).collect();
                let message = format!("`{prefix}` could be any of {}: give more characters", ids.join(", "));
                return Err(RequestError::new(ErrorCode::AmbiguousId, message));
            }
        };
        if let Some(entry) = self.registry.get(&id) {
            return Ok(Some(FoundProcess::Here(entry)));
        }
        let found = self.query(move |queries| queries.get(&id)).await?;
        Ok(found.map(|(history, _)| FoundProcess::Ended(Box::new(history))))
    }

    fn missing(&self, viewer: &Viewer, id_or_name: &str) -> RequestError {
        let unreadable = lock(&self.unreadable);
        // The owner of an unreadable record is unknown, so only the operator sees it.
        let known = unreadable.iter().find(|unreadable| unreadable.id == id_or_name && *viewer == Viewer::Operator);
        match known {
            Some(unreadable) => {
                let message = format!("the record of `{id_or_name}` cannot be read: {}", unreadable.reason);
                RequestError::new(ErrorCode::Damaged, message)
            }
            None => self.not_found(viewer, id_or_name),
        }
    }

    /// The error for an unknown process, with a suggestion if a known name or id is similar.
    fn not_found(&self, viewer: &Viewer, id_or_name: &str) -> RequestError {
        let mut known = self.registry.known();
        known.retain(|entry| self.sees(viewer, &entry.state.borrow().history));
        let name_of = |entry: &Arc<Entry>| entry.state.borrow().history.intent.spec.name.clone();
        let words = known.iter().flat_map(|entry| [name_of(entry), Some(entry.id.to_string())]).flatten();
        match nearest(id_or_name, words) {
            Some(word) => {
                let message = format!("no process `{}`: did you mean `{word}`?", excerpt(id_or_name));
                RequestError::new(ErrorCode::NotFound, message)
            }
            None => RequestError::not_found(id_or_name),
        }
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}
