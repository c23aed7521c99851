//! What the record of a process says of it as a service: readiness, leased ports, and which run of a restart chain it is.

use std::collections::BTreeMap;

use pinfold_api::types::{LifeShown, ReadyShown, ReadyState as ApiReadyState};
use pinfold_model::facts::History;
use pinfold_model::ready::{Ready, ReadyBy, ReadyPort, ReadyState};
use pinfold_model::restart::{Verdict, When, after_end, number_of};
use pinfold_model::service::Service;
use pinfold_model::spec::Spec;

use crate::clock::rfc3339;
use crate::registry::entries::State;

/// The readiness of a process, where that was asked for.
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
pub(super) fn ports_shown(spec: &Spec) -> BTreeMap<String, u16> {
    let ports = spec.service.ports.iter();
    ports.filter_map(|(name, port)| Some((name.clone(), (*port)?))).collect()
}

/// Which life it is and when another follows, where that was asked for.
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

/// Whether the end of a process is followed by another life by itself, so that its owner hears of that one instead.
pub(super) fn is_followed(history: &History) -> bool {
    matches!(after_end(history, &history.intent.boot_id), Verdict::Restart { .. })
}
