//! Deliveries of announced events to webhooks and command hooks.
//!
//! The queue is the outbox in the index, so that a delivery survives the daemon; only attempts in progress are held
//! here. For each process and target one delivery is attempted at a time, in the order of events. Bounds:
//! [`MAX_CONCURRENT`] attempts at once; after the last of [`RETRY_DELAYS`] a delivery is dropped.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::Event;
use pinfold_model::facts::History;
use pinfold_model::notify::{Notify, webhook_host};
use pinfold_model::outcome::Outcome;
use pinfold_model::spec::{DEFAULT_SHELL, Program, Spec};
use pinfold_model::units::Moment;
use pinfold_os::crash_point;
use pinfold_store::outbox::{Delivery, Target};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::clock::now;
use crate::core::Core;
use crate::events::webhook::WebhookMessage;
use crate::metrics::DeliveryResult;
use crate::request_error::RequestError;

/// Concurrent attempts.
const MAX_CONCURRENT: usize = 4;
/// How many due deliveries are read from the outbox to choose from.
const LOOKAHEAD: usize = 32;
/// The delay before each retry; after the last one the delivery is dropped.
const RETRY_DELAYS: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(1800),
];
/// Time limit of a command hook.
const HOOK_TIME_LIMIT: Duration = Duration::from_secs(60);
/// The label of a hook's process: the id of the process whose event it handles.
const HOOK_LABEL: &str = "pinfold.hook";
/// The delay before the outbox is read again after an index error.
const ERROR_DELAY: Duration = Duration::from_secs(1);

/// The result of one attempt.
#[derive(Debug)]
enum AttemptResult {
    Done,
    Failed(String),
    /// A retry cannot succeed.
    Permanent(String),
}

/// Delivers until shutdown. The next daemon repeats attempts that were in progress then.
pub(crate) async fn run(core: Arc<Core>) {
    let mut shutdown = core.shutdown.subscribe();
    let mut attempts = JoinSet::new();
    let mut under_way: HashMap<tokio::task::Id, (u64, Target)> = HashMap::new();
    loop {
        let mut next = None;
        if under_way.len() < MAX_CONCURRENT {
            let waiting = core.query(|queries| queries.deliveries(LOOKAHEAD)).await.unwrap_or_else(|error| {
                tracing::error!(error = %error.0, "cannot read the outbox");
                next = Some(Moment(now().0 + ERROR_DELAY.as_micros() as u64));
                vec![]
            });
            let at = now();
            for delivery in waiting {
                let key = (delivery.event, delivery.target);
                if under_way.len() == MAX_CONCURRENT || under_way.values().any(|busy| *busy == key) {
                    continue;
                }
                if delivery.due > at {
                    next = Some(delivery.due);
                    break;
                }
                let handle = attempts.spawn(deliver(Arc::clone(&core), delivery));
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
            () = core.index_writer.deliveries.notified() => {}
            Some(done) = attempts.join_next_with_id() => {
                let id = done.map_or_else(|error| error.id(), |(id, ())| id);
                under_way.remove(&id);
            }
            () = rest => {}
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        }
    }
}

/// Attempts one delivery and stores the result.
async fn deliver(core: Arc<Core>, delivery: Delivery) {
    let attempt = match core.load_event(&delivery).await {
        Ok(Some((event, history))) => core.attempt(&delivery, event, history).await,
        Ok(None) => AttemptResult::Permanent("its event or process was removed by retention".to_owned()),
        Err(error) => AttemptResult::Failed(error.0.message),
    };
    crash_point!("daemon.delivery_tried");
    let (event, process, target) = (delivery.event, delivery.process.clone(), delivery.target);
    let again = RETRY_DELAYS.get(delivery.attempts as usize).map(|after| Moment(now().0 + after.as_micros() as u64));
    let (result, due) = match (&attempt, again) {
        (AttemptResult::Done, _) => (DeliveryResult::Done, None),
        (AttemptResult::Failed(_), Some(due)) => (DeliveryResult::Failed, Some(due)),
        (AttemptResult::Failed(_) | AttemptResult::Permanent(_), _) => (DeliveryResult::GivenUp, None),
    };
    if let AttemptResult::Failed(reason) | AttemptResult::Permanent(reason) = &attempt {
        let what = if due.is_some() { "delivery failed, will retry" } else { "delivery failed, dropped" };
        tracing::warn!(process = %process, event, target = target.name(), attempts = delivery.attempts + 1, %reason, "{what}");
    }
    core.metrics.note_delivery(target, result);
    let written = core.index_writer.run(move |index| match due {
        Some(due) => index.deliver_later(&delivery, due),
        None => index.delivered(&delivery),
    });
    if !matches!(written.await, Ok(Ok(()))) {
        tracing::error!(process = %process, event, "cannot store the result of a delivery");
        tokio::time::sleep(ERROR_DELAY).await;
    }
}

impl Core {
    /// The event of a delivery and the history of its process.
    async fn load_event(self: &Arc<Self>, delivery: &Delivery) -> Result<Option<(Event, History)>, RequestError> {
        let (seq, id) = (delivery.event, delivery.process.clone());
        let here = self.registry.get(&id).map(|entry| entry.snapshot().history);
        let (payload, known) = self.query(move |queries| Ok((queries.payload(seq)?, queries.get(&id)?))).await?;
        let event: Option<Event> = payload.and_then(|payload| serde_json::from_str(&payload).ok());
        let history = here.or(known.map(|(history, _)| history));
        Ok(event.map(|event| Event { seq, ..event }).zip(history))
    }

    async fn attempt(self: &Arc<Self>, delivery: &Delivery, event: Event, history: History) -> AttemptResult {
        let Notify { webhook, command, .. } = history.intent.spec.notify.clone();
        match (delivery.target, webhook, command) {
            (Target::Webhook, Some(address), _) => self.attempt_post(&address, &event).await,
            (Target::Command, _, Some(command)) => self.attempt_hook(delivery, command, &event, history).await,
            _ => AttemptResult::Permanent("its process has no such hook".to_owned()),
        }
    }

    async fn attempt_post(self: &Arc<Self>, address: &str, event: &Event) -> AttemptResult {
        let body = webhook_body(event);
        let message = WebhookMessage { id: format!("evt_{}", event.seq), timestamp: now().0 / 1_000_000, body };
        let host = webhook_host(address).unwrap_or_default();
        match self.post(address, message).await {
            Ok(()) => AttemptResult::Done,
            Err(error) if error.is_final() => AttemptResult::Permanent(format!("{host}: {error}")),
            Err(error) => AttemptResult::Failed(format!("{host}: {error}")),
        }
    }

    /// Runs a command hook as a managed process. Its key keeps it from being run twice, should the daemon die after the
    /// start and before it is written down.
    async fn attempt_hook(
        self: &Arc<Self>,
        delivery: &Delivery,
        command: String,
        event: &Event,
        history: History,
    ) -> AttemptResult {
        let kind = event.kind.name().to_owned();
        let env = [
            ("PINFOLD_EVENT", serde_json::to_string(event).unwrap_or_default()),
            ("PINFOLD_EVENT_KIND", kind),
            ("PINFOLD_PROCESS", event.process.clone()),
        ];
        let key = match delivery.attempts {
            0 => format!("hook-{}", delivery.event),
            attempts => format!("hook-{}.{attempts}", delivery.event),
        };
        let program = Program::Shell { shell: DEFAULT_SHELL.to_owned(), script: command };
        let spec = Spec {
            env: env.into_iter().map(|(name, value)| (name.to_owned(), Some(value))).collect(),
            owner: history.owner().to_owned(),
            ancestors: history.ancestors().to_vec(),
            labels: BTreeMap::from([(HOOK_LABEL.to_owned(), event.process.clone())]),
            time_limit: Some(HOOK_TIME_LIMIT),
            // What a process may not do, its hooks may not do either.
            sandbox: history.intent.spec.sandbox.clone(),
            notify: Notify { on_complete: false, ..Notify::default() },
            idempotency_key: Some(key),
            ..Spec::new(program, history.intent.spec.cwd.clone(), &self.defaults())
        };
        match self.start_own(spec).await {
            Ok(found) => match found.snapshot().history.outcome() {
                Some(Outcome::FailedToStart { error, .. }) => AttemptResult::Failed(error),
                _ => AttemptResult::Done,
            },
            Err(error) => AttemptResult::Failed(error.0.message),
        }
    }
}

/// The body of a webhook: the event, plus `type` as the Standard Webhooks scheme names it.
fn webhook_body(event: &Event) -> String {
    let mut body = serde_json::to_value(event).unwrap_or_default();
    if let Value::Object(fields) = &mut body {
        fields.insert("type".to_owned(), Value::String(format!("process.{}", event.kind.name())));
    }
    body.to_string()
}
