//! A keeper taken for a start. If dropped before the start was sent, it becomes idle again, so that a refused start
//! does not leak a keeper.

use std::sync::Arc;

use pinfold_model::id::ProcessId;
use pinfold_model::link::ToKeeper;

use super::pool::give_back;
use crate::core::Core;
use crate::registry::keeper_link::Link;

/// A keeper without a process, owned by one start.
#[derive(Debug)]
pub(crate) struct TakenKeeper {
    core: Arc<Core>,
    /// `None` once it belongs to the process.
    link: Option<Arc<Link>>,
}

impl TakenKeeper {
    pub(super) fn new(core: &Arc<Core>, link: Arc<Link>) -> Self {
        Self { core: Arc::clone(core), link: Some(link) }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        self.link.as_ref().expect("only `into_link` takes it, and consumes the guard")
    }

    /// The process id of the directory that the keeper has prepared.
    pub(crate) fn prepared(&self) -> Option<ProcessId> {
        self.link().prepared()
    }

    /// To be called when the start is about to be sent: from here on the keeper belongs to its process.
    pub(crate) fn into_link(mut self) -> Arc<Link> {
        let link = Arc::clone(self.link());
        self.link = None;
        link.forget_prepared();
        link
    }

    /// The same as dropping it, but it is idle when this returns.
    pub(super) async fn give_back(mut self) {
        if let Some(link) = self.link.take() {
            give_back(&self.core, link).await;
        }
    }
}

impl Drop for TakenKeeper {
    fn drop(&mut self) {
        let Some(link) = self.link.take() else { return };
        // Without a runtime the daemon is exiting, and an idle keeper exits when its link closes.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let core = Arc::clone(&self.core);
        runtime.spawn(async move {
            match link.awaits_hello() {
                // Without a hello it cannot be used: it exits when it reads this.
                true => drop(link.send(&ToKeeper::Retire).await),
                false => give_back(&core, link).await,
            }
        });
    }
}
