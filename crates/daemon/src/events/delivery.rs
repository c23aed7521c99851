//! Deliveries: announced events on their way to webhooks and command hooks.
//!
//! The outbox in the index is the queue, so that a delivery survives the daemon; here is only what is under way. Of
//! one process and target one delivery at a time is tried, in the order of its events. Bounds: [`AT_ONCE`] under way;
//! [`AGAIN`] says how often one that failed is tried again before it is given up.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::Event;
use pinfold_model::facts::History;
use pinfold_model::notify::{Notify, host_of};
use pinfold_model::outcome::Outcome;
use pinfold_model::spec::Draft;
use pinfold_model::units::Moment;
use pinfold_os::crash_point;
use pinfold_store::outbox::{Delivery, Target};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::clock::now;
use crate::core::Core;
use crate::events::webhook::Letter;
use crate::metrics::Delivered;
use crate::refusal::Refusal;

/// Deliveries under way at once.
const AT_ONCE: usize = 4;
/// Deliveries looked at to choose from.
const LOOK: usize = 32;
/// How long after each failure the next try comes; after the last it is given up.
const AGAIN: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(1800),
];
/// How long a command hook may run.
const HOOK_TIME: Duration = Duration::from_secs(60);
/// The label that says whose event a command hook was run for.
const HOOK_LABEL: &str = "pinfold.hook";
/// How long to wait when the index does not answer.
const TROUBLE: Duration = Duration::from_secs(1);

/// What came of a try.
#[derive(Debug)]
enum Tried {
    Done,
    Failed(String),
    /// Another try is of no use.
    Hopeless(String),
}

/// Delivers until shutdown. What is under way then is tried again by the next daemon.
pub(crate) async fn tend(core: Arc<Core>) {
    let mut shutdown = core.shutdown.subscribe();
    let mut tries = JoinSet::new();
    let mut under_way: HashMap<tokio::task::Id, (u64, Target)> = HashMap::new();
    loop {
        let mut next = None;
        if under_way.len() < AT_ONCE {
            let waiting = core.query(|queries| queries.deliveries(LOOK)).await.unwrap_or_else(|refusal| {
                tracing::error!(error = %refusal.0, "cannot read the outbox");
                next = Some(Moment(now().0 + TROUBLE.as_micros() as u64));
                vec![]
            });
            let at = now();
            for delivery in waiting {
                let key = (delivery.event, delivery.target);
                if under_way.len() == AT_ONCE || under_way.values().any(|busy| *busy == key) {
                    continue;
                }
                if delivery.due > at {
                    next = Some(delivery.due);
                    break;
                }
                let handle = tries.spawn(deliver(Arc::clone(&core), delivery));
                under_way.insert(handle.id(), key);
            }
        }
        let rest = async {
            match next {
                Some(due) => tokio::time::sleep(due.since(now()).max(Duration::from_millis(1))).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = core.ledger.deliveries.notified() => {}
            Some(done) = tries.join_next_with_id() => {
                let id = done.map_or_else(|error| error.id(), |(id, ())| id);
                under_way.remove(&id);
            }
            () = rest => {}
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        }
    }
}

/// Tries one delivery and writes down what came of it.
async fn deliver(core: Arc<Core>, delivery: Delivery) {
    let tried = match core.told_about(&delivery).await {
        Ok(Some((event, history))) => core.attempt(&delivery, event, history).await,
        Ok(None) => Tried::Hopeless("its event or its process is no longer kept".to_owned()),
        Err(refusal) => Tried::Failed(refusal.0.message),
    };
    crash_point!("daemon.delivery_tried");
    let (event, process, target) = (delivery.event, delivery.process.clone(), delivery.target);
    let again = AGAIN.get(delivery.attempts as usize).map(|after| Moment(now().0 + after.as_micros() as u64));
    let (result, due) = match (&tried, again) {
        (Tried::Done, _) => (Delivered::Done, None),
        (Tried::Failed(_), Some(due)) => (Delivered::Failed, Some(due)),
        (Tried::Failed(_) | Tried::Hopeless(_), _) => (Delivered::GivenUp, None),
    };
    if let Tried::Failed(reason) | Tried::Hopeless(reason) = &tried {
        let what = if due.is_some() { "a delivery failed" } else { "a delivery is given up" };
        tracing::warn!(process = %process, event, target = target.name(), tries = delivery.attempts + 1, %reason, "{what}");
    }
    core.metrics.note_delivery(target, result);
    let written = core.ledger.with(move |index| match due {
        Some(due) => index.deliver_later(&delivery, due),
        None => index.delivered(&delivery),
    });
    if !matches!(written.await, Ok(Ok(()))) {
        tracing::error!(process = %process, event, "cannot write down what came of a delivery");
        tokio::time::sleep(TROUBLE).await;
    }
}

impl Core {
    /// The event of a delivery, and what is known of its process.
    async fn told_about(self: &Arc<Self>, delivery: &Delivery) -> Result<Option<(Event, History)>, Refusal> {
        let (seq, id) = (delivery.event, delivery.process.clone());
        let here = self.registry.get(&id).map(|entry| entry.snapshot().history);
        let (payload, known) = self.query(move |queries| Ok((queries.payload(seq)?, queries.get(&id)?))).await?;
        let event: Option<Event> = payload.and_then(|payload| serde_json::from_str(&payload).ok());
        let history = here.or(known.map(|(history, _)| history));
        Ok(event.map(|event| Event { seq, ..event }).zip(history))
    }

    async fn attempt(self: &Arc<Self>, delivery: &Delivery, event: Event, history: History) -> Tried {
        let Notify { webhook, command, .. } = history.intent.spec.notify.clone();
        match (delivery.target, webhook, command) {
            (Target::Webhook, Some(address), _) => self.attempt_post(&address, &event).await,
            (Target::Command, _, Some(command)) => self.attempt_hook(delivery, command, &event, history).await,
            _ => Tried::Hopeless("its process names no such target".to_owned()),
        }
    }

    async fn attempt_post(self: &Arc<Self>, address: &str, event: &Event) -> Tried {
        let body = posted(event);
        let letter = Letter { id: format!("evt_{}", event.seq), timestamp: now().0 / 1_000_000, body };
        let host = host_of(address).unwrap_or_default();
        match self.post(address, letter).await {
            Ok(()) => Tried::Done,
            Err(error) if error.is_final() => Tried::Hopeless(format!("{host}: {error}")),
            Err(error) => Tried::Failed(format!("{host}: {error}")),
        }
    }

    /// Runs a command hook as a kept process. Its key keeps it from being run twice, should the daemon die after the
    /// start and before it is written down.
    async fn attempt_hook(
        self: &Arc<Self>,
        delivery: &Delivery,
        command: String,
        event: &Event,
        history: History,
    ) -> Tried {
        let kind = kind_name(event);
        let env = [
            ("PINFOLD_EVENT", serde_json::to_string(event).unwrap_or_default()),
            ("PINFOLD_EVENT_KIND", kind),
            ("PINFOLD_PROCESS", event.process.clone()),
        ];
        let key = match delivery.attempts {
            0 => format!("hook-{}", delivery.event),
            tries => format!("hook-{}.{tries}", delivery.event),
        };
        let draft = Draft {
            command: Some(command),
            cwd: history.intent.spec.cwd.to_str().map(str::to_owned),
            inherit_env: true,
            env: env.into_iter().map(|(name, value)| (name.to_owned(), Some(value))).collect(),
            owner: Some(history.owner().to_owned()),
            ancestors: history.ancestors().to_vec(),
            labels: BTreeMap::from([(HOOK_LABEL.to_owned(), event.process.clone())]),
            time_limit: Some(HOOK_TIME),
            notify: Notify { on_complete: false, ..Notify::default() },
            idempotency_key: Some(key),
            ..Draft::default()
        };
        match self.start_own(draft).await {
            Ok(found) => match found.snapshot().history.outcome() {
                Some(Outcome::FailedToStart { error, .. }) => Tried::Failed(error),
                _ => Tried::Done,
            },
            Err(refusal) => Tried::Failed(refusal.0.message),
        }
    }
}

/// An event as a webhook's body: the event itself, and its type in the words of the scheme.
fn posted(event: &Event) -> String {
    let mut body = serde_json::to_value(event).unwrap_or_default();
    if let Value::Object(fields) = &mut body {
        fields.insert("type".to_owned(), Value::String(format!("process.{}", kind_name(event))));
    }
    body.to_string()
}

fn kind_name(event: &Event) -> String {
    let kind = serde_json::to_value(event.kind).unwrap_or_default();
    kind.as_str().unwrap_or_default().to_owned()
}
