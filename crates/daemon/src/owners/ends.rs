//! The end of an owner: each of its processes and agents is kept, stopped or handed over, as its lifetime says.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::{EndAnswer, EndRequest, ReleaseAnswer, Survivor};
use pinfold_model::facts::History;
use pinfold_model::outcome::Cause;
use pinfold_model::spec::{GRACE_MOST, Lifetime, check_name};
use pinfold_model::units::parse_duration;

use crate::core::Core;
use crate::refusal::Refusal;
use crate::registry::{Entry, Scope, no_owner};

impl Core {
    /// Releases an owner's open waits.
    pub(crate) fn release_owner(&self, scope: &Scope, owner: &str) -> Result<ReleaseAnswer, Refusal> {
        self.check_in_view(scope, owner)?;
        Ok(ReleaseAnswer { released: self.owners.release(owner) })
    }

    fn check_in_view(&self, scope: &Scope, owner: &str) -> Result<(), Refusal> {
        check_name("owner", owner)?;
        match scope {
            Scope::Owner(viewer) if !self.owners.sees(viewer, owner) => Err(no_owner(owner)),
            _ => Ok(()),
        }
    }

    /// Ends an owner and its descendants: each of their processes goes the way of its lifetime.
    pub(crate) async fn end_owner(
        self: &Arc<Self>,
        scope: &Scope,
        owner: &str,
        request: EndRequest,
    ) -> Result<EndAnswer, Refusal> {
        self.check_in_view(scope, owner)?;
        let grace = request.grace.map(|grace| parse_duration(&grace.text())).transpose()?;
        let view = self.owners.view_of(owner);
        let mut entries = self.registry.live();
        entries.retain(|entry| view.iter().any(|owner| owner == entry.state.borrow().history.owner()));
        let heir = self.owners.parent(owner);
        // Before their processes: an agent that begins another meanwhile ends that, too.
        let agents = self.end_agents(&view, heir.as_deref(), grace);
        let ends = |history: &History| {
            view.iter().any(|owner| owner == history.owner()) && history.intent.spec.lifetime != Lifetime::Keep
        };
        let cancelled = self.cancel_restarts("the end of its owner", ends).await;
        let core = Arc::clone(self);
        // Goes on even if its caller goes away: what was begun is not left half done.
        let ending = tokio::spawn(async move {
            let ended = core.end_all(entries, heir, grace).await;
            for agent in agents.under_way {
                let _ = agent.await;
            }
            let (agents_stopped, agents_handed_over) = (agents.stopped, agents.handed_over);
            EndAnswer { agents_stopped, agents_handed_over, ..ended }
        });
        let mut ended = ending.await.map_err(Refusal::internal)?;
        ended.stopped.extend(cancelled);
        Ok(EndAnswer { owner: owner.to_owned(), ..ended })
    }

    /// Lets each process go the way of its lifetime, all at once. `heir` is who gets what is to be handed over.
    pub(super) async fn end_all(
        self: &Arc<Self>,
        entries: Vec<Arc<Entry>>,
        heir: Option<String>,
        grace: Option<Duration>,
    ) -> EndAnswer {
        let mut answer = EndAnswer::default();
        let mut stops = tokio::task::JoinSet::new();
        for entry in entries {
            let (lifetime, mut manner) = {
                let state = entry.state.borrow();
                let spec = &state.history.intent.spec;
                (spec.lifetime, spec.stop)
            };
            let id = entry.id.to_string();
            let heir = heir.as_deref().filter(|_| matches!(lifetime, Lifetime::Parent { .. }));
            if lifetime == Lifetime::Keep {
                answer.kept.push(id);
            } else if let Some(heir) = heir
                && self.give(&entry, heir, "its owner was ended").await.is_ok()
            {
                answer.handed_over.push(id);
            } else {
                manner.grace = grace.unwrap_or(manner.grace).min(GRACE_MOST);
                answer.stopped.push(id);
                let core = Arc::clone(self);
                stops.spawn(async move { core.stop_entry(&entry, Cause::OwnerEnded, manner).await });
            }
        }
        while let Some(stopped) = stops.join_next().await {
            answer.survivors.extend(stopped.ok().and_then(Result::ok).unwrap_or_else(Vec::<Survivor>::new));
        }
        answer
    }
}
