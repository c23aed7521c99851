//! TCP on loopback, for whoever cannot open the socket: opt-in, by token, and closed to web pages.
//!
//! Connections on which no request was let in yet have places of their own, [`STRANGERS`]; when these are taken, the oldest
//! goes, so that strangers who open connections and say nothing keep nobody out.
//!
//! A request must carry a token, a `Host` that means this machine (a name that an attacker made point here does not
//! pass: DNS rebinding), and no `Origin` of a web page unless the configuration names it. No CORS header is ever sent.

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
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::access::caller::{By, Proof};
use crate::access::closable::{Cuttable, Line};
use crate::core::Core;
use crate::refusal::Refusal;
use crate::server::socket::{Entrance, serve_stream};

/// Connections at once that were let in by a token; the next one waits for [`PATIENCE`], and is then refused.
const CONNECTIONS: usize = 256;
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once that showed no token yet.
const STRANGERS: usize = 128;
/// How long a refused token waits for its answer: guessing is slow.
const GUESS: Duration = Duration::from_millis(100);

/// What the requests of all connections share.
#[derive(Clone)]
struct Gate {
    core: Arc<Core>,
    places: Arc<Semaphore>,
}

/// Accepts connections until shutdown.
pub(crate) async fn serve(core: Arc<Core>, router: Router, listener: TcpListener) {
    let gate = Gate { core: Arc::clone(&core), places: Arc::new(Semaphore::new(CONNECTIONS)) };
    let router = router.layer(from_fn_with_state(gate, admit));
    let mut strangers = VecDeque::new();
    let mut shutdown = core.shutdown.subscribe();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    let line = Arc::<Line>::default();
                    make_room(&mut strangers);
                    strangers.push_back(Arc::downgrade(&line));
                    let entrance = Entrance::Tcp(Arc::clone(&line));
                    let stream = Cuttable { stream, line };
                    tokio::spawn(serve_stream(Arc::clone(&core), router.clone(), stream, entrance));
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

/// Closes the oldest of those that showed no token, if there is no room for another.
fn make_room(strangers: &mut VecDeque<Weak<Line>>) {
    strangers.retain(|line| line.upgrade().is_some_and(|line| !line.has_place()));
    while strangers.len() >= STRANGERS {
        if let Some(line) = strangers.pop_front().and_then(|line| line.upgrade()) {
            line.cut();
        }
    }
}

/// Lets a request in as whoever its token says, or refuses it.
async fn admit(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let Gate { core, places } = gate;
    let tcp = &core.config.tcp;
    let headers = request.headers();
    if let Err(refusal) = check_host(headers, &tcp.hosts).and_then(|()| check_origin(headers, &tcp.origins)) {
        return refusal.into_response();
    }
    let line = request.extensions().get::<Arc<Line>>().cloned();
    let scope = bearer(headers).zip(line.as_ref()).and_then(|(token, line)| core.tokens.bearer(token, line));
    match scope.zip(line) {
        Some((scope, line)) => {
            if !line.has_place() {
                match tokio::time::timeout(PATIENCE, places.acquire_owned()).await {
                    Ok(Ok(place)) => line.take_place(place),
                    _ => return full().into_response(),
                }
            }
            request.extensions_mut().insert(Proof { scope, by: By::Token });
            next.run(request).await
        }
        None => {
            tokio::time::sleep(GUESS).await;
            let message = "a token is needed: `pinfold token add` makes one; send it as `Authorization: Bearer …`";
            let mut response = Refusal::new(ErrorCode::Unauthorized, message).into_response();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
    }
}

fn full() -> Refusal {
    let message = format!("{CONNECTIONS} connections are open over TCP, which is the most: close some and try again");
    Refusal::new(ErrorCode::LimitReached, message)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn check_host(headers: &HeaderMap, allowed: &[String]) -> Result<(), Refusal> {
    let hosts: Vec<_> = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default()).collect();
    match hosts.as_slice() {
        [host] if is_loopback(host_name(host)) || allowed.iter().any(|name| name == host_name(host)) => Ok(()),
        _ => Err(Refusal::new(ErrorCode::Forbidden, "this Host is not this machine: use 127.0.0.1 or localhost")),
    }
}

fn check_origin(headers: &HeaderMap, allowed: &[String]) -> Result<(), Refusal> {
    let foreign = |origin: &HeaderValue| {
        let origin = origin.to_str().unwrap_or_default();
        !allowed.iter().any(|name| name == origin)
    };
    match headers.get_all(header::ORIGIN).iter().any(foreign) {
        true => {
            let message = "web pages may not speak to this daemon: name the origin in `tcp.origins` if it is yours";
            Err(Refusal::new(ErrorCode::Forbidden, message))
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

/// Listens where the configuration says.
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
        let token = |value: &str| bearer(&headers(&[(header::AUTHORIZATION, value)])).map(str::to_owned);
        assert_eq!(token("bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("Basic abc"), None);
        assert_eq!(token("abc"), None);
    }
}
