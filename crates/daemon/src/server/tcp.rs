//! TCP on loopback, for clients that cannot open the socket: opt-in, with tokens, and closed to web pages.
//!
//! Unauthenticated connections have their own limit, [`MAX_UNAUTHENTICATED`]; beyond it the oldest is closed, so that
//! idle strangers cannot keep clients out.
//!
//! A request must carry a token, a `Host` that names this machine (against DNS rebinding), and no `Origin` of a web
//! page unless the configuration allows it. No CORS header is ever sent.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use pinfold_api::error::ErrorCode;
use pinfold_os::{socket, tcp_peer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::access::caller::{AuthMethod, Principal};
use crate::access::closable::{ClosableStream, ConnectionHandle};
use crate::core::{Core, blocking};
use crate::request_error::RequestError;
use crate::server::socket::{Transport, serve_stream};

/// Maximum number of authenticated connections; one more waits for [`PERMIT_TIMEOUT`] and is then refused.
const MAX_CONNECTIONS: usize = 256;
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of connections without a token so far.
const MAX_UNAUTHENTICATED: usize = 128;
/// The delay of the answer to a wrong token, to slow down guessing.
const REFUSAL_DELAY: Duration = Duration::from_millis(100);

/// What the requests of all connections share.
#[derive(Clone)]
struct TcpState {
    core: Arc<Core>,
    permits: Arc<Semaphore>,
}

/// Accepts connections until shutdown.
pub(crate) async fn serve(core: Arc<Core>, router: Router, listener: TcpListener) {
    let state = TcpState { core: Arc::clone(&core), permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)) };
    accept(core, router.layer(from_fn_with_state(state, authenticate)), listener, Users::All).await;
}

/// Which users of this machine may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    All,
    /// The daemon's own, and root.
    Own,
}

impl Users {
    async fn admit(self, stream: &TcpStream) -> bool {
        let (Users::Own, Ok(peer), Ok(own)) = (self, stream.peer_addr(), stream.local_addr()) else {
            return self == Users::All;
        };
        let found = blocking(move || tcp_peer::peer_uid(peer, own)).await;
        let uid = found.ok().and_then(Result::ok).flatten();
        let is_admitted = uid.is_some_and(|uid| uid == 0 || uid == socket::own_uid());
        if !is_admitted {
            tracing::warn!(uid, "another user's connection over TCP is refused");
        }
        is_admitted
    }
}

/// Accepts connections until shutdown; each request goes through the router's own checks.
pub(super) async fn accept(core: Arc<Core>, router: Router, listener: TcpListener, users: Users) {
    let mut unauthenticated = VecDeque::new();
    let mut shutdown = core.shutdown.subscribe();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    let handle = Arc::<ConnectionHandle>::default();
                    make_room(&mut unauthenticated);
                    unauthenticated.push_back(Arc::downgrade(&handle));
                    let transport = Transport::Tcp(Arc::clone(&handle));
                    let stream = ClosableStream { stream, handle };
                    let (core, router) = (Arc::clone(&core), router.clone());
                    tokio::spawn(async move {
                        if users.admit(&stream.stream).await {
                            serve_stream(core, router, stream, transport).await;
                        }
                    });
                }
                Err(error) => {
                    tracing::error!(%error, "cannot accept a connection over TCP");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            () = async { drop(shutdown.wait_for(|shutdown| *shutdown).await) } => return,
        }
    }
}

/// Closes the oldest unauthenticated connections, if there is no room for another.
fn make_room(unauthenticated: &mut VecDeque<Weak<ConnectionHandle>>) {
    unauthenticated.retain(|handle| handle.upgrade().is_some_and(|handle| !handle.has_permit()));
    while unauthenticated.len() >= MAX_UNAUTHENTICATED {
        if let Some(handle) = unauthenticated.pop_front().and_then(|handle| handle.upgrade()) {
            handle.close();
        }
    }
}

/// Authenticates a request by its token, or refuses it.
async fn authenticate(State(state): State<TcpState>, mut request: Request, next: Next) -> Response {
    let TcpState { core, permits } = state;
    let tcp = &core.config.tcp;
    let headers = request.headers();
    if let Err(error) = check_host(headers, &tcp.hosts).and_then(|()| check_origin(headers, &tcp.origins)) {
        return error.into_response();
    }
    let handle = request.extensions().get::<Arc<ConnectionHandle>>().cloned();
    let viewer =
        bearer_token(headers).zip(handle.as_ref()).and_then(|(token, handle)| core.tokens.authenticate(token, handle));
    match viewer.zip(handle) {
        Some((viewer, handle)) => {
            if !handle.has_permit() {
                match tokio::time::timeout(PERMIT_TIMEOUT, permits.acquire_owned()).await {
                    Ok(Ok(permit)) => handle.set_permit(permit),
                    _ => return full().into_response(),
                }
            }
            request.extensions_mut().insert(Principal { viewer, method: AuthMethod::Token });
            next.run(request).await
        }
        None => {
            tokio::time::sleep(REFUSAL_DELAY).await;
            let message = "a valid token is required: create one with `pinfold token add` and send it as `Authorization: Bearer …`";
            let mut response = RequestError::new(ErrorCode::Unauthorized, message).into_response();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
    }
}

fn full() -> RequestError {
    let message =
        format!("{MAX_CONNECTIONS} connections are open over TCP, which is the maximum: close some and try again");
    RequestError::new(ErrorCode::LimitReached, message)
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn check_host(headers: &HeaderMap, allowed: &[String]) -> Result<(), RequestError> {
    let hosts: Vec<_> = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default()).collect();
    match hosts.as_slice() {
        [host] if is_loopback(host_name(host)) || allowed.iter().any(|name| name == host_name(host)) => Ok(()),
        _ => Err(RequestError::new(
            ErrorCode::Forbidden,
            "the Host header does not name this machine: use 127.0.0.1 or localhost",
        )),
    }
}

fn check_origin(headers: &HeaderMap, allowed: &[String]) -> Result<(), RequestError> {
    let foreign = |origin: &HeaderValue| {
        let origin = origin.to_str().unwrap_or_default();
        !allowed.iter().any(|name| name == origin)
    };
    match headers.get_all(header::ORIGIN).iter().any(foreign) {
        true => {
            let message = "requests from web pages are refused: to allow this origin, add it to `tcp.origins`";
            Err(RequestError::new(ErrorCode::Forbidden, message))
        }
        false => Ok(()),
    }
}

/// `localhost` of `localhost:80`, `::1` of `[::1]:80`.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Listens on the configured address.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("a value"))).collect()
    }

    #[test]
    fn only_names_of_this_machine_pass_as_host() {
        let host = |host: &str| check_host(&headers(&[(header::HOST, host)]), &["pinfold.test".into()]).is_ok();
        for good in ["localhost", "LOCALHOST:80", "127.0.0.1:7373", "127.9.9.9", "[::1]:80", "pinfold.test:80"] {
            assert!(host(good), "{good}");
        }
        for bad in
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", "[::]", "10.0.0.1", ""]
        {
            assert!(!host(bad), "{bad}");
        }
        assert!(check_host(&HeaderMap::new(), &[]).is_err());
    }

    #[test]
    fn no_origin_passes_but_those_named() {
        let origin =
            |origin: &str| check_origin(&headers(&[(header::ORIGIN, origin)]), &["http://ok.test".into()]).is_ok();
        assert!(check_origin(&HeaderMap::new(), &[]).is_ok() && origin("http://ok.test"));
        for bad in ["http://evil.example", "null", "http://localhost:3000", "http://ok.test.evil.example"] {
            assert!(!origin(bad), "{bad}");
        }
    }

    #[test]
    fn the_scheme_is_read_in_any_case_and_nothing_else_passes() {
        let token = |value: &str| bearer_token(&headers(&[(header::AUTHORIZATION, value)])).map(str::to_owned);
        assert_eq!(token("bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("Basic abc"), None);
        assert_eq!(token("abc"), None);
    }
}
