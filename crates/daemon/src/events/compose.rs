//! From a fact to its event: what the log keeps, and to whom it is announced.

use pinfold_api::types::Event;
use pinfold_model::event::EventKind;
use pinfold_model::facts::History;
use pinfold_model::units::Moment;
use pinfold_store::index::{Change, NewEvent};
use pinfold_store::outbox::Target;

use crate::registry::records;

/// The event of a fact, with what its readers want to know.
pub(crate) fn event_of(history: &History, kind: EventKind, at: Moment) -> Change {
    let handover = history.handover_of(kind, at);
    let text = handover.map(|place| history.handovers[place].purpose.clone()).or_else(|| service_text(history, kind));
    let n = handover.map_or(0, |place| place as u64 + 1);
    told(history, Event { text, ..records::event(history, kind, at) }, (kind, n, at))
}

/// What an event says of a service: which life begins, the evidence of its readiness, or that the end came first.
fn service_text(history: &History, kind: EventKind) -> Option<String> {
    match (kind, &history.readiness) {
        (EventKind::Started, _) => told_of(history),
        (EventKind::Ready | EventKind::NotReady, Some(readiness)) => Some(readiness.evidence.clone()),
        (EventKind::Finished | EventKind::Lost, None) if history.intent.spec.service.ready.is_some() => {
            Some("it ended before it was ready".to_owned())
        }
        _ => None,
    }
}

/// An event on its way into the log, and to whoever else its owner wants told.
pub(crate) fn told(history: &History, event: Event, (kind, n, at): (EventKind, u64, Moment)) -> Change {
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

/// Every event that a history amounts to; those already in the log are ignored there (S4).
pub(crate) fn events_of(history: &History) -> Vec<Change> {
    history.events().into_iter().map(|(kind, at)| event_of(history, kind, at)).collect()
}

/// What an owner is told of a life that follows another.
fn told_of(history: &History) -> Option<String> {
    let life = history.intent.spec.service.life.as_ref()?;
    Some(format!("restarted: life {} after {}", life.number, life.previous))
}
