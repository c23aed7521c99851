//! Streamable HTTP, written by hand over the daemon's socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use pinfold_api::types::TokenRequest;
use pinfold_testkit::{Pinfold, Setup};
use serde_json::{Value, json};

use super::agent::{Called, result_of};
use crate::{PINFOLD, wire};

/// A response: status, headers and body, as far as it was read.
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    reader: BufReader<Box<dyn Read>>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The next message of an event stream, or the message in the body.
    fn message(&mut self) -> Value {
        loop {
            let mut line = String::new();
            let read = self.reader.read_line(&mut line).expect("a line");
            assert!(read > 0, "the stream ended without a message");
            let data = line.strip_prefix("data:").unwrap_or(&line).trim();
            if data.starts_with('{') {
                return serde_json::from_str(data).expect("JSON");
            }
        }
    }

    fn rest(mut self) -> String {
        let mut text = String::new();
        let _ = self.reader.read_to_string(&mut text);
        text
    }
}

fn send(pinfold: &Pinfold, method: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    send_on(wire::connect(pinfold), method, headers, body)
}

fn send_on(mut stream: impl Read + Write + 'static, method: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let host = headers.iter().find(|(name, _)| *name == "host").map_or("localhost", |(_, value)| value);
    let mut head = format!("{method} /mcp HTTP/1.1\r\nhost: {host}\r\naccept: application/json, text/event-stream\r\n");
    head.push_str(&format!(
        "content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    ));
    for (name, value) in headers.iter().filter(|(name, _)| *name != "host") {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).expect("a request sent");
    let mut reader: BufReader<Box<dyn Read>> = BufReader::new(Box::new(stream));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a status line");
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    Answer { status, headers, reader }
}

fn post(pinfold: &Pinfold, headers: &[(&str, &str)], message: &Value) -> Answer {
    send(pinfold, "POST", headers, &message.to_string())
}

fn initialize() -> Value {
    let client = json!({ "name": "behaviours", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
}

/// An initialized session.
fn open(pinfold: &Pinfold) -> String {
    let mut answer = post(pinfold, &[], &initialize());
    let session = answer.header("mcp-session-id").expect("a session").to_owned();
    assert_eq!(answer.message()["result"]["serverInfo"]["name"], "pinfold");
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(post(pinfold, &[("mcp-session-id", &session)], &initialized).status, 202);
    session
}

fn called(pinfold: &Pinfold, headers: &[(&str, &str)], tool: &str, arguments: Value) -> Called {
    let mut answer = post(pinfold, headers, &call(tool, arguments));
    assert_eq!(answer.status, 200);
    result_of(&answer.message())
}

#[test]
fn http_transport() {
    let pinfold = Pinfold::start(PINFOLD);
    let session = open(&pinfold);
    let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-06-18")];
    assert_eq!(called(&pinfold, &headers, "execute", json!({ "command": "echo hi" })).output(), "hi\n");
    let stream = send(&pinfold, "GET", &headers, "");
    assert_eq!((stream.status, stream.header("content-type")), (200, Some("text/event-stream")));
    // A session is its own owner, unless a header names one.
    let id = called(&pinfold, &headers, "execute", json!({ "command": "exec sleep 300", "background": true }))
        .id()
        .to_owned();
    assert_eq!(pinfold.show(&id).owner, format!("mcp-{session}"));
    let second = open(&pinfold);
    assert!(called(&pinfold, &[("mcp-session-id", &second)], "process_output", json!({ "id": id })).is_error);
    let owned = [("mcp-session-id", second.as_str()), ("pinfold-owner", "chat-7")];
    let start = json!({ "command": "exec sleep 300", "background": true });
    let other = called(&pinfold, &owned, "execute", start).id().to_owned();
    assert_eq!(pinfold.show(&other).owner, "chat-7");
    assert_eq!(send(&pinfold, "DELETE", &headers, "").status / 100, 2);
    assert_eq!(post(&pinfold, &headers, &call("process_list", json!({}))).status, 404);
    assert_eq!(pinfold.show(&id).status, pinfold_api::types::Status::Running, "a process ended with its session");
}

#[test]
fn http_of_the_stateless_revision_needs_no_session() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut message = call("execute", json!({ "command": "echo hi" }));
    message["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "behaviours", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "execute")];
    let mut answer = post(&pinfold, &headers, &message);
    assert_eq!(answer.status, 200);
    let answer = answer.message();
    assert_eq!(result_of(&answer).output(), "hi\n");
    assert_eq!(answer["result"]["resultType"], "complete");
}

#[test]
fn http_with_a_foreign_host_or_origin_is_refused() {
    let pinfold = Pinfold::start(PINFOLD);
    for headers in [
        [("origin", "https://evil.example")],
        [("origin", "http://localhost:3000")],
        [("host", "evil.example")],
        [("host", "evil.example:80")],
    ] {
        let answer = post(&pinfold, &headers, &initialize());
        assert_eq!(answer.status, 403, "{headers:?}");
    }
    assert_eq!(post(&pinfold, &[("host", "127.0.0.1:8080")], &initialize()).status, 200);
    assert_eq!(send(&pinfold, "POST", &[], "no json").status / 100, 4);
}

#[test]
fn http_also_refuses_doubled_keys() {
    let pinfold = Pinfold::start(PINFOLD);
    let session = open(&pinfold);
    let body = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute","arguments":{"command":"a","command":"b"}}}"#;
    let mut answer = send(&pinfold, "POST", &[("mcp-session-id", &session)], body);
    let called = result_of(&answer.message());
    assert!(called.is_error && called.text.contains("`command` is given twice"), "{}", called.text);
    assert!(send(&pinfold, "POST", &[("mcp-session-id", "unknown")], body).rest().len() < 1000);
}

#[test]
fn http_by_a_token_bound_to_an_owner_sees_no_more() {
    let config = "[tcp]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    let token = |owner: &str| {
        let request = TokenRequest { owner: Some(owner.into()), ..TokenRequest::default() };
        format!("Bearer {}", pinfold.block(pinfold.client().add_token(&request)).expect("a token").token)
    };
    let (mine, yours) = (token("mine"), token("yours"));
    let post = |auth: &str, more: &[(&str, &str)], message: &Value| {
        let stream = TcpStream::connect(pinfold.health().tcp.expect("it listens")).expect("a connection");
        let headers = [&[("authorization", auth)], more].concat();
        send_on(stream, "POST", &headers, &message.to_string())
    };
    assert_eq!(post("Bearer nothing", &[], &initialize()).status, 401);
    let mut answer = post(&mine, &[], &initialize());
    let session = answer.header("mcp-session-id").expect("a session").to_owned();
    answer.message();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(post(&mine, &[("mcp-session-id", &session)], &initialized).status, 202);
    let headers = [("mcp-session-id", session.as_str())];
    let start = call("execute", json!({ "command": "exec sleep 300", "background": true }));
    let id = result_of(&post(&mine, &headers, &start).message()).id().to_owned();
    assert_eq!(pinfold.show(&id).owner, "mine");
    let read = call("process_output", json!({ "id": id }));
    assert!(!result_of(&post(&mine, &headers, &read).message()).is_error);
    // Neither another token in the same session nor a claimed owner gives access to other processes.
    assert!(result_of(&post(&yours, &headers, &read).message()).is_error);
    assert_eq!(post(&yours, &[headers[0], ("pinfold-owner", "mine")], &read).status, 404);
    let mut claimed = read.clone();
    claimed["params"]["_meta"] = json!({ "threadId": "mine", "sessionId": "mine" });
    assert!(result_of(&post(&yours, &headers, &claimed).message()).is_error);
}

#[test]
fn a_request_that_is_too_long_is_refused_as_json_rpc() {
    let pinfold = Pinfold::start(PINFOLD);
    let long = call("execute", json!({ "command": "x".repeat(8 << 20) }));
    let mut answer = post(&pinfold, &[], &long);
    assert_eq!(answer.status, 413);
    let message = answer.message();
    assert!(message["error"]["message"].as_str().expect("a message").contains("8388608 bytes"), "{message}");
}

/// The number of sessions is bounded: the one that was idle for longest is dropped.
#[test]
fn the_session_that_was_idle_for_longest_is_dropped() {
    let pinfold = Pinfold::start(PINFOLD);
    let list = |session: &str| {
        let headers = [("mcp-session-id", session), ("mcp-protocol-version", "2025-06-18")];
        post(&pinfold, &headers, &call("process_list", json!({}))).status
    };
    let (used, silent) = (open(&pinfold), open(&pinfold));
    assert_eq!(list(&used), 200);
    for _ in 0..999 {
        assert_eq!(post(&pinfold, &[], &initialize()).status, 200);
    }
    assert_eq!((list(&used), list(&silent)), (200, 404));
}
