//! Whether one more process may start: the bounds on live processes, of all owners together and of each.

use std::sync::Arc;

use pinfold_model::admission::{Held, try_admit};
use pinfold_model::spec::Spec;
use pinfold_store::retention::process_bytes;

use crate::core::{Core, blocking};
use crate::refusal::Refusal;
use crate::registry::Entry;

impl Core {
    /// Whether one more process may start, by all bounds on live ones.
    pub(super) fn try_admit(&self, spec: &Spec) -> Result<(), Refusal> {
        try_admit(&self.config.limits, self.registry.live_count())?;
        let limits = &self.config.limits.owner;
        if limits.counts_live() {
            let mut held = Held::default();
            for entry in self.live_of(&spec.owner) {
                held.live += 1;
                held.memory_bytes += entry.state.borrow().history.intent.spec.limits.memory.unwrap_or(0);
            }
            limits.try_admit(&spec.owner, held, spec.limits.memory)?;
        }
        Ok(())
    }

    /// Whether the owner's live processes leave room in its part of the store.
    pub(super) async fn try_admit_store(self: &Arc<Self>, spec: &Spec) -> Result<(), Refusal> {
        if self.config.limits.owner.store_bytes.is_none() {
            return Ok(());
        }
        let live = self.live_of(&spec.owner);
        let core = Arc::clone(self);
        let held =
            blocking(move || live.iter().map(|entry| process_bytes(&core.home.process(&entry.id))).sum()).await?;
        Ok(self.config.limits.owner.try_admit_store(&spec.owner, held)?)
    }

    pub(crate) fn live_of(&self, owner: &str) -> Vec<Arc<Entry>> {
        let mut live = self.registry.live();
        live.retain(|entry| entry.state.borrow().history.owner() == owner);
        live
    }
}
