//! TCP: needs a token, which may be bound to an owner; refuses web pages and foreign host names.

use std::io::{Read, Write};
use std::net::TcpStream;

use pinfold_api::types::{Record, StartRequest, TokenAnswer, TokenRequest};
use pinfold_testkit::{DEADLINE, Pinfold, Setup};
use serde_json::Value;

use crate::PINFOLD;

pub(super) fn listening() -> Pinfold {
    let config = "[tcp]\nlisten = \"127.0.0.1:0\"\norigins = [\"http://ours.test\"]\n".to_owned();
    Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() })
}

/// Sends a raw request, and returns status and body.
pub(super) fn ask(
    pinfold: &Pinfold,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    ask_at(&pinfold.health().tcp.expect("it listens"), method, target, headers, body)
}

pub(super) fn ask_at(address: &str, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let mut head = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "Host") {
        head.push_str("Host: localhost\r\n");
    }
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).expect("sent");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(!answer.to_ascii_lowercase().contains("access-control-allow"), "{answer}");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer.split_once("\r\n\r\n").expect("a body").1.to_owned())
}

pub(super) fn token(pinfold: &Pinfold, owner: Option<&str>, expires: Option<&str>) -> TokenAnswer {
    let request = TokenRequest { owner: owner.map(Into::into), label: None, expires: expires.map(Into::into) };
    pinfold.block(pinfold.client().add_token(&request)).expect("a token")
}

pub(super) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[test]
fn tcp_is_off_by_default() {
    assert_eq!(Pinfold::start(PINFOLD).health().tcp, None);
}

#[test]
fn a_token_is_needed_and_can_be_revoked_and_expires() {
    let pinfold = listening();
    let good = token(&pinfold, None, None);
    let auth = bearer(&good.token);
    let list = |auth: &str| ask(&pinfold, "GET", "/v1/processes", &[("Authorization", auth)], "").0;
    assert_eq!(list(&auth), 200);
    for bad in ["Bearer ", "Bearer x", "Basic eA==", &bearer(&good.token[..40]), &bearer(&format!("{}0", good.token))] {
        assert_eq!(list(bad), 401, "{bad}");
    }
    assert_eq!(ask(&pinfold, "GET", "/healthz", &[], "").0, 401);
    let brief = token(&pinfold, None, Some("0"));
    assert_eq!(list(&bearer(&brief.token)), 401);
    pinfold.crash_and_restart();
    assert_eq!(list(&auth), 200, "tokens survive the daemon");
    let kept = std::fs::read_to_string(pinfold.home().join("tokens.json")).expect("a file");
    let log = std::fs::read_to_string(pinfold.home().join("daemon.log")).expect("a log");
    let listed = serde_json::to_string(&pinfold.block(pinfold.client().tokens()).expect("a list")).expect("json");
    for text in [kept, log, listed] {
        assert!(!text.contains(&good.token) && text.contains(&good.shown.id), "{text}");
    }
    pinfold.block(pinfold.client().revoke_token(&good.shown.id)).expect("revoked");
    assert_eq!(list(&auth), 401);
    assert!(pinfold.block(pinfold.client().revoke_token(&good.shown.id)).is_err());
}

#[test]
fn a_token_bound_to_an_owner_never_sees_more() {
    let pinfold = listening();
    let start = |client: &pinfold_api::client::Client| -> Record {
        let request = StartRequest { command: Some("sleep 300".into()), ..StartRequest::default() };
        pinfold.block(client.start(&request)).expect("it starts").record
    };
    let ours = start(&pinfold.client().acting_as("ann", None));
    let child = start(&pinfold.client().acting_as("child", Some("ann")));
    let other = start(&pinfold.client().acting_as("eve", None));
    let auth = bearer(&token(&pinfold, Some("ann"), None).token);
    let get = |target: &str, more: &[(&str, &str)]| {
        let headers: Vec<_> = [("Authorization", auth.as_str())].into_iter().chain(more.iter().copied()).collect();
        ask(&pinfold, "GET", target, &headers, "")
    };
    let (_, body) = get("/v1/processes", &[]);
    assert!(body.contains(&ours.id) && body.contains(&child.id) && !body.contains(&other.id), "{body}");
    assert_eq!(get(&format!("/v1/processes/{}", other.id), &[]).0, 404);
    // A header may narrow the view, but never widen it.
    let (_, body) = get("/v1/processes", &[("Pinfold-Owner", "child")]);
    assert!(body.contains(&child.id) && !body.contains(&ours.id), "{body}");
    assert_eq!(get("/v1/processes", &[("Pinfold-Owner", "eve")]).0, 404);
    assert_eq!(get("/v1/processes", &[("Pinfold-Owner", "eve"), ("Pinfold-Parent", "ann")]).0, 404);
    assert_eq!(get("/v1/processes", &[("Pinfold-Owner", "new"), ("Pinfold-Parent", "ann")]).0, 200);
    assert_eq!(get("/v1/processes", &[("Pinfold-Owner", "a;b")]).0, 400);
    for target in ["/v1/tokens", "/metrics"] {
        assert_eq!(get(target, &[]).0, 403, "{target}");
    }
    let post = |target: &str, body: &str| ask(&pinfold, "POST", target, &[("Authorization", auth.as_str())], body).0;
    assert_eq!(post("/v1/tokens", "{}"), 403);
    assert_eq!(post("/v1/shutdown", "{}"), 403);
    let (status, body) =
        ask(&pinfold, "POST", "/v1/processes", &[("Authorization", auth.as_str())], r#"{"command":"true"}"#);
    let record: Value = serde_json::from_str(&body).expect("json");
    assert_eq!((status, record["owner"].as_str()), (201, Some("ann")));
    let for_eve = r#"{"command":"true","owner":"eve"}"#;
    assert_eq!(post("/v1/processes", for_eve), 404);
}

#[test]
fn web_pages_and_foreign_hosts_are_refused() {
    let pinfold = listening();
    let auth = bearer(&token(&pinfold, None, None).token);
    let list =
        |header: (&str, &str)| ask(&pinfold, "GET", "/v1/processes", &[("Authorization", auth.as_str()), header], "").0;
    assert_eq!(list(("Host", "evil.example")), 403);
    assert_eq!(list(("Host", "127.0.0.1.evil.example:80")), 403);
    assert_eq!(list(("Origin", "http://evil.example")), 403);
    assert_eq!(list(("Origin", "null")), 403);
    assert_eq!(list(("Origin", "http://ours.test")), 200);
    assert_eq!(list(("Host", "127.0.0.1")), 200);
    let preflight = [("Origin", "http://evil.example"), ("Access-Control-Request-Method", "POST")];
    assert_eq!(ask(&pinfold, "OPTIONS", "/v1/processes", &preflight, "").0, 403);
}

#[test]
fn a_web_page_cannot_attach() {
    let pinfold = listening();
    let auth = bearer(&token(&pinfold, None, None).token);
    let record = pinfold.sh("exec sleep 300");
    let target = format!("/v1/processes/{}/attach", record.id);
    let upgrade = [
        ("Authorization", auth.as_str()),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let page = [&upgrade[..], &[("Origin", "http://evil.test")]].concat();
    assert_eq!(ask(&pinfold, "GET", &target, &page, "").0, 403);
    assert_eq!(ask(&pinfold, "GET", &target, &upgrade[1..], "").0, 401);
}
