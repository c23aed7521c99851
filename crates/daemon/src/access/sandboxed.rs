//! Requests from inside a sandboxed process: what they may do, so that the daemon's socket is no way out.
//!
//! Such a caller may read what its owner may read, start processes in the same sandbox or a tighter one, and act on
//! processes whose sandbox is not wider than its own. Everything else is refused: agents, MCP, tokens, owners and routes
//! that are added later.

use std::sync::Arc;

use axum::http::Method;
use pinfold_api::error::ErrorCode;
use pinfold_model::id::ProcessId;
use pinfold_model::sandbox::{Enforcement, Floor, Sandbox};

use crate::access::caller::{AuthMethod, Principal};
use crate::core::Core;
use crate::request_error::RequestError;

/// Routes that only read.
const READABLE: [&str; 6] = ["/v1/processes", "/v1/events", "/v1/search", "/v1/owners", "/healthz", "/openapi.json"];
/// Where the floor of a sandboxed caller comes from, in errors.
pub(crate) const OWN_SANDBOX: &str = "the sandbox of the process that asks";

impl Principal {
    /// The sandbox of the process that it comes from, if it comes from one that has a sandbox.
    pub(crate) fn sandbox(&self) -> Option<Sandbox> {
        let AuthMethod::Process { entry, .. } = &self.method else { return None };
        let enforcement: Option<Enforcement> = entry.state.borrow().history.intent.spec.sandbox.clone();
        enforcement.map(|enforcement| enforcement.asked)
    }
}

/// What a request wants to do.
#[derive(Debug, PartialEq, Eq)]
enum Purpose<'a> {
    Read,
    Start,
    /// Change or type into this process.
    Act(&'a str),
    Other,
}

fn purpose<'a>(method: &Method, path: &'a str) -> Purpose<'a> {
    let within = |route: &&str| path.strip_prefix(*route).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let process = path.strip_prefix("/v1/processes/").map(|rest| rest.split_once('/').unwrap_or((rest, "")));
    match process {
        Some((id, "attach")) => Purpose::Act(id),
        Some((id, _)) if method != Method::GET => Purpose::Act(id),
        _ if method == Method::GET && READABLE.iter().any(within) => Purpose::Read,
        _ if method == Method::POST && path == "/v1/wait" => Purpose::Read,
        _ if method == Method::POST && path == "/v1/processes" => Purpose::Start,
        _ => Purpose::Other,
    }
}

impl Core {
    /// Refuses a request of a sandboxed caller that could get out of its sandbox. A start is checked later, by its floor.
    pub(crate) fn check_sandboxed(
        self: &Arc<Self>,
        sandbox: &Sandbox,
        method: &Method,
        path: &str,
    ) -> Result<(), RequestError> {
        let forbidden = |message: String| Err(RequestError::new(ErrorCode::Forbidden, message));
        match purpose(method, path) {
            Purpose::Read | Purpose::Start => Ok(()),
            Purpose::Act(id) => {
                // By its full id: a name could refer to another process by the time that the request is carried out.
                let Some(entry) = ProcessId::parse(id).ok().and_then(|id| self.registry.get(&id)) else {
                    return forbidden("from inside a sandbox, name a live process by its full id".to_owned());
                };
                let state = entry.state.borrow();
                let target = state.history.intent.spec.sandbox.as_ref();
                let is_contained =
                    target.is_some_and(|target| Floor::from(sandbox).check(&target.asked, OWN_SANDBOX).is_ok());
                match is_contained {
                    true => Ok(()),
                    false => forbidden(format!(
                        "a sandboxed process may only act on processes whose sandbox is not wider than its own, and {id} is: \
                         run the command outside of the sandbox"
                    )),
                }
            }
            Purpose::Other => {
                forbidden("a sandboxed process may not do this: run the command outside of the sandbox".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_routes_are_open_to_a_sandboxed_caller() {
        for (method, path, expected) in [
            (Method::GET, "/v1/processes", Purpose::Read),
            (Method::GET, "/v1/processes/p-1/output", Purpose::Read),
            (Method::GET, "/v1/processes/p-1/attach", Purpose::Act("p-1")),
            (Method::POST, "/v1/processes/p-1/input", Purpose::Act("p-1")),
            (Method::DELETE, "/v1/processes/p-1", Purpose::Act("p-1")),
            (Method::POST, "/v1/processes", Purpose::Start),
            (Method::POST, "/v1/processes/", Purpose::Act("")),
            (Method::POST, "/v1/wait", Purpose::Read),
            (Method::GET, "/healthz", Purpose::Read),
            (Method::GET, "/v1/processesx", Purpose::Other),
            (Method::GET, "/v1/agents", Purpose::Other),
            (Method::POST, "/v1/agents", Purpose::Other),
            (Method::POST, "/mcp", Purpose::Other),
            (Method::GET, "/mcp", Purpose::Other),
            (Method::POST, "/api/v0/processes/start", Purpose::Other),
            (Method::POST, "/v1/owners/a/end", Purpose::Other),
            (Method::POST, "/v1/sessions/adopt", Purpose::Other),
            (Method::POST, "/v1/tokens", Purpose::Other),
        ] {
            assert_eq!(purpose(&method, path), expected, "{method} {path}");
        }
    }
}
