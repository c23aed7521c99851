//! What the rest of the daemon may ask of hosted agents, apart from mounting their routes. Nothing else of this folder is
//! reachable from outside; `cargo xtask tidy` checks that.
//!
//! These functions run on the daemon's event loop. Each is short and bounded by the number of agents, and none waits for
//! a driver without a time limit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pinfold_api::types::{Agent, AgentListQuery, Lifetime};
use pinfold_model::outcome::Cause;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::ends::{MAX_STOP, end};
use super::handle::{AgentHandle, Agents, Command};
use super::host::{Host, Hosting, Viewer};
use super::requests::ask;

/// What the end of an owner does to its agents.
#[derive(Debug, Default)]
pub(crate) struct EndingAgents {
    /// Ids of agents that are stopped.
    pub(crate) stopped: Vec<String>,
    /// Ids of agents that get another owner.
    pub(crate) handed_over: Vec<String>,
    /// Finished when that is done; they run on if they are dropped.
    pub(crate) under_way: Vec<JoinHandle<()>>,
}

impl Agents {
    /// Whether an agent belongs to this owner, ended ones included.
    pub(crate) fn belong_to(&self, owner: &str) -> bool {
        self.all().iter().any(|handle| handle.owner() == owner)
    }

    /// The owners of agents that have not ended.
    pub(crate) fn owners(&self) -> Vec<String> {
        self.living().iter().map(|handle| handle.owner()).collect()
    }

    /// Whether any agent has not ended.
    pub(crate) fn any_living(&self) -> bool {
        !self.living().is_empty()
    }

    /// Whether any agent ends when its owner loses contact.
    pub(crate) fn any_with_owner_grace(&self) -> bool {
        self.living().iter().any(|handle| handle.owner_grace().is_some())
    }
}

impl Hosting {
    /// The agents in a caller's view that have not ended, of all owners or of one.
    pub(crate) fn living_agents(&self, viewer: &Viewer, owner: Option<String>) -> Vec<Agent> {
        self.list_agents(viewer, &AgentListQuery { owner, all: None }).agents
    }

    /// When an agent requested a permission, if this daemon saw it.
    pub(crate) fn asked_at(&self, agent: &str, ask: &str) -> Option<String> {
        let agent = self.agents.living().into_iter().find(|handle| handle.id.as_str() == agent)?;
        agent.events.asked_at(ask)
    }

    /// Keeps, stops or hands over the agents of owners that ended, as each agent's lifetime says. Those to be handed over
    /// go to `new_owner`.
    pub(crate) fn end_with_owners(
        &self,
        owners: &[String],
        new_owner: Option<&str>,
        grace: Option<Duration>,
    ) -> EndingAgents {
        let mut ending = EndingAgents::default();
        for handle in self.agents.living() {
            if owners.contains(&handle.owner()) {
                self.end_with_owner(handle, new_owner, grace, &mut ending);
            }
        }
        ending
    }

    /// Stops or hands over agents, by their lifetime, whose owner has had no contact for longer than their `owner_grace`.
    pub(crate) fn end_without_contact(&self) {
        for handle in self.agents.living() {
            let owner = handle.owner();
            let is_lost = handle.owner_grace().is_some_and(|grace| self.host.time_without_contact(&owner) >= grace);
            if is_lost && !handle.owner_lost.swap(true, Ordering::Relaxed) {
                tracing::info!(owner, agent = %handle.id, "the owner of an agent has lost contact");
                let parent = self.host.parent_of(&owner);
                self.end_with_owner(handle, parent.as_deref(), None, &mut EndingAgents::default());
            }
        }
    }

    fn end_with_owner(
        &self,
        handle: Arc<AgentHandle>,
        new_owner: Option<&str>,
        grace: Option<Duration>,
        ending: &mut EndingAgents,
    ) {
        let (id, host) = (handle.id.to_string(), Arc::clone(&self.host));
        let task = match (handle.spec.lifetime.unwrap_or_default(), new_owner) {
            (Lifetime::Keep, _) => return,
            (Lifetime::Parent, Some(new_owner)) => {
                ending.handed_over.push(id);
                self.agents.daemon.spawn(hand_over(handle, new_owner.to_owned()))
            }
            (Lifetime::Owner | Lifetime::Parent, _) => {
                ending.stopped.push(id);
                self.agents.daemon.spawn(stop(host, handle, grace))
            }
        };
        ending.under_way.push(task);
    }
}

async fn stop(host: Arc<dyn Host>, handle: Arc<AgentHandle>, grace: Option<Duration>) {
    end(&*host, &handle, Cause::OwnerEnded, grace).await;
}

async fn hand_over(handle: Arc<AgentHandle>, new_owner: String) {
    let (answer, written) = oneshot::channel();
    let handed_over = async {
        if ask(&handle, Command::HandOver(new_owner, answer)).await.is_ok() {
            let _ = written.await;
        }
    };
    let _ = tokio::time::timeout(MAX_STOP, handed_over).await;
}
