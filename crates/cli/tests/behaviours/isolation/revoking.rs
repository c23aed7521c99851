//! Revoking a token closes everything that was opened with it: every kind of open connection, at once.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use pinfold_api::types::{AgentMode, AgentRequest, OutputQuery, StartRequest, Stdin};
use pinfold_testkit::{DEADLINE, Pinfold};

use super::tcp::{ask, bearer, listening, token};

const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Opens a connection and sends a request on it.
fn open(pinfold: &Pinfold, auth: &str, target: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(pinfold.health().tcp.expect("it listens")).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {auth}\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    stream
}

/// Reads the head of a response.
fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        head.extend(byte);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Everything until the other side closes.
fn rest(stream: &mut TcpStream) -> String {
    let mut rest = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => rest.extend(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("it stays open: {error}; so far: {}", String::from_utf8_lossy(&rest)),
        }
    }
    String::from_utf8_lossy(&rest).into_owned()
}

/// A pending request ends without a response, or with 401 if it arrived after the token was revoked.
fn assert_unanswered(name: &str, response: &str) {
    assert!(!response.contains("HTTP/1.1") || response.starts_with("HTTP/1.1 401"), "{name} was answered: {response}");
}

/// A frame of a WebSocket as a client sends it, masked with zeroes.
fn frame(text: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x82, 0x80 | text.len() as u8, 0, 0, 0, 0];
    frame.extend(text);
    frame
}

struct Stage {
    pinfold: Pinfold,
    cat: String,
    agent: String,
}

fn stage() -> Stage {
    let pinfold = listening();
    let ann = pinfold.client().acting_as("ann", None);
    let request = StartRequest { command: Some("cat".into()), stdin: Some(Stdin::Pipe), ..StartRequest::default() };
    let cat = pinfold.block(ann.start(&request)).expect("a start").record.id;
    let request = AgentRequest {
        kind: "claude".into(),
        program: Some("/bin/true".into()),
        mode: Some(AgentMode::Fresh),
        ..AgentRequest::default()
    };
    let agent = pinfold.block(ann.host_agent(&request)).expect("an agent").id;
    Stage { pinfold, cat, agent }
}

/// What can be left open: a name, a target, headers, and whether the response begins at once.
fn kinds(stage: &Stage) -> Vec<(&'static str, String, &'static str, bool)> {
    let Stage { cat, agent, .. } = stage;
    let sse = "Accept: text/event-stream\r\n";
    vec![
        ("event stream", "/v1/events".into(), sse, true),
        ("long poll", format!("/v1/events?after=latest&wait=300s&process={cat}"), "", false),
        ("consumer", "/v1/events?consumer=c&kinds=lost&wait=300s".into(), "", false),
        ("wait", format!("/v1/processes/{cat}/wait?until=exit&timeout=300s"), "", false),
        ("output", format!("/v1/processes/{cat}/output?wait=300s"), "", false),
        ("attach", format!("/v1/processes/{cat}/attach?write=true"), UPGRADE, true),
        ("agent's stream", format!("/v1/agents/{agent}/events"), sse, true),
        ("agent's events", format!("/v1/agents/{agent}/events?after=latest&wait=300s"), "", false),
        ("agent's observer", format!("/v1/agents/{agent}/attach"), UPGRADE, true),
    ]
}

/// Opens each kind with one token, and returns the connections that stay open.
fn opened(stage: &Stage, auth: &str) -> Vec<(&'static str, TcpStream)> {
    let mut open_ones = Vec::new();
    for (name, target, headers, answers) in kinds(stage) {
        let mut stream = open(&stage.pinfold, auth, &target, headers);
        if answers {
            let head = head(&mut stream);
            assert!(head.starts_with("HTTP/1.1 101") || head.starts_with("HTTP/1.1 200"), "{name}: {head}");
        }
        open_ones.push((name, stream));
    }
    open_ones
}

#[test]
fn revoking_a_token_closes_all_that_it_opened_and_nothing_else() {
    let stage = stage();
    let pinfold = &stage.pinfold;
    for owner in [Some("ann"), None] {
        let (revoked, other) = (token(pinfold, owner, None), token(pinfold, owner, None));
        let mut closing = opened(&stage, &bearer(&revoked.token));
        let mut staying = open(pinfold, &bearer(&other.token), "/v1/events", "Accept: text/event-stream\r\n");
        head(&mut staying);
        pinfold.block(pinfold.client().revoke_token(&revoked.shown.id)).expect("revoked");
        for (name, stream) in &mut closing {
            if *name == "attach" {
                // What is typed now is not delivered, even if the close has not arrived yet.
                let _ = stream.write_all(&frame(b"typed after the end\n"));
            }
            assert_unanswered(name, &rest(stream));
        }
        let marker = pinfold.block(
            pinfold
                .client()
                .acting_as("ann", None)
                .start(&StartRequest { command: Some("true".into()), ..StartRequest::default() }),
        );
        let marker = marker.expect("a start").record.id;
        let mut seen = String::new();
        let mut buffer = [0; 4096];
        while !seen.contains(&marker) {
            let count = staying.read(&mut buffer).expect("it stays open");
            assert!(count > 0, "it was closed, too: {seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        let typed = pinfold.output(&stage.cat, &OutputQuery::default()).text;
        assert_eq!(typed, "");
    }
}

#[test]
fn a_token_that_expires_closes_what_it_opened() {
    let stage = stage();
    let brief = token(&stage.pinfold, Some("ann"), Some("2s"));
    let mut closing = opened(&stage, &bearer(&brief.token));
    for (name, stream) in &mut closing {
        assert_unanswered(name, &rest(stream));
    }
}

/// A request that revokes its own token is answered.
#[test]
fn a_request_that_revokes_its_own_token_is_answered() {
    let pinfold = listening();
    let own = token(&pinfold, None, None);
    let auth = bearer(&own.token);
    let target = format!("/v1/tokens/{}", own.shown.id);
    let (status, body) = ask(&pinfold, "DELETE", &target, &[("Authorization", &auth)], "");
    assert!(status == 200 && body.contains(&own.shown.id), "{status} {body}");
    assert_eq!(ask(&pinfold, "GET", "/v1/processes", &[("Authorization", &auth)], "").0, 401);
}

/// Clients that open connections and never finish a request do not keep other clients out.
#[test]
fn half_open_requests_without_a_token_do_not_block_other_clients() {
    let pinfold = listening();
    let auth = bearer(&token(&pinfold, None, None).token);
    let mut streaming = open(&pinfold, &auth, "/v1/events", "Accept: text/event-stream\r\n");
    head(&mut streaming);
    let address = pinfold.health().tcp.expect("it listens");
    let strangers: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).expect("a connection");
            let _ = stream.write_all(b"GET /v1/processes HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
            stream
        })
        .collect();
    assert_eq!(ask(&pinfold, "GET", "/v1/processes", &[("Authorization", &auth)], "").0, 200);
    // Authenticated connections are not closed either.
    let id = pinfold.sh("true").id;
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains(&id) {
        let count = streaming.read(&mut buffer).expect("it stays open");
        assert!(count > 0, "it was closed: {seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    drop(strangers);
}
