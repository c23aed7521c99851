//! Who asks, and what they see.
//!
//! Invariant D5, *a view never widens*: whoever says to be an owner sees what that owner and its descendants own, on
//! every route alike; what cannot be understood is refused, and a connection that nobody vouched for gets nothing.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use pinfold_api::client::{OWNER_HEADER, PARENT_HEADER};
use pinfold_api::error::ErrorCode;
use pinfold_model::facts::History;
use pinfold_model::spec::check_name;

use crate::owners::Contact;
use crate::refusal::Refusal;
use crate::service::Core;

/// What a caller sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All.
    Operator,
    /// What this owner and its descendants own.
    Owner(String),
}

/// Whoever made a request. While it lives, its owner counts as in contact.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) scope: Scope,
    /// Who it says its owner's parent is.
    pub(crate) parent: Option<String>,
    /// What the connection proved, before the request narrowed it.
    pub(crate) proof: Scope,
    _contact: Option<Contact>,
}

impl Scope {
    /// The owner whose consumers it reads as; empty for the operator.
    pub(crate) fn name(&self) -> &str {
        match self {
            Scope::Operator => "",
            Scope::Owner(owner) => owner,
        }
    }
}

impl Caller {
    /// What only the operator may do.
    pub(crate) fn must_be_operator(&self) -> Result<(), Refusal> {
        match self.scope {
            Scope::Operator => Ok(()),
            Scope::Owner(_) => {
                let message = "only the operator may do this: ask without Pinfold-Owner, or with an operator's token";
                Err(Refusal::new(ErrorCode::Forbidden, message))
            }
        }
    }
}

impl Core {
    /// Whether a process is in a caller's view.
    pub(crate) fn sees(&self, scope: &Scope, history: &History) -> bool {
        match scope {
            Scope::Operator => true,
            Scope::Owner(viewer) => self.owners.sees(viewer, history.owner()),
        }
    }

    /// The owners in view, narrowed to one that was asked for; `None` means all there are.
    pub(crate) fn owners_in_view(&self, scope: &Scope, asked: Option<&str>) -> Result<Option<Vec<String>>, Refusal> {
        if let Some(asked) = asked {
            check_name("owner", asked)?;
        }
        Ok(match (scope, asked) {
            (Scope::Operator, None) => None,
            (Scope::Operator, Some(asked)) => Some(vec![asked.to_owned()]),
            (Scope::Owner(viewer), None) => Some(self.owners.view_of(viewer)),
            (Scope::Owner(viewer), Some(asked)) => {
                Some(if self.owners.sees(viewer, asked) { vec![asked.to_owned()] } else { vec![] })
            }
        })
    }

    /// The caller behind a request that says to act as this owner.
    pub(crate) async fn caller(
        self: &Arc<Self>,
        vouched: Scope,
        owner: Option<String>,
        parent: Option<String>,
    ) -> Result<Caller, Refusal> {
        let (scope, parent) = self.narrow_to(vouched.clone(), owner, parent).await?;
        Ok(self.in_contact(vouched, scope, parent))
    }

    fn in_contact(&self, proof: Scope, scope: Scope, parent: Option<String>) -> Caller {
        let contact = match &scope {
            Scope::Operator => None,
            Scope::Owner(owner) => Some(self.owners.contact(owner)),
        };
        Caller { scope, parent, proof, _contact: contact }
    }

    /// Narrows what a connection may see to the owner that a request says to act as.
    async fn narrow(self: &Arc<Self>, vouched: Scope, headers: &HeaderMap) -> Result<(Scope, Option<String>), Refusal> {
        let owner = name_in(headers, &OWNER_HEADER)?;
        let parent = name_in(headers, &PARENT_HEADER)?;
        self.narrow_to(vouched, owner, parent).await
    }

    async fn narrow_to(
        self: &Arc<Self>,
        vouched: Scope,
        owner: Option<String>,
        parent: Option<String>,
    ) -> Result<(Scope, Option<String>), Refusal> {
        let bound = match (vouched, &owner) {
            (Scope::Operator, None) if parent.is_some() => {
                return Err(Refusal::invalid("Pinfold-Parent goes with Pinfold-Owner: say whose parent it is"));
            }
            (Scope::Operator, None) => return Ok((Scope::Operator, None)),
            (Scope::Operator, Some(owner)) => return Ok((Scope::Owner(owner.clone()), parent)),
            (Scope::Owner(bound), _) => bound,
        };
        let owner = owner.unwrap_or_else(|| bound.clone());
        match &parent {
            Some(parent) if self.owners.sees(&bound, &owner) => self.check_parent(&owner, parent)?,
            Some(parent) => self.add_child(&bound, &owner, parent).await?,
            None if self.owners.sees(&bound, &owner) => {}
            None => {
                let message = format!("no owner `{owner}` is in view: name its parent, if it is a new one");
                return Err(Refusal::new(ErrorCode::NotFound, message));
            }
        }
        Ok((Scope::Owner(owner), parent))
    }
}

/// For routes that are clients of our own socket: what a token is bound to goes on with the request, as the headers
/// that they act by.
pub(crate) async fn hand_on(State(core): State<Arc<Core>>, mut request: Request, next: Next) -> Response {
    let (owner, parent) = match request.extensions().get::<Scope>().cloned() {
        Some(Scope::Operator) => return next.run(request).await,
        Some(bound) => match core.narrow(bound, request.headers()).await {
            Ok((scope, parent)) => (scope.name().to_owned(), parent),
            Err(refusal) => return refusal.into_response(),
        },
        None => return Refusal::new(ErrorCode::Forbidden, "nobody vouches for this connection").into_response(),
    };
    let headers = request.headers_mut();
    for (name, value) in [(&OWNER_HEADER, Some(owner)), (&PARENT_HEADER, parent)] {
        headers.remove(name);
        if let Some(value) = value.and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok()) {
            headers.insert(name, value);
        }
    }
    next.run(request).await
}

fn name_in(headers: &HeaderMap, header: &HeaderName) -> Result<Option<String>, Refusal> {
    let mut values = headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refusal::invalid(format!("the header {header} is there twice: say it once")));
    }
    let text = std::str::from_utf8(value.as_bytes()).unwrap_or_default();
    check_name(if *header == OWNER_HEADER { "Pinfold-Owner" } else { "Pinfold-Parent" }, text)?;
    Ok(Some(text.to_owned()))
}

impl FromRequestParts<Arc<Core>> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, core: &Arc<Core>) -> Result<Self, Refusal> {
        let Some(vouched) = parts.extensions.get::<Scope>().cloned() else {
            return Err(Refusal::new(ErrorCode::Forbidden, "nobody vouches for this connection"));
        };
        let (scope, parent) = core.narrow(vouched.clone(), &parts.headers).await?;
        Ok(core.in_contact(vouched, scope, parent))
    }
}
