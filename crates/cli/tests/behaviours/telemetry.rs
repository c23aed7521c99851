//! Traces and metrics: where a trace comes from, what is sent of a process, and what a collector cannot disturb.

mod collector;

use std::io::{Read, Write};
use std::net::TcpListener;

use pinfold_api::types::{StartRequest, StopRequest, WaitQuery};
use pinfold_testkit::{Pinfold, Setup, until, until_some};
use serde_json::{Value, json};

use crate::PINFOLD;
use crate::mcp::agent::{Agent, shim};
use crate::receiver::Receiver;
use crate::wire;

pub(crate) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

pub(crate) fn traceparent() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

/// A daemon that sends to this address.
pub(crate) fn sending_to(endpoint: &str, more: &str) -> Pinfold {
    let config = format!("[telemetry]\nendpoint = \"{endpoint}\"\ninterval = \"1s\"\n{more}");
    Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() })
}

fn traced(command: &str) -> StartRequest {
    StartRequest { command: Some(command.into()), traceparent: Some(traceparent()), ..StartRequest::default() }
}

/// Every span that was received.
fn spans(receiver: &Receiver) -> Vec<Value> {
    let of_traces = receiver.posted().into_iter().filter(|posted| posted.path.ends_with("/v1/traces"));
    let bodies = of_traces.map(|posted| serde_json::from_str::<Value>(&posted.body).expect("JSON"));
    bodies
        .flat_map(|body| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().cloned().unwrap_or_default())
        .collect()
}

fn until_span(receiver: &Receiver, name: &str) -> Value {
    until_some(&format!("the span {name}"), || spans(receiver).into_iter().find(|span| span["name"] == name))
}

/// The text of an attribute.
fn attribute(span: &Value, key: &str) -> Option<String> {
    let found = span["attributes"].as_array()?.iter().find(|one| one["key"] == key)?;
    let value = &found["value"];
    value["stringValue"].as_str().or(value["intValue"].as_str()).map(str::to_owned)
}

/// Sends a request as it is; gives the status and the body of the answer.
fn exchange(pinfold: &Pinfold, request: &str) -> (u16, String) {
    let mut stream = wire::connect(pinfold);
    stream.write_all(request.as_bytes()).expect("a request sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = wire::parse(&answer);
    (answer.status, answer.body)
}

#[test]
fn a_process_is_a_trace_with_its_start_waits_and_stop() {
    let receiver = Receiver::answering(&[]);
    let pinfold = sending_to(&receiver.url(""), "");
    let id = pinfold.start_request(&traced("echo $TRACEPARENT; exec sleep 600")).record.id;
    let wait = WaitQuery {
        until: Some("output".into()),
        cursor: Some(0),
        timeout: Some("60s".into()),
        ..WaitQuery::default()
    };
    pinfold.wait(&id, &wait);
    let context = pinfold.text(&id);
    assert_eq!(pinfold.stop_request(&id, &StopRequest::default()).survivors, []);

    let run = until_span(&receiver, "run");
    assert_eq!((&run["traceId"], &run["parentSpanId"]), (&json!(TRACE), &json!(PARENT)));
    // The program continues the trace below its own run.
    assert_eq!(context.trim(), format!("00-{TRACE}-{}-01", run["spanId"].as_str().expect("an id")));
    assert_eq!(attribute(&run, "pinfold.process.id").as_deref(), Some(id.as_str()));
    assert_eq!(attribute(&run, "pinfold.outcome").as_deref(), Some("signaled"));
    assert_eq!(attribute(&run, "pinfold.cause").as_deref(), Some("stop_requested"));
    assert_eq!((&run["status"]["code"], attribute(&run, "error.type").as_deref()), (&json!(2), Some("TERM")));
    for name in ["start", "wait", "stop"] {
        let span = until_span(&receiver, name);
        assert_eq!((&span["traceId"], &span["parentSpanId"]), (&run["traceId"], &run["spanId"]), "{name}");
        let nanos = |key: &str| span[key].as_str().and_then(|text| text.parse::<u64>().ok()).expect("a time");
        assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"), "{span}");
    }
    assert_eq!(attribute(&until_span(&receiver, "wait"), "pinfold.wait.reason").as_deref(), Some("output"));
}

#[test]
fn a_result_is_reported_and_no_command_environment_or_output_is_sent() {
    let receiver = Receiver::answering(&[]);
    let pinfold = sending_to(&receiver.url("/base"), "headers = { authorization = \"Bearer t0ken\" }\n");
    let request = StartRequest {
        env: [("TOKEN".to_owned(), Some("s3cret-env".to_owned()))].into(),
        labels: [("label".to_owned(), "s3cret-label".to_owned())].into(),
        intent: Some("s3cret-intent".into()),
        cwd: Some("/tmp".into()),
        ..traced("echo s3cret-output; : s3cret-command; exit 3")
    };
    let id = pinfold.start_request(&request).record.id;
    pinfold.wait_finished(&id);
    let run = until_span(&receiver, "run");
    assert_eq!(attribute(&run, "process.exit.code").as_deref(), Some("3"));
    assert_eq!(attribute(&run, "error.type").as_deref(), Some("3"));
    assert_eq!(attribute(&run, "process.executable.name").as_deref(), Some("sh"));
    until("metrics", || receiver.posted().iter().any(|posted| posted.path == "/base/v1/metrics"));
    for posted in receiver.posted() {
        assert!(!posted.body.contains("s3cret") && !posted.body.contains("/tmp"), "{}", posted.body);
        assert_eq!(posted.headers["authorization"], "Bearer t0ken");
        assert_eq!(posted.headers["content-type"], "application/json");
    }
    let printed = pinfold.cli(&["config"]);
    assert!(!printed.stdout.contains("t0ken") && printed.stdout.contains("telemetry"), "{}", printed.stdout);

    let other = Receiver::answering(&[]);
    let pinfold = sending_to(&other.url(""), "commands = true\n");
    pinfold.run("echo shown");
    assert_eq!(attribute(&until_span(&other, "run"), "process.command_line").as_deref(), Some("echo shown"));
}

#[test]
fn counters_are_sent_as_metrics() {
    let receiver = Receiver::answering(&[]);
    let pinfold = sending_to(&receiver.url(""), "");
    pinfold.run("exit 3");
    let count = |posted: &crate::receiver::Posted| {
        let body: Value = serde_json::from_str(&posted.body).ok()?;
        let metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array()?.clone();
        let ended = metrics.into_iter().find(|metric| metric["name"] == "pinfold.processes.ended")?;
        let points = ended["sum"]["dataPoints"].as_array()?.clone();
        let of = |point: &Value| point["attributes"][0]["value"]["stringValue"] == "nonzero";
        points.iter().find(|point| of(point))?["asInt"].as_str()?.parse::<u64>().ok()
    };
    until("one process that failed", || receiver.posted().iter().filter_map(count).any(|count| count == 1));
}

#[test]
fn a_trace_is_taken_from_field_header_environment_and_mcp() {
    let pinfold = Pinfold::start(PINFOLD);
    let expected = Some(traceparent());
    // The field.
    let started = pinfold.start_request(&traced("echo $TRACEPARENT")).record;
    assert_eq!(started.traceparent, expected);
    pinfold.wait_finished(&started.id);
    assert_eq!(pinfold.text(&started.id).trim(), traceparent(), "without telemetry it is passed on");
    // It is in the record, and so survives the daemon.
    pinfold.crash_and_restart();
    assert_eq!(pinfold.show(&started.id).traceparent, expected);
    // The header.
    let with_header = |header: &str| {
        let head = format!(
            "POST /v1/processes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}Content-Length: 18\r\n\r\n"
        );
        let (status, answer) = exchange(&pinfold, &format!("{head}{{\"command\":\"true\"}}"));
        assert_eq!(status, 201, "{answer}");
        serde_json::from_str::<Value>(&answer).expect("a record")["traceparent"].clone()
    };
    assert_eq!(with_header(&format!("traceparent: {}\r\n", traceparent())), json!(traceparent()));
    // The environment of the command line.
    let mut run = pinfold.command(&["run", "--json", "true"]);
    let output = run.env("TRACEPARENT", traceparent()).output().expect("pinfold");
    let said: Value = serde_json::from_slice(&output.stdout).expect("a record");
    assert_eq!(said["traceparent"], json!(traceparent()));
    // `_meta` of an MCP call, and the environment of its server.
    let mut agent = Agent::connect(&pinfold);
    let called =
        agent.call_as(json!({ "traceparent": traceparent() }), "execute", json!({ "command": "echo $TRACEPARENT" }));
    assert!(called.output().contains(TRACE), "{}", called.text);
    let record = pinfold.show(called.id());
    assert_eq!((record.traceparent, record.tool.as_deref()), (expected.clone(), Some("execute")));
    let mut command = shim(&pinfold, &[]);
    command.env("TRACEPARENT", traceparent());
    let called = Agent::connect_with(command).execute("true");
    assert_eq!(pinfold.show(called.id()).traceparent, expected);
}

#[test]
fn a_bad_trace_in_the_field_is_refused_and_elsewhere_ignored() {
    let pinfold = Pinfold::start(PINFOLD);
    for bad in ["", "00-x", &traceparent().to_uppercase(), &traceparent().replace(TRACE, &"0".repeat(32))] {
        let error =
            pinfold.try_start(&StartRequest { traceparent: Some(bad.into()), ..traced("true") }).expect_err(bad);
        assert!(error.message.contains("traceparent") && error.message.contains("hex"), "{error:?}");
    }
    let odd_tool = StartRequest { tool: Some("a\nb".into()), ..traced("true") };
    assert!(pinfold.try_start(&odd_tool).expect_err("refused").message.contains("tool"));
    let head = "POST /v1/processes HTTP/1.1\r\nHost: x\r\nConnection: close\r\ntraceparent: nonsense\r\nContent-Length: 18\r\n\r\n";
    let (status, answer) = exchange(&pinfold, &format!("{head}{{\"command\":\"true\"}}"));
    assert_eq!(status, 201, "{answer}");
    assert!(!answer.contains("traceparent"), "{answer}");
    let mut run = pinfold.command(&["run", "printenv TRACEPARENT"]);
    let output = run.env("TRACEPARENT", "mine").output().expect("pinfold");
    assert_eq!(output.stdout, b"mine\n");
    let mut agent = Agent::connect(&pinfold);
    let called = agent.call_as(json!({ "traceparent": 7 }), "execute", json!({ "command": "true" }));
    assert!(!called.is_error, "{}", called.text);
}

#[test]
fn a_trace_whose_caller_records_nothing_is_passed_on_and_not_sent() {
    let receiver = Receiver::answering(&[]);
    let pinfold = sending_to(&receiver.url(""), "");
    let unsampled = traceparent().replace("-01", "-00");
    let request = StartRequest { traceparent: Some(unsampled.clone()), ..traced("echo $TRACEPARENT") };
    let id = pinfold.start_request(&request).record.id;
    pinfold.wait_finished(&id);
    assert_eq!(pinfold.text(&id).trim(), unsampled);
    // A later process has been sent, so this one is not on its way.
    let (last, _) = pinfold.run("true");
    until("the later span", || {
        spans(&receiver).iter().any(|span| attribute(span, "pinfold.process.id").as_deref() == Some(&last.id))
    });
    assert!(spans(&receiver).iter().all(|span| attribute(span, "pinfold.process.id").as_deref() != Some(&id)));
}

#[test]
fn a_run_that_outlives_its_daemon_is_sent_once_by_the_next() {
    let receiver = Receiver::answering(&[]);
    let pinfold = sending_to(&receiver.url(""), "");
    let gate = pinfold.home().join("gate");
    let id =
        pinfold.start_request(&traced(&format!("while [ ! -e {} ]; do sleep 0.01; done", gate.display()))).record.id;
    let start = until_span(&receiver, "start");
    pinfold.kill_daemon();
    std::fs::write(&gate, "").expect("an open gate");
    pinfold.start_daemon();
    pinfold.wait_finished(&id);
    let run = until_span(&receiver, "run");
    assert_eq!((&run["traceId"], &run["spanId"]), (&start["traceId"], &start["parentSpanId"]));
    pinfold.run("true");
    until("a later run", || spans(&receiver).iter().filter(|span| span["name"] == "run").count() >= 2);
    let of_it = |span: &&Value| span["name"] == "run" && attribute(span, "pinfold.process.id").as_deref() == Some(&id);
    assert_eq!(spans(&receiver).iter().filter(of_it).count(), 1);
}

#[test]
fn what_a_collector_refuses_for_now_is_sent_again_and_what_it_rejects_is_dropped() {
    let receiver = Receiver::answering(&["503 Service Unavailable"]);
    let pinfold = sending_to(&receiver.url(""), "");
    let (record, _) = pinfold.run("true");
    until("the span of a second attempt", || {
        let of_it = |span: &&Value| {
            attribute(span, "pinfold.process.id").as_deref() == Some(&record.id) && span["name"] == "run"
        };
        receiver.posted().len() >= 2 && spans(&receiver).iter().filter(of_it).count() >= 1
    });
    let rejecting = Receiver::answering(&["400 Bad Request"]);
    let pinfold = sending_to(&rejecting.url(""), "");
    pinfold.run("true");
    until("dropped spans are counted", || {
        !metric(&pinfold, "pinfold_telemetry_spans_total{result=\"dropped\"}").starts_with('0')
    });
    pinfold.run("true");
    until("later ones are sent", || {
        !metric(&pinfold, "pinfold_telemetry_spans_total{result=\"sent\"}").starts_with('0')
    });
}

fn metric(pinfold: &Pinfold, name: &str) -> String {
    let text = wire::send(pinfold, "GET", "/metrics", b"").body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
    line.trim().to_owned()
}

/// It accepts connections, as the kernel does for it, and never answers.
#[test]
fn a_dead_or_frozen_collector_delays_nothing() {
    let frozen = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = frozen.local_addr().expect("an address");
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address")
    };
    for address in [address, closed] {
        let pinfold = sending_to(&format!("http://{address}"), "");
        for _ in 0..20 {
            let (record, text) = pinfold.run("echo on");
            assert_eq!((text.as_str(), record.cause.is_some()), ("on\n", true));
        }
        // The daemon ends although spans wait to be sent, and the next one starts.
        assert_eq!(pinfold.cli(&["daemon", "stop"]).code, Some(0));
        pinfold.start_daemon();
    }
}
