//! How agents end: at a request, or with their owner.
//!
//! An agent is ended as such and not by its process alone: one that rests, is about to start, or is between two lives has none. Its
//! driver is told, begins no further life, and ends whatever there is of the earlier ones.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::{Agent, AgentStopRequest, Lifetime};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;
use pinfold_model::spec::GRACE_MOST;
use pinfold_model::units::parse_duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::seat::{Command, Seat};
use super::service::ask;
use crate::core::Core;
use crate::refusal::Refusal;

/// A stop may take this much longer than its grace.
const STOP_SLACK: Duration = Duration::from_secs(15);

/// What the end of an owner does to its agents.
#[derive(Debug, Default)]
pub(crate) struct EndingAgents {
    /// Those that end, and those that go to another owner.
    pub(crate) stopped: Vec<String>,
    pub(crate) handed_over: Vec<String>,
    /// Done when they have ended; goes on if nobody waits for it.
    pub(crate) under_way: Vec<JoinHandle<()>>,
}

impl Core {
    /// Stops an agent and its whole tree, and waits until that is done.
    pub(crate) async fn stop_agent(&self, seat: &Seat, request: AgentStopRequest) -> Result<Agent, Refusal> {
        let grace = request.grace.as_ref().map(|grace| parse_duration(&grace.text())).transpose()?;
        let by = request.by.unwrap_or_else(|| "a client".to_owned());
        self.end_agent(seat, Cause::StopRequested { by }, grace).await;
        Ok(seat.view.borrow().agent.clone())
    }

    async fn end_agent(&self, seat: &Seat, cause: Cause, grace: Option<Duration>) {
        let within = grace.unwrap_or(GRACE_MOST).min(GRACE_MOST) + STOP_SLACK;
        let deadline = tokio::time::Instant::now() + within;
        let (answer, begun) = oneshot::channel();
        if ask(seat, Command::Stop(cause, grace, answer)).await.is_ok() {
            let _ = begun.await;
        }
        let mut view = seat.view.subscribe();
        let _ = tokio::time::timeout_at(deadline, view.wait_for(|view| view.agent.ended_at.is_some())).await;
        let lives = seat.view.borrow().agent.lives.clone();
        // It is stopped when nothing of it is left, and not when its leader is gone.
        for entry in lives.iter().filter_map(|id| self.registry.get(&ProcessId::parse(id).ok()?)) {
            let mut state = entry.state.subscribe();
            let over = state.wait_for(|state| state.history.status().is_over());
            let _ = tokio::time::timeout_at(deadline, over).await;
        }
    }

    /// Lets the agents of these owners go the way of their lifetime. `heir` is who gets what is to be handed over.
    pub(crate) fn end_agents(
        self: &Arc<Self>,
        owners: &[String],
        heir: Option<&str>,
        grace: Option<Duration>,
    ) -> EndingAgents {
        let mut ending = EndingAgents::default();
        for seat in self.agents.all() {
            if !seat.is_over() && owners.contains(&seat.owner()) {
                self.end_with_owner(seat, heir, grace, &mut ending);
            }
        }
        ending
    }

    /// Lets one agent go the way of its lifetime.
    pub(crate) fn end_with_owner(
        self: &Arc<Self>,
        seat: Arc<Seat>,
        heir: Option<&str>,
        grace: Option<Duration>,
        ending: &mut EndingAgents,
    ) {
        let id = seat.id.to_string();
        match (seat.spec.lifetime.unwrap_or_default(), heir) {
            (Lifetime::Keep, _) => {}
            (Lifetime::Parent, Some(heir)) => {
                ending.handed_over.push(id);
                let heir = heir.to_owned();
                let hand_over = async move {
                    let (answer, written) = oneshot::channel();
                    if ask(&seat, Command::HandOver(heir, answer)).await.is_ok() {
                        let _ = written.await;
                    }
                };
                ending.under_way.push(tokio::spawn(hand_over));
            }
            (Lifetime::Owner | Lifetime::Parent, _) => {
                ending.stopped.push(id);
                let core = Arc::clone(self);
                let end = async move { core.end_agent(&seat, Cause::OwnerEnded, grace).await };
                ending.under_way.push(tokio::spawn(end));
            }
        }
    }

    /// Agents whose owner may be silent for only so long, with that time.
    pub(crate) fn graced_agents(&self) -> Vec<(Arc<Seat>, Duration)> {
        let graced = |seat: Arc<Seat>| {
            let grace = seat.grace().filter(|_| !seat.is_over())?;
            Some((seat, grace))
        };
        self.agents.all().into_iter().filter_map(graced).collect()
    }
}
