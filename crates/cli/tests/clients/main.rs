//! Tests with real agents: codex, Claude Code, gemini-cli and opencode, headless, against a scripted model on loopback.
//!
//! A test plays the model: it calls tools, and sees of each result exactly what the client sends back. `cargo xtask
//! clients` installs the agents in pinned versions below target/clients; one that is not installed is skipped, in a
//! line that says so. Every run has its own HOME, which is removed afterwards.

mod endurance;
mod hosted;
mod http;
mod interactive;
mod interrupts;
mod nested;
mod parallel;
mod resume;
mod scenarios;
mod shared;

use pinfold_api::types::Status;
use pinfold_clients::agents::Agent;
use pinfold_clients::chat::Chat;
use pinfold_testkit::{Pinfold, Setup, alive, until};
use serde_json::json;

/// The binary under test.
const PINFOLD: &str = env!("CARGO_BIN_EXE_pinfold");

/// Starts, lists, reads, fails, waits and stops; `None` if the client is not installed.
fn round_trip(agent: Agent) -> Option<()> {
    let program = agent.installed()?;
    // No daemon runs yet: the MCP server that the client starts also starts a daemon.
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut chat = Chat::start(&program, &pinfold);
    let up = chat.call("execute", &json!({ "command": "sleep 300 & echo up" }));
    assert_eq!((up.get("state"), up.get("exit_code")), ("lingering".into(), "0".into()), "{up}");
    assert!(up.text.contains("up\\n") || up.text.contains("up\n"), "{up}");
    let id = up.get("id");
    let listed = chat.call("process_list", &json!({}));
    assert!(listed.text.contains(&id) && listed.text.contains("sleep 300"), "{listed}");
    let read = chat.call("process_output", &json!({ "id": id, "cursor": 0 }));
    assert_eq!(read.get("id"), id, "{read}");
    assert!(read.text.contains("up\\n") || read.text.contains("up\n"), "{read}");
    let failed = chat.call("execute", &json!({ "command": "echo bad >&2; exit 3" }));
    assert_eq!((failed.is_over(), failed.get("exit_code")), (true, "3".into()), "{failed}");
    assert!(failed.text.contains("bad"), "{failed}");
    let slow = chat.call("execute", &json!({ "command": "sleep 3; echo late; exit 4", "background": true }));
    assert_eq!(slow.get("state"), "running", "{slow}");
    let waited = chat.call("process_wait", &json!({ "id": slow.get("id") }));
    assert_eq!(waited.get("exit_code"), "4", "{waited}");
    assert!(waited.text.contains("late"), "{waited}");
    let wrong = chat.call("process_output", &json!({ "id": "nosuch" }));
    assert!(wrong.text.contains("not_found") && wrong.text.contains("process_list"), "{wrong}");
    let stopped = chat.call("process_signal", &json!({ "id": id }));
    assert!(stopped.is_over(), "{stopped}");
    let owner = pinfold.show(&id).owner;
    assert!(pinfold.show(&id).tree.is_empty(), "something is left of {id}");
    let daemon = pinfold.daemon_pid();
    let printed = chat.end();
    assert_eq!(owner, agent.owner(&printed).unwrap_or(owner.clone()), "{printed}");
    assert!(owner.starts_with(agent.owner_prefix()), "{owner}");
    assert_eq!(pinfold.daemon_pid(), daemon, "the daemon left with the client");
    Some(())
}

// `start_list_read_stop_with_each_client`, one test for each client, so that they run in parallel.

#[test]
fn start_list_read_stop_with_each_client_codex() {
    round_trip(Agent::Codex);
}

#[test]
fn start_list_read_stop_with_each_client_claude() {
    round_trip(Agent::Claude);
}

#[test]
fn start_list_read_stop_with_each_client_gemini() {
    round_trip(Agent::Gemini);
}

#[test]
fn start_list_read_stop_with_each_client_opencode() {
    round_trip(Agent::Opencode);
}

/// Two chats of one client do not see each other's processes, and processes outlive their chat.
fn two_chats(agent: Agent) -> Option<()> {
    let program = agent.installed()?;
    let pinfold = Pinfold::start(PINFOLD);
    let mut first = Chat::start(&program, &pinfold);
    let id = first.call("execute", &json!({ "command": "exec sleep 300", "background": true })).get("id");
    let mut second = Chat::start(&program, &pinfold);
    let listed = second.call("process_list", &json!({}));
    assert!(!listed.text.contains(&id), "{listed}");
    let read = second.call("process_output", &json!({ "id": id }));
    assert!(read.text.contains("not_found"), "{read}");
    let stop = second.call("process_signal", &json!({ "id": id }));
    assert!(stop.text.contains("not_found"), "{stop}");
    let other = second.call("execute", &json!({ "command": "exec sleep 300", "background": true })).get("id");
    let (first, second) = (first.end(), second.end());
    let owners = [pinfold.show(&id).owner, pinfold.show(&other).owner];
    assert_eq!([Some(owners[0].clone()), Some(owners[1].clone())], [agent.owner(&first), agent.owner(&second)]);
    assert_ne!(owners[0], owners[1]);
    for id in [id, other] {
        assert_eq!(pinfold.show(&id).status, Status::Running, "{id} ended with its chat");
    }
    Some(())
}

#[test]
fn identity_from_meta_and_env_two_codex_chats_are_isolated() {
    two_chats(Agent::Codex);
}

#[test]
fn identity_from_meta_and_env_two_claude_chats_are_isolated() {
    two_chats(Agent::Claude);
}

/// Killing a client with its process group ends its MCP server, but neither the daemon nor any process.
fn killed(agent: Agent) -> Option<()> {
    let program = agent.installed()?;
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut chat = Chat::start(&program, &pinfold);
    let id = chat.call("execute", &json!({ "command": "exec sleep 300", "background": true })).get("id");
    let daemon = pinfold.daemon_pid();
    let servers = chat.servers();
    assert!(!servers.is_empty(), "no server runs");
    chat.kill_group();
    until("the servers of a killed client end", || servers.iter().all(|pid| !alive(*pid)));
    assert_eq!(pinfold.daemon_pid(), daemon);
    assert_eq!(pinfold.show(&id).status, Status::Running);
    Some(())
}

#[test]
fn shim_exit_fast_when_codex_is_killed_daemon_and_processes_live() {
    killed(Agent::Codex);
}

#[test]
fn shim_exit_fast_when_claude_is_killed_daemon_and_processes_live() {
    killed(Agent::Claude);
}
