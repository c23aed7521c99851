//! What clients see of a service.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pinfold_api::types::{Event, LifeShown, ReadyShown, ReadyState as ApiReadyState, Record};
use pinfold_model::event::EventKind;
use pinfold_model::facts::History;
use pinfold_model::id::ProcessId;
use pinfold_model::ready::{Ready, ReadyBy, ReadyPort, ReadyState};
use pinfold_model::restart::{When, number_of};
use pinfold_model::service::Service;
use pinfold_model::spec::Spec;
use pinfold_store::queries::Queries;

use crate::clock::rfc3339;
use crate::core::Core;
use crate::processes::registry::State;

/// The readiness of a process, where that was asked for.
pub(crate) fn ready_shown(state: &State) -> Option<ReadyShown> {
    let history = &state.history;
    let service = &history.intent.spec.service;
    let (ready, now) = (service.ready.as_ref()?, history.ready_state()?);
    let decided = history.readiness.as_ref();
    let text = match (decided, now) {
        (Some(decided), _) => Some(decided.evidence.clone()),
        (None, ReadyState::Exited) => Some("it ended before it was ready".to_owned()),
        (None, _) => state.ready_note.clone(),
    };
    Some(ReadyShown {
        state: match now {
            ReadyState::Waiting => ApiReadyState::Waiting,
            ReadyState::Ready => ApiReadyState::Ready,
            ReadyState::TimedOut => ApiReadyState::TimedOut,
            ReadyState::Exited => ApiReadyState::Exited,
        },
        by: render_by(ready, service),
        at: decided.map(|decided| rfc3339(decided.at)),
        port: decided.and_then(|decided| decided.port),
        text,
        timeout_ms: ready.timeout.as_millis() as u64,
    })
}

/// The ports it is lent.
pub(crate) fn ports_shown(spec: &Spec) -> BTreeMap<String, u16> {
    let ports = spec.service.ports.iter();
    ports.filter_map(|(name, port)| Some((name.clone(), (*port)?))).collect()
}

/// Which life it is and when another follows, where that was asked for.
pub(crate) fn life_shown(history: &History) -> Option<LifeShown> {
    let service = &history.intent.spec.service;
    let restart = service.restart.as_ref()?;
    Some(LifeShown {
        restart: match restart.when {
            When::OnFailure => "on_failure",
            When::Always => "always",
            When::AfterTurn => "after_turn",
        }
        .to_owned(),
        number: number_of(history),
        first: service.life.as_ref().map(|life| life.first.to_string()),
        previous: service.life.as_ref().map(|life| life.previous.to_string()),
        next: None,
        restarting_at: None,
        awaits_turn: false,
        gave_up: None,
        over: false,
    })
}

impl Core {
    /// The record with the moment of its next life, if one is to come.
    pub(crate) fn with_due(&self, mut record: Record, history: &History) -> Record {
        if let (Some(life), Some(due)) = (&mut record.life, self.chains.due(&history.intent.id)) {
            life.restarting_at = due.map(rfc3339);
            life.awaits_turn = due.is_none();
        }
        if let Some(life) = &mut record.life {
            life.over = history.status().is_over() && !self.chains.is_open(history);
        }
        record
    }

    /// The record of an ended process with what followed it.
    pub(crate) async fn with_life(self: &Arc<Self>, record: Record, history: &History) -> Record {
        let mut record = self.with_due(record, history);
        let Some(life) = &mut record.life else { return record };
        life.next = self.successor(history).await.map(|next| next.to_string());
        life.gave_up = self.given_up([history].into_iter()).await.remove(&history.intent.id);
        record
    }

    /// Why no other life follows, of those that ended where one was expected.
    pub(crate) async fn given_up(
        self: &Arc<Self>,
        histories: impl Iterator<Item = &History>,
    ) -> HashMap<ProcessId, String> {
        let restarted = |history: &&History| history.intent.spec.service.restart.is_some();
        let ended = histories.filter(|history| history.status().is_over()).filter(restarted);
        let ids: Vec<ProcessId> = ended.map(|history| history.intent.id.clone()).collect();
        if ids.is_empty() {
            return HashMap::new();
        }
        let ask = move |queries: &Queries| {
            let mut given_up = HashMap::new();
            for id in ids {
                let event = queries.latest_of(&id, EventKind::GaveUp)?;
                let event = event.and_then(|event| serde_json::from_str::<Event>(&event.payload).ok());
                given_up.extend(event.and_then(|event| event.text).map(|text| (id, text)));
            }
            Ok(given_up)
        };
        self.query(ask).await.unwrap_or_default()
    }
}

/// What makes it ready: `port 3000`, `GET http://localhost:3000/health`, `output that matches …`.
pub(crate) fn render_by(ready: &Ready, service: &Service) -> String {
    let number = |port: &ReadyPort| match (port, service.awaited_port()) {
        (_, Some(number)) => number.to_string(),
        (ReadyPort::Lent(name), None) => name.clone(),
        (_, None) => "any".to_owned(),
    };
    match &ready.by {
        ReadyBy::Port { port: ReadyPort::Any } => "any port".to_owned(),
        ReadyBy::Port { port } => format!("port {}", number(port)),
        ReadyBy::Http { host, port, path, status } => {
            let status = status.map(|status| format!(" with {status}")).unwrap_or_default();
            format!("GET http://{}:{}{path}{status}", host.text(), number(port))
        }
        ReadyBy::Output { pattern } => format!("output that matches `{pattern}`"),
        ReadyBy::Peer => "a connection to its ready socket".to_owned(),
    }
}
