//! Running a driver, and what happens if it panics: its agent fails and its process is stopped; nothing else is affected.

use std::any::Any;
use std::sync::Arc;

use pinfold_api::types::{AgentFault, AgentStatus, FaultCode};
use tokio::sync::oneshot;

use super::driver::Driver;
use super::handle::AgentHandle;
use super::host::Host;
use super::state::AgentState;
use crate::clock::{now, rfc3339};
use crate::threads::blocking;

/// Runs a driver on the current event loop, until its agent has ended or the daemon shuts down. The receiver gets a
/// message once the driver has taken over the process that an earlier daemon started, or has failed to.
pub(super) fn spawn(mut driver: Driver) -> oneshot::Receiver<()> {
    let (host, handle) = (Arc::clone(&driver.host), Arc::clone(&driver.handle));
    let (reattached, is_reattached) = oneshot::channel();
    let task = tokio::spawn(async move {
        driver.reattach_or_fail().await;
        let _ = reattached.send(());
        driver.run().await;
    });
    tokio::spawn(async move {
        if let Err(error) = task.await
            && let Ok(panic) = error.try_into_panic()
        {
            let message = format!(
                "pinfold failed while it handled this agent, and stopped it; this is a bug in pinfold, please report \
                 it: {}",
                panic_text(&*panic)
            );
            tracing::error!(agent = %handle.id, message, "the driver of an agent panicked");
            fail(host, handle, message).await;
        }
    });
    is_reattached
}

/// Replaces a driver that panicked by one that only ends the agent, starting from the state on disk.
async fn fail(host: Arc<dyn Host>, handle: Arc<AgentHandle>, message: String) {
    let fault = AgentFault { code: FaultCode::Internal, message };
    let dir = handle.dir.clone();
    let state = blocking(move || dir.read_state::<AgentState>()).await.ok().and_then(Result::ok).flatten();
    let ending = Driver::after_panic(host, Arc::clone(&handle), state.unwrap_or_default());
    let ended = tokio::spawn(ending.end_after_panic(fault.clone())).await;
    if ended.is_err() {
        // Not even that worked: clients must still see that the agent has ended.
        handle.view.send_modify(|view| {
            view.agent.status = AgentStatus::Failed;
            view.agent.fault = Some(fault);
            view.agent.ended_at = Some(rfc3339(now()));
            (view.running, view.over_through) = (None, view.agent.turns);
        });
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
#[path = "supervise_tests.rs"]
mod tests;
