//! Admission: the limits on live processes, of all owners together and of each.

use std::sync::Arc;

use pinfold_model::admission::{OwnerUsage, try_admit};
use pinfold_model::spec::Spec;
use pinfold_store::retention::process_bytes;

use crate::core::{Core, blocking};
use crate::registry::Entry;
use crate::request_error::RequestError;

impl Core {
    /// Checks the limits on live processes.
    pub(super) fn try_admit(&self, spec: &Spec) -> Result<(), RequestError> {
        try_admit(&self.config.limits, self.registry.live_count())?;
        let limits = &self.config.limits.owner;
        if limits.counts_live() {
            let mut held = OwnerUsage::default();
            for entry in self.live_of(&spec.owner) {
                held.live += 1;
                held.memory_bytes += entry.state.borrow().history.intent.spec.limits.memory.unwrap_or(0);
            }
            limits.try_admit(&spec.owner, held, spec.limits.memory)?;
        }
        Ok(())
    }

    /// Checks whether the output of the owner's live processes leaves room within its store limit.
    pub(super) async fn try_admit_store(self: &Arc<Self>, spec: &Spec) -> Result<(), RequestError> {
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
