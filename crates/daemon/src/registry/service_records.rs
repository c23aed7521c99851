//! The service part of a record: readiness, leased ports, and which run of a restart chain it is.

use std::collections::BTreeMap;

use pinfold_api::types::{LifeShown, ReadyShown};
use pinfold_model::facts::History;
use pinfold_model::ready::{Ready, ReadyBy, ReadyPort, ReadyState};
use pinfold_model::restart::{RestartDecision, When, after_end, run_number};
use pinfold_model::service::Service;
use pinfold_model::spec::Spec;

use crate::clock::rfc3339;
use crate::registry::entries::State;

/// The readiness of a process, if it has a readiness condition.
pub(super) fn ready_shown(state: &State) -> Option<ReadyShown> {
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
        state: now,
        by: render_by(ready, service),
        at: decided.map(|decided| rfc3339(decided.at)),
        port: decided.and_then(|decided| decided.port),
        text,
        timeout_ms: ready.timeout.as_millis() as u64,
    })
}

/// The ports leased to it.
pub(super) fn ports_shown(spec: &Spec) -> BTreeMap<String, u16> {
    let ports = spec.service.ports.iter();
    ports.filter_map(|(name, port)| Some((name.clone(), (*port)?))).collect()
}

/// Which run it is and when the next follows, if it has a restart policy.
pub(super) fn life_shown(history: &History) -> Option<LifeShown> {
    let service = &history.intent.spec.service;
    let restart = service.restart.as_ref()?;
    Some(LifeShown {
        restart: match restart.when {
            When::OnFailure => "on_failure",
            When::Always => "always",
            When::AfterTurn => "after_turn",
        }
        .to_owned(),
        number: run_number(history),
        first: service.life.as_ref().map(|life| life.first.to_string()),
        previous: service.life.as_ref().map(|life| life.previous.to_string()),
        next: None,
        restarting_at: None,
        awaits_turn: false,
        gave_up: None,
        over: false,
    })
}

/// The readiness condition as text: `port 3000`, `GET http://localhost:3000/health`, `output that matches …`.
pub(crate) fn render_by(ready: &Ready, service: &Service) -> String {
    let number = |port: &ReadyPort| match (port, service.awaited_port()) {
        (_, Some(number)) => number.to_string(),
        (ReadyPort::Leased(name), None) => name.clone(),
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

/// Whether the process will be restarted, so that its owner is notified of the restart instead of the end.
pub(crate) fn is_followed(history: &History) -> bool {
    matches!(after_end(history, &history.intent.boot_id), RestartDecision::Restart { .. })
}
