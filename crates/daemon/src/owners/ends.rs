//! Ending an owner: each of its processes and agents is kept, stopped or handed over, depending on its lifetime.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::{EndAnswer, EndRequest, ReleaseAnswer, Survivor};
use pinfold_model::facts::History;
use pinfold_model::outcome::Cause;
use pinfold_model::spec::{Lifetime, MAX_GRACE, check_name};
use pinfold_model::units::parse_duration;

use crate::agents::Hosting;
use crate::core::Core;
use crate::registry::{Entry, Viewer, no_owner};
use crate::request_error::RequestError;

impl Core {
    /// Releases an owner's open waits.
    pub(crate) fn release_owner(&self, viewer: &Viewer, owner: &str) -> Result<ReleaseAnswer, RequestError> {
        self.check_in_view(viewer, owner)?;
        Ok(ReleaseAnswer { released: self.owners.release(owner) })
    }

    fn check_in_view(&self, viewer: &Viewer, owner: &str) -> Result<(), RequestError> {
        check_name("owner", owner)?;
        match viewer {
            Viewer::Owner(own) if !self.owners.sees(own, owner) => Err(no_owner(owner)),
            _ => Ok(()),
        }
    }

    /// Ends an owner and its descendants, applying the lifetime of each of their processes.
    pub(crate) async fn end_owner(
        self: &Arc<Self>,
        viewer: &Viewer,
        owner: &str,
        request: EndRequest,
    ) -> Result<EndAnswer, RequestError> {
        self.check_in_view(viewer, owner)?;
        let grace = request.grace.map(|grace| parse_duration(&grace.text())).transpose()?;
        let view = self.owners.view_of(owner);
        let mut entries = self.registry.live();
        entries.retain(|entry| view.iter().any(|owner| owner == entry.state.borrow().history.owner()));
        let heir = self.owners.parent(owner);
        // Agents first: one that starts another process meanwhile ends that, too.
        let agents = Hosting::of(self).end_with_owners(&view, heir.as_deref(), grace);
        let ends = |history: &History| {
            view.iter().any(|owner| owner == history.owner()) && history.intent.spec.lifetime != Lifetime::Keep
        };
        let cancelled = self.cancel_restarts("the end of its owner", ends).await;
        let core = Arc::clone(self);
        // Runs to completion even if the caller disconnects.
        let ending = tokio::spawn(async move {
            let ended = core.end_all(entries, heir, grace).await;
            for agent in agents.under_way {
                let _ = agent.await;
            }
            let (agents_stopped, agents_handed_over) = (agents.stopped, agents.handed_over);
            EndAnswer { agents_stopped, agents_handed_over, ..ended }
        });
        let mut ended = ending.await.map_err(RequestError::internal)?;
        ended.stopped.extend(cancelled);
        Ok(EndAnswer { owner: owner.to_owned(), ..ended })
    }

    /// Applies the lifetime of each process, all at once. Processes to be handed over go to `heir`.
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
                manner.grace = grace.unwrap_or(manner.grace).min(MAX_GRACE);
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
