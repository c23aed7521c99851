//! Who may set the parent of an owner.
//!
//! An operator may set any. Any other caller is authenticated as one owner and may only create *new* owners below
//! itself: it can change neither its own place in the tree nor that of an existing owner, because a parent sees and
//! stops everything its children own. The first parent of an owner is final, for operators too.

use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_model::owner::BadParent;
use pinfold_model::spec::{DEFAULT_OWNER, check_name};
use pinfold_store::queries::Filter;

use crate::access::caller::Caller;
use crate::core::Core;
use crate::registry::{Entry, Viewer, no_owner};
use crate::request_error::RequestError;

impl Core {
    /// Whether processes, agents, tokens or consumers belong to this owner.
    async fn owns_anything(self: &Arc<Self>, owner: &str) -> Result<bool, RequestError> {
        let owns = |entry: &Arc<Entry>| entry.state.borrow().history.owner() == owner;
        let has_agent = || self.agents.belong_to(owner);
        // The default owner is the operator's own, even before it owns anything.
        if owner == DEFAULT_OWNER
            || self.tokens.is_bound_to(owner)
            || self.registry.live().iter().any(owns)
            || has_agent()
        {
            return Ok(true);
        }
        let filter = Filter { owners: Some(vec![owner.to_owned()]), ..Filter::default() };
        let viewer = owner.to_owned();
        let ask = self.query(move |queries| Ok(queries.count(&filter)? > 0 || !queries.consumers(&viewer)?.is_empty()));
        ask.await
    }

    /// Creates an owner below one in the view of `bound`. On refusal the caller learns only that the owner is not in
    /// view.
    pub(super) async fn add_child(
        self: &Arc<Self>,
        bound: &str,
        owner: &str,
        parent: &str,
    ) -> Result<(), RequestError> {
        if !self.owners.sees(bound, parent) || self.owns_anything(owner).await? {
            return Err(not_in_view(owner));
        }
        match self.owners.add_new_child(owner, parent).map_err(invalid_parent)? {
            true => {
                let (owner, parent) = (owner.to_owned(), parent.to_owned());
                // Consumers survive the daemon, so the parent of their owner must too.
                self.index_writer.run(move |index| index.add_parent(&owner, &parent)).await??;
                Ok(())
            }
            false => Err(not_in_view(owner)),
        }
    }

    /// Checks the parent that a bound caller names for an owner in its view: it must be the existing one.
    pub(super) fn check_parent(&self, owner: &str, parent: &str) -> Result<(), RequestError> {
        match self.owners.parent(owner) {
            Some(known) if known == parent => Ok(()),
            Some(known) => Err(invalid_parent(BadParent::Another { owner: owner.to_owned(), parent: known })),
            None => {
                let message = format!(
                    "only an operator may give owner `{owner}` a parent: leave Pinfold-Parent and `parent` out"
                );
                Err(RequestError::new(ErrorCode::Forbidden, message))
            }
        }
    }

    /// The owner of a new process, and the owner's ancestors.
    pub(crate) fn owner_of_start(
        &self,
        caller: &Caller,
        requested: Option<String>,
        parent: Option<String>,
    ) -> Result<(String, Vec<String>), RequestError> {
        for (field, name) in [("owner", &requested), ("parent", &parent)] {
            name.as_deref().map_or(Ok(()), |name| check_name(field, name))?;
        }
        let (requested, parent) = (
            requested.map(|name| caller.principal.current_name(name)),
            parent.map(|name| caller.principal.current_name(name)),
        );
        let owner = match (&caller.viewer, requested) {
            (Viewer::Operator, requested) => requested.unwrap_or_else(|| DEFAULT_OWNER.to_owned()),
            (Viewer::Owner(own), None) => own.clone(),
            (Viewer::Owner(own), Some(requested)) if self.owners.sees(own, &requested) => requested,
            (Viewer::Owner(_), Some(requested)) => return Err(no_owner(&requested)),
        };
        let own = caller.viewer == Viewer::Owner(owner.clone());
        if let Some(parent) = parent.or_else(|| caller.parent.clone().filter(|_| own)) {
            match caller.principal.viewer {
                Viewer::Operator => self.owners.add_parent(&owner, &parent).map_err(invalid_parent)?,
                Viewer::Owner(_) => self.check_parent(&owner, &parent)?,
            }
        }
        let ancestors = self.owners.ancestors(&owner);
        Ok((owner, ancestors))
    }
}

fn invalid_parent(bad: BadParent) -> RequestError {
    RequestError::invalid(bad.to_string())
}

fn not_in_view(owner: &str) -> RequestError {
    RequestError::new(
        ErrorCode::NotFound,
        format!("no owner `{owner}` is in view, and the name is taken: use another name"),
    )
}
