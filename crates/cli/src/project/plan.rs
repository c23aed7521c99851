//! What `up` has to do about one process.

use pinfold_api::types::{Cause, Outcome, ReadyState, Record};

use super::Definition;

/// The label with the digest of the definition that a process was started from.
pub(crate) const CONFIG_LABEL: &str = "pinfold.config";

/// What to do about one process of the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Its definition has not changed, and it runs or waits for its restart.
    Keep { id: String },
    /// Its definition has not changed, and it has done its work: it exited with 0.
    Done { id: String },
    /// The id of the latest process of this name goes into the idempotency key, so that two `up` at once start one.
    Start { latest: Option<String> },
    /// Its definition has changed, or it was not ready in time: stop this one first.
    Replace { id: String },
}

/// Compares a definition with the latest process of its name and owner.
pub(crate) fn decide(definition: &Definition, latest: Option<&Record>, force: bool) -> Action {
    let Some(latest) = latest else { return Action::Start { latest: None } };
    let id = latest.id.clone();
    let unchanged = !force && latest.labels.get(CONFIG_LABEL) == Some(&definition.digest());
    let is_live = !latest.status.is_over() || latest.awaits_restart();
    let is_task = definition.request.restart.is_none() && definition.request.ready.is_none();
    let succeeded = latest.outcome == Some(Outcome::Exited { code: 0 })
        && latest.cause.is_none_or(|cause| cause == Cause::OnItsOwn);
    // The result of a readiness check is final, so only a new process can become ready.
    let timed_out = latest.ready.as_ref().is_some_and(|ready| ready.state == ReadyState::TimedOut);
    match (is_live, unchanged && !timed_out) {
        (true, true) => Action::Keep { id },
        (true, false) => Action::Replace { id },
        (false, true) if is_task && succeeded => Action::Done { id },
        (false, _) => Action::Start { latest: Some(id) },
    }
}
