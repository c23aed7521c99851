//! An idle keeper that was taken for a start. Dropped before the start was sent, it becomes idle again, so that no
//! refusal on the way can leak a keeper.

use std::sync::Arc;

use pinfold_model::id::ProcessId;
use pinfold_model::link::ToKeeper;

use super::pool::give_back;
use crate::core::Core;
use crate::registry::keeper_link::Link;

/// A keeper with nothing to keep, owned by one start.
#[derive(Debug)]
pub(crate) struct TakenKeeper {
    core: Arc<Core>,
    /// `None` once the start has it.
    link: Option<Arc<Link>>,
}

impl TakenKeeper {
    pub(super) fn new(core: &Arc<Core>, link: Arc<Link>) -> Self {
        Self { core: Arc::clone(core), link: Some(link) }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        self.link.as_ref().expect("only `into_link` takes it, and consumes the guard")
    }

    /// The process id whose directory the keeper has made ahead. It stays the keeper's until [`Self::into_link`].
    pub(crate) fn prepared(&self) -> Option<ProcessId> {
        self.link().prepared()
    }

    /// The start is about to be sent: from here on the keeper belongs to its process.
    pub(crate) fn into_link(mut self) -> Arc<Link> {
        let link = Arc::clone(self.link());
        self.link = None;
        link.forget_prepared();
        link
    }

    /// The same as dropping it, but idle when this returns.
    pub(super) async fn give_back(mut self) {
        if let Some(link) = self.link.take() {
            give_back(&self.core, link).await;
        }
    }
}

impl Drop for TakenKeeper {
    fn drop(&mut self) {
        let Some(link) = self.link.take() else { return };
        // Without a runtime the daemon is ending, and a keeper with nothing to keep ends when its link closes.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let core = Arc::clone(&self.core);
        runtime.spawn(async move {
            match link.is_silent() {
                // It never said hello, so it cannot be used: it leaves as soon as it reads this.
                true => drop(link.tell(&ToKeeper::Retire).await),
                false => give_back(&core, link).await,
            }
        });
    }
}
