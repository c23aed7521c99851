//! Who may say whose child an owner is.
//!
//! An operator may say it of any owner. Everybody else acts by proof as one owner, and may only make *new* owners, below
//! itself: neither its own place in the tree nor that of an owner that exists can be changed by a bound caller, because a
//! parent sees and stops everything of its children. The first parent stands, for operators too.

use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_model::owner::BadParent;
use pinfold_model::spec::{DEFAULT_OWNER, check_name};
use pinfold_store::queries::Filter;

use crate::access::caller::Caller;
use crate::core::Core;
use crate::refusal::Refusal;
use crate::registry::{Entry, Scope, no_owner};

impl Core {
    /// Whether anything outside the tree of owners belongs to this one: processes, agents, tokens or consumers.
    async fn has_belongings(self: &Arc<Self>, owner: &str) -> Result<bool, Refusal> {
        let owns = |entry: &Arc<Entry>| entry.state.borrow().history.owner() == owner;
        let has_agent = || self.agents.all().iter().any(|seat| seat.owner() == owner);
        // The default owner is the operator's own, even before it owns anything.
        if owner == DEFAULT_OWNER || self.tokens.binds(owner) || self.registry.live().iter().any(owns) || has_agent() {
            return Ok(true);
        }
        let filter = Filter { owners: Some(vec![owner.to_owned()]), ..Filter::default() };
        let scope = owner.to_owned();
        let ask = self.query(move |queries| Ok(queries.count(&filter)? > 0 || !queries.consumers(&scope)?.is_empty()));
        ask.await
    }

    /// Makes an owner that does not exist yet a child of one in the view of `bound`. The caller is told no more than
    /// that the owner is not in view.
    pub(super) async fn add_child(self: &Arc<Self>, bound: &str, owner: &str, parent: &str) -> Result<(), Refusal> {
        if !self.owners.sees(bound, parent) || self.has_belongings(owner).await? {
            return Err(not_in_view(owner));
        }
        match self.owners.add_new_child(owner, parent).map_err(refuse)? {
            true => {
                let (owner, parent) = (owner.to_owned(), parent.to_owned());
                // A consumer outlives the daemon, and so must the parent of whoever reads as one.
                self.ledger.with(move |index| index.add_parent(&owner, &parent)).await??;
                Ok(())
            }
            false => Err(not_in_view(owner)),
        }
    }

    /// Checks a parent that a bound caller names for an owner in its view: it must be the known one.
    pub(super) fn check_parent(&self, owner: &str, parent: &str) -> Result<(), Refusal> {
        match self.owners.parent(owner) {
            Some(known) if known == parent => Ok(()),
            Some(known) => Err(refuse(BadParent::Another { owner: owner.to_owned(), parent: known })),
            None => {
                let message = format!(
                    "only an operator may give owner `{owner}` a parent: leave Pinfold-Parent and `parent` out"
                );
                Err(Refusal::new(ErrorCode::Forbidden, message))
            }
        }
    }

    /// Whom a new process will belong to, and who is above.
    pub(crate) fn owner_of_start(
        &self,
        caller: &Caller,
        asked: Option<String>,
        parent: Option<String>,
    ) -> Result<(String, Vec<String>), Refusal> {
        for (field, name) in [("owner", &asked), ("parent", &parent)] {
            name.as_deref().map_or(Ok(()), |name| check_name(field, name))?;
        }
        let (asked, parent) =
            (asked.map(|name| caller.proof.current(name)), parent.map(|name| caller.proof.current(name)));
        let owner = match (&caller.scope, asked) {
            (Scope::Operator, asked) => asked.unwrap_or_else(|| DEFAULT_OWNER.to_owned()),
            (Scope::Owner(own), None) => own.clone(),
            (Scope::Owner(own), Some(asked)) if self.owners.sees(own, &asked) => asked,
            (Scope::Owner(_), Some(asked)) => return Err(no_owner(&asked)),
        };
        let own = caller.scope == Scope::Owner(owner.clone());
        if let Some(parent) = parent.or_else(|| caller.parent.clone().filter(|_| own)) {
            match caller.proof.scope {
                Scope::Operator => self.owners.add_parent(&owner, &parent).map_err(refuse)?,
                Scope::Owner(_) => self.check_parent(&owner, &parent)?,
            }
        }
        let ancestors = self.owners.ancestors(&owner);
        Ok((owner, ancestors))
    }
}

fn refuse(bad: BadParent) -> Refusal {
    Refusal::invalid(bad.to_string())
}

fn not_in_view(owner: &str) -> Refusal {
    Refusal::new(ErrorCode::NotFound, format!("no owner `{owner}` is in view, and it cannot be made: use another name"))
}
