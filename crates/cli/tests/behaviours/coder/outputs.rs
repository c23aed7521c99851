//! Output: fields, waits, truncation.

use std::io::{Read, Write};
use std::net::Shutdown;

use pinfold_testkit::{Pinfold, until};
use serde_json::json;

use super::{ALICE, BOB, Client, with_settings};
use crate::requests::Gate;
use crate::{PINFOLD, wire};

#[test]
fn output_fields() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let id = client.start("sleep 300");
    let output = client.output(&id);
    assert_eq!((&output["output"], &output["running"]), (&json!(""), &json!(true)));
    assert_eq!((&output["command"], &output["closed"]), (&json!("sleep 300"), &json!(false)));
    assert!(output.get("exit_code").is_none() && output.get("truncated").is_none(), "{output}");
    let id = client.start("echo out; echo err >&2; exit 42");
    let output = client.waited(&id);
    assert_eq!((&output["output"], &output["exit_code"]), (&json!("out\nerr\n"), &json!(42)));
    // Later output of a descendant is announced, and arrives.
    let gate = Gate::new(&pinfold, "later");
    let id = client.start(&format!("({}; echo later) & echo first", gate.wait()));
    let output = client.waited(&id);
    assert_eq!((&output["output"], &output["exit_code"]), (&json!("first\n"), &json!(0)));
    assert_eq!(output["closed"], false);
    gate.open();
    until("the rest", || client.output(&id)["closed"] == true);
    assert_eq!(client.output(&id)["output"], "first\nlater\n");
    let text = client.run(&json!({ "command": r"printf 'a\377b\200\303\050☃'" }));
    assert_eq!(text, "a\u{fffd}b\u{fffd}\u{fffd}(☃");
}

#[test]
fn output_unknown_404() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    for id in ["nonexistent", "6ba7b810-9dad-41d1-80b4-00c04fd430c8"] {
        let message = format!("Process \"{id}\" not found.");
        assert_eq!(client.get(&format!("/{id}/output")).error(), (404, message.clone()));
        assert_eq!(client.get(&format!("/{id}/output?wait=true")).error(), (404, message));
    }
}

#[test]
fn output_other_chat_404() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let id = client.chat(ALICE).start("sleep 300");
    let message = format!("Process \"{id}\" not found.");
    assert_eq!(client.chat(BOB).get(&format!("/{id}/output?wait=true")).error(), (404, message));
    assert_eq!(client.chat(ALICE).output(&id)["running"], true);
    assert_eq!(client.output(&id)["running"], true);
}

#[test]
fn wait_only_exact_true() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    // It never ends: a wait would last five minutes, longer than the timeout of the client.
    let id = client.start("sleep 3000");
    for query in
        ["wait=1", "wait=TRUE", "wait=True", "wait=yes", "wait", "wait=", "wait=true%20", "wait=1&wait=true", ""]
    {
        let reply = client.get(&format!("/{id}/output?{query}"));
        assert_eq!((reply.status, &reply.json()["running"]), (200, &json!(true)), "{query}");
    }
}

#[test]
fn wait_cap_5min() {
    let cli = Pinfold::prepare(PINFOLD, pinfold_testkit::Setup::default()).cli(&["config", "default"]);
    assert!(cli.stdout.contains("wait_cap = \"300s\""), "{}", cli.stdout);
    let pinfold = with_settings("wait_cap = \"700ms\"");
    let client = Client::new(&pinfold);
    let id = client.start("echo so far; sleep 300");
    until("it speaks", || client.output(&id)["output"] == "so far\n");
    let started = std::time::Instant::now();
    let reply = client.get(&format!("/{id}/output?wait=true"));
    assert!(started.elapsed().as_millis() >= 700, "it waited to the cap");
    assert_eq!((reply.status, &reply.json()["running"]), (200, &json!(true)));
    assert_eq!(reply.json()["output"], "so far\n");
}

#[test]
fn wait_two_waiters() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let id = client.start("echo hi; sleep 300");
    until("it speaks", || client.output(&id)["output"] == "hi\n");
    let request =
        format!("GET /api/v0/processes/{id}/output?wait=true HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n");
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = wire::connect(&pinfold);
            stream.write_all(request.as_bytes()).expect("a request");
            stream
        })
        .collect();
    assert_eq!(client.signal(&id, "kill").status, 200);
    for mut waiter in waiters {
        let mut answer = String::new();
        waiter.read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains("\"running\":false") && answer.contains("\"output\":\"hi\\n\""), "{answer}");
    }
}

#[test]
fn wait_already_exited() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let id = client.start("echo hi");
    for _ in 0..3 {
        let output = client.waited(&id);
        assert_eq!((&output["output"], &output["exit_code"]), (&json!("hi\n"), &json!(0)));
    }
    // Also one of an earlier daemon.
    pinfold.crash_and_restart();
    assert_eq!(client.waited(&id)["output"], "hi\n");
}

#[test]
fn wait_client_gone() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let id = client.chat(ALICE).start("sleep 300");
    let descriptors = || {
        let path = format!("/proc/{}/fd", pinfold.daemon_pid());
        std::fs::read_dir(path).expect("descriptors").count()
    };
    let before = descriptors();
    let request = format!("GET /api/v0/processes/{id}/output?wait=true HTTP/1.1\r\nHost: p\r\n\r\n");
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let mut stream = wire::connect(&pinfold);
            stream.write_all(request.as_bytes()).expect("a request");
            stream
        })
        .collect();
    until("they are served", || descriptors() >= before + 10);
    let during = descriptors();
    waiters.iter().for_each(|stream| stream.shutdown(Shutdown::Both).expect("gone"));
    drop(waiters);
    // Some new descriptors may not be connections: keepers are created in advance.
    until("they are gone", || descriptors() + 6 <= during);
    let owner = format!("coder-{ALICE}");
    let waiting = || pinfold.block(pinfold.client().release_owner(&owner)).expect("an answer").released;
    assert!(waiting() < 5, "their waits went with them");
    assert_eq!(client.output(&id)["running"], true);
}

#[test]
fn truncation_shape() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let exactly = |bytes: usize| client.waited(&client.start(&format!("head -c {bytes} /dev/zero | tr '\\0' x")));
    for bytes in [16_384, 16_385, 32_768] {
        let output = exactly(bytes);
        assert_eq!(output["output"], "x".repeat(bytes), "{bytes} bytes come verbatim");
        assert!(output.get("truncated").is_none());
    }
    // No line is added between head and tail.
    let lines = client.run(&json!({ "command": "for i in $(seq 213); do printf '%079d\\n' $i; done" }));
    assert_eq!(lines.lines().count(), 213);
    let output = client.waited(&client.start("seq 1 20000"));
    let text = output["output"].as_str().expect("a text");
    assert_eq!(output["truncated"]["strategy"], "head_tail");
    assert_eq!(output["truncated"]["original_bytes"], 108_894);
    assert_eq!(output["truncated"]["retained_bytes"], text.len());
    assert_eq!(output["truncated"]["omitted_bytes"], 76_126);
    assert!(text.contains("\n\n... [omitted 76126 bytes] ...\n\n"));
    assert!(text.starts_with("1\n2\n") && text.ends_with("\n19999\n20000\n"), "head and tail stay");
    assert!(108_894 > text.len());
    // Characters are not split, and progress lines keep their last state.
    let snow = client.run(&json!({ "command": "yes ☃☃☃ | head -n 10000" }));
    assert!(!snow.contains('\u{fffd}') && snow.ends_with("☃☃☃\n"));
    let progress =
        r#"seq 1 9999; i=0; while [ $i -lt 500 ]; do printf '\rprogress %d/500' $i; i=$((i+1)); done; echo " done""#;
    assert!(client.run(&json!({ "command": progress })).ends_with("\nprogress 499/500 done\n"));
}

#[test]
fn binary_output_is_counted_in_its_own_bytes() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let id = client.start("head -c 33000 /dev/zero | tr '\\0' '\\377'");
    let output = client.waited(&id);
    let count = |field: &str| output["truncated"][field].as_u64().expect("a number");
    assert_eq!(count("original_bytes"), 33_000);
    assert!(count("retained_bytes") <= 33_000, "{}", output["truncated"]);
    assert!(output["output"].as_str().expect("a text").contains('\u{fffd}'));
}
