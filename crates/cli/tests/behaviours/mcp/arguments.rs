//! Arguments that a model may give, and the errors for wrong ones.

use pinfold_testkit::Pinfold;
use serde_json::{Value, json};

use super::agent::Agent;
use crate::PINFOLD;

#[test]
fn durations_any_form() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    for timeout in [json!(30), json!("30"), json!("30s"), json!("5m"), json!(1.5), json!("1h30m"), json!(null)] {
        let called = agent.call("execute", json!({ "command": "echo hi", "timeout": timeout }));
        assert_eq!((called.output(), &called.facts["exit_code"]), ("hi\n", &json!(0)), "{timeout}");
    }
    // 0 means do not wait: the command keeps running.
    let called = agent.call("execute", json!({ "command": "exec sleep 300", "timeout": 0 }));
    assert_eq!((&called.facts["state"], called.is_error), (&json!("running"), false), "{}", called.text);
    let id = called.id().to_owned();
    let called = agent.call("process_wait", json!({ "id": id, "timeout": "0s" }));
    assert_eq!((&called.facts["reason"], called.is_error), (&json!("timeout"), false));
    for timeout in [json!(-1), json!("-5s"), json!("soon"), json!(""), json!("1e9"), json!([30]), json!(true)] {
        let (run, of_id) = (json!({ "command": "true" }), json!({ "id": id }));
        for (tool, key, right) in
            [("execute", "timeout", &run), ("process_wait", "quiet", &of_id), ("process_signal", "grace", &of_id)]
        {
            let mut arguments = right.clone();
            arguments[key] = timeout.clone();
            let called = agent.call(tool, arguments);
            assert!(
                called.is_error && called.facts["error"].as_str().is_some_and(|text| text.contains("30")),
                "{timeout}"
            );
            assert!(called.facts["right_call"].as_str().is_some_and(|call| call.starts_with(tool)), "{}", called.text);
        }
    }
}

#[test]
fn argument_hygiene() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let called = agent.call("execute", json!({ "command": "echo hi" }));
    assert_eq!(called.output(), "hi\n");
    let wrong = [
        (json!({ "command": "true", "reasoning": "because" }), "no argument `reasoning`: there are command, workdir,"),
        (json!({ "command": "true", "workdir": "/", "cwd": "/tmp" }), "`workdir` is given twice"),
        (json!({}), "`command` is missing"),
        (json!({ "command": "  " }), "`command` is empty"),
        (json!({ "command": 7 }), "`command` must be a text"),
        (json!({ "command": ["ls", "-l"] }), "`command` must be a text"),
        (json!({ "Command": "true" }), "write `command`"),
        (json!({ "command": "true", "maxOutput": 5 }), "write `max_output`"),
        (json!({ "command": "true", "background": "true" }), "`background` must be true or false"),
        (json!({ "command": "true", "env": { "A": 1 } }), "`env.A` must be a text"),
        (json!({ "command": "true", "max_output": "lots" }), "`max_output`"),
        (json!({ "command": "true", "max_tokens": -3 }), "`max_tokens` must be a whole number"),
        (json!({ "command": "true", "lifetime": "forever" }), "not one of keep, owner, parent"),
        (json!({ "command": "true", "notify": { "patterns": "x" } }), "`notify`"),
        (json!({ "command": "true", "notify": { "patterns": ["("] } }), "regular expression"),
    ];
    for (arguments, said) in wrong {
        let called = agent.call("execute", arguments.clone());
        assert!(called.is_error && called.text.contains(said), "{arguments}: {}", called.text);
        assert!(called.text.contains("execute {") || said.contains("regular"), "{}", called.text);
    }
    let doubled = r#"{"command":"echo one","command":"echo two"}"#;
    let deep = r#"{"command":"true","env":{"A":"1","A":"2"}}"#;
    for (number, arguments, key) in [(801, doubled, "`command`"), (802, deep, "`env.A`")] {
        agent.send_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"execute","arguments":{arguments}}}}}"#
        ));
        let called = agent.called(number);
        assert!(called.is_error && called.text.contains(&format!("{key} is given twice")), "{}", called.text);
    }
    // A line that is not a message is ignored, and the next call is answered.
    agent.send_line("{ this is no JSON");
    agent.send_line(r#"{"jsonrpc":"2.0","method":"notifications/unheard_of"}"#);
    assert_eq!(agent.call("process_list", json!({})).facts["total"], 1, "only one command ran");
    for (tool, arguments, said) in [
        ("process_output", json!({}), "`id` is missing"),
        ("process_output", json!({ "id": "x", "cursor": 1, "tail": 5 }), "not both"),
        ("process_wait", json!({}), "`id` is missing"),
        ("process_wait", json!({ "id": "x", "ids": ["y"] }), "not both"),
        ("process_wait", json!({ "id": "x", "until": "moon" }), "not one of exit"),
        ("process_wait", json!({ "id": "x", "until": "match" }), "`pattern` is missing"),
        ("process_wait", json!({ "id": "x", "port": 70000 }), "no TCP port"),
        ("process_signal", json!({ "id": "x", "signal": "INT", "grace": 1 }), "belongs to a stop"),
        ("process_list", json!({ "status": "sleepy" }), "sleepy"),
    ] {
        let called = agent.call(tool, arguments.clone());
        assert!(called.is_error && called.text.contains(said), "{tool} {arguments}: {}", called.text);
        assert!(called.facts["right_call"].as_str().is_some_and(|call| call.starts_with(tool)), "{}", called.text);
    }
}

/// An ignored argument could run a command in the wrong directory.
#[test]
fn names_from_other_tools_are_understood() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let directory = pinfold.home().join("elsewhere");
    std::fs::create_dir(&directory).expect("a directory");
    let elsewhere = directory.to_str().expect("UTF-8");
    for name in ["workdir", "cwd", "dir", "working_directory", "workingDirectory"] {
        let called = agent.call("execute", json!({ "cmd": "pwd -P", name: elsewhere, "description": "where it is" }));
        assert_eq!(called.output(), format!("{elsewhere}\n"), "{name}: {}", called.text);
    }
    for name in ["run_in_background", "is_background"] {
        let called = agent.call("execute", json!({ "command": "exec sleep 300", name: true }));
        assert_eq!(called.facts["state"], "running", "{name}: {}", called.text);
        let stopped = agent.call("process_signal", json!({ "process_id": called.id() }));
        assert_eq!(stopped.facts["cause"], "stop_requested", "{}", stopped.text);
    }
}

/// Other shell tools take milliseconds.
#[test]
fn a_large_bare_timeout_is_milliseconds() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let called = agent.call("execute", json!({ "command": "echo hi", "timeout": 120_000 }));
    assert_eq!(called.output(), "hi\n");
    assert!(called.text.contains("120000 was taken as milliseconds (120s)"), "{}", called.text);
    let called = agent.call("execute", json!({ "command": "echo hi", "timeout_ms": 120_000 }));
    assert!(called.output() == "hi\n" && !called.text.contains("milliseconds"), "{}", called.text);
}

#[test]
fn errors_two_kinds() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let failing = agent.execute("echo out; exit 9");
    assert!(!failing.is_error, "a failing command is a result");
    assert_eq!((failing.output(), &failing.facts["exit_code"]), ("out\n", &json!(9)));
    let killed = agent.execute("kill -9 $$");
    assert_eq!((killed.is_error, &killed.facts["exit_code"]), (false, &Value::Null));
    assert!(killed.facts["signal"].as_str().is_some_and(|signal| signal.contains("KILL")), "{}", killed.text);
    let bad = agent.call("process_signal", json!({ "id": failing.id(), "signal": "NOPE" }));
    assert!(bad.is_error && bad.text.contains("NOPE"), "{}", bad.text);
    let lost = agent.call("process_output", json!({ "id": "zzzzzz" }));
    assert!(lost.is_error && lost.text.contains("process_list"), "{}", lost.text);
    assert!(lost.facts["error"].is_string() && lost.facts["code"] == "not_found");
}

#[test]
fn missing_shell_advice() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let called = agent.call("execute", json!({ "command": "true", "shell": "no-such-shell" }));
    assert!(called.is_error && called.text.contains("`no-such-shell`"), "{}", called.text);
    assert!(called.text.contains("install it, or name another"), "{}", called.text);
    let called = agent.call("execute", json!({ "command": "true", "workdir": "/no/such/place" }));
    assert!(called.is_error && called.text.contains("`/no/such/place`"), "{}", called.text);
    assert_eq!(agent.call("process_list", json!({})).facts["total"], 0);
}

#[test]
fn an_error_about_input_shows_how_to_give_it() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let id = agent.background("exec sleep 300");
    let called = agent.call("process_input", json!({ "id": id, "text": "yes\n" }));
    assert!(called.is_error, "{}", called.text);
    let right = called.facts["right_call"].as_str().expect("a right call");
    let arguments: Value = serde_json::from_str(right.strip_prefix("execute ").expect("execute")).expect("JSON");
    // The example in the error works with a program that reads.
    let mut arguments = arguments;
    arguments["command"] = json!("tr a-z A-Z");
    let id = agent.call("execute", arguments).id().to_owned();
    let called = agent.call("process_input", json!({ "id": id, "text": "yes\n", "eof": true }));
    assert_eq!(called.output(), "YES\n", "{}", called.text);
}
