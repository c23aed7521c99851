//! Serves MCP over streamable HTTP, as a router that the daemon mounts. By default it accepts only loopback `Host`
//! headers and no requests from browsers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use pinfold_api::client::Client;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use crate::duplicates;
use crate::identity::ClientIdentity;
use crate::options::{CommandDefaults, Options};
use crate::server::Server;

/// Maximum size of a request body.
const MAX_BODY: usize = 8 << 20;

/// Timeout for receiving a request body; without it a stalled client would hold its connection forever.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of open sessions. Opening another one closes the session that was idle longest.
const MAX_SESSIONS: usize = 1000;
/// Maximum idle time of a session: long enough for a chat that is resumed the next morning to find its processes.
const MAX_SESSION_IDLE: Duration = Duration::from_secs(12 * 3600);

/// Returns a router that serves MCP at its root, to be nested at `/mcp`. Calls go to the daemon at the client's socket,
/// and commands inherit the daemon's environment.
pub fn http_service(client: Client, options: &Options) -> Router {
    http_service_of(Server::new(client, None, ClientIdentity::default(), CommandDefaults::default(), options), options)
}

/// The same transport and rules for another handler: the fixture server of the conformance suite.
#[doc(hidden)]
pub fn http_service_of(handler: impl ServerHandler + Clone, options: &Options) -> Router {
    let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    hosts.extend(options.allowed_hosts.iter().cloned());
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(hosts)
        .with_allowed_origins(options.allowed_origins.iter().cloned())
        .enforce_origin_validation()
        .with_max_request_body_bytes(MAX_BODY);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(MAX_SESSION_IDLE);
    let sessions = Arc::new(sessions);
    let last_use = Arc::new(LastUse { sessions: Arc::clone(&sessions), last: Mutex::default() });
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
    let router = Router::new().fallback_service(service).layer(middleware::from_fn(annotate_duplicates));
    router.layer(middleware::from_fn_with_state(last_use, track_sessions))
}

/// The time of the last request of each session.
struct LastUse {
    sessions: Arc<LocalSessionManager>,
    last: Mutex<HashMap<String, Instant>>,
}

/// Records the use of a session. Before a new session is opened, closes the one that was idle longest if there are
/// [`MAX_SESSIONS`].
async fn track_sessions(State(last_use): State<Arc<LastUse>>, request: Request, next: Next) -> Response {
    let session = request.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    match session {
        Some(session) => {
            last_use.touch(&session).await;
            next.run(request).await
        }
        None if request.method() == Method::POST => {
            last_use.evict_if_full().await;
            let response = next.run(request).await;
            if let Some(opened) = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()) {
                last_use.touch(opened).await;
            }
            response
        }
        None => next.run(request).await,
    }
}

impl LastUse {
    async fn touch(&self, session: &str) {
        if self.sessions.sessions.read().await.contains_key(session) {
            self.last().insert(session.to_owned(), Instant::now());
        }
    }

    async fn evict_if_full(&self) {
        let open: Vec<_> = self.sessions.sessions.read().await.keys().cloned().collect();
        if open.len() < MAX_SESSIONS {
            return;
        }
        let oldest = {
            let mut last = self.last();
            last.retain(|session, _| open.iter().any(|open| **open == **session));
            open.into_iter().min_by_key(|session| last.get(&**session).copied())
        };
        if let Some(oldest) = oldest {
            let _ = self.sessions.close_session(&oldest).await;
        }
    }

    fn last(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Notes duplicate argument keys in the request before the body is parsed.
async fn annotate_duplicates(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let bytes = match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => {
            let why = format!("the request exceeds {MAX_BODY} bytes or was cut off: write long text to a file");
            return json_rpc_error(StatusCode::PAYLOAD_TOO_LARGE, &why);
        }
        Err(_) => return json_rpc_error(StatusCode::REQUEST_TIMEOUT, "the body of the request did not arrive in time"),
    };
    let body = match duplicates::annotate(&bytes) {
        Some(annotated) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            Body::from(annotated)
        }
        None => Body::from(bytes),
    };
    next.run(Request::from_parts(parts, body)).await
}

/// A JSON-RPC error for a request whose id was not read.
fn json_rpc_error(status: StatusCode, why: &str) -> Response {
    let error = serde_json::json!({ "code": -32600, "message": why });
    let body = serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": error });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
