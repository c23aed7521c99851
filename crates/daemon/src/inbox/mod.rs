//! What needs a person: permission requests of hosted agents, processes that wait for input, failures not seen yet.
//!
//! The first two are what is so now. `failures` reads failures from the event log. How far a caller has looked through
//! them is one number per owner in the index, which only `POST /v1/inbox/seen` moves.
//!
//! Bounds: [`MAX_ITEMS`] items per answer; for failures see there.
//!
//! May use: registry, events, output, processes, agents.

mod failures;

use std::sync::Arc;

use pinfold_api::types::{Event, Inbox, InboxItem, InboxKind, InboxQuery, SeenAnswer, SeenRequest};
use pinfold_model::event::EventKind;
use pinfold_model::units::Moment;

use crate::agents::Hosting;
use crate::clock::rfc3339;
use crate::core::{Core, blocking};
use crate::registry::records::waiting;
use crate::registry::{Entry, State, Viewer};
use crate::request_error::RequestError;

pub(crate) use failures::Failures;

const ITEMS: u32 = 100;
const MAX_ITEMS: u32 = 500;

impl Core {
    /// What needs the caller's attention now.
    pub(crate) async fn inbox(self: &Arc<Self>, viewer: &Viewer, query: InboxQuery) -> Result<Inbox, RequestError> {
        let limit = query.limit.unwrap_or(ITEMS).clamp(1, MAX_ITEMS) as usize;
        let owners = self.owners_in_view(viewer, query.owner.as_deref())?;
        let scope = viewer.name().to_owned();
        let seen = self.query(move |queries| queries.seen(&scope)).await?;
        let (latest, truncated, failed) = self.unseen_failures(owners.as_deref(), seen).await?;
        let mut items = self.permission_items(viewer, &query);
        let permission = items.len() as u64;
        items.truncate(limit);
        let mut waiting = self.waiting_entries(owners.as_deref());
        let waiting_for_input = waiting.len() as u64;
        waiting.truncate(limit - items.len());
        for entry in waiting {
            items.push(self.waiting_item(&entry, seen).await?);
        }
        let room = limit - items.len();
        let count = failed.len() as u64;
        items.extend(failed.into_iter().take(room));
        Ok(Inbox { items, permission, waiting_for_input, failed: count, seen, latest, truncated })
    }

    /// Moves the caller's mark.
    pub(crate) async fn mark_seen(
        self: &Arc<Self>,
        viewer: &Viewer,
        request: SeenRequest,
    ) -> Result<SeenAnswer, RequestError> {
        let scope = viewer.name().to_owned();
        let seen = self.index_writer.run(move |index| index.set_seen(&scope, request.through)).await??;
        Ok(SeenAnswer { seen })
    }

    fn permission_items(self: &Arc<Self>, viewer: &Viewer, query: &InboxQuery) -> Vec<InboxItem> {
        let mut items = Vec::new();
        let hosting = Hosting::of(self);
        for agent in hosting.living_agents(viewer, query.owner.clone()) {
            for ask in agent.asks {
                items.push(InboxItem {
                    at: hosting.asked_at(&agent.id, &ask.id),
                    owner: agent.owner.clone(),
                    process: agent.process.clone(),
                    name: agent.name.clone(),
                    text: Some(ask.what.clone()),
                    agent: Some(agent.id.clone()),
                    ask: Some(ask),
                    ..item(InboxKind::Permission)
                });
            }
        }
        items
    }

    /// Live processes with a terminal that wait for input, newest first. One that reads from a pipe is not
    /// waiting for a person.
    fn waiting_entries(&self, owners: Option<&[String]>) -> Vec<Arc<Entry>> {
        let mut entries = self.registry.live();
        entries.retain(|entry| {
            let state = entry.state.borrow();
            state.size.is_some() && waiting(&state) == Some(true) && is_of(owners, state.history.owner())
        });
        entries
    }

    async fn waiting_item(self: &Arc<Self>, entry: &Arc<Entry>, seen: u64) -> Result<InboxItem, RequestError> {
        let (state, id) = (entry.snapshot(), entry.id.clone());
        let latest = self.query(move |queries| queries.latest_of(&id, EventKind::WaitingForInput)).await?;
        // The event of this wait may not be written yet: then the one found is of an earlier wait.
        let event = latest.filter(|event| event.n == state.waiting.count);
        let payload = event.as_ref().and_then(|event| serde_json::from_str::<Event>(&event.payload).ok());
        let text = match payload.as_ref().and_then(|event| event.text.clone()) {
            Some(text) => Some(text),
            None => self.last_line_of(state.clone()).await?,
        };
        Ok(InboxItem {
            at: event.as_ref().map(|event| rfc3339(event.at)),
            seq: event.as_ref().map(|event| event.seq),
            seen: event.is_some_and(|event| event.seq <= seen),
            text,
            cursor: payload.and_then(|event| event.cursor),
            ..process_item(InboxKind::WaitingForInput, &state)
        })
    }

    async fn last_line_of(self: &Arc<Self>, state: State) -> Result<Option<String>, RequestError> {
        let core = Arc::clone(self);
        blocking(move || core.last_line_text(&state)).await
    }
}

fn is_of(owners: Option<&[String]>, owner: &str) -> bool {
    owners.is_none_or(|owners| owners.iter().any(|known| known == owner))
}

fn item(kind: InboxKind) -> InboxItem {
    InboxItem {
        kind,
        owner: String::new(),
        process: None,
        name: None,
        command: None,
        at: None,
        seq: None,
        seen: false,
        text: None,
        cursor: None,
        agent: None,
        ask: None,
        outcome: None,
        cause: None,
    }
}

fn process_item(kind: InboxKind, state: &State) -> InboxItem {
    let intent = &state.history.intent;
    InboxItem {
        owner: state.history.owner().to_owned(),
        process: Some(intent.id.to_string()),
        name: intent.spec.name.clone(),
        command: Some(intent.spec.command_text()),
        ..item(kind)
    }
}

/// When an event happened, as its item shows it.
fn shown(at: Moment) -> Option<String> {
    Some(rfc3339(at))
}
