//! The same server as streamable HTTP, for the daemon to mount. Loopback hosts only and no browsers, unless said.

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
use crate::options::{Base, Options};
use crate::server::Server;

/// The largest request; a command of megabytes fits.
const MAX_BODY: usize = 8 << 20;

/// How long a request may take to arrive. One that never does would keep its connection for ever.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Sessions that are open at once. Another takes the place of the one that was silent for longest.
const MAX_SESSIONS: usize = 1000;
/// How long a session may be silent: a chat that thinks overnight comes back to its own processes.
const IDLE: Duration = Duration::from_secs(12 * 3600);

/// A router that serves MCP at its root, to be nested at `/mcp`. Its calls go to the daemon at the client's socket,
/// with the daemon's own environment under every command.
pub fn http_service(client: Client, options: &Options) -> Router {
    http_service_of(Server::new(client, None, ClientIdentity::default(), Base::default(), options), options)
}

/// The same transport, with the same rules, for another handler: the fixture of the conformance suite.
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
    sessions.session_config.keep_alive = Some(IDLE);
    let sessions = Arc::new(sessions);
    let uses = Arc::new(Uses { sessions: Arc::clone(&sessions), last: Mutex::default() });
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
    let router = Router::new().fallback_service(service).layer(middleware::from_fn(note_duplicates));
    router.layer(middleware::from_fn_with_state(uses, make_room))
}

/// When each session was used last.
struct Uses {
    sessions: Arc<LocalSessionManager>,
    last: Mutex<HashMap<String, Instant>>,
}

/// Before another session is opened, the one that was silent for longest is closed if there are [`MAX_SESSIONS`].
async fn make_room(State(uses): State<Arc<Uses>>, request: Request, next: Next) -> Response {
    let session = request.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    match session {
        Some(session) => {
            uses.note(&session).await;
            next.run(request).await
        }
        None if request.method() == Method::POST => {
            uses.make_room().await;
            let response = next.run(request).await;
            if let Some(opened) = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()) {
                uses.note(opened).await;
            }
            response
        }
        None => next.run(request).await,
    }
}

impl Uses {
    async fn note(&self, session: &str) {
        if self.sessions.sessions.read().await.contains_key(session) {
            self.last().insert(session.to_owned(), Instant::now());
        }
    }

    async fn make_room(&self) {
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

/// Doubled keys of arguments are noted before anybody reads the body.
async fn note_duplicates(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let bytes = match tokio::time::timeout(BODY_TIME, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => {
            let why = format!("the request is longer than {MAX_BODY} bytes, or broke off: write long text to a file");
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, &why);
        }
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the body of the request did not arrive in time"),
    };
    let body = match duplicates::noted(&bytes) {
        Some(noted) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            Body::from(noted)
        }
        None => Body::from(bytes),
    };
    next.run(Request::from_parts(parts, body)).await
}

/// An error as JSON-RPC has it, of a request whose id was not read.
fn refuse(status: StatusCode, why: &str) -> Response {
    let error = serde_json::json!({ "code": -32600, "message": why });
    let body = serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": error });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
