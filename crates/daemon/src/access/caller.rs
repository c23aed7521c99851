//! The caller of a request, and what it may see.
//!
//! Invariant D5, *a view never widens*: a request that acts as an owner sees what that owner and its descendants own,
//! on every route alike. A header that cannot be parsed is refused, and an unauthenticated connection gets nothing.

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

use crate::access::closable::ConnectionHandle;
use crate::core::Core;
use crate::registry::{Contact, ContactFrom, Entry, Viewer};
use crate::request_error::RequestError;

/// The authenticated identity of a connection or token.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    pub(crate) viewer: Viewer,
    pub(crate) method: AuthMethod,
}

/// How a principal was authenticated.
#[derive(Clone, Debug)]
pub(crate) enum AuthMethod {
    /// It opened the socket from outside every managed process.
    Socket,
    Token,
    /// It opened the socket from inside the tree of this process.
    Process {
        entry: Arc<Entry>,
        handle: Arc<ConnectionHandle>,
    },
}

/// Why a connection could not be authenticated; in the request's extensions in place of a [`Principal`].
#[derive(Clone, Debug)]
pub(crate) struct Unauthenticated(pub(crate) String);

impl Principal {
    /// The operator: a socket connection from outside every managed process. The daemon's own actions use it too.
    pub(crate) fn operator() -> Self {
        Self { viewer: Viewer::Operator, method: AuthMethod::Socket }
    }

    /// The principal of a request's connection.
    pub(crate) fn of(extensions: &Extensions) -> Result<Self, RequestError> {
        let reason = || match extensions.get::<Unauthenticated>() {
            Some(Unauthenticated(reason)) => RequestError::new(ErrorCode::Forbidden, reason.clone()),
            None => RequestError::new(ErrorCode::Forbidden, "this connection is not authenticated"),
        };
        extensions.get::<Self>().cloned().ok_or_else(reason)
    }

    /// Translates an owner name sent from inside a process. The process's environment holds the owner that it started
    /// with; after a handover that name means the current owner.
    pub(super) fn current_name(&self, name: String) -> String {
        match (&self.method, &self.viewer) {
            (AuthMethod::Process { entry, .. }, Viewer::Owner(now))
                if entry.state.borrow().history.intent.spec.owner == name =>
            {
                now.clone()
            }
            _ => name,
        }
    }

    /// The connection's handle, if it comes from inside a process.
    pub(crate) fn handle(&self) -> Option<&Arc<ConnectionHandle>> {
        match &self.method {
            AuthMethod::Process { handle, .. } => Some(handle),
            AuthMethod::Socket | AuthMethod::Token => None,
        }
    }
}

/// The author of a request. Its owner counts as in contact until this is dropped.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) viewer: Viewer,
    /// The parent of its owner, as the request names it.
    pub(crate) parent: Option<String>,
    /// The connection's principal, before the request narrowed its view.
    pub(crate) principal: Principal,
    _contact: Option<Contact>,
}

impl Caller {
    /// Refuses everyone but the operator.
    pub(crate) fn must_be_operator(&self) -> Result<(), RequestError> {
        match self.viewer {
            Viewer::Operator => Ok(()),
            Viewer::Owner(_) => {
                let message = match &self.principal.method {
                    AuthMethod::Process { entry, .. } => format!(
                        "only the operator may do this, and a request from inside process {} acts as \
                         its owner: run the command outside of it, or set `security.trust_children`",
                        entry.id
                    ),
                    AuthMethod::Socket | AuthMethod::Token => {
                        "only the operator may do this: send the request without Pinfold-Owner, or with an operator's token".into()
                    }
                };
                Err(RequestError::new(ErrorCode::Forbidden, message))
            }
        }
    }
}

impl Core {
    /// The caller of a request that acts as this owner.
    pub(crate) async fn caller(
        self: &Arc<Self>,
        principal: Principal,
        owner: Option<String>,
        parent: Option<String>,
    ) -> Result<Caller, RequestError> {
        let (viewer, parent) = self.narrow_to(&principal, owner, parent).await?;
        self.register_contact(principal, (viewer, parent), None)
    }

    /// The default grace of a process that ends with its owner: the one that the owner's requests declared.
    pub(crate) fn grace_for(&self, caller: &Caller, owner: &str) -> Option<Duration> {
        matches!(caller.viewer, Viewer::Owner(_)).then(|| self.owners.grace(owner)).flatten()
    }

    fn register_contact(
        &self,
        principal: Principal,
        (viewer, parent): (Viewer, Option<String>),
        grace: Option<Duration>,
    ) -> Result<Caller, RequestError> {
        let inside = matches!(principal.method, AuthMethod::Process { .. }) && principal.viewer == viewer;
        let from = if inside { ContactFrom::Inside } else { ContactFrom::Outside };
        let contact = match &viewer {
            Viewer::Operator => None,
            Viewer::Owner(owner) => self.owners.contact_from(owner, from, grace)?,
        };
        Ok(Caller { viewer, parent, principal, _contact: contact })
    }

    /// Narrows a connection's view to the owner named in the request's headers.
    async fn narrow(
        self: &Arc<Self>,
        principal: &Principal,
        headers: &HeaderMap,
    ) -> Result<(Viewer, Option<String>), RequestError> {
        let owner = name_in(headers, &OWNER_HEADER)?;
        let parent = name_in(headers, &PARENT_HEADER)?;
        self.narrow_to(principal, owner, parent).await
    }

    async fn narrow_to(
        self: &Arc<Self>,
        principal: &Principal,
        owner: Option<String>,
        parent: Option<String>,
    ) -> Result<(Viewer, Option<String>), RequestError> {
        let bound = match (principal.viewer.clone(), &owner) {
            (Viewer::Operator, None) if parent.is_some() => {
                return Err(RequestError::invalid(
                    "Pinfold-Parent without Pinfold-Owner: name the owner whose parent it is",
                ));
            }
            (Viewer::Operator, None) => return Ok((Viewer::Operator, None)),
            (Viewer::Operator, Some(owner)) => return Ok((Viewer::Owner(owner.clone()), parent)),
            (Viewer::Owner(bound), _) => bound,
        };
        let owner = owner.map_or_else(|| bound.clone(), |owner| principal.current_name(owner));
        let mut parent = parent.map(|parent| principal.current_name(parent));
        if matches!(principal.method, AuthMethod::Process { .. })
            && parent.is_none()
            && !self.owners.sees(&bound, &owner)
        {
            // An owner that is new and named from inside a process becomes a child of that process's owner.
            parent = Some(bound.clone());
        }
        match &parent {
            Some(parent) if self.owners.sees(&bound, &owner) => self.check_parent(&owner, parent)?,
            Some(parent) => self.add_child(&bound, &owner, parent).await?,
            None if self.owners.sees(&bound, &owner) => {}
            None => {
                let message = format!("no owner `{owner}` is in view: to create it, name its parent");
                return Err(RequestError::new(ErrorCode::NotFound, message));
            }
        }
        Ok((Viewer::Owner(owner), parent))
    }
}

/// For mounted routes that are clients of our own socket: puts the owner that the principal is bound to into the
/// headers that those routes pass on.
pub(crate) async fn set_owner_headers(State(core): State<Arc<Core>>, mut request: Request, next: Next) -> Response {
    let narrowed = match Principal::of(request.extensions()) {
        Ok(Principal { viewer: Viewer::Operator, .. }) => return next.run(request).await,
        Ok(principal) => core.narrow(&principal, request.headers()).await,
        Err(error) => Err(error),
    };
    let (owner, parent) = match narrowed {
        Ok((viewer, parent)) => (viewer.name().to_owned(), parent),
        Err(error) => return error.into_response(),
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

fn name_in(headers: &HeaderMap, header: &HeaderName) -> Result<Option<String>, RequestError> {
    let mut values = headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(RequestError::invalid(format!("the header {header} is sent twice: send it once")));
    }
    let text = std::str::from_utf8(value.as_bytes()).unwrap_or_default();
    check_name(if *header == OWNER_HEADER { "Pinfold-Owner" } else { "Pinfold-Parent" }, text)?;
    Ok(Some(text.to_owned()))
}

/// The owner's grace after its last contact, if the request declares one.
fn grace_in(headers: &HeaderMap) -> Result<Option<Duration>, RequestError> {
    let Some(value) = headers.get(GRACE_HEADER) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let grace = parse_duration(text);
    Ok(Some(grace.map_err(|error| RequestError::invalid(format!("Pinfold-Owner-Grace: {error}")))?))
}

impl FromRequestParts<Arc<Core>> for Caller {
    type Rejection = RequestError;

    async fn from_request_parts(parts: &mut Parts, core: &Arc<Core>) -> Result<Self, RequestError> {
        let principal = Principal::of(&parts.extensions)?;
        let grace = grace_in(&parts.headers)?;
        let narrowed = core.narrow(&principal, &parts.headers).await?;
        core.register_contact(principal, narrowed, grace)
    }
}
