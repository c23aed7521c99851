//! How long each real client waits for a call, and that a call returns before the client gives up. Checks the timeouts
//! that `call_timeout.rs` of the server assumes, with the client's own timeout set to a short value.

use std::path::Path;
use std::process::Command;

use pinfold_testkit::{Pinfold, Setup};
use serde_json::{Value, json};

use crate::PINFOLD;
use pinfold_clients::agents::{Agent, ServerAccess};
use pinfold_clients::chat::Chat;

/// The client's own timeout for a call, in seconds, and a call that takes longer; progress is sent every 3 s.
const OWN: u64 = 7;
const LONGER: u64 = 16;

/// Changes a file of JSON.
fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let text = std::fs::read_to_string(path).expect("a configuration");
    let mut value = serde_json::from_str(&text).expect("JSON");
    change(&mut value);
    std::fs::write(path, value.to_string()).expect("a configuration");
}

fn replace(path: &Path, old: &str, new: &str) {
    let text = std::fs::read_to_string(path).expect("a configuration");
    assert!(text.contains(old), "{text}");
    std::fs::write(path, text.replace(old, new)).expect("a configuration");
}

/// Sets the client's own timeout for calls of the server.
fn set_timeout(agent: Agent, command: &mut Command, scratch: &Path) {
    match agent {
        Agent::Codex => replace(
            &scratch.join("home/.codex/config.toml"),
            "[mcp_servers.pinfold]\n",
            &format!("[mcp_servers.pinfold]\ntool_timeout_sec = {OWN}\n"),
        ),
        Agent::Claude => {
            command.env("CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT", (OWN * 1000).to_string());
        }
        Agent::Gemini => edit(&scratch.join("home/.gemini/settings.json"), |settings| {
            settings["mcpServers"]["pinfold"]["timeout"] = json!(OWN * 1000);
        }),
        Agent::Opencode => edit(&scratch.join("work/opencode.json"), |config| {
            config["mcp"]["pinfold"]["timeout"] = json!(OWN * 1000);
        }),
    }
}

/// Starts the server with these arguments.
pub(crate) fn set_arguments(agent: Agent, scratch: &Path, arguments: &[&str]) {
    let all: Vec<&str> = ["mcp"].into_iter().chain(arguments.iter().copied()).collect();
    match agent {
        Agent::Codex => {
            replace(&scratch.join("home/.codex/config.toml"), "args = [\"mcp\"]", &format!("args = {all:?}"));
        }
        Agent::Claude => edit(&scratch.join("home/mcp.json"), |config| {
            config["mcpServers"]["pinfold"]["args"] = json!(all);
        }),
        Agent::Gemini => edit(&scratch.join("home/.gemini/settings.json"), |settings| {
            settings["mcpServers"]["pinfold"]["args"] = json!(all);
        }),
        Agent::Opencode => edit(&scratch.join("work/opencode.json"), |config| {
            let command: Vec<&str> = [PINFOLD].into_iter().chain(all).collect();
            config["mcp"]["pinfold"]["command"] = json!(command);
        }),
    }
}

fn chat(agent: Agent, pinfold: &Pinfold, change: impl FnOnce(&mut Command, &Path)) -> Option<Chat> {
    let way = ServerAccess::of(pinfold);
    Some(Chat::start_changed(&agent.installed()?, &way, change))
}

/// A call that takes longer than the client's own timeout, with progress.
fn outlasts(agent: Agent, progress_extends: bool) -> Option<()> {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut chat = chat(agent, &pinfold, |command, scratch| set_timeout(agent, command, scratch))?;
    let arguments = json!({ "command": format!("sleep {LONGER}; echo over; exit 5"), "timeout": "60s" });
    let seen = chat.call("execute", &arguments);
    match progress_extends {
        true => assert_eq!(seen.get("exit_code"), "5", "{seen}"),
        false => assert!(seen.text.contains("timed out") && !seen.text.contains("exit_code"), "{seen}"),
    }
    chat.end();
    Some(())
}

#[test]
fn progress_does_not_make_codex_wait_longer() {
    outlasts(Agent::Codex, false);
}

#[test]
fn progress_makes_claude_wait_longer() {
    outlasts(Agent::Claude, true);
}

#[test]
fn progress_does_not_make_gemini_wait_longer() {
    outlasts(Agent::Gemini, false);
}

#[test]
fn progress_makes_opencode_wait_longer() {
    outlasts(Agent::Opencode, true);
}

/// A call that reaches the limit, wherever that is configured, returns the id, the output so far and a note.
fn hands_over(agent: Agent, config: &str, change: impl FnOnce(&mut Command, &Path)) -> Option<()> {
    let pinfold = Pinfold::prepare(PINFOLD, Setup { config: config.to_owned(), ..Setup::default() });
    let mut chat = chat(agent, &pinfold, change)?;
    let arguments = json!({ "command": "echo started; exec sleep 300", "timeout": "10m" });
    let seen = chat.call("execute", &arguments);
    assert_eq!(seen.get("state"), "running", "{seen}");
    assert!(seen.text.contains("started") && seen.text.contains("waited 4s, not longer"), "{seen}");
    let stopped = chat.call("process_signal", &json!({ "id": seen.get("id") }));
    assert!(stopped.text.contains("its whole tree is gone"), "{stopped}");
    chat.end();
    Some(())
}

fn hands_over_by_option(agent: Agent) {
    hands_over(agent, "", |_, scratch| set_arguments(agent, scratch, &["--longest-call", "4"]));
}

#[test]
fn a_call_of_codex_is_handed_over_at_the_limit() {
    hands_over_by_option(Agent::Codex);
}

#[test]
fn a_call_of_claude_is_handed_over_at_the_limit() {
    hands_over_by_option(Agent::Claude);
}

#[test]
fn a_call_of_gemini_is_handed_over_at_the_limit() {
    hands_over_by_option(Agent::Gemini);
}

#[test]
fn a_call_of_opencode_is_handed_over_at_the_limit() {
    hands_over_by_option(Agent::Opencode);
}

#[test]
fn the_limit_may_stand_in_the_configuration() {
    hands_over(Agent::Codex, "[mcp]\nlongest_call = \"4s\"\n", |_, _| {});
}

/// Claude Code passes its own limit for a call in the environment of the server.
#[test]
fn a_call_of_claude_is_handed_over_before_its_own_limit() {
    hands_over(Agent::Claude, "", |command, _| {
        command.env("MCP_TOOL_TIMEOUT", "5000");
    });
}
