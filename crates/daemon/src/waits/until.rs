//! Waits for one change of a process: its end, the end of its output, more output, its readiness. Requests are in
//! `wait`.

use std::time::Duration;

use pinfold_api::types::WaitReason;
use pinfold_model::link::ToKeeper;
use pinfold_model::ready::ReadyState;
use tokio::time::timeout_at;

use crate::registry::{Entry, State};

/// How soon to check again for a link while the keeper is not connected.
const RELINK_INTERVAL: Duration = Duration::from_millis(100);

/// Whether the leader is known to have ended.
pub(crate) fn has_exited(state: &State) -> bool {
    state.history.exit.is_some() || state.history.status().is_over() || state.refused.is_some()
}

pub(super) fn is_over(state: &State) -> bool {
    state.history.status().is_over() || state.refused.is_some()
}

pub(crate) fn has_closed(state: &State) -> bool {
    state.history.closed_at.is_some() || is_over(state)
}

/// Waits for the leader's end.
pub(crate) async fn until_exit(entry: &Entry, limit: Duration) -> WaitReason {
    match watch(entry, limit, has_exited).await {
        true => WaitReason::Exited,
        false => WaitReason::Timeout,
    }
}

/// Waits for all output ends to close.
pub(crate) async fn until_closed(entry: &Entry, limit: Duration) -> bool {
    watch(entry, limit, has_closed).await
}

/// Waits for output beyond the cursor, or the end of output.
pub(crate) async fn until_output(entry: &Entry, cursor: u64, limit: Duration) -> bool {
    let deadline = tokio::time::Instant::now() + limit;
    let mut state = entry.state.subscribe();
    loop {
        let known = {
            let state = state.borrow_and_update();
            if state.output_bytes > cursor {
                return true;
            }
            if has_closed(&state) {
                return false;
            }
            state.output_bytes
        };
        let mut until = deadline;
        match entry.link() {
            Some(link) => drop(link.send(&ToKeeper::WatchOutput { id: entry.id.clone(), beyond: known }).await),
            // A keeper that is not connected cannot report output: check again soon.
            None => until = until.min(tokio::time::Instant::now() + RELINK_INTERVAL),
        }
        let news = state.wait_for(|state| state.output_bytes > known || has_closed(state));
        let _ = timeout_at(until, news).await;
        if tokio::time::Instant::now() >= deadline {
            return entry.state.borrow().output_bytes > cursor;
        }
    }
}

/// Waits until the condition holds, without a timeout.
pub(crate) async fn until_change(entry: &Entry, holds: impl FnMut(&State) -> bool) {
    let _ = entry.state.subscribe().wait_for(holds).await;
}

/// Waits until the condition holds; false at the timeout.
pub(super) async fn watch(entry: &Entry, limit: Duration, holds: impl FnMut(&State) -> bool) -> bool {
    let mut state = entry.state.subscribe();
    matches!(tokio::time::timeout(limit, state.wait_for(holds)).await, Ok(Ok(_)))
}

/// Waits until it is ready, not ready in time, or over.
pub(crate) async fn until_ready(entry: &Entry, limit: Duration) -> WaitReason {
    watch(entry, limit, |state| state.history.readiness.is_some() || is_over(state)).await;
    let state = entry.state.borrow();
    match state.history.ready_state() {
        Some(ReadyState::Ready) => WaitReason::Ready,
        Some(ReadyState::TimedOut) => WaitReason::NotReady,
        _ if is_over(&state) => WaitReason::EndedBefore,
        _ => WaitReason::Timeout,
    }
}
