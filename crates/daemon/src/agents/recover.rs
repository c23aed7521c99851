//! Taking over the agents of an earlier daemon, and removing those that ended long ago.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::{AgentFault, FaultCode};
use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;
use pinfold_store::agents::{AgentDir, list_agents};

use super::driver::Driver;
use super::handle::AgentHandle;
use super::host::Hosting;
use super::spec::AgentSpec;
use super::state::AgentState;
use super::supervise;
use crate::clock::{now, rfc3339};
use crate::threads::blocking;

/// Ended agents that are kept; of more, those that ended first are removed.
const MAX_ENDED: usize = 1000;
/// How often ended agents are removed.
const REMOVE_INTERVAL: Duration = Duration::from_secs(300);
/// How long the daemon's recovery waits for agents. After that they are taken over while requests are answered.
const MAX_RECOVERY: Duration = Duration::from_secs(30);

impl Hosting {
    /// Takes over the agents that an earlier daemon hosted. An unreadable one affects no other.
    pub(crate) async fn recover(&self) {
        let (home, _) = self.host.files();
        let ids = match blocking(move || list_agents(&home)).await {
            Ok(Ok(ids)) => ids,
            Ok(Err(error)) => return tracing::error!(%error, "cannot list the hosted agents"),
            Err(error) => return tracing::error!(error = %error.0, "cannot list the hosted agents"),
        };
        if ids.is_empty() {
            return;
        }
        let event_loop = match self.agents.event_loop() {
            Ok(event_loop) => event_loop,
            Err(error) => return tracing::error!(error = %error.0, "cannot take over the hosted agents"),
        };
        let hosting = self.clone();
        let recovery = event_loop.spawn(async move {
            for id in ids {
                hosting.take_over(&id).await;
            }
        });
        if tokio::time::timeout(MAX_RECOVERY, recovery).await.is_err() {
            tracing::error!("hosted agents are still being taken over: requests are answered meanwhile");
        }
    }

    async fn take_over(&self, id: &ProcessId) {
        let (home, durability) = self.host.files();
        let dir = AgentDir::open(&home, id, durability);
        let spec = match dir.read_agent::<AgentSpec>() {
            Ok(spec) => spec,
            Err(error) => return tracing::warn!(agent = %id, %error, "cannot read an agent"),
        };
        let state = dir.read_state::<AgentState>().map(Option::unwrap_or_default).unwrap_or_else(|error| {
            // It ends here. Nothing is written, so that the unreadable file stays as it is.
            let message = format!("its state on disk is unreadable: {error}");
            let fault = Some(AgentFault { code: FaultCode::Damaged, message });
            AgentState { fault, ended: Some(now()), ..AgentState::default() }
        });
        let (handle, commands) = AgentHandle::new(spec, dir, None, &state);
        self.agents.insert(&handle);
        let reattached = supervise::spawn(Driver::new(Arc::clone(&self.host), handle, state, commands));
        let _ = reattached.await;
    }

    /// Removes agents that ended long ago, until shutdown.
    pub(crate) async fn remove_ended(self) {
        let mut shutdown = self.host.shutdown();
        while tokio::time::timeout(REMOVE_INTERVAL, shutdown.wait_for(|shutdown| *shutdown)).await.is_err() {
            let oldest = rfc3339(Moment(now().0.saturating_sub(self.host.retention().as_micros() as u64)));
            let mut ended: Vec<(String, Arc<AgentHandle>)> = Vec::new();
            for handle in self.agents.all() {
                let ended_at = handle.view.borrow().agent.ended_at.clone();
                ended.extend(ended_at.map(|ended_at| (ended_at, handle)));
            }
            ended.sort_by(|one, other| other.0.cmp(&one.0));
            let keep = ended.iter().take(MAX_ENDED).take_while(|(ended_at, _)| *ended_at >= oldest).count();
            for (_, handle) in ended.drain(keep..) {
                self.agents.remove(&handle.id);
                let dir = handle.dir.clone();
                if let Ok(Err(error)) = blocking(move || dir.remove()).await {
                    tracing::warn!(agent = %handle.id, %error, "cannot remove an agent");
                }
            }
        }
    }
}
