//! Makes the event of a fact: what the log stores, and which hooks receive it.

use pinfold_api::types::Event;
use pinfold_model::event::EventKind;
use pinfold_model::facts::History;
use pinfold_model::units::Moment;
use pinfold_store::index::{Change, NewEvent};
use pinfold_store::outbox::Target;

use crate::registry::records;

/// The event of a fact, with its text.
pub(crate) fn event_of(history: &History, kind: EventKind, at: Moment) -> Change {
    let handover = history.handover_of(kind, at);
    let text = handover.map(|place| history.handovers[place].purpose.clone()).or_else(|| service_text(history, kind));
    let n = handover.map_or(0, |place| place as u64 + 1);
    event_change(history, Event { text, ..records::event(history, kind, at) }, (kind, n, at))
}

/// The text of a service's event: which run started, the evidence of its readiness, or that it ended before it was
/// ready.
fn service_text(history: &History, kind: EventKind) -> Option<String> {
    match (kind, &history.readiness) {
        (EventKind::Started, _) => restart_text(history),
        (EventKind::Ready | EventKind::NotReady, Some(readiness)) => Some(readiness.evidence.clone()),
        (EventKind::Finished | EventKind::Lost, None) if history.intent.spec.service.ready.is_some() => {
            Some("it ended before it was ready".to_owned())
        }
        _ => None,
    }
}

/// An event for the log, with the hooks that receive it.
pub(crate) fn event_change(history: &History, event: Event, (kind, n, at): (EventKind, u64, Moment)) -> Change {
    let notify = &history.intent.spec.notify;
    let targets = match event.announce {
        true => [(Target::Webhook, &notify.webhook), (Target::Command, &notify.command)]
            .into_iter()
            .filter_map(|(target, given)| given.as_ref().map(|_| target))
            .collect(),
        false => vec![],
    };
    Change::Event(Box::new(NewEvent {
        process: history.intent.id.clone(),
        owner: event.owner.clone(),
        kind,
        n,
        announce: event.announce,
        at,
        payload: serde_json::to_string(&event).unwrap_or_default(),
        targets,
    }))
}

/// Every event of a history; the log ignores those it already has (S4).
pub(crate) fn events_of(history: &History) -> Vec<Change> {
    history.events().into_iter().map(|(kind, at)| event_of(history, kind, at)).collect()
}

/// The text of a restart's `started` event.
fn restart_text(history: &History) -> Option<String> {
    let life = history.intent.spec.service.life.as_ref()?;
    Some(format!("restarted: life {} after {}", life.number, life.previous))
}
