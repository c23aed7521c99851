//! Signals: the order in which a request is checked, which processes they reach, and the state afterwards.

use pinfold_testkit::{Pinfold, alive, until};
use serde_json::json;

use super::{ALICE, BOB, Client};
use crate::PINFOLD;

#[test]
fn signal_order() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold).chat(ALICE);
    let (hers, his) = (client.start("sleep 300"), client.chat(BOB).start("sleep 300"));
    let unknown = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
    let path = |id: &str| format!("/{id}/signal");
    let missing = |id: &str| (404, format!("Process \"{id}\" not found."));
    let send = |id: &str, body: &str| client.send("POST", &path(id), body.as_bytes()).error();

    assert_eq!(send(&his, "{bad"), missing(&his), "another chat's comes before the body");
    for id in [&*hers, unknown] {
        let reply = client.send("POST", &path(id), b"{bad");
        assert_eq!(reply.error(), (400, "Request body must be valid JSON.".to_owned()), "the body before the id");
        assert!(!reply.detail().is_empty());
        assert_eq!(send(id, "{}"), (400, "Signal is required.".to_owned()));
        assert_eq!(send(id, "null"), (400, "Signal is required.".to_owned()));
        let unsupported = "Unsupported signal \"SIGFOO\". Use \"kill\" or \"terminate\".".to_owned();
        assert_eq!(send(id, r#"{"signal":"SIGFOO"}"#), (400, unsupported));
        assert_eq!(send(id, r#"{"signal":"KILL"}"#).0, 400, "names are exact");
    }
    assert_eq!(send(unknown, r#"{"signal":"kill"}"#), missing(unknown));

    let reply = client.signal(&hers, "terminate");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["message"], format!("Signal \"terminate\" sent to process \"{hers}\"."));
    client.waited(&hers);
    until("all of it is over", || client.output(&hers)["state"] == "finished");
    assert_eq!(client.signal(&hers, "kill").error(), (409, format!("Process \"{hers}\" is not running.")));
    assert_eq!(send(&hers, "{}"), (400, "Signal is required.".to_owned()), "the body before the state");
    assert_eq!(client.chat(BOB).output(&his)["running"], true, "no other process got the signal");
}

/// An unreachable keeper stands in for a kernel that refuses the signal.
#[test]
fn signal_order_when_it_cannot_be_sent() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    // A single process: no keeper is left to end another one, which would outlive the test.
    let native = pinfold.sh("exec sleep 300").id;
    let id = client.list()[0]["id"].as_str().expect("an id").to_owned();
    let keeper = pinfold.keeper_pid(&native);
    pinfold.kill_daemon();
    std::fs::remove_file(pinfold.home().join("keepers").join(keeper.to_string())).expect("a socket");
    pinfold.start_daemon();
    let reply = client.signal(&id, "terminate");
    let leader = pinfold.show(&native).pid.expect("a leader");
    pinfold_testkit::Pidfd::open(leader).expect("it lives").kill();
    assert_eq!(reply.error(), (500, "Failed to signal process.".to_owned()));
    assert!(reply.detail().starts_with("terminate process: "), "{}", reply.detail());
}

#[test]
fn signal_reaches_grandchildren() {
    crate::requests::both_ways(|pinfold| {
        let client = Client::new(pinfold);
        for signal in ["kill", "terminate"] {
            let id = client.start("setsid sleep 300 & (sleep 300 & sleep 300) & sleep 300; :");
            let native = pinfold.list(&pinfold_api::types::ListQuery::default()).processes.remove(0).id;
            until("the whole tree is there", || pinfold.tree(&native).len() >= 5);
            let tree = pinfold.tree(&native);
            assert_eq!(client.signal(&id, signal).status, 200);
            until("no process is left", || !tree.iter().any(|pid| alive(*pid)));
            until("it is over", || client.output(&id)["state"] == "finished");
        }
    });
}

#[test]
fn exit_code_after_signal() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    for (signal, code, name) in [("kill", 137, "KILL"), ("terminate", 143, "TERM")] {
        let id = client.start("sleep 300");
        assert_eq!(client.signal(&id, signal).status, 200);
        let output = client.waited(&id);
        assert_eq!((&output["exit_code"], &output["signal"]), (&json!(code), &json!(name)));
        assert_eq!(output["reason"], "stop_requested");
        let info = client.listed(&id);
        assert_eq!((&info["exit_code"], &info["running"]), (&json!(code), &json!(false)));
    }
    let output = client.waited(&client.start("kill -9 $$"));
    assert_eq!(
        (&output["exit_code"], &output["signal"], &output["reason"]),
        (&json!(137), &json!("KILL"), &json!("signal"))
    );
    // The exit code of a signal handler is kept.
    let id = client.start("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done");
    until("ready", || client.output(&id)["output"] == "ready\n");
    assert_eq!(client.signal(&id, "terminate").status, 200);
    assert_eq!(client.waited(&id)["exit_code"], 7);
}
