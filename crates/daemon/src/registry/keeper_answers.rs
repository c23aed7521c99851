//! Errors of requests whose keeper has not decided the start, does not answer, or is dead.

use pinfold_api::error::ErrorCode;
use pinfold_model::facts::Status;
use pinfold_model::id::ProcessId;

use crate::core::Core;
use crate::registry::entries::Entry;
use crate::registry::keeper_link::{ANSWER_TIMEOUT, NoAnswer};
use crate::request_error::RequestError;

impl Core {
    /// Waits until the start of a process has succeeded or failed: a stop before that would be lost.
    pub(crate) async fn start_decided(&self, entry: &Entry) {
        let mut state = entry.state.subscribe();
        let decided = state.wait_for(|state| state.history.status() != Status::Starting || state.refused.is_some());
        let _ = tokio::time::timeout(ANSWER_TIMEOUT, decided).await;
    }
}

pub(crate) fn over(id: &ProcessId) -> RequestError {
    RequestError::new(ErrorCode::AlreadyOver, format!("process {id} is over: there is nothing left to act on"))
        .about(id)
}

/// The error of a request that the keeper did not answer. A closed link alone does not mean that the process is over.
pub(crate) fn unanswered(entry: &Entry, error: NoAnswer) -> RequestError {
    if error == NoAnswer::Closed && entry.status().is_over() { over(&entry.id) } else { keeper_silent(entry) }
}

pub(crate) fn keeper_silent(entry: &Entry) -> RequestError {
    let id = &entry.id;
    let message = match entry.is_resolving() {
        true => format!(
            "the keeper of {id} died, and remaining processes of its tree are being killed: try again in a few seconds"
        ),
        false => format!("the keeper of {id} does not answer: if it is stopped, send it SIGCONT and try again"),
    };
    RequestError::new(ErrorCode::KeeperSilent, message).about(id)
}
