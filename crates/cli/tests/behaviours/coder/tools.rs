//! The tools of coder's chats: `pinfold mcp --shape coder`.

use pinfold_testkit::{Pinfold, until};
use serde_json::{Value, json};

use super::Client;
use crate::PINFOLD;
use crate::mcp::agent::{Agent, Called, shim};

fn agent(pinfold: &Pinfold) -> Agent {
    Agent::connect_with(shim(pinfold, &["--shape", "coder"]))
}

/// The result of a call, which is also JSON in its text.
#[track_caller]
fn result(called: &Called) -> Value {
    assert!(!called.is_error, "{}", called.text);
    let said: Value = serde_json::from_str(&called.text).unwrap_or_else(|_| panic!("no JSON: {}", called.text));
    assert_eq!(said, called.facts, "text and structured content differ");
    said
}

/// The text of a tool error.
#[track_caller]
fn error(called: &Called) -> &str {
    assert!(called.is_error, "{}", called.text);
    &called.text
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.retain(|key| *key != "news");
    keys.sort_unstable();
    keys
}

#[test]
fn execute_shapes() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = agent(&pinfold);

    let good = result(&agent.call("execute", json!({ "command": "echo hi; echo $CODER_CHAT_AGENT $NO_COLOR $TERM" })));
    assert_eq!(keys(&good), ["exit_code", "output", "state", "success", "wall_duration_ms"]);
    assert_eq!((&good["success"], &good["exit_code"]), (&json!(true), &json!(0)));
    assert_eq!(good["output"], "hi\ntrue 1 dumb\n");
    assert!(good["wall_duration_ms"].is_u64());

    let bad = result(&agent.call("execute", json!({ "command": "echo oops; exit 42", "model_intent": "Failing" })));
    assert_eq!((&bad["success"], &bad["exit_code"], &bad["output"]), (&json!(false), &json!(42), &json!("oops\n")));
    assert!(bad.get("error").is_none() && bad.get("model_intent").is_none(), "{bad}");

    let started = result(&agent.call("execute", json!({ "command": "sleep 300", "run_in_background": true })));
    let fields = ["background_process_id", "backgrounded", "exit_code", "state", "success", "wall_duration_ms"];
    assert_eq!(keys(&started), fields);
    assert_eq!(
        (&started["success"], &started["exit_code"], &started["backgrounded"]),
        (&json!(true), &json!(0), &json!(true))
    );
    assert_eq!(started["wall_duration_ms"], 0);

    let slow = result(&agent.call("execute", json!({ "command": "echo started; sleep 300", "timeout": "4s" })));
    assert_eq!((&slow["success"], &slow["exit_code"]), (&json!(false), &json!(-1)));
    assert_eq!(slow["error"], "command timed out after 4s");
    assert_eq!(
        (&slow["output"], &slow["reason"], &slow["state"]),
        (&json!("started\n"), &json!("timeout"), &json!("running"))
    );
    let id = slow["background_process_id"].as_str().expect("an id").to_owned();
    assert!(slow.get("backgrounded").is_none(), "not requested");
    assert_eq!(
        result(&agent.call("process_output", json!({ "process_id": id, "wait_timeout": "0s" })))["running"],
        true
    );
    let none = result(&agent.call("execute", json!({ "command": "sleep 300", "timeout": "-5s" })));
    assert_eq!(none["error"], "command timed out after 0s");
    assert!(none["background_process_id"].is_string(), "the id is never lost");

    let killed = result(&agent.call("execute", json!({ "command": "kill -9 $$" })));
    assert_eq!(
        (&killed["exit_code"], &killed["signal"], &killed["success"]),
        (&json!(137), &json!("KILL"), &json!(false))
    );
    let nowhere = result(&agent.call("execute", json!({ "command": "true", "workdir": "/nope" })));
    let why = nowhere["error"].as_str().expect("an error");
    assert!(why.starts_with("start process: ") && why.contains("/nope"), "{why}");
    let nowhere = json!({ "command": "true", "workdir": "/nope", "run_in_background": true });
    let nowhere = result(&agent.call("execute", nowhere));
    assert!(nowhere["error"].as_str().is_some_and(|why| why.starts_with("start background process: ")), "{nowhere}");
    assert_eq!(result(&agent.call("execute", json!({ "command": "pwd", "workdir": "/usr" })))["output"], "/usr\n");

    let long = result(&agent.call("execute", json!({ "command": "seq 1 20000" })));
    let text = long["output"].as_str().expect("a text");
    assert!(text.len() <= 32_768 && text.starts_with("1\n2\n") && text.ends_with("\n20000\n"), "the tail is never cut");
    let omitted = long["truncated"]["omitted_bytes"].as_u64().expect("a count");
    assert!(text.contains(&format!("... [omitted {omitted} bytes] ...")));
    assert_eq!(long["truncated"]["original_bytes"], 108_894);
    assert_eq!(
        (&long["truncated"]["strategy"], &long["truncated"]["retained_bytes"]),
        (&json!("head_tail"), &json!(text.len()))
    );

    for (arguments, message) in [
        (json!({}), "command is required"),
        (json!({ "command": "" }), "command is required"),
        (
            json!({ "command": "true", "timeout": "30" }),
            "invalid timeout \"30\": time: missing unit in duration \"30\"",
        ),
        (json!({ "command": "true", "timeout": "soon" }), "invalid timeout \"soon\": time: invalid duration \"soon\""),
    ] {
        assert_eq!(error(&agent.call("execute", arguments)), message);
    }
    for arguments in
        [json!({ "command": 7 }), json!({ "command": "true", "timeout": 30 }), json!({ "Command": "true" })]
    {
        let called = agent.call("execute", arguments);
        assert!(error(&called).starts_with("invalid parameters: "), "{}", called.text);
    }
}

/// The daemon dies while a call waits for a command: the result is the same as without.
#[test]
fn execute_shapes_over_a_crash() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = agent(&pinfold);
    let gate = pinfold.home().join("gate");
    let command = format!("echo started; while [ ! -e {} ]; do sleep 0.02; done; echo done", gate.display());
    let call = agent.begin_call("execute", json!({ "command": command, "timeout": "40s" }));
    until("it runs", || pinfold.list(&Default::default()).total == 1);
    pinfold.kill_daemon();
    std::fs::write(gate, "").expect("an open gate");
    let answer = agent.answer(call);
    let facts = &answer["result"]["structuredContent"];
    assert_eq!((&facts["success"], &facts["output"]), (&json!(true), &json!("started\ndone\n")), "{answer}");
    assert!(facts.get("background_process_id").is_none());
}

#[test]
fn ampersand_promotion() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = agent(&pinfold);
    for (command, runs) in [("sleep 300 &", "sleep 300"), ("true && sleep 300 &", "true && sleep 300")] {
        let called = result(&agent.call("execute", json!({ "command": command })));
        assert_eq!((&called["backgrounded"], &called["success"]), (&json!(true), &json!(true)), "{command}");
        let id = called["background_process_id"].as_str().expect("an id");
        assert_eq!(pinfold.show(id).command, runs);
    }
    // With an explicit background option the command is passed unchanged.
    let called = agent.call("execute", json!({ "command": "sleep 300 &", "run_in_background": true }));
    let id = result(&called)["background_process_id"].as_str().expect("an id").to_owned();
    assert_eq!(pinfold.show(&id).command, "sleep 300 &");
    for (command, output) in
        [("echo a \\&", "a &\n"), ("echo hi #&", "hi\n"), ("echo 'a &'", "a &\n"), ("echo a # b &", "a\n")]
    {
        let called = result(&agent.call("execute", json!({ "command": command })));
        assert_eq!(called["output"], output, "{command}");
        assert!(called.get("backgrounded").is_none() && called.get("background_process_id").is_none(), "{command}");
    }
    for command in ["true &&", "true |&"] {
        let called = result(&agent.call("execute", json!({ "command": command })));
        assert!(called.get("backgrounded").is_none(), "{command}");
        assert_eq!(called["success"], false, "the shell itself says what is wrong: {called}");
    }
}

#[test]
fn process_output_defaults() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = agent(&pinfold);
    let id = result(&agent.call("execute", json!({ "command": "echo up; sleep 3000", "run_in_background": true })))
        ["background_process_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    until("it speaks", || pinfold.text(&id) == "up\n");
    for timeout in ["0s", "0", "-1s", "50ms"] {
        let running = result(&agent.call("process_output", json!({ "process_id": id, "wait_timeout": timeout })));
        assert_eq!(
            (&running["success"], &running["exit_code"], &running["running"]),
            (&json!(true), &json!(0), &json!(true))
        );
        assert_eq!((&running["note"], &running["output"]), (&json!("process is still running"), &json!("up\n")));
        assert_eq!((&running["command"], &running["state"]), (&json!("echo up; sleep 3000"), &json!("running")));
        assert_eq!((&running["wall_duration_ms"], &running["reason"]), (&json!(0), &json!("timeout")));
    }
    // By default it waits for ten seconds and does not return at once.
    let started = std::time::Instant::now();
    assert_eq!(result(&agent.call("process_output", json!({ "process_id": id })))["running"], true);
    assert!(started.elapsed().as_secs() >= 10);
    for timeout in ["30", "soon", ""] {
        let called = agent.call("process_output", json!({ "process_id": id, "wait_timeout": timeout }));
        assert!(error(&called).starts_with(&format!("invalid wait_timeout {timeout:?}: time: ")), "{}", called.text);
    }
    assert_eq!(error(&agent.call("process_output", json!({}))), "process_id is required");
    let unknown = result(&agent.call("process_output", json!({ "process_id": "zzzzzz" })));
    assert!(unknown["error"].as_str().is_some_and(|why| why.starts_with("get process output: ")), "{unknown}");
    assert_eq!((&unknown["success"], &unknown["background_process_id"]), (&json!(false), &json!("zzzzzz")));
    // An end wakes it.
    let call = agent.begin_call("process_output", json!({ "process_id": id, "wait_timeout": "1h" }));
    pinfold.signal(&id, "TERM").expect("a signal");
    let ended = agent.answer(call)["result"]["structuredContent"].clone();
    assert_eq!(
        (&ended["success"], &ended["exit_code"], &ended["signal"]),
        (&json!(false), &json!(143), &json!("TERM"))
    );
    assert_eq!((&ended["output"], &ended["command"]), (&json!("up\n"), &json!("echo up; sleep 3000")));
    assert!(ended.get("running").is_none() && ended.get("note").is_none(), "{ended}");
}

#[test]
fn process_signal_texts() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = agent(&pinfold);
    for (arguments, message) in [
        (json!({}), "process_id is required"),
        (json!({ "signal": "kill" }), "process_id is required"),
        (json!({ "process_id": "x" }), "signal must be \"terminate\" or \"kill\""),
        (json!({ "process_id": "x", "signal": "KILL" }), "signal must be \"terminate\" or \"kill\""),
    ] {
        assert_eq!(error(&agent.call("process_signal", arguments)), message);
    }
    for (signal, code) in [("terminate", 143), ("kill", 137)] {
        let started = json!({ "command": "setsid sleep 300 & sleep 300; :", "run_in_background": true });
        let id = result(&agent.call("execute", started))["background_process_id"].as_str().expect("an id").to_owned();
        pinfold.until_tree(&id, 3);
        let sent = result(&agent.call("process_signal", json!({ "process_id": id, "signal": signal })));
        assert_eq!(sent["success"], true);
        assert_eq!(sent["message"], format!("signal \"{signal}\" sent to process {id}"));
        pinfold.wait_finished(&id);
        let output = result(&agent.call("process_output", json!({ "process_id": id })));
        assert_eq!((&output["exit_code"], &output["state"]), (&json!(code), &json!("finished")));
        let again = result(&agent.call("process_signal", json!({ "process_id": id, "signal": signal })));
        assert!(again["error"].as_str().is_some_and(|why| why.starts_with("signal process: ")), "{again}");
        assert_eq!(again["success"], false);
    }
}

#[test]
fn process_list_is_the_agents_object() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = agent(&pinfold);
    assert_eq!(result(&agent.call("process_list", json!({}))), json!({ "processes": [], "total": 0 }));
    for _ in 0..12 {
        agent.call("execute", json!({ "command": "exit 3", "workdir": "/usr" }));
    }
    for _ in 0..11 {
        agent.call("execute", json!({ "command": "sleep 300", "run_in_background": true }));
    }
    let list = result(&agent.call("process_list", json!({})));
    let entries = list["processes"].as_array().expect("a list");
    assert_eq!((entries.len(), &list["total"]), (21, &json!(23)), "all that run, and ten that ended");
    assert!(entries[..11].iter().all(|entry| entry["running"] == true && entry["background"] == true));
    let ended = &entries[11];
    assert_eq!(
        (&ended["running"], &ended["background"], &ended["exit_code"]),
        (&json!(false), &json!(false), &json!(3))
    );
    assert_eq!((&ended["command"], &ended["workdir"]), (&json!("exit 3"), &json!("/usr")));
    // The same processes at `/api/v0`, where the operator sees them.
    assert_eq!(Client::new(&pinfold).list().len(), 21);
}

#[test]
fn plan_mode_tools() {
    let pinfold = Pinfold::start(PINFOLD);
    let names = |agent: &mut Agent| {
        let list = agent.request("tools/list", json!({}))["result"]["tools"].clone();
        let names =
            list.as_array().expect("tools").iter().map(|tool| tool["name"].as_str().expect("a name").to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&mut agent(&pinfold)), ["execute", "process_output", "process_list", "process_signal"]);
    let restricted = ["--shape", "coder", "--tools", "execute,process_output"];
    let mut plan = Agent::connect_with(shim(&pinfold, &restricted));
    assert_eq!(names(&mut plan), ["execute", "process_output"]);
    assert_eq!(result(&plan.call("execute", json!({ "command": "echo hi" })))["output"], "hi\n");
    let refused = plan.request("tools/call", json!({ "name": "process_list", "arguments": {} }));
    assert!(refused["error"]["message"].as_str().is_some_and(|message| message.contains("no tool")), "{refused}");
}
