//! Finding a process by a client's word for it.

use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_model::facts::History;
use pinfold_model::id::{ProcessId, is_prefix};

use crate::refusal::Refusal;
use crate::registry::{Entry, State, lock};
use crate::service::Core;

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

    pub(crate) fn id(&self) -> &ProcessId {
        match self {
            Found::Here(entry) => &entry.id,
            Found::Ended(history) => &history.intent.id,
        }
    }
}

impl Core {
    /// Finds a process by id, by the name of a live one, or by an unambiguous prefix, in this order: a name that
    /// somebody gave is never taken for the beginning of another's id.
    pub(crate) async fn find(self: &Arc<Self>, wanted: &str) -> Result<Found, Refusal> {
        if let Ok(id) = ProcessId::parse(wanted)
            && let Some(entry) = self.registry.get(&id)
        {
            return Ok(Found::Here(entry));
        }
        let mut named = self.registry.named(wanted);
        match (named.pop(), named.len()) {
            (Some(entry), 0) => return Ok(Found::Here(entry)),
            (Some(_), others) => {
                let message = format!("{} live processes are named `{wanted}`: use an id", others + 1);
                return Err(Refusal::new(ErrorCode::AmbiguousId, message));
            }
            (None, _) => {}
        }
        let found = if is_prefix(wanted) { self.find_by_prefix(wanted).await? } else { None };
        found.ok_or_else(|| self.missing(wanted))
    }

    async fn find_by_prefix(self: &Arc<Self>, prefix: &str) -> Result<Option<Found>, Refusal> {
        let text = prefix.to_owned();
        let mut ids = self.query(move |queries| queries.prefix(&text, 5)).await?;
        ids.extend(self.registry.prefix(prefix, 5));
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

    fn missing(&self, wanted: &str) -> Refusal {
        let unreadable = lock(&self.unreadable);
        match unreadable.iter().find(|unreadable| unreadable.id == wanted) {
            Some(unreadable) => {
                let message = format!("the record of `{wanted}` cannot be read: {}", unreadable.reason);
                Refusal::new(ErrorCode::Damaged, message)
            }
            None => Refusal::not_found(wanted),
        }
    }
}
