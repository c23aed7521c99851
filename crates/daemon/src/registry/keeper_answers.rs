//! What a request comes to whose keeper has not decided the start, does not answer, or is gone.

use pinfold_api::error::ErrorCode;
use pinfold_model::facts::Status;
use pinfold_model::id::ProcessId;

use crate::core::Core;
use crate::refusal::Refusal;
use crate::registry::entries::Entry;
use crate::registry::keeper_link::{ANSWER, NoAnswer};

impl Core {
    /// Waits until the start of a process is decided: a stop before that would be lost.
    pub(crate) async fn settled_start(&self, entry: &Entry) {
        let mut state = entry.state.subscribe();
        let decided = state.wait_for(|state| state.history.status() != Status::Starting || state.refused.is_some());
        let _ = tokio::time::timeout(ANSWER, decided).await;
    }
}

pub(crate) fn over(id: &ProcessId) -> Refusal {
    Refusal::new(ErrorCode::AlreadyOver, format!("process {id} is over: there is nothing left to act on")).about(id)
}

/// What a request came to that its keeper did not answer: a closed link alone does not say that the process is over.
pub(crate) fn unanswered(entry: &Entry, error: NoAnswer) -> Refusal {
    if error == NoAnswer::Gone && entry.status().is_over() { over(&entry.id) } else { keeper_silent(entry) }
}

pub(crate) fn keeper_silent(entry: &Entry) -> Refusal {
    let id = &entry.id;
    let message = match entry.is_settling() {
        true => format!("the keeper of {id} is gone, and what it left is being stopped: try again in a few seconds"),
        false => format!("the keeper of {id} does not answer: if it is stopped, send it CONT, and try again"),
    };
    Refusal::new(ErrorCode::KeeperSilent, message).about(id)
}
