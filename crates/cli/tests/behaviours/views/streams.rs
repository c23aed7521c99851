//! Output as a plain stream, event streams that resume, and `Retry-After`.

use std::io::{BufRead, BufReader, Write};

use pinfold_api::types::{OutputQuery, StartRequest, Streams};
use pinfold_testkit::{DEADLINE, Pinfold, Setup};

use crate::output::gate::Gate;
use crate::requests::request;
use crate::{PINFOLD, wire};

/// What a stream sends until it ends, and whether it was cut off.
fn read_to_end(pinfold: &Pinfold, id: &str, query: &OutputQuery) -> (u64, Vec<u8>, bool) {
    pinfold.block(async {
        let mut stream = pinfold.client().output_stream(id, query).await.expect("a stream");
        let (first, mut all) = (stream.cursor, Vec::new());
        loop {
            match tokio::time::timeout(DEADLINE, stream.next()).await.expect("in time") {
                Some(Ok(bytes)) => all.extend(bytes),
                Some(Err(_)) => return (first, all, true),
                None => return (first, all, false),
            }
            assert_eq!(stream.cursor, first + all.len() as u64);
        }
    })
}

#[test]
fn a_stream_has_every_byte_as_it_is_written_and_ends_with_the_output() {
    let pinfold = Pinfold::start(PINFOLD);
    let gates = ["one", "two"].map(|name| Gate::new(&pinfold, name));
    let script = format!("echo first; {}; echo second; {}; seq 1 50000", gates[0].wait(), gates[1].wait());
    let id = pinfold.sh(&script).id;
    let expected = {
        let numbers: String = (1..=50000).map(|number| format!("{number}\n")).collect();
        format!("first\nsecond\n{numbers}").into_bytes()
    };
    let all = pinfold.block(async {
        let mut stream = pinfold.client().output_stream(&id, &OutputQuery::default()).await.expect("a stream");
        let mut all = Vec::new();
        while let Some(bytes) = tokio::time::timeout(DEADLINE, stream.next()).await.expect("in time") {
            all.extend(bytes.expect("it does not break off"));
            match all.as_slice() {
                b"first\n" => gates[0].open(),
                b"first\nsecond\n" => gates[1].open(),
                _ => {}
            }
        }
        all
    });
    assert!(all == expected, "{} bytes instead of {}", all.len(), expected.len());
    let middle = OutputQuery { cursor: Some(6), ..OutputQuery::default() };
    assert_eq!(read_to_end(&pinfold, &id, &middle), (6, expected[6..].to_vec(), false));
    let tail = OutputQuery { tail: Some("1 line".into()), ..OutputQuery::default() };
    assert_eq!(read_to_end(&pinfold, &id, &tail), (expected.len() as u64 - 6, b"50000\n".to_vec(), false));
    pinfold.crash_and_restart();
    assert_eq!(read_to_end(&pinfold, &id, &middle).1, &expected[6..]);
}

#[test]
fn a_stream_is_plain_text_for_any_client_and_of_one_stream_if_asked() {
    let pinfold = Pinfold::start(PINFOLD);
    let started = StartRequest { streams: Some(Streams::Separate), ..request("echo out; echo err >&2; echo more") };
    let id = pinfold.start_request(&started).record.id;
    pinfold.wait_finished(&id);
    let answer = wire::send(&pinfold, "GET", &format!("/v1/processes/{id}/output?follow&stream=stdout"), b"");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    assert_eq!(
        (answer.header("pinfold-cursor"), answer.header("x-content-type-options")),
        (Some("0"), Some("nosniff"))
    );
    assert!(
        answer.body.contains("out\n") && answer.body.contains("more\n") && !answer.body.contains("err"),
        "{answer:?}"
    );
    let raw = wire::send(&pinfold, "GET", &format!("/v1/processes/{id}/output?follow=true&format=raw"), b"");
    assert_eq!(raw.header("content-type"), Some("application/octet-stream"));
    let refused = wire::send(&pinfold, "GET", &format!("/v1/processes/{id}/output?follow&grep=x"), b"");
    assert_eq!(refused.status, 400);
    assert!(refused.error().message.contains("leave out `grep`"), "{refused:?}");
    let page = wire::send(&pinfold, "GET", &format!("/v1/processes/{id}/output?follow=false"), b"");
    assert_eq!(page.header("content-type"), Some("application/json"));
}

#[test]
fn a_stream_that_begins_in_dropped_output_says_what_is_missing() {
    let pinfold = Pinfold::start(PINFOLD);
    let limited = StartRequest { output_limit: Some("64k".into()), ..request("yes 0123456 | head -c 1000000") };
    let id = pinfold.start_request(&limited).record.id;
    let output = pinfold.wait_finished(&id).output;
    let cursor = output.retained_from - output.dropped;
    let gap = pinfold.block(async {
        let query = OutputQuery { cursor: Some(cursor), ..OutputQuery::default() };
        pinfold.client().output_stream(&id, &query).await.expect("a stream").gap
    });
    assert_eq!(gap.map(|gap| (gap.from, gap.to)), Some((cursor, output.retained_from)));
    let after = OutputQuery { cursor: Some(output.retained_from), ..OutputQuery::default() };
    let (first, bytes, broken) = read_to_end(&pinfold, &id, &after);
    assert_eq!((first, bytes.len() as u64, broken), (output.retained_from, 1_000_000 - output.retained_from, false));
    // A stream that reaches a gap is cut off there, so that what follows the gap is not mistaken for the next bytes.
    let (first, bytes, broken) = read_to_end(&pinfold, &id, &OutputQuery::default());
    assert_eq!((first, bytes.len() as u64, broken), (0, cursor, true));
}

#[test]
fn a_stream_is_cut_off_when_the_daemon_stops_and_resumes_at_its_cursor() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "go");
    let id = pinfold.sh(&format!("echo before; {}; echo after", gate.wait())).id;
    let cursor = pinfold.block(async {
        let mut stream = pinfold.client().output_stream(&id, &OutputQuery::default()).await.expect("a stream");
        let first = tokio::time::timeout(DEADLINE, stream.next()).await.expect("in time");
        assert_eq!(first.expect("bytes").expect("bytes"), "before\n");
        let stopped = pinfold.client().shutdown(&Default::default()).await.expect("it stops");
        assert_eq!(stopped.left_running, 1);
        let end = tokio::time::timeout(DEADLINE, stream.next()).await.expect("in time");
        assert!(matches!(end, Some(Err(_))), "this is not the end of the output: {end:?}");
        stream.cursor
    });
    pinfold.start_daemon();
    gate.open();
    let rest = OutputQuery { cursor: Some(cursor), ..OutputQuery::default() };
    assert_eq!(read_to_end(&pinfold, &id, &rest), (7, b"after\n".to_vec(), false));
}

#[test]
fn an_owner_cannot_follow_the_output_of_another() {
    let pinfold = Pinfold::start(PINFOLD);
    let mine = pinfold.client().acting_as("mine", None);
    let id = pinfold.block(mine.start(&request("echo secret"))).expect("a start").record.id;
    let other = pinfold.client().acting_as("other", None);
    let refused = pinfold.block(other.output_stream(&id, &OutputQuery::default())).expect_err("not in view");
    assert!(refused.to_string().contains("no process"), "{refused}");
}

/// The first `id` that an event stream sends.
fn first_id(pinfold: &Pinfold, target: &str, last_event_id: &str) -> u64 {
    let mut stream = wire::connect(pinfold);
    let head = format!(
        "GET {target} HTTP/1.1\r\nHost: p\r\nAccept: text/event-stream\r\nLast-Event-ID: {last_event_id}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("a request");
    let lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    let id = lines.filter_map(|line| line.strip_prefix("id:").map(|id| id.trim().to_owned())).next();
    id.expect("an event").parse().expect("a number")
}

#[test]
fn an_event_stream_resumes_after_the_last_received_event() {
    let pinfold = Pinfold::start(PINFOLD);
    for _ in 0..3 {
        let id = pinfold.sh("true").id;
        pinfold.wait_finished(&id);
    }
    let events = pinfold.events(0).events;
    assert!(events.len() >= 6);
    for received in [0, 1, 4] {
        let (last, next) = (events[received].seq, events[received + 1].seq);
        assert_eq!(first_id(&pinfold, "/v1/events", &last.to_string()), next);
        assert_eq!(first_id(&pinfold, "/v1/events?after=0", &last.to_string()), next, "a reconnection repeats its URL");
    }
    let mut bad = wire::connect(&pinfold);
    let head = "GET /v1/events HTTP/1.1\r\nHost: p\r\nAccept: text/event-stream\r\nLast-Event-ID: x\r\nConnection: close\r\n\r\n";
    bad.write_all(head.as_bytes()).expect("a request");
    let mut status = String::new();
    BufReader::new(bad).read_line(&mut status).expect("an answer");
    assert!(status.contains("400"), "{status}");
}

#[test]
fn a_temporary_refusal_says_when_to_retry() {
    let config = "[limits]\nprocesses = 1\n".to_owned();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    let id = pinfold.sh("exec sleep 600").id;
    let refused = wire::send(&pinfold, "POST", "/v1/processes", br#"{"command": "true"}"#);
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()), "{refused:?}");
    let invalid = wire::send(&pinfold, "POST", "/v1/processes", b"{}");
    assert_eq!((invalid.status, invalid.header("retry-after")), (400, None));
    pinfold.stop(&id);
}
