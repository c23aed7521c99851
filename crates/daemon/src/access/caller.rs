//! Who asks, and what they see.
//!
//! Invariant D5, *a view never widens*: whoever says to be an owner sees what that owner and its descendants own, on
//! every route alike; what cannot be understood is refused, and a connection that proves nothing gets nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use pinfold_api::client::{GRACE_HEADER, OWNER_HEADER, PARENT_HEADER};
use pinfold_api::error::ErrorCode;
use pinfold_model::spec::check_name;
use pinfold_model::units::parse_duration;

use crate::access::closable::Line;
use crate::core::Core;
use crate::refusal::Refusal;
use crate::registry::{Contact, Entry, Heard, Scope};

/// What a connection or a token proves.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    pub(crate) scope: Scope,
    pub(crate) by: By,
}

/// By what something is proved.
#[derive(Clone, Debug)]
pub(crate) enum By {
    /// It opened the socket, from outside every kept process.
    Socket,
    Token,
    /// It opened the socket from inside the tree of this process.
    Process {
        entry: Arc<Entry>,
        line: Arc<Line>,
    },
}

/// Why a connection proves nothing; stands in for a [`Proof`] in a request.
#[derive(Clone, Debug)]
pub(crate) struct Unproven(pub(crate) String);

impl Proof {
    /// What the socket proves to those outside; also for what the daemon does by itself.
    pub(crate) fn operator() -> Self {
        Self { scope: Scope::Operator, by: By::Socket }
    }

    /// What the connection of a request proves.
    pub(crate) fn of(extensions: &Extensions) -> Result<Self, Refusal> {
        let reason = || match extensions.get::<Unproven>() {
            Some(Unproven(reason)) => Refusal::new(ErrorCode::Forbidden, reason.clone()),
            None => Refusal::new(ErrorCode::Forbidden, "this connection is not authenticated"),
        };
        extensions.get::<Self>().cloned().ok_or_else(reason)
    }

    /// A name as it is meant from inside a process: there the owner that the process began with, which is in its
    /// environment, stands for the one it has now.
    pub(super) fn current(&self, name: String) -> String {
        match (&self.by, &self.scope) {
            (By::Process { entry, .. }, Scope::Owner(now))
                if entry.state.borrow().history.intent.spec.owner == name =>
            {
                now.clone()
            }
            _ => name,
        }
    }

    /// The connection, if it comes from inside a process.
    pub(crate) fn line(&self) -> Option<&Arc<Line>> {
        match &self.by {
            By::Process { line, .. } => Some(line),
            By::Socket | By::Token => None,
        }
    }
}

/// Whoever made a request. While it lives, its owner counts as in contact.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) scope: Scope,
    /// Who it says its owner's parent is.
    pub(crate) parent: Option<String>,
    /// What the connection proved, before the request narrowed it.
    pub(crate) proof: Proof,
    _contact: Option<Contact>,
}

impl Caller {
    /// What only the operator may do.
    pub(crate) fn must_be_operator(&self) -> Result<(), Refusal> {
        match self.scope {
            Scope::Operator => Ok(()),
            Scope::Owner(_) => {
                let message = match &self.proof.by {
                    By::Process { entry, .. } => format!(
                        "only the operator may do this, and this request comes from inside process {}, which acts as \
                         its owner: ask from outside, or see `security.trust_children`",
                        entry.id
                    ),
                    By::Socket | By::Token => {
                        "only the operator may do this: ask without Pinfold-Owner, or with an operator's token".into()
                    }
                };
                Err(Refusal::new(ErrorCode::Forbidden, message))
            }
        }
    }
}

impl Core {
    /// The caller behind a request that says to act as this owner.
    pub(crate) async fn caller(
        self: &Arc<Self>,
        proof: Proof,
        owner: Option<String>,
        parent: Option<String>,
    ) -> Result<Caller, Refusal> {
        let (scope, parent) = self.narrow_to(&proof, owner, parent).await?;
        self.in_contact(proof, (scope, parent), None)
    }

    /// The grace of what is to end with its owner, where a request that acts as an owner names none.
    pub(crate) fn grace_for(&self, caller: &Caller, owner: &str) -> Option<Duration> {
        matches!(caller.scope, Scope::Owner(_)).then(|| self.owners.grace(owner)).flatten()
    }

    fn in_contact(
        &self,
        proof: Proof,
        (scope, parent): (Scope, Option<String>),
        grace: Option<Duration>,
    ) -> Result<Caller, Refusal> {
        let inside = matches!(proof.by, By::Process { .. }) && proof.scope == scope;
        let from = if inside { Heard::Inside } else { Heard::Outside };
        let contact = match &scope {
            Scope::Operator => None,
            Scope::Owner(owner) => self.owners.contact_from(owner, from, grace)?,
        };
        Ok(Caller { scope, parent, proof, _contact: contact })
    }

    /// Narrows what a connection may see to the owner that a request says to act as.
    async fn narrow(self: &Arc<Self>, proof: &Proof, headers: &HeaderMap) -> Result<(Scope, Option<String>), Refusal> {
        let owner = name_in(headers, &OWNER_HEADER)?;
        let parent = name_in(headers, &PARENT_HEADER)?;
        self.narrow_to(proof, owner, parent).await
    }

    async fn narrow_to(
        self: &Arc<Self>,
        proof: &Proof,
        owner: Option<String>,
        parent: Option<String>,
    ) -> Result<(Scope, Option<String>), Refusal> {
        let bound = match (proof.scope.clone(), &owner) {
            (Scope::Operator, None) if parent.is_some() => {
                return Err(Refusal::invalid("Pinfold-Parent goes with Pinfold-Owner: say whose parent it is"));
            }
            (Scope::Operator, None) => return Ok((Scope::Operator, None)),
            (Scope::Operator, Some(owner)) => return Ok((Scope::Owner(owner.clone()), parent)),
            (Scope::Owner(bound), _) => bound,
        };
        let owner = owner.map_or_else(|| bound.clone(), |owner| proof.current(owner));
        let mut parent = parent.map(|parent| proof.current(parent));
        if matches!(proof.by, By::Process { .. }) && parent.is_none() && !self.owners.sees(&bound, &owner) {
            // Whoever takes a name of its own inside a process is a child of that process's owner.
            parent = Some(bound.clone());
        }
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
    let narrowed = match Proof::of(request.extensions()) {
        Ok(Proof { scope: Scope::Operator, .. }) => return next.run(request).await,
        Ok(proof) => core.narrow(&proof, request.headers()).await,
        Err(refusal) => Err(refusal),
    };
    let (owner, parent) = match narrowed {
        Ok((scope, parent)) => (scope.name().to_owned(), parent),
        Err(refusal) => return refusal.into_response(),
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

/// How long after its last contact the owner counts as gone, if the request says so.
fn grace_in(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(GRACE_HEADER) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let grace = parse_duration(text);
    Ok(Some(grace.map_err(|error| Refusal::invalid(format!("Pinfold-Owner-Grace: {error}")))?))
}

impl FromRequestParts<Arc<Core>> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, core: &Arc<Core>) -> Result<Self, Refusal> {
        let proof = Proof::of(&parts.extensions)?;
        let grace = grace_in(&parts.headers)?;
        let narrowed = core.narrow(&proof, &parts.headers).await?;
        core.in_contact(proof, narrowed, grace)
    }
}
