//! The contract of the tools, for every client.

use pinfold_api::types::Status;
use pinfold_testkit::{Pinfold, until};
use serde_json::{Value, json};

use super::agent::{Agent, Called, shim};
use crate::PINFOLD;
use crate::requests::until_said;

fn tools(agent: &mut Agent) -> Vec<Value> {
    agent.request("tools/list", json!({}))["result"]["tools"].as_array().expect("tools").clone()
}

/// Every leaf of the facts is in the text.
fn assert_same(called: &Called) {
    fn check(facts: &Value, text: &str) {
        match facts {
            Value::Object(object) => object.values().for_each(|value| check(value, text)),
            Value::Array(items) => items.iter().for_each(|value| check(value, text)),
            Value::String(leaf) => {
                assert!(text.contains(leaf.as_str()) || text.contains(&facts.to_string()), "{leaf:?} in {text}");
            }
            leaf => assert!(text.contains(&leaf.to_string()), "{leaf} in {text}"),
        }
    }
    check(&called.facts, &called.text);
    assert!(called.facts.as_object().is_some_and(|facts| !facts.is_empty()));
}

#[test]
fn structured_equals_text() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let failing = agent.execute("seq 1 50000; echo 'x.c:1: error: bad'; seq 1 50000; exit 3");
    assert_same(&failing);
    assert_eq!(failing.facts["exit_code"], 3);
    let id = agent.background("echo 'two\nlines'; sleep 300 & sleep 301");
    for (tool, arguments) in [
        ("execute", json!({ "command": "sleep 300 & printf 'a\\tb'", "name": "n", "label": "why" })),
        ("process_output", json!({ "id": id, "cursor": 0 })),
        ("process_output", json!({ "id": id, "grep": "two", "context": 1 })),
        ("process_wait", json!({ "id": id, "pattern": "lines" })),
        ("process_wait", json!({ "ids": [id, failing.id()] })),
        ("process_list", json!({})),
        ("process_input", json!({ "id": id, "text": "x" })),
        ("process_signal", json!({ "id": id })),
        ("process_output", json!({ "id": "missing" })),
    ] {
        assert_same(&agent.call(tool, arguments));
    }
}

#[test]
fn readonly_tools_parallel() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let id = agent.background("exec sleep 300");
    let waiting = agent.begin_call("process_wait", json!({ "id": id, "timeout": "20s" }));
    let list = agent.call("process_list", json!({}));
    assert_eq!(list.facts["processes"][0]["id"], id.as_str());
    assert!(!agent.has_answered(waiting), "the list came after the wait");
    agent.call("process_signal", json!({ "id": id }));
    assert_eq!(agent.called(waiting).facts["cause"], "stop_requested");
}

#[test]
fn annotations_complete() {
    // A server without calls could start a daemon after the test has cleaned up.
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let tools = tools(&mut agent);
    assert_eq!(tools.len(), 6);
    for tool in &tools {
        let hint = |name: &str| tool["annotations"][name].as_bool().unwrap_or_else(|| panic!("{name} of {tool}"));
        let reads =
            ["process_output", "process_wait", "process_list"].contains(&tool["name"].as_str().expect("a name"));
        assert_eq!(hint("readOnlyHint"), reads);
        assert!(!reads || !hint("destructiveHint"));
        let _ = (hint("idempotentHint"), hint("openWorldHint"));
        assert!(tool["outputSchema"]["type"] == "object" && tool["description"].is_string());
    }
    let whole = json!({ "tools": tools }).to_string();
    assert!(whole.len() <= 8 << 10, "{} bytes", whole.len());
}

#[test]
fn tool_names_plain() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let plain =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    for tool in tools(&mut agent) {
        assert!(plain(tool["name"].as_str().expect("a name")), "{tool}");
    }
    let mut few = Agent::connect_with(shim(&pinfold, &["--tools", "execute,process_output"]));
    let names: Vec<String> =
        tools(&mut few).iter().map(|tool| tool["name"].as_str().unwrap_or("").to_owned()).collect();
    assert_eq!(names, ["execute", "process_output"]);
    assert_eq!(few.request("tools/call", json!({ "name": "process_list" }))["error"]["code"], -32602);
    let refused = pinfold.cli(&["mcp", "--tools", "exec"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("process_list"), "{refused:?}");
}

/// M5.
#[test]
fn cancel_semantics() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let id = agent.background("echo started; exec sleep 300");
    let waiting = agent.begin_call("process_wait", json!({ "id": id, "timeout": "10m" }));
    let running = agent.begin_call("execute", json!({ "command": "exec sleep 301", "timeout": "10m" }));
    let found = |agent: &mut Agent| agent.call("process_list", json!({ "status": "running" })).facts["total"] == 2;
    until("both run", || found(&mut agent));
    for request in [waiting, running, 4711, 1] {
        agent.notify("notifications/cancelled", json!({ "requestId": request, "reason": "a test" }));
    }
    let list = agent.call("process_list", json!({}));
    assert_eq!(list.facts["total"], 2, "{}", list.text);
    for process in list.facts["processes"].as_array().expect("processes") {
        assert_eq!(process["state"], "running");
    }
    assert!(!agent.has_answered(waiting) && !agent.has_answered(running), "an answer to a cancelled request");
    // The cancelled wait lost nothing.
    assert_eq!(agent.call("process_output", json!({ "id": id, "cursor": 0 })).output(), "started\n");
}

#[test]
fn returns_before_client_timeout() {
    let pinfold = Pinfold::start(PINFOLD);
    // The limit that is 50 s for a real client is one second here.
    let mut agent = Agent::connect_with(shim(&pinfold, &["--longest-call", "1"]));
    let called = agent.call("execute", json!({ "command": "exec sleep 300", "timeout": "1h" }));
    assert_eq!((&called.facts["state"], &called.facts["reason"]), (&json!("running"), &json!("timeout")));
    assert!(!called.is_error && called.notes().contains("not longer"), "{}", called.text);
    let id = called.id().to_owned();
    let called = agent.call("process_wait", json!({ "id": id, "timeout": "12h" }));
    assert_eq!((&called.facts["reason"], called.is_error), (&json!("timeout"), false));
    assert!(called.notes().contains("not longer"), "{}", called.text);
    // A stop with a longer grace continues after the call returned.
    let stubborn = agent.background("trap '' TERM; echo ready; while :; do sleep 0.1; done");
    until_said(&pinfold, &stubborn, "ready");
    let called = agent.call("process_signal", json!({ "id": stubborn, "grace": "3s" }));
    assert!(called.notes().contains("still stopping"), "{}", called.text);
    assert_eq!(pinfold.wait_finished(&stubborn).status, Status::Finished);
}

/// M3.
#[test]
fn result_size_bounded() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let max = json!("100M");
    for command in [
        r#"yes '""""""""""""""""\\\\\\\\\\\\\\' | head -c 5000000"#,
        "head -c 3000000 /dev/zero",
        "seq 1 500000",
        "yes | tr -d '\\n' | head -c 1000000",
    ] {
        let called = agent.call("execute", json!({ "command": command, "max_output": max }));
        assert!(called.text.len() <= 64 << 10, "{} bytes of text for {command}", called.text.len());
        assert!(called.whole.to_string().len() <= 256 << 10, "{command}");
        assert!(called.facts["omitted"]["to"].as_u64().is_some_and(|omitted| omitted > 0), "{command}");
    }
    let long = format!("true {}", "x".repeat(200_000));
    assert!(agent.execute(&long).whole.to_string().len() <= 8 << 10);
    for _ in 0..120 {
        agent.call("execute", json!({ "command": format!("exec sleep 300 {}", "0".repeat(500)), "timeout": 0 }));
    }
    let list = agent.call("process_list", json!({}));
    assert!(list.text.len() <= 64 << 10 && list.whole.to_string().len() <= 256 << 10);
    let next = list.facts["next"].as_str().expect("more").to_owned();
    let rest = agent.call("process_list", json!({ "status": "live", "page": next }));
    let count = |list: &Called| list.facts["processes"].as_array().map_or(0, Vec::len);
    assert_eq!(count(&list) + count(&rest), 120);
}

#[test]
fn protocol_versions() {
    let pinfold = Pinfold::start(PINFOLD);
    for version in ["2025-06-18", "2025-11-25"] {
        let mut agent = Agent::spawn(shim(&pinfold, &[]));
        let answer = agent.initialize(version);
        assert_eq!(answer["protocolVersion"], version);
        assert_eq!(answer["serverInfo"]["name"], "pinfold");
        assert!(answer["instructions"].as_str().is_some_and(|text| text.contains("execute")));
        assert_eq!(agent.execute("echo hi").output(), "hi\n");
    }
    // The stateless revision: no handshake, each request names its client.
    let mut agent = Agent::spawn(shim(&pinfold, &[]));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "behaviours", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = agent.request("server/discover", json!({ "_meta": meta }));
    let versions = found["result"]["supportedVersions"].as_array().expect("versions").clone();
    assert!(versions.contains(&json!("2026-07-28")), "{found}");
    assert_eq!(agent.call_as(meta, "execute", json!({ "command": "echo hi" })).output(), "hi\n");
}

#[test]
fn identity_from_meta_and_env() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let one = json!({ "threadId": "one", "sessionId": "one" });
    let two = json!({ "threadId": "two", "sessionId": "one" });
    let start = json!({ "command": "exec sleep 300", "background": true });
    let first = agent.call_as(one.clone(), "execute", start.clone()).id().to_owned();
    let second = agent.call_as(two.clone(), "execute", start.clone()).id().to_owned();
    assert_eq!((pinfold.show(&first).owner, pinfold.show(&second).owner), ("codex-one".into(), "codex-two".into()));
    assert_eq!(pinfold.show(&second).parent.as_deref(), Some("codex-one"));
    // A chat sees the processes of its sub-agents, and not the reverse.
    assert!(!agent.call_as(one.clone(), "process_output", json!({ "id": second })).is_error);
    for (tool, more) in [("process_output", json!({})), ("process_wait", json!({})), ("process_signal", json!({}))] {
        let mut arguments = more.clone();
        arguments["id"] = json!(first);
        let called = agent.call_as(two.clone(), tool, arguments);
        assert_eq!((called.is_error, &called.facts["code"]), (true, &json!("not_found")), "{tool}");
    }
    assert_eq!(agent.call_as(two, "process_list", json!({})).facts["total"], 1);
    // Claude passes the session in the environment; without any claim each connection is its own owner.
    let mut claude = shim(&pinfold, &[]);
    claude.env("CLAUDE_CODE_SESSION_ID", "abc").env("PINFOLD_OWNER", "above");
    let third = Agent::connect_with(claude).background("exec sleep 300");
    assert_eq!((pinfold.show(&third).owner, pinfold.show(&third).parent), ("claude-abc".into(), Some("above".into())));
    let (mut left, mut right) = (Agent::connect(&pinfold), Agent::connect(&pinfold));
    let (mine, yours) = (left.background("exec sleep 300"), right.background("exec sleep 300"));
    assert_ne!(pinfold.show(&mine).owner, pinfold.show(&yours).owner);
    assert!(left.call("process_output", json!({ "id": yours })).is_error);
    // An option overrides all claims, and a malformed one is an error.
    let mut said = Agent::connect_with(shim(&pinfold, &["--owner", "me", "--parent", "boss"]));
    let fourth = said.call_as(one, "execute", start.clone()).id().to_owned();
    assert_eq!((pinfold.show(&fourth).owner, pinfold.show(&fourth).parent), ("me".into(), Some("boss".into())));
    for meta in [json!({ "threadId": "a\nb" }), json!({ "threadId": 7 }), json!({ "threadId": "" })] {
        assert!(agent.call_as(meta.clone(), "process_list", json!({})).is_error, "{meta}");
    }
}
