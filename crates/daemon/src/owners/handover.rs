//! Hands a live process over to another owner. The keeper records the new owner before anything else changes.

use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{HandoverRequest, Record};
use pinfold_model::link::{FromKeeper, ToKeeper};
use pinfold_model::spec::check_name;
use pinfold_os::crash_point;

use crate::access::caller::Caller;
use crate::core::Core;
use crate::registry::keeper_link::ANSWER_TIMEOUT;
use crate::registry::{Entry, FoundProcess, Viewer, no_owner};
use crate::request_error::RequestError;

/// Maximum number of handovers of one process: each is stored in its record and in memory.
const MAX_HANDOVERS: usize = 1000;
/// Maximum length of a purpose.
const MAX_PURPOSE: usize = 500;

impl Core {
    /// Hands a live process over to another owner.
    pub(crate) async fn hand_over(
        self: &Arc<Self>,
        caller: &Caller,
        found: FoundProcess,
        request: HandoverRequest,
    ) -> Result<Record, RequestError> {
        let purpose = request.purpose.trim();
        if purpose.is_empty() || purpose.chars().count() > MAX_PURPOSE {
            let message =
                format!("`purpose` must say what the new owner is to do with it, in 1 to {MAX_PURPOSE} characters");
            return Err(RequestError::invalid(message));
        }
        let owner = found.snapshot().history.owner().to_owned();
        let to = match request.to {
            Some(to) => to,
            None => self.owners.parent(&owner).ok_or_else(|| {
                RequestError::invalid(format!("owner `{owner}` has no parent: name the new owner in `to`"))
            })?,
        };
        check_name("to", &to)?;
        if let Viewer::Owner(own) = &caller.viewer
            && !self.owners.sees(own, &to)
            && !self.owners.sees(&to, own)
        {
            return Err(no_owner(&to));
        }
        let over = || RequestError::new(ErrorCode::AlreadyOver, "it is over: only a live process can be handed over");
        let FoundProcess::Here(entry) = &found else { return Err(over().about(found.id())) };
        if entry.status().is_over() {
            return Err(over().about(found.id()));
        }
        if to != owner {
            self.give(entry, &to, purpose).await?;
            self.peers.close_inside(&entry.id, caller.principal.handle());
        }
        self.record(&found).await
    }

    /// Has the keeper record the new owner.
    pub(super) async fn give(&self, entry: &Arc<Entry>, to: &str, purpose: &str) -> Result<(), RequestError> {
        let silent =
            || RequestError::new(ErrorCode::KeeperSilent, "its keeper does not answer: try again").about(&entry.id);
        if entry.state.borrow().history.handovers.len() >= MAX_HANDOVERS {
            let message =
                format!("it was handed over {MAX_HANDOVERS} times, which is the maximum: start a new process");
            return Err(RequestError::new(ErrorCode::LimitReached, message).about(&entry.id));
        }
        let link = entry.link().ok_or_else(silent)?;
        let (id, ancestors) = (entry.id.clone(), self.owners.ancestors(to));
        let (to, purpose) = (to.to_owned(), purpose.to_owned());
        let ask = |request| ToKeeper::HandOver { request, id, to, ancestors, purpose };
        match link.request(ANSWER_TIMEOUT, ask).await {
            Ok(FromKeeper::HandedOver { done: true, .. }) => {
                crash_point!("daemon.handover_known");
                Ok(())
            }
            Ok(FromKeeper::HandedOver { .. }) => {
                let message = "it could not be handed over: it ended meanwhile, or its record cannot be written";
                Err(RequestError::new(ErrorCode::AlreadyOver, message).about(&entry.id))
            }
            Ok(_) => Err(RequestError::internal("a keeper sent an answer of the wrong kind")),
            Err(_) => Err(silent()),
        }
    }
}
