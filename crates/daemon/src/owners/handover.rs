//! Handing a live process over to another owner. The keeper writes it down before anything else changes.

use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{HandoverRequest, Record};
use pinfold_model::link::{FromKeeper, ToKeeper};
use pinfold_model::spec::check_name;
use pinfold_os::crash_point;

use crate::access::caller::Caller;
use crate::core::Core;
use crate::refusal::Refusal;
use crate::registry::keeper_link::ANSWER;
use crate::registry::{Entry, Found, Scope, no_owner};

/// How often one process may be handed over: each time is kept in its record and in memory.
const HANDOVERS_MOST: usize = 1000;
/// Characters of a purpose.
const PURPOSE_MOST: usize = 500;

impl Core {
    /// Hands a live process over to another owner.
    pub(crate) async fn hand_over(
        self: &Arc<Self>,
        caller: &Caller,
        found: Found,
        request: HandoverRequest,
    ) -> Result<Record, Refusal> {
        let purpose = request.purpose.trim();
        if purpose.is_empty() || purpose.chars().count() > PURPOSE_MOST {
            let message =
                format!("`purpose` says in 1 to {PURPOSE_MOST} characters what the new owner is to do with it");
            return Err(Refusal::invalid(message));
        }
        let owner = found.snapshot().history.owner().to_owned();
        let to = match request.to {
            Some(to) => to,
            None => self.owners.parent(&owner).ok_or_else(|| {
                Refusal::invalid(format!("owner `{owner}` has no parent: say in `to` who is to have it"))
            })?,
        };
        check_name("to", &to)?;
        if let Scope::Owner(own) = &caller.scope
            && !self.owners.sees(own, &to)
            && !self.owners.sees(&to, own)
        {
            return Err(no_owner(&to));
        }
        let over = || Refusal::new(ErrorCode::AlreadyOver, "it is over: only a live process can be handed over");
        let Found::Here(entry) = &found else { return Err(over().about(found.id())) };
        if entry.status().is_over() {
            return Err(over().about(found.id()));
        }
        if to != owner {
            self.give(entry, &to, purpose).await?;
            self.peers.cut_inside(&entry.id, caller.proof.line());
        }
        self.record(&found).await
    }

    /// Has the keeper write down the new owner.
    pub(super) async fn give(&self, entry: &Arc<Entry>, to: &str, purpose: &str) -> Result<(), Refusal> {
        let silent = || Refusal::new(ErrorCode::KeeperSilent, "its keeper does not answer: try again").about(&entry.id);
        if entry.state.borrow().history.handovers.len() >= HANDOVERS_MOST {
            let message = format!("it was handed over {HANDOVERS_MOST} times, which is the most: start another");
            return Err(Refusal::new(ErrorCode::LimitReached, message).about(&entry.id));
        }
        let link = entry.link().ok_or_else(silent)?;
        let (id, ancestors) = (entry.id.clone(), self.owners.ancestors(to));
        let (to, purpose) = (to.to_owned(), purpose.to_owned());
        let ask = |request| ToKeeper::HandOver { request, id, to, ancestors, purpose };
        match link.ask(ANSWER, ask).await {
            Ok(FromKeeper::HandedOver { done: true, .. }) => {
                crash_point!("daemon.handover_known");
                Ok(())
            }
            Ok(FromKeeper::HandedOver { .. }) => {
                let message = "it could not be handed over: it ended meanwhile, or its record cannot be written";
                Err(Refusal::new(ErrorCode::AlreadyOver, message).about(&entry.id))
            }
            Ok(_) => Err(Refusal::internal("a keeper gave the wrong answer")),
            Err(_) => Err(silent()),
        }
    }
}
