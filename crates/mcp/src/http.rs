//! The same server as streamable HTTP, for the daemon to mount. Loopback hosts only and no browsers, unless said.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use pinfold_api::client::Client;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use crate::duplicates;
use crate::identity::Seat;
use crate::options::{Base, Options};
use crate::server::Server;

/// The largest request; a command of megabytes fits.
const BODY_MOST: usize = 8 << 20;

/// How long a session may be silent: a chat that thinks overnight comes back to its own processes.
const IDLE: Duration = Duration::from_secs(12 * 3600);

/// A router that serves MCP at its root, to be nested at `/mcp`. Its calls go to the daemon at the client's socket,
/// with the daemon's own environment under every command.
pub fn http_service(client: Client, options: &Options) -> Router {
    http_service_of(Server::new(client, None, Seat::default(), Base::default(), options), options)
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
        .with_max_request_body_bytes(BODY_MOST);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(IDLE);
    let service = StreamableHttpService::new(move || Ok(handler.clone()), Arc::new(sessions), config);
    Router::new().fallback_service(service).layer(middleware::from_fn(note_duplicates))
}

/// Doubled keys of arguments are noted before anybody reads the body.
async fn note_duplicates(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, BODY_MOST).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {BODY_MOST} bytes")).into_response();
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
