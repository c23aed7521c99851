//! Bytes on the socket that are not a request, or not a complete one.

use std::io::{Read, Write};

use pinfold_api::error::ErrorCode;

use super::Unharmed;
use crate::wire::{connect, parse, send, send_raw};

#[test]
fn bodies_that_are_not_what_the_route_takes() {
    let daemon = Unharmed::start();
    let id = daemon.pinfold.sh("sleep 300").id;
    let refused = |target: &str, body: &[u8], named: &str| {
        let answer = send(&daemon.pinfold, "POST", target, body);
        let error = answer.error();
        assert_eq!((answer.status, error.code), (400, ErrorCode::InvalidJson), "{answer:?}");
        assert!(error.message.contains(named) && error.message.contains("/openapi.json"), "{error}");
    };
    let start = |body: &str, named: &str| refused("/v1/processes", body.as_bytes(), named);
    start("", "EOF");
    start("{", "EOF");
    for no_object in ["nonsense", "null", "5", r#""true""#, "[1, 2", r#"["true"]"#, "[]"] {
        start(no_object, "not a JSON object");
    }
    start(r#"{"command": 5}"#, "integer `5`");
    start(r#"{"command": "true", "env": ["A=B"]}"#, "sequence");
    start(r#"{"command": "true", "env": {"A": 5}}"#, "integer `5`");
    start(r#"{"command": "true", "labels": {"a": null}}"#, "null");
    start(r#"{"command": "true", "strays": "adopt"}"#, "adopt");
    start(r#"{"command": "true", "time_limit": {"s": 5}}"#, "");
    start(r#"{"command": "true", "timeout": 5}"#, "`timeout`");
    start(r#"{"command": "true", "command": "false"}"#, "duplicate field `command`");
    start(r#"{"command": "true"} {"command": "false"}"#, "trailing");
    start(r#"{"command": "\ud800"}"#, "hex escape");
    refused("/v1/processes", b"{\"command\": \"\xff\xfe\"}", "unicode");
    start(&format!(r#"{{"labels": {}{}}}"#, "[".repeat(100_000), "]".repeat(100_000)), "");
    refused(&format!("/v1/processes/{id}/signal"), b"{}", "signal");
    refused(&format!("/v1/processes/{id}/stop"), br#"{"signla": "TERM"}"#, "signla");
    refused("/v1/shutdown", br#"{"stop_processes": "yes"}"#, "yes");
    refused("/v1/wait", br#"{"ids": "all"}"#, "all");
    daemon.check();
}

#[test]
fn numbers_at_the_end_of_their_range() {
    let daemon = Unharmed::start();
    let id = daemon.pinfold.run("echo x").0.id;
    for target in [
        "/v1/events?after=18446744073709551615".to_owned(),
        "/v1/events?after=18446744073709551614&limit=4294967295".to_owned(),
        "/v1/processes?page=ended-18446744073709551615-545pr4&limit=4294967295".to_owned(),
        format!("/v1/processes/{id}/output?cursor=18446744073709551615&budget_tokens=18446744073709551615"),
        format!("/v1/processes/{id}/output?tail=18446744073709551615&context=4294967295&grep=x"),
        format!("/v1/processes/{id}/wait?until=match&pattern=y&cursor=18446744073709551615&timeout=0"),
    ] {
        let answer = send(&daemon.pinfold, "GET", &target, b"");
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
    }
    daemon.check();
}

#[test]
fn d4_a_body_has_a_bound() {
    let daemon = Unharmed::start();
    let fits = format!(r#"{{"command": "exit 0 #{}"}}"#, "x".repeat(7 << 20));
    assert_eq!(send(&daemon.pinfold, "POST", "/v1/processes", fits.as_bytes()).status, 201);
    for size in [9 << 20, 64 << 20] {
        let body = format!(r#"{{"command": "exit 0 #{}"}}"#, "x".repeat(size));
        let answer = send(&daemon.pinfold, "POST", "/v1/processes", body.as_bytes());
        assert_eq!((answer.status, answer.error().code), (413, ErrorCode::BodyTooLarge));
        assert!(answer.body.contains("8388608") && answer.body.contains("put a long script into a file"));
    }
    // The daemon neither waits for an announced length nor allocates it.
    let announced = b"POST /v1/processes HTTP/1.1\r\nHost: p\r\nContent-Length: 99999999999999\r\n\r\n{}";
    assert!(!send_raw(&daemon.pinfold, announced).starts_with(b"HTTP/1.1 2"));
    daemon.check();
}

#[test]
fn unknown_routes_and_methods() {
    let daemon = Unharmed::start();
    for (method, target) in [
        ("GET", "/"),
        ("GET", "/v2/processes"),
        ("GET", "/v1/processes/"),
        ("GET", "/v1/processes/a/b/c"),
        ("GET", "//v1/processes"),
    ] {
        let answer = send(&daemon.pinfold, method, target, b"");
        let error = answer.error();
        assert_eq!((answer.status, error.code), (404, ErrorCode::NoSuchRoute), "{method} {target}");
        let named = [method, target, "/openapi.json"].iter().all(|part| error.message.contains(part));
        assert!(named, "{method} {target}: {error}");
    }
    for (method, target, allowed) in [
        ("PUT", "/v1/processes/abcdef", "GET,HEAD,DELETE"),
        ("PUT", "/v1/processes", "POST,GET,HEAD"),
        ("GET", "/v1/processes/abcdef/stop", "POST"),
        ("GET", "/v1/tokens/abcdef", "DELETE"),
        ("DELETE", "/v1/agents", "POST,GET,HEAD"),
        ("PATCH", "/healthz", "GET,HEAD"),
        ("BREW", "/v1/processes", "POST,GET,HEAD"),
    ] {
        let answer = send(&daemon.pinfold, method, target, b"");
        let error = answer.error();
        assert_eq!((answer.status, error.code), (405, ErrorCode::MethodNotAllowed), "{method} {target}");
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {target}");
        let named = [method, target, "/openapi.json"].iter().all(|part| error.message.contains(part));
        assert!(named, "{method} {target}: {error}");
    }
    // An id that is not UTF-8.
    let answer = send(&daemon.pinfold, "GET", "/v1/processes/%ff%fe", b"");
    assert!(matches!(answer.error().code, ErrorCode::NotFound | ErrorCode::InvalidRequest), "{answer:?}");
    let answer = send(&daemon.pinfold, "POST", "/v1/processes/%ff/stop", b"{}");
    assert!(matches!(answer.error().code, ErrorCode::NotFound | ErrorCode::InvalidRequest), "{answer:?}");
    daemon.check();
}

#[test]
fn garbage_on_the_socket() {
    let daemon = Unharmed::start();
    let mut random = [0; 4096];
    let mut source = std::fs::File::open("/dev/urandom").expect("random bytes");
    for length in [1, 7, 100, 4096].repeat(10) {
        source.read_exact(&mut random[..length]).expect("random bytes");
        let answer = send_raw(&daemon.pinfold, &random[..length]);
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{:?} was answered", &random[..length]);
    }
    for garbage in [
        &b"\0"[..],
        b"\r\n\r\n\r\n",
        b"GET",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        assert!(!send_raw(&daemon.pinfold, garbage).starts_with(b"HTTP/1.1 2"));
    }
    daemon.check();
}

#[test]
fn d4_headers_have_a_bound() {
    let daemon = Unharmed::start();
    let long = "x".repeat(2 << 20);
    let huge = format!("GET /healthz HTTP/1.1\r\nHost: p\r\nHuge: {long}\r\n\r\n");
    assert_eq!(parse(&send_raw(&daemon.pinfold, huge.as_bytes())).status, 431);
    let many: String = (0..5000).map(|number| format!("H{number}: v\r\n")).collect();
    let many = format!("GET /healthz HTTP/1.1\r\nHost: p\r\n{many}\r\n");
    assert_eq!(parse(&send_raw(&daemon.pinfold, many.as_bytes())).status, 431);
    let target = format!("GET /v1/processes/{long} HTTP/1.1\r\nHost: p\r\n\r\n");
    assert!((400..500).contains(&parse(&send_raw(&daemon.pinfold, target.as_bytes())).status));
    daemon.check();
}

#[test]
fn requests_that_break_off() {
    let daemon = Unharmed::start();
    let request = b"POST /v1/processes HTTP/1.1\r\nHost: p\r\nContent-Length: 19\r\n\r\n{\"command\": \"true\"}";
    for length in (1..request.len()).step_by(3) {
        let mut stream = connect(&daemon.pinfold);
        stream.write_all(&request[..length]).expect("sent");
        drop(stream);
    }
    // A client that disconnects during a wait, and one that never sends anything.
    let id = daemon.pinfold.sh("sleep 300").id;
    for _ in 0..20 {
        let wait = format!("GET /v1/processes/{id}/wait?timeout=1h HTTP/1.1\r\nHost: p\r\n\r\n");
        connect(&daemon.pinfold).write_all(wait.as_bytes()).expect("sent");
    }
    let _silent: Vec<_> = (0..20).map(|_| connect(&daemon.pinfold)).collect();
    daemon.check();
    assert_eq!(daemon.pinfold.list(&Default::default()).total, 2, "half a request started something");
}
