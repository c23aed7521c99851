//! The shim (`pinfold mcp`) can be killed at any time without losing anything.

use std::os::unix::process::CommandExt;

use pinfold_api::types::{Cause, Status, WaitQuery, WaitReason};
use pinfold_testkit::{Pidfd, Pinfold, Setup, alive, children_of, until};
use serde_json::json;

use super::agent::{Agent, shim};
use crate::PINFOLD;

/// Waits until the shim has exited; returns whether its exit code is 0.
fn gone(agent: &mut Agent) -> bool {
    let mut status = None;
    until("the shim leaves", || {
        status = agent.shim.try_wait().expect("our child");
        status.is_some()
    });
    status.is_some_and(|status| status.success())
}

#[test]
fn shim_exit_fast() {
    let pinfold = Pinfold::start(PINFOLD);
    let daemon = pinfold.daemon_pid();
    for signal in [None, Some(2), Some(15)] {
        let mut agent = Agent::connect(&pinfold);
        let id = agent.background("exec sleep 300");
        agent.begin_call("process_wait", json!({ "id": id, "timeout": "10m" }));
        agent.call("process_list", json!({}));
        match signal {
            None => agent.hang_up(),
            Some(signal) => Pidfd::open(agent.shim.id()).expect("a shim").signal(signal),
        }
        assert!(gone(&mut agent), "{signal:?}");
        assert!(alive(daemon) && pinfold.show(&id).status == Status::Running);
    }
}

/// The id may be written first or last; the sender gets an error, and the connection continues.
#[test]
fn a_request_that_is_too_long_is_answered() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let long = "x".repeat(30_000_000);
    let params = format!(r#""params":{{"name":"execute","arguments":{{"id":5,"command":"{long}"}}}}"#);
    agent.send_line(&format!(r#"{{"jsonrpc":"2.0","id":9001,"method":"tools/call",{params}}}"#));
    agent.send_line(&format!(r#"{{"method":"tools/call",{params},"jsonrpc":"2.0","id":9002}}"#));
    for id in [9001, 9002] {
        let answer = agent.answer(id);
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(message.contains("16777216 bytes") && message.contains("file"), "{message}");
    }
    assert_eq!(agent.execute("echo fine").output(), "fine\n");
}

#[test]
fn shim_group_killed() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut command = shim(&pinfold, &[]);
    // As codex does: its own process group, TERM to all of it, then KILL.
    command.process_group(0);
    let mut agent = Agent::connect_with(command);
    let id = agent.background("exec sleep 300");
    let (daemon, group) = (pinfold.daemon_pid(), agent.shim.id());
    for signal in ["-TERM", "-KILL"] {
        // The shim is not reaped, so its group id cannot have been reused.
        let _ = std::process::Command::new("kill").args([signal, "--", &format!("-{group}")]).output();
    }
    until("the shim is gone", || !alive(group));
    assert!(alive(daemon) && pinfold.show(&id).status == Status::Running);
}

/// However the shim ends, processes with `lifetime` owner end with it, and others are kept.
#[test]
fn client_death_policy() {
    let pinfold = Pinfold::start(PINFOLD);
    let clients = [1, 2, 9, 15].map(|signal| {
        let mut agent = Agent::connect_with(shim(&pinfold, &["--lifetime", "owner", "--owner-grace", "5s"]));
        let bound = agent.background("sleep 300 & exec sleep 300");
        let kept =
            agent.call("execute", json!({ "command": "exec sleep 300", "background": true, "lifetime": "keep" }));
        (signal, agent, bound, kept)
    });
    // The shim keeps its owner in contact while it runs, without any call.
    let grace_over = WaitQuery { timeout: Some("7s".into()), ..WaitQuery::default() };
    assert_eq!(pinfold.wait(&clients[3].2, &grace_over).reason, WaitReason::Timeout);
    for (signal, agent, bound, kept) in clients {
        assert_eq!(pinfold.show(&bound).status, Status::Running, "signal {signal}");
        Pidfd::open(agent.shim.id()).expect("a shim").signal(signal);
        let record = pinfold.wait_finished(&bound);
        assert_eq!((record.cause, record.tree.len()), (Some(Cause::OwnerEnded), 0), "signal {signal}");
        assert_eq!(pinfold.show(kept.id()).status, Status::Running);
    }
}

#[test]
fn shim_starts_a_daemon_that_is_not_its_child() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut agent = Agent::connect(&pinfold);
    let id = agent.background("exec sleep 300");
    let daemon = pinfold.daemon_pid();
    // As opencode does: TERM to every descendant of its server, found by parent pid.
    let mut descendants = children_of(agent.shim.id());
    let mut next = 0;
    while next < descendants.len() {
        descendants.extend(children_of(descendants[next]));
        next += 1;
    }
    for pid in descendants {
        Pidfd::open(pid).expect("a descendant of our shim").signal(15);
    }
    agent.hang_up();
    assert!(gone(&mut agent));
    assert_eq!(pinfold.daemon_pid(), daemon, "the daemon left with the shim's descendants");
    assert_eq!(pinfold.show(&id).status, Status::Running);
}

#[test]
fn works_with_env_whitelist() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let home = pinfold.home().display().to_string();
    let mut command = std::process::Command::new(PINFOLD);
    command.args(["--home", &home, "mcp"]).env_clear().current_dir("/");
    for (name, value) in
        [("HOME", home.as_str()), ("PATH", "/usr/bin:/bin"), ("USER", "x"), ("LANG", "C"), ("TERM", "xterm")]
    {
        command.env(name, value);
    }
    let mut agent = Agent::connect_with(command);
    let called = agent.execute("echo $HOME; cd; pwd");
    assert_eq!(called.output(), format!("{home}\n{home}\n"), "{}", called.text);
    let id = agent.background("exec sleep 300");
    assert_eq!(agent.call("process_list", json!({})).facts["processes"][0]["id"], id.as_str());
    assert_eq!(agent.call("process_signal", json!({ "id": id })).facts["cause"], "stop_requested");
}

#[test]
fn server_ready_under_1s() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut agent = Agent::connect(&pinfold);
    assert_eq!(agent.request("tools/list", json!({}))["result"]["tools"].as_array().map(Vec::len), Some(6));
    assert_eq!(agent.execute("echo cold").output(), "cold\n");
    // An error that prevents the daemon from starting does not fail the handshake; the first call reports it.
    let broken = Pinfold::prepare(PINFOLD, Setup { config: "no such = \"setting".into(), ..Setup::default() });
    let mut agent = Agent::connect(&broken);
    assert_eq!(agent.request("tools/list", json!({}))["result"]["tools"].as_array().map(Vec::len), Some(6));
    let called = agent.execute("true");
    assert!(called.is_error && called.text.contains("config.toml"), "{}", called.text);
    drop(agent);
    let _ = std::fs::remove_file(broken.home().join("config.toml"));
}

#[test]
fn transport_error_recovery() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let gate = crate::requests::Gate::new(&pinfold, "gate");
    let command = format!("echo run; {}; exit 7", gate.wait());
    let running = agent.begin_call("execute", json!({ "command": command, "timeout": "40s" }));
    until("the command is there", || pinfold.list(&Default::default()).total == 1);
    pinfold.kill_daemon();
    let id = agent.call("process_list", json!({})).facts["processes"][0]["id"].as_str().expect("an id").to_owned();
    let waiting = agent.begin_call("process_wait", json!({ "id": id, "timeout": "40s" }));
    agent.call("process_list", json!({}));
    pinfold.kill_daemon();
    gate.open();
    for call in [running, waiting] {
        let called = agent.called(call);
        assert_eq!((&called.facts["exit_code"], called.id()), (&json!(7), id.as_str()), "{}", called.text);
    }
    assert_eq!(agent.call("process_output", json!({ "id": id, "cursor": 0 })).output(), "run\n");
    assert_eq!(agent.call("process_list", json!({ "all": true })).facts["total"], 1);
}
