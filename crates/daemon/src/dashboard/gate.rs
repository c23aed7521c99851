//! Which requests on the dashboard's port are answered, and with which view. See invariant D10 in `dashboard`.
//!
//! The port serves the page, signing in and out, and `/v1` for signed-in browsers. Nothing else is reachable through it: no tokens, no MCP,
//! no coder API. WebSocket handshakes of Chromium carry no `Sec-Fetch-Site`, so for them the `Origin` decides.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use pinfold_api::error::ErrorCode;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::access::caller::{AuthMethod, Principal};
use crate::access::closable::ConnectionHandle;
use crate::core::Core;
use crate::dashboard::{HOST, pages};
use crate::extract::parse;
use crate::json::Json;
use crate::request_error::RequestError;

/// `__Host-`: the browser takes it only with `Secure` and without a domain, which Chromium allows for `*.localhost`.
const COOKIE: &str = "__Host-pinfold";
/// The header with the page secret.
const SECRET_HEADER: HeaderName = HeaderName::from_static("pinfold-page");
/// A WebSocket cannot set headers; it offers this protocol, and the page secret after `page.` as another one.
const PROTOCOL: &str = "pinfold";
const PROTOCOL_SECRET: &str = "page.";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Connections of signed-in browsers at once; the next one is refused.
const MAX_CONNECTIONS: usize = 128;
/// Bytes of a request to sign in, and how long they may take.
const SIGN_IN_MAX: usize = 1024;
const SIGN_IN_TIME: Duration = Duration::from_secs(10);
/// How long a wrong key waits for its answer: guessing is slow.
const GUESS_DELAY: Duration = Duration::from_millis(100);

/// What the requests of all connections share.
#[derive(Clone)]
struct Gate {
    core: Arc<Core>,
    permits: Arc<Semaphore>,
    host: Arc<str>,
}

/// Puts the gate of the dashboard on this port before the routes.
pub(crate) fn guard(core: &Arc<Core>, port: u16, routes: Router) -> Router {
    let gate = Gate {
        core: Arc::clone(core),
        permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        host: format!("{HOST}:{port}").into(),
    };
    routes.layer(from_fn_with_state(gate, admit))
}

async fn admit(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let mut response = match answer(&gate, request, next).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    };
    pages::protect(response.headers_mut());
    response
}

async fn answer(gate: &Gate, request: Request, next: Next) -> Result<Response, RequestError> {
    let headers = request.headers();
    check_host(headers, &gate.host)?;
    check_origin(headers, &gate.host)?;
    let path = request.uri().path();
    if *request.method() == Method::GET
        && let Some(page) = pages::find(path)
    {
        return page.response(&gate.host);
    }
    let is_upgrade = headers.contains_key(header::UPGRADE);
    check_site(headers, request.method(), is_upgrade)?;
    match (request.method(), path) {
        (&Method::POST, "/login") => sign_in(gate, request).await,
        (&Method::POST, "/logout") => sign_out(gate, &request),
        _ => pass_on(gate, request, next, is_upgrade).await,
    }
}

/// Lets a signed-in browser's request through to the routes.
async fn pass_on(gate: &Gate, mut request: Request, next: Next, is_upgrade: bool) -> Result<Response, RequestError> {
    let path = request.uri().path();
    if !path.starts_with("/v1/") && path != "/healthz" {
        let message =
            format!("the dashboard has no {path}: it serves `/v1` and `/healthz`; use the socket for the rest");
        return Err(RequestError::new(ErrorCode::NoSuchRoute, message));
    }
    let handle = handle_of(&request)?;
    let (cookie, secret) = credentials(request.headers(), is_upgrade).ok_or_else(signed_out)?;
    let grant = gate.core.dashboard.find(cookie, secret, &handle).ok_or_else(signed_out)?;
    if path == "/v1/dashboard" {
        let message = "a browser cannot open another dashboard: type `pinfold dashboard`";
        return Err(RequestError::new(ErrorCode::Forbidden, message));
    }
    if grant.read_only && !is_read(request.method(), request.uri().query()) {
        let message = "this dashboard is read-only: to act, open another with `pinfold dashboard`";
        return Err(RequestError::new(ErrorCode::Forbidden, message));
    }
    if !handle.has_permit() {
        let permit = Arc::clone(&gate.permits).try_acquire_owned().map_err(|_| {
            let message =
                format!("the dashboard already has {MAX_CONNECTIONS} open connections, the maximum: close some tabs");
            RequestError::new(ErrorCode::LimitReached, message)
        })?;
        handle.set_permit(permit);
    }
    request.extensions_mut().insert(Principal { viewer: grant.viewer, method: AuthMethod::Token });
    let mut response = next.run(request).await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    }
    Ok(response)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    key: String,
}

/// Exchanges a one-time key for a cookie and a page secret.
async fn sign_in(gate: &Gate, request: Request) -> Result<Response, RequestError> {
    let body = tokio::time::timeout(SIGN_IN_TIME, to_bytes(request.into_body(), SIGN_IN_MAX)).await;
    let Ok(Ok(body)) = body else {
        return Err(RequestError::invalid(
            "the body must be {\"key\": \"…\"} and nothing else: reload the page, or type `pinfold dashboard` for a new address",
        ));
    };
    let SignIn { key } = parse(&body)?;
    let Some(signed_in) = gate.core.dashboard.sign_in(&key).map_err(RequestError::internal)? else {
        tokio::time::sleep(GUESS_DELAY).await;
        let message = "this address was used before, or is too old: type `pinfold dashboard` for a new one";
        return Err(RequestError::new(ErrorCode::Unauthorized, message));
    };
    tracing::info!(read_only = signed_in.grant.read_only, "a browser signed in to the dashboard");
    let answer = json!({ "secret": signed_in.secret, "read_only": signed_in.grant.read_only });
    let mut response = Json(answer).into_response();
    let cookie = format!("{COOKIE}={}; Path=/; Secure; HttpOnly; SameSite=Strict", signed_in.cookie);
    let cookie = HeaderValue::from_str(&cookie).map_err(RequestError::internal)?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

fn sign_out(gate: &Gate, request: &Request) -> Result<Response, RequestError> {
    let handle = handle_of(request)?;
    let (cookie, secret) = credentials(request.headers(), false).ok_or_else(signed_out)?;
    gate.core.dashboard.sign_out(cookie, secret, &handle);
    let mut response = Json(json!({})).into_response();
    let expired = HeaderValue::from_static("__Host-pinfold=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
    response.headers_mut().insert(header::SET_COOKIE, expired);
    Ok(response)
}

fn handle_of(request: &Request) -> Result<Arc<ConnectionHandle>, RequestError> {
    let handle = request.extensions().get::<Arc<ConnectionHandle>>().cloned();
    handle.ok_or_else(|| RequestError::internal("a request of the dashboard without a connection"))
}

fn signed_out() -> RequestError {
    RequestError::new(ErrorCode::Unauthorized, "this browser is not signed in: type `pinfold dashboard`")
}

fn forbidden(message: String) -> RequestError {
    RequestError::new(ErrorCode::Forbidden, message)
}

/// Whether a request changes nothing: an attached observer that may type does not count as reading.
fn is_read(method: &Method, query: Option<&str>) -> bool {
    let may_write = |query: &str| query.split('&').any(|pair| pair.starts_with("write") || pair.contains('%'));
    *method == Method::GET && !query.is_some_and(may_write)
}

fn check_host(headers: &HeaderMap, host: &str) -> Result<(), RequestError> {
    match exactly_one(headers, &header::HOST) {
        Some(named) if named == host => Ok(()),
        _ => Err(forbidden(format!(
            "the dashboard is at http://{host} and under no other name: type `pinfold dashboard`"
        ))),
    }
}

/// An `Origin`, where there is one, is ours.
fn check_origin(headers: &HeaderMap, host: &str) -> Result<(), RequestError> {
    let is_ours = |origin: &str| origin.strip_prefix("http://") == Some(host);
    match headers.contains_key(header::ORIGIN) {
        true if !exactly_one(headers, &header::ORIGIN).is_some_and(is_ours) => {
            Err(forbidden("only the dashboard's own page may send requests to it".to_owned()))
        }
        _ => Ok(()),
    }
}

/// The request comes from the page itself: browsers say so, and pages cannot change what they say.
fn check_site(headers: &HeaderMap, method: &Method, is_upgrade: bool) -> Result<(), RequestError> {
    let is_safe = matches!(*method, Method::GET | Method::HEAD) && !is_upgrade;
    if !is_safe && !headers.contains_key(header::ORIGIN) {
        return Err(forbidden("this request needs an Origin: only the dashboard's own page may send it".to_owned()));
    }
    match (headers.contains_key(FETCH_SITE), exactly_one(headers, &FETCH_SITE)) {
        (true, Some("same-origin")) => Ok(()),
        (false, _) if is_upgrade => Ok(()),
        _ => Err(forbidden("only the dashboard's own page may send requests to it".to_owned())),
    }
}

fn exactly_one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The cookie and the page secret.
fn credentials(headers: &HeaderMap, is_upgrade: bool) -> Option<(&str, &str)> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, cookie) = pairs.find(|(name, _)| *name == COOKIE)?;
    let secret = match is_upgrade {
        true => {
            let offered =
                headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
            let mut offered = offered.flat_map(|value| value.split(',')).map(str::trim);
            offered.find_map(|protocol| protocol.strip_prefix(PROTOCOL_SECRET))?
        }
        false => exactly_one(headers, &SECRET_HEADER)?,
    };
    Some((cookie, secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "pinfold.localhost:4000";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    #[test]
    fn only_the_exact_name_and_port_pass_as_host() {
        let host = |host: &str| check_host(&headers(&[("host", host)]), HERE).is_ok();
        assert!(host(HERE));
        for bad in [
            "127.0.0.1:4000",
            "localhost:4000",
            "[::1]:4000",
            "pinfold.localhost",
            "pinfold.localhost:4001",
            "PINFOLD.localhost:4000",
            "pinfold.localhost.evil.example:4000",
            "a.pinfold.localhost:4000",
            "",
        ] {
            assert!(!host(bad), "{bad}");
        }
        assert!(check_host(&HeaderMap::new(), HERE).is_err());
        assert!(check_host(&headers(&[("host", HERE), ("host", HERE)]), HERE).is_err());
    }

    #[test]
    fn an_origin_is_ours_or_refused() {
        let origin = |origin: &str| check_origin(&headers(&[("origin", origin)]), HERE).is_ok();
        assert!(origin("http://pinfold.localhost:4000"));
        for bad in
            ["null", "https://pinfold.localhost:4000", "http://pinfold.localhost:3000", "http://evil.example", ""]
        {
            assert!(!origin(bad), "{bad}");
        }
    }

    #[test]
    fn writes_and_websockets_need_an_origin_and_all_else_the_site_of_the_page() {
        let ours = ("origin", "http://pinfold.localhost:4000");
        let site = |site| ("sec-fetch-site", site);
        let check =
            |pairs: &[(&'static str, &str)], method, upgrade| check_site(&headers(pairs), &method, upgrade).is_ok();
        assert!(check(&[site("same-origin")], Method::GET, false));
        assert!(check(&[ours, site("same-origin")], Method::POST, false));
        assert!(check(&[ours], Method::GET, true), "Chromium sends no Sec-Fetch-Site with a WebSocket");
        for bad in ["none", "same-site", "cross-site", ""] {
            assert!(!check(&[ours, site(bad)], Method::GET, false), "{bad}");
            assert!(!check(&[ours, site(bad)], Method::GET, true), "{bad}");
        }
        assert!(!check(&[], Method::GET, false));
        assert!(!check(&[], Method::GET, true));
        assert!(!check(&[site("same-origin")], Method::POST, false));
        assert!(!check(&[site("same-origin")], Method::DELETE, false));
        assert!(!check(&[ours, site("same-origin"), site("same-origin")], Method::POST, false));
    }

    #[test]
    fn who_may_only_look_sends_nothing_but_reads() {
        assert!(is_read(&Method::GET, None) && is_read(&Method::GET, Some("cursor=1")));
        for query in ["write=true", "cursor=1&write=true", "%77rite=true"] {
            assert!(!is_read(&Method::GET, Some(query)), "{query}");
        }
        assert!(!is_read(&Method::POST, None) && !is_read(&Method::DELETE, None));
    }

    #[test]
    fn credentials_are_the_cookie_and_the_page_secret_together() {
        let both = headers(&[("cookie", "a=b; __Host-pinfold=c"), ("pinfold-page", "s")]);
        assert_eq!(credentials(&both, false), Some(("c", "s")));
        assert_eq!(credentials(&both, true), None);
        let socket = headers(&[("cookie", "__Host-pinfold=c"), ("sec-websocket-protocol", "pinfold, page.s")]);
        assert_eq!(credentials(&socket, true), Some(("c", "s")));
        assert_eq!(credentials(&headers(&[("cookie", "__Host-pinfold=c")]), false), None);
        assert_eq!(credentials(&headers(&[("pinfold-page", "s")]), false), None);
    }
}
