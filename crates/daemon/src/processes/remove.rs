//! Removing one ended process and its output, on request.

use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::Removed;

use crate::core::Core;
use crate::registry::FoundProcess;
use crate::registry::records::disk_bytes;
use crate::request_error::RequestError;
use crate::request_error::unwritable;

impl Core {
    /// Removes an ended process. A live one, or one that is about to be restarted, has to be stopped first.
    pub(crate) async fn remove_ended(self: &Arc<Self>, found: FoundProcess) -> Result<Removed, RequestError> {
        let (id, history) = (found.id().clone(), found.snapshot().history);
        let advice = format!("stop it first, with `pinfold stop {id}` or POST /v1/processes/{id}/stop");
        let reason = match history.status().is_over() {
            false => Some(format!("`{id}` is {}", history.status().name())),
            true if self.chains.needs(&id) => Some(format!("`{id}` is about to be restarted")),
            true => None,
        };
        if let Some(reason) = reason {
            return Err(RequestError::new(ErrorCode::StillRunning, format!("{reason}: {advice}")).about(&id));
        }
        let freed_bytes = disk_bytes(&history, &self.home);
        self.remove(vec![id.clone()]).await?;
        if self.home.process(&id).exists() {
            let path = self.home.process(&id);
            return Err(unwritable(&format!("{} could not be removed, see daemon.log", path.display())).about(&id));
        }
        Ok(Removed { id: id.to_string(), freed_bytes })
    }
}
