//! Ending an agent: on request, or because its owner ended.
//!
//! An agent is ended through its driver, not by stopping its process: a resting agent, or one between two processes, has
//! none. The driver starts no further process and stops what is left of the previous ones.

use std::time::Duration;

use pinfold_api::types::{Agent, AgentStopRequest};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;
use pinfold_model::spec::MAX_GRACE;
use pinfold_model::units::parse_duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::handle::{AgentHandle, Command};
use super::host::{Host, Hosting};
use super::requests::ask;
use crate::request_error::RequestError;

/// How much longer than its grace a stop may take.
const STOP_SLACK: Duration = Duration::from_secs(15);
/// The longest that a stop takes.
pub(super) const MAX_STOP: Duration = MAX_GRACE.saturating_add(STOP_SLACK);

impl Hosting {
    /// Stops an agent and its whole tree, and waits for that.
    pub(super) async fn stop_agent(
        &self,
        handle: &AgentHandle,
        request: AgentStopRequest,
    ) -> Result<Agent, RequestError> {
        let grace = request.grace.as_ref().map(|grace| parse_duration(&grace.text())).transpose()?;
        let by = request.by.unwrap_or_else(|| "a client".to_owned());
        end(&*self.host, handle, Cause::StopRequested { by }, grace).await;
        Ok(handle.view.borrow().agent.clone())
    }
}

/// Ends an agent and waits until its whole tree has ended, for a limited time.
pub(super) async fn end(host: &dyn Host, handle: &AgentHandle, cause: Cause, grace: Option<Duration>) {
    let deadline = Instant::now() + grace.unwrap_or(MAX_GRACE).min(MAX_GRACE) + STOP_SLACK;
    let (answer, accepted) = oneshot::channel();
    let begin = async {
        if ask(handle, Command::Stop(cause, grace, answer)).await.is_ok() {
            let _ = accepted.await;
        }
    };
    let _ = timeout_at(deadline, begin).await;
    let mut view = handle.view.subscribe();
    let _ = timeout_at(deadline, view.wait_for(|view| view.agent.ended_at.is_some())).await;
    let processes = handle.view.borrow().agent.lives.clone();
    // The exit of the leader is not enough: its descendants may still be running.
    for process in processes.iter().filter_map(|id| host.recent(&ProcessId::parse(id).ok()?)) {
        let _ = timeout_at(deadline, host.until_over(&process)).await;
    }
}
