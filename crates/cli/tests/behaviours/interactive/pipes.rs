//! Stdin as a pipe.

use std::io::Write;
use std::process::Stdio;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{InputRequest, Outcome, StartRequest, Stdin};
use pinfold_testkit::{Pinfold, until};
use serde_json::json;

use super::{bytes, eof, input, open, text, try_input};
use crate::PINFOLD;
use crate::mcp::agent::Agent;
use crate::requests::{Gate, request, until_said};

/// This many bytes of every value, in an order that a line discipline would change.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..=255).chain((256..count).map(next)).collect()
}

#[test]
fn stdin_pipe_open() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = open(&pinfold, "cat; echo end=$?");
    assert_eq!(record.stdin, Stdin::Pipe);
    input(&pinfold, &record.id, &text("one\n"));
    until_said(&pinfold, &record.id, "^one$");
    input(&pinfold, &record.id, &text("two"));
    input(&pinfold, &record.id, &eof());
    assert_eq!(pinfold.wait_exit(&record.id).outcome, Some(Outcome::Exited { code: 0 }));
    assert_eq!(pinfold.text(&record.id), "one\ntwoend=0\n");
}

#[test]
fn every_byte_arrives_in_its_order_however_slowly_it_is_read() {
    let pinfold = Pinfold::start(PINFOLD);
    // A slow reader of small pieces, each with a new program, behind a queue that fills.
    let slow = "i=0; while [ $i -lt 50 ]; do dd bs=10000 count=1 status=none; i=$((i + 1)); done; exec cat";
    let record = open(&pinfold, slow);
    let all = noise(5 << 20);
    for piece in all.chunks(700_000) {
        let request =
            InputRequest { base64: Some(STANDARD.encode(piece)), wait: Some("60s".into()), ..InputRequest::default() };
        input(&pinfold, &record.id, &request);
    }
    input(&pinfold, &record.id, &eof());
    pinfold.wait_finished(&record.id);
    assert!(bytes(&pinfold, &record.id) == all, "other bytes than were sent");
}

#[test]
fn stdin_closed_error() {
    let pinfold = Pinfold::start(PINFOLD);
    let without = pinfold.sh("exec sleep 300");
    let error = try_input(&pinfold, &without.id, &text("x")).expect_err("no stdin");
    assert_eq!(error.code, ErrorCode::NoStdin);
    assert!(error.message.contains("stdin: pipe") && error.message.contains("run --stdin"), "{}", error.message);

    let ended = open(&pinfold, "cat >/dev/null; exec sleep 300");
    input(&pinfold, &ended.id, &eof());
    let error = try_input(&pinfold, &ended.id, &text("x")).expect_err("ended");
    assert_eq!(error.code, ErrorCode::StdinClosed);
    assert!(error.message.contains("eof"), "{}", error.message);

    let closed = open(&pinfold, "exec <&-; echo ready; exec sleep 300");
    until_said(&pinfold, &closed.id, "^ready$");
    let error = try_input(&pinfold, &closed.id, &text("x")).and_then(|_| try_input(&pinfold, &closed.id, &text("y")));
    let error = error.expect_err("closed");
    assert_eq!(error.code, ErrorCode::StdinClosed);
    assert!(error.message.contains("closed its stdin"), "{}", error.message);

    let over = open(&pinfold, "true");
    pinfold.wait_finished(&over.id);
    assert_eq!(try_input(&pinfold, &over.id, &text("x")).expect_err("over").code, ErrorCode::AlreadyOver);
}

#[test]
fn bad_input_is_refused_by_name() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = open(&pinfold, "cat");
    let refused = |request: InputRequest| {
        let error = try_input(&pinfold, &record.id, &request).expect_err("refused");
        assert_eq!(error.code, ErrorCode::InvalidRequest, "{error:?}");
        error.message
    };
    assert!(refused(InputRequest::default()).contains("nothing to send"));
    assert!(refused(InputRequest { base64: Some("!".into()), ..eof() }).contains("base64"));
    assert!(refused(InputRequest { keys: vec!["hyper+q".into()], ..eof() }).contains("`hyper+q`"));
    assert!(refused(InputRequest { input_id: Some(String::new()), ..eof() }).contains("input_id"));
    assert!(refused(text(&"x".repeat((1 << 20) + 1))).contains("1048576"));
    assert!(refused(InputRequest { wait: Some("soon".into()), ..eof() }).contains("soon"));
    let unknown = try_input(&pinfold, "missing", &eof()).expect_err("unknown");
    assert_eq!(unknown.code, ErrorCode::NotFound);
    input(&pinfold, &record.id, &eof());
    assert_eq!(pinfold.wait_finished(&record.id).outcome, Some(Outcome::Exited { code: 0 }));
}

#[test]
fn write_id_dedupe() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = open(&pinfold, "exec cat");
    let named = |name: &str, said: &str| InputRequest { input_id: Some(name.into()), ..text(said) };
    assert!(!input(&pinfold, &record.id, &named("a", "one\n")).repeated);
    let again = input(&pinfold, &record.id, &named("a", "one\n"));
    assert!(again.repeated && again.accepted == 4, "{again:?}");
    let other = try_input(&pinfold, &record.id, &named("a", "two\n")).expect_err("another input");
    assert_eq!(other.code, ErrorCode::KeyReused);
    // A client that did not get the answer of a killed daemon sends the input again to the next one.
    pinfold.crash_and_restart();
    assert!(input(&pinfold, &record.id, &named("a", "one\n")).repeated);
    input(&pinfold, &record.id, &InputRequest { eof: true, ..named("b", "two\n") });
    pinfold.wait_finished(&record.id);
    assert_eq!(pinfold.text(&record.id), "one\ntwo\n");
}

#[test]
fn write_full_pipe() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "read");
    let record = open(&pinfold, &format!("{}; cat", gate.wait()));
    let all = noise(1 << 20);
    let named = |name: &str, piece: &[u8]| InputRequest {
        base64: Some(STANDARD.encode(piece)),
        input_id: Some(name.into()),
        ..InputRequest::default()
    };
    let first = input(&pinfold, &record.id, &named("first", &all));
    assert!(first.queued > 0 && first.accepted == 1 << 20, "{first:?}");
    let second = try_input(&pinfold, &record.id, &named("second", &all)).expect("an answer");
    assert!(!second.complete && second.accepted > 0 && second.accepted < 1 << 20, "{second:?}");
    assert_eq!(second.queued, 1 << 20);
    // Meanwhile the daemon answers other requests, also a stop.
    let bystander = pinfold.run("echo hi").1;
    assert_eq!(bystander, "hi\n");
    // Acknowledged input is held by the keeper, and written although the daemon died.
    pinfold.kill_daemon();
    gate.open();
    pinfold.start_daemon();
    let rest = InputRequest { wait: Some("60s".into()), ..named("second", &all) };
    assert!(input(&pinfold, &record.id, &rest).repeated);
    input(&pinfold, &record.id, &eof());
    pinfold.wait_finished(&record.id);
    assert!(bytes(&pinfold, &record.id) == [all.clone(), all].concat(), "other bytes than were sent");
}

#[test]
fn a_process_that_does_not_read_is_stopped_like_any_other() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = open(&pinfold, "exec sleep 300");
    try_input(&pinfold, &record.id, &text(&"x".repeat(1 << 20))).expect("an answer");
    let stopped = pinfold.stop(&record.id);
    assert!(stopped.survivors.is_empty(), "{stopped:?}");
}

#[test]
fn a_keeper_that_is_used_again_has_no_stdin_of_the_last_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let first = open(&pinfold, "cat");
    input(&pinfold, &first.id, &InputRequest { input_id: Some("same".into()), ..text("first\n") });
    input(&pinfold, &first.id, &eof());
    pinfold.wait_finished(&first.id);
    let plain = pinfold.sh("readlink /proc/self/fd/0; exec sleep 300");
    until_said(&pinfold, &plain.id, "^/dev/null$");
    let next = open(&pinfold, "cat");
    let answer = input(&pinfold, &next.id, &InputRequest { input_id: Some("same".into()), ..text("next\n") });
    assert!(!answer.repeated);
    input(&pinfold, &next.id, &eof());
    pinfold.wait_finished(&next.id);
    assert_eq!(pinfold.text(&next.id), "next\n");
}

#[test]
fn the_command_line_sends() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.cli(&["run", "-d", "--stdin", "cat"]).stdout.trim().to_owned();
    assert_eq!(pinfold.cli(&["send", &id, "two", "words", "--enter"]).code, Some(0));
    until_said(&pinfold, &id, "^two words$");
    let mut sending = pinfold.command(&["send", &id, "-", "--eof"]);
    let mut sending = sending.stdin(Stdio::piped()).spawn().expect("a command");
    let all = noise(300_000);
    sending.stdin.take().expect("its stdin").write_all(&all).expect("it reads");
    assert_eq!(sending.wait().expect("an end").code(), Some(0));
    pinfold.wait_finished(&id);
    assert!(bytes(&pinfold, &id) == [b"two words\n".to_vec(), all].concat(), "other bytes than were sent");
    let late = pinfold.cli(&["send", &id, "x"]);
    assert_eq!(late.code, Some(2), "{}", late.stderr);
    assert!(late.stderr.contains("is over"), "{}", late.stderr);
}

#[test]
fn a_run_in_the_foreground_passes_its_stdin_on() {
    let pinfold = Pinfold::start(PINFOLD);
    for (command, code) in [("tr a-z A-Z; exit 3", 3), ("read line; echo $line | tr a-z A-Z; exit 4", 4)] {
        let mut run = pinfold.command(&["run", "--stdin", command]);
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a command");
        run.stdin.take().expect("its stdin").write_all(b"hello\n").expect("it reads");
        let output = run.wait_with_output().expect("an end");
        assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"HELLO\n"[..], Some(code)), "{command}");
    }
}

#[test]
fn a_model_talks_to_a_program() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let command = "while read -r a b; do echo sum $((a + b)); done; echo bye";
    let started = agent.call("execute", json!({ "command": command, "stdin": true, "background": true }));
    let id = started.id().to_owned();
    let called = agent.call("process_input", json!({ "id": id, "text": "20 22", "keys": ["enter"] }));
    assert_eq!(called.output(), "sum 42\n", "{}", called.text);
    let called = agent.call("process_input", json!({ "id": id, "text": "1 2\n", "eof": true }));
    assert!(called.output().starts_with("sum 3\n"), "{}", called.text);
    until("it ends", || agent.call("process_output", json!({ "id": id, "cursor": 0 })).facts["exit_code"] == 0);
    let refused = agent.call("process_input", json!({ "id": id, "text": "x", "keys": ["nokey"] }));
    assert!(refused.is_error && refused.text.contains("nokey"), "{}", refused.text);
}

#[test]
fn another_owner_cannot_write() {
    let pinfold = Pinfold::start(PINFOLD);
    let asked = StartRequest { stdin: Some(Stdin::Pipe), owner: Some("ann".into()), ..request("exec cat") };
    let record = pinfold.start_request(&asked).record;
    let bob = pinfold.client().acting_as("bob", None);
    let error = pinfold.block(bob.input(&record.id, &text("x"))).expect_err("not his");
    assert!(error.to_string().contains("no process"), "{error}");
    assert_eq!(pinfold.text(&record.id), "");
}
