//! Finding a process by a client's word for it.

use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_model::facts::{History, Intent};
use pinfold_model::id::{ProcessId, is_prefix};
use pinfold_model::spelled::Spelled;
use pinfold_store::queries::Filter;

use crate::core::Core;
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::entries::{Entry, State};
use crate::registry::similar_names::nearest;
use crate::registry::view::Scope;

/// Ids named as possible meanings of a prefix.
const AMBIGUOUS: usize = 5;

/// A process found by a client's word for it: in memory, or only in the index.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Here(Arc<Entry>),
    Ended(Box<History>),
}

impl Found {
    pub(crate) fn snapshot(&self) -> State {
        match self {
            Found::Here(entry) => entry.snapshot(),
            Found::Ended(history) => Entry::new((**history).clone()).snapshot(),
        }
    }

    /// What its spec says of it.
    pub(crate) fn intent(&self) -> Arc<Spelled<Intent>> {
        match self {
            Found::Here(entry) => Arc::clone(&entry.state.borrow().history.intent),
            Found::Ended(history) => Arc::clone(&history.intent),
        }
    }

    pub(crate) fn id(&self) -> &ProcessId {
        match self {
            Found::Here(entry) => &entry.id,
            Found::Ended(history) => &history.intent.id,
        }
    }
}

impl Core {
    /// Finds a process by id, by the name of a live one, by the name of the latest that ended, or by an unambiguous prefix,
    /// in this order: a name that somebody gave is never taken for the beginning of another's id.
    /// What is out of the caller's view is not there (D5).
    pub(crate) async fn find(self: &Arc<Self>, scope: &Scope, wanted: &str) -> Result<Found, Refusal> {
        let in_view = |entry: &Arc<Entry>| self.sees(scope, &entry.state.borrow().history);
        if let Ok(id) = ProcessId::parse(wanted)
            && let Some(entry) = self.registry.get(&id).filter(in_view)
        {
            return Ok(Found::Here(entry));
        }
        let mut named = self.registry.named(wanted);
        named.retain(in_view);
        match named.as_slice() {
            [] => {}
            [entry] => return Ok(Found::Here(Arc::clone(entry))),
            several => {
                let ids: Vec<_> = several.iter().take(AMBIGUOUS).map(|entry| entry.id.as_str()).collect();
                let more = if several.len() > AMBIGUOUS { ", …" } else { "" };
                let (count, ids) = (several.len(), ids.join(", "));
                let message = format!("{count} live processes are named `{wanted}` ({ids}{more}): use an id");
                return Err(Refusal::new(ErrorCode::AmbiguousId, message));
            }
        }
        let mut waiting = self.chains.named(wanted);
        waiting.retain(|history| self.sees(scope, history));
        match (waiting.pop(), waiting.len()) {
            (Some(history), 0) => {
                return Ok(match self.registry.get(&history.intent.id) {
                    Some(entry) => Found::Here(entry),
                    None => Found::Ended(Box::new(history)),
                });
            }
            (Some(_), others) => {
                let message = format!("{} processes named `{wanted}` wait for their restart: use an id", others + 1);
                return Err(Refusal::new(ErrorCode::AmbiguousId, message));
            }
            (None, _) => {}
        }
        let by_id = if is_prefix(wanted) { self.find_by_prefix(scope, wanted).await } else { Ok(None) };
        if let Ok(Some(found)) = &by_id
            && found.id().as_str() == wanted
        {
            return by_id?.ok_or_else(|| self.missing(scope, wanted));
        }
        match self.latest_ended(scope, wanted).await? {
            Some(named) => Ok(named),
            None => by_id?.ok_or_else(|| self.missing(scope, wanted)),
        }
    }

    /// The latest process of this name; asked for only when none of that name lives.
    async fn latest_ended(self: &Arc<Self>, scope: &Scope, name: &str) -> Result<Option<Found>, Refusal> {
        let started = |found: &Found| {
            let intent = found.intent();
            (intent.at, intent.id.clone())
        };
        let is_named = |entry: &Arc<Entry>| {
            let state = entry.state.borrow();
            state.history.intent.spec.name.as_deref() == Some(name) && self.sees(scope, &state.history)
        };
        let here = self.registry.known().into_iter().filter(is_named).map(Found::Here);
        let filter =
            Filter { owners: self.owners_in_view(scope, None)?, name: Some(name.to_owned()), ..Filter::default() };
        let indexed = self.query(move |queries| queries.list(&filter, None, 1)).await?;
        let indexed = indexed.into_iter().map(|history| Found::Ended(Box::new(history)));
        // The same process may be in both: then the one in memory is newer.
        Ok(indexed.chain(here).max_by_key(started))
    }

    async fn find_by_prefix(self: &Arc<Self>, scope: &Scope, prefix: &str) -> Result<Option<Found>, Refusal> {
        let (text, owners) = (prefix.to_owned(), self.owners_in_view(scope, None)?);
        let mut ids = self.query(move |queries| queries.prefix(&text, owners.as_deref(), AMBIGUOUS)).await?;
        let mut here = self.registry.prefix(prefix);
        here.retain(|entry| self.sees(scope, &entry.state.borrow().history));
        ids.extend(here.iter().take(AMBIGUOUS).map(|entry| entry.id.clone()));
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
                return Err(Refusal::new(ErrorCode::AmbiguousId, message));
            }
        };
        if let Some(entry) = self.registry.get(&id) {
            return Ok(Some(Found::Here(entry)));
        }
        let found = self.query(move |queries| queries.get(&id)).await?;
        Ok(found.map(|(history, _)| Found::Ended(Box::new(history))))
    }

    fn missing(&self, scope: &Scope, wanted: &str) -> Refusal {
        let unreadable = lock(&self.unreadable);
        // Whose a record is that cannot be read, nobody knows.
        let known = unreadable.iter().find(|unreadable| unreadable.id == wanted && *scope == Scope::Operator);
        match known {
            Some(unreadable) => {
                let message = format!("the record of `{wanted}` cannot be read: {}", unreadable.reason);
                Refusal::new(ErrorCode::Damaged, message)
            }
            None => self.not_found(scope, wanted),
        }
    }

    /// Says what was probably meant: what is written almost alike.
    fn not_found(&self, scope: &Scope, wanted: &str) -> Refusal {
        let mut known = self.registry.known();
        known.retain(|entry| self.sees(scope, &entry.state.borrow().history));
        let name_of = |entry: &Arc<Entry>| entry.state.borrow().history.intent.spec.name.clone();
        let words = known.iter().flat_map(|entry| [name_of(entry), Some(entry.id.to_string())]).flatten();
        match nearest(wanted, words) {
            Some(word) => {
                let message = format!("no process `{}`: did you mean `{word}`?", excerpt(wanted));
                Refusal::new(ErrorCode::NotFound, message)
            }
            None => Refusal::not_found(wanted),
        }
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}
