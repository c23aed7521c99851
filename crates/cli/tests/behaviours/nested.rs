//! pinfold inside pinfold: a managed process knows its home, and what it starts ends with the chat.

use std::path::PathBuf;
use std::process::Command;

use pinfold_api::types::{AgentRequest, AgentStatus, Cause, Restart, RestartPolicy, StartRequest, Status};
use pinfold_testkit::{Pinfold, until, until_some};
use serde_json::{Value, json};

use crate::mcp::agent::Agent;
use crate::{PINFOLD, wire};

/// Prints the variable, and whether it is set.
const PRINT: &str = "echo \"${PINFOLD_HOME-unset}\"";

/// A command that gets this home as an option, and another home in its environment.
fn by_option(pinfold: &Pinfold, arguments: &[&str]) -> Command {
    let home = pinfold.home().to_string_lossy().into_owned();
    let mut command = pinfold.command(&[&["--home", &home], arguments].concat());
    command.env("PINFOLD_HOME", "/nowhere").env_remove("PINFOLD_OWNER").env_remove("CLAUDE_CODE_SESSION_ID");
    command
}

fn printed(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// The output of a process that is started over HTTP.
fn started(pinfold: &Pinfold, request: &StartRequest) -> String {
    let request = StartRequest { command: Some(PRINT.into()), ..request.clone() };
    let id = pinfold.start_request(&request).record.id;
    pinfold.wait_finished(&id);
    pinfold.text(&id).trim_end().to_owned()
}

#[test]
fn a_process_gets_its_home_in_the_environment_however_it_is_started() {
    let pinfold = Pinfold::start(PINFOLD);
    let home = pinfold.home().to_string_lossy().into_owned();
    for inherit_env in [Some(true), Some(false)] {
        assert_eq!(started(&pinfold, &StartRequest { inherit_env, ..StartRequest::default() }), home);
    }
    assert_eq!(printed(&mut by_option(&pinfold, &["run", PRINT])), home);
    let mut agent = Agent::connect_with(by_option(&pinfold, &["mcp"]));
    assert_eq!(agent.execute(PRINT).output().trim_end(), home);
    let mut coder = Agent::connect_with(by_option(&pinfold, &["mcp", "--shape", "coder"]));
    let ran = coder.call("execute", json!({ "command": PRINT }));
    assert!(ran.text.contains(&home), "{}", ran.text);
    let body = json!({ "command": PRINT }).to_string();
    let answer = wire::send(&pinfold, "POST", "/api/v0/processes/start", body.as_bytes());
    let id = serde_json::from_str::<Value>(&answer.body).expect("JSON")["id"].as_str().expect("an id").to_owned();
    let read = || wire::send(&pinfold, "GET", &format!("/api/v0/processes/{id}/output?wait=true"), b"").body;
    assert!(read().contains(&home), "{}", read());
}

#[test]
fn every_restart_of_a_service_gets_its_home_in_the_environment() {
    let pinfold = Pinfold::start(PINFOLD);
    let policy = RestartPolicy { when: "on_failure".into(), initial: Some("10ms".into()), ..RestartPolicy::default() };
    let request = StartRequest {
        command: Some(format!("{PRINT}; exit 1")),
        inherit_env: Some(false),
        restart: Some(Restart::Policy(policy)),
        ..StartRequest::default()
    };
    let first = pinfold.start_request(&request).record.id;
    let second = until_some("it is restarted", || pinfold.show(&first).life.and_then(|life| life.next));
    pinfold.wait_finished(&second);
    for id in [&first, &second] {
        assert_eq!(pinfold.text(id).trim_end(), pinfold.home().to_string_lossy());
    }
}

#[test]
fn a_hosted_agent_gets_its_home_in_the_environment() {
    let pinfold = Pinfold::start(PINFOLD);
    let request = AgentRequest { inherit_env: Some(false), ..fake(&pinfold) };
    let agent = pinfold.block(pinfold.client().host_agent(&request)).expect("it is hosted");
    let leader = pinfold.show(agent.process.as_deref().expect("a process")).pid.expect("a leader");
    let environ = std::fs::read_to_string(format!("/proc/{leader}/environ")).expect("it lives");
    let home = format!("PINFOLD_HOME={}", pinfold.home().display());
    assert!(environ.split('\0').any(|variable| variable == home), "{environ:?}");
}

#[test]
fn a_home_given_in_a_request_wins() {
    let pinfold = Pinfold::start(PINFOLD);
    for (value, shown) in [(Some("/other".to_owned()), "/other"), (None, "unset")] {
        for inherit_env in [Some(true), Some(false)] {
            let env = [("PINFOLD_HOME".to_owned(), value.clone())].into();
            assert_eq!(started(&pinfold, &StartRequest { env, inherit_env, ..StartRequest::default() }), shown);
        }
        let mut agent = Agent::connect_with(by_option(&pinfold, &["mcp"]));
        let ran = agent.call("execute", json!({ "command": PRINT, "env": { "PINFOLD_HOME": value } }));
        assert_eq!(ran.output().trim_end(), shown);
    }
    assert_eq!(printed(&mut by_option(&pinfold, &["run", "--env", "PINFOLD_HOME=/other", PRINT])), "/other");
    assert_eq!(printed(&mut by_option(&pinfold, &["run", "--unset", "PINFOLD_HOME", PRINT])), "unset");
}

/// The user's home of a command, removed at the end.
struct UserHome(PathBuf);

impl UserHome {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pinfold-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for UserHome {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A model lists its processes with the command line, whatever HOME its client has.
#[test]
fn the_command_line_inside_a_process_starts_no_second_daemon() {
    let pinfold = Pinfold::start(PINFOLD);
    let user = UserHome::new("nested");
    let mut command = by_option(&pinfold, &["mcp"]);
    command.env_remove("PINFOLD_HOME").env_remove("XDG_STATE_HOME").env("HOME", &user.0);
    let mut agent = Agent::connect_with(command);
    let kept = agent.background("exec sleep 300");
    let listed = agent.execute(&format!("{PINFOLD} ps"));
    assert!(listed.output().contains(&kept), "{}", listed.text);
    assert!(listed.facts["strays"].is_null(), "{}", listed.text);
    assert!(!user.0.join(".local/state/pinfold").exists(), "it has a home of its own");
}

/// The default home is not treated as moved: its configuration stays where it is, also for processes inside.
#[test]
fn in_the_default_home_a_process_finds_the_default_configuration() {
    let user = UserHome::new("usual");
    let at_home = |arguments: &[&str]| {
        let mut command = Command::new(PINFOLD);
        command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &user.0).current_dir("/");
        command
    };
    let usual = user.0.join(".local/state/pinfold");
    let inside = printed(&mut at_home(&["run", &format!("{PRINT}; {PINFOLD} config path; {PINFOLD} ps --json")]));
    let stopped = at_home(&["daemon", "stop", "--all"]).status();
    assert!(stopped.expect("it runs").success());
    let lines: Vec<_> = inside.lines().collect();
    assert_eq!(lines[0], usual.to_string_lossy());
    assert_eq!(lines[1], user.0.join(".config/pinfold/config.toml").to_string_lossy());
    assert!(lines[2].contains("config path"), "{inside}");
}

/// A hosted agent that needs no model.
fn fake(pinfold: &Pinfold) -> AgentRequest {
    let work = pinfold.home().join("work");
    std::fs::create_dir_all(&work).expect("a directory");
    std::fs::write(work.join("app-server"), include_str!("agents/fake.sh")).expect("the fake is written");
    AgentRequest {
        kind: "codex".into(),
        program: Some("/bin/sh".into()),
        cwd: Some(work.to_string_lossy().into_owned()),
        wait: Some("60s".into()),
        ..AgentRequest::default()
    }
}

/// What a model starts with `--lifetime owner` inside its chat ends with the chat, also while a process of the chat
/// still talks to the daemon.
#[test]
fn what_a_chat_starts_by_the_command_line_ends_with_the_chat() {
    let pinfold = Pinfold::start(PINFOLD);
    let work = fake(&pinfold).cwd.expect("a directory");
    let mut chat = Agent::connect_with(by_option(&pinfold, &["mcp", "--owner-grace", "1s"]));
    let follows = chat.background(&format!("exec {PINFOLD} events --follow"));
    let run = |chat: &mut Agent, arguments: &str| {
        let ran = chat.execute(&format!("{PINFOLD} {arguments}"));
        assert_eq!(ran.facts["exit_code"], 0, "{}", ran.text);
        ran.output().trim().to_owned()
    };
    let server = run(&mut chat, "run -d --lifetime owner 'exec sleep 300'");
    let kept = run(&mut chat, "run -d 'exec sleep 300'");
    run(&mut chat, &format!("agent run codex --name helper --program /bin/sh --cwd {work} --lifetime owner"));
    let said = chat.execute(&format!("{PINFOLD} agent turn helper 'say hello'"));
    assert!(said.output().contains("hello"), "{}", said.text);
    let agent = pinfold.block(pinfold.client().agent("helper")).expect("it is hosted");
    assert_eq!(agent.owner, pinfold.show(&server).owner, "whose it is");
    // Longer than the grace: an open chat counts as contact without any request.
    assert_eq!(chat.execute("sleep 2.5").facts["exit_code"], 0);
    assert_eq!(pinfold.show(&server).status, Status::Running);
    assert_eq!(pinfold.block(pinfold.client().agent("helper")).expect("it is hosted").status, AgentStatus::Idle);
    drop(chat);
    let ended = pinfold.wait_finished(&server);
    assert_eq!(ended.cause, Some(Cause::OwnerEnded), "{ended:?}");
    let helper = || pinfold.block(pinfold.client().agent(&agent.id)).expect("it is known");
    until("the agent ends", || helper().status == AgentStatus::Stopped);
    assert_eq!(helper().cause, Some(Cause::OwnerEnded));
    for id in [kept, follows] {
        assert_eq!(pinfold.show(&id).status, Status::Running, "{id} was to be kept");
    }
}
