//! The real agents, hosted by pinfold, with a model that the test plays.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use pinfold_api::types::{
    Agent as Hosted, AgentMode, AgentRequest, AgentStatus, Approvals, FaultCode, InterruptRequest, Rung, Transport,
    Turn, TurnQuery, TurnRequest, TurnStatus,
};
use pinfold_clients::agents::{Agent, Program, ServerAccess};
use pinfold_clients::dialect::Act;
use pinfold_clients::model::Model;
use pinfold_testkit::environments::{NOBODY, is_root};
use pinfold_testkit::{Pidfd, Pinfold, Setup, until};
use serde_json::json;

use crate::PINFOLD;

/// One hosted agent and its model.
pub(crate) struct Stage {
    pub(crate) pinfold: Pinfold,
    pub(crate) model: Model,
    pub(crate) agent: Hosted,
    pub(crate) scratch: PathBuf,
}

impl Drop for Stage {
    fn drop(&mut self) {
        // While the agent runs, it writes into its home.
        let _ = self.pinfold.block(self.pinfold.client().stop_agent(&self.agent.id, &Default::default()));
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// Hosts a real agent; prints that it is skipped if it is not installed.
pub(crate) fn stage(kind: Agent, change: impl FnOnce(&mut AgentRequest)) -> Option<Stage> {
    let stage = stage_of(kind, &kind.installed()?, change);
    assert!(stage.agent.fault.is_none(), "{:?}", stage.agent);
    Some(stage)
}

fn stage_of(kind: Agent, program: &Program, change: impl FnOnce(&mut AgentRequest)) -> Stage {
    stage_at(Pinfold::start(PINFOLD), kind, program, change)
}

/// Like [`stage_of`] with this daemon; the agent's files belong to the daemon's user.
fn stage_at(pinfold: Pinfold, kind: Agent, program: &Program, change: impl FnOnce(&mut AgentRequest)) -> Stage {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("pinfold-hosted-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let scratch = std::env::temp_dir().join(name);
    let model = Model::listen();
    let command = program.command(&scratch, model.address, &ServerAccess::of(&pinfold));
    give_to(std::fs::metadata(pinfold.home()).expect("a home").uid(), &scratch);
    let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
    let mut request = AgentRequest {
        kind: if kind == Agent::Codex { "codex" } else { "claude" }.to_owned(),
        program: Some(text(command.get_program())),
        cwd: command.get_current_dir().map(|dir| dir.to_string_lossy().into_owned()),
        env: command.get_envs().map(|(name, value)| (text(name), value.map(text))).collect(),
        inherit_env: Some(false),
        approvals: Some(Approvals::Allow),
        ready_timeout: Some("150s".into()),
        wait: Some("160s".into()),
        ..AgentRequest::default()
    };
    if kind == Agent::Codex {
        // No sandbox: what it runs is the test's own, and not every machine lets it make one.
        request.settings.insert("sandbox".into(), json!("danger-full-access"));
        request.settings.insert("approvalPolicy".into(), json!("untrusted"));
    }
    change(&mut request);
    let agent = pinfold.block(pinfold.client().host_agent(&request)).expect("it is hosted");
    Stage { pinfold, model, agent, scratch }
}

/// Changes the owner of a directory and everything in it.
fn give_to(user: u32, path: &Path) {
    chown(path, Some(user), None).expect("it can be given");
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let kind = entry.file_type().expect("a file");
        if kind.is_dir() {
            give_to(user, &entry.path());
        } else if kind.is_file() {
            chown(entry.path(), Some(user), None).expect("it can be given");
        }
    }
}

impl Stage {
    pub(crate) fn begin(&self, text: &str) -> u64 {
        let request = TurnRequest { text: text.into(), ..TurnRequest::default() };
        self.pinfold.block(self.pinfold.client().give_turn(&self.agent.id, &request)).expect("a turn").number
    }

    pub(crate) fn finish(&self, number: u64) -> Turn {
        let query = TurnQuery { wait: Some("120s".into()) };
        let turn = self.pinfold.block(self.pinfold.client().turn(&self.agent.id, number, &query)).expect("a turn");
        assert!(turn.status.is_over(), "{turn:?}");
        turn
    }

    pub(crate) fn show(&self) -> Hosted {
        self.pinfold.block(self.pinfold.client().agent(&self.agent.id)).expect("it is known")
    }
}

/// Two turns, a tool with permission, an interrupt, and a turn after it.
fn led(kind: Agent, tool: &str, argument: &str) -> Option<()> {
    lead(stage(kind, |_| {})?, tool, argument)
}

fn lead(mut stage: Stage, tool: &str, argument: &str) -> Option<()> {
    let first = stage.begin("first");
    stage.model.act(&Act::Say("hello there".into())).expect("it asks its model");
    let first = stage.finish(first);
    assert_eq!((first.status, first.text.as_deref()), (TurnStatus::Completed, Some("hello there")), "{first:?}");
    assert!(first.usage.is_some_and(|usage| usage.output_tokens > 0), "{first:?}");
    let second = stage.begin("second");
    let call = Act::own(tool, json!({ argument: "touch made; exit 3" }));
    stage.model.act(&call).expect("it asks its model");
    stage.model.act(&Act::Say("ran it".into())).expect("a request to the model");
    let second = stage.finish(second);
    assert_eq!((second.status, second.text.as_deref()), (TurnStatus::Completed, Some("ran it")), "{second:?}");
    assert!(second.tools.iter().any(|tool| tool.failed == Some(true)), "{second:?}");
    assert!(stage.scratch.join("work/made").exists(), "it was not allowed to");
    assert_eq!(first.process, second.process);
    let third = stage.begin("third");
    let open = stage.model.wait().expect("it asks its model");
    let interrupt = InterruptRequest { protocol_wait: Some("60s".into()), ..InterruptRequest::default() };
    let answer = stage.pinfold.block(stage.pinfold.client().interrupt_agent(&stage.agent.id, &interrupt));
    assert_eq!(answer.expect("an interrupt").rung, Some(Rung::Protocol));
    assert_eq!(stage.finish(third).status, TurnStatus::Interrupted);
    drop(open);
    let fourth = stage.begin("fourth");
    stage.model.act(&Act::Say("still here".into())).expect("it asks its model");
    assert_eq!(stage.finish(fourth).text.as_deref(), Some("still here"));
    let process = stage.agent.process.clone().expect("a process");
    let stopped = stage.pinfold.block(stage.pinfold.client().stop_agent(&stage.agent.id, &Default::default()));
    assert_eq!(stopped.expect("a stop").status, AgentStatus::Stopped);
    assert!(stage.pinfold.show(&process).tree.is_empty());
    Some(())
}

#[test]
fn hosted_codex_is_led_through_turns_tools_and_interrupts() {
    led(Agent::Codex, "exec_command", "cmd");
}

#[test]
fn hosted_codex_is_led_by_a_daemon_of_an_ordinary_user() {
    as_ordinary_user(Agent::Codex, "exec_command", "cmd");
}

/// The same with a daemon that does not run as root.
fn as_ordinary_user(kind: Agent, tool: &str, argument: &str) -> Option<()> {
    let program = kind.installed()?;
    let setup = Setup { user: is_root().then_some(NOBODY), ..Setup::default() };
    let stage = stage_at(Pinfold::start_with(PINFOLD, setup), kind, &program, |_| {});
    assert!(stage.agent.fault.is_none(), "{:?}", stage.agent);
    let process = stage.pinfold.show(stage.agent.process.as_deref().expect("a process"));
    let user = std::fs::metadata(format!("/proc/{}", process.pid.expect("a leader"))).expect("it lives").uid();
    assert_eq!(user, std::fs::metadata(stage.pinfold.home()).expect("a home").uid());
    lead(stage, tool, argument)
}

#[test]
fn hosted_claude_is_led_through_turns_tools_and_interrupts() {
    led(Agent::Claude, "Bash", "command");
}

/// The daemon is killed in the middle of a turn, then the agent is: the turn continues after the first, and is started
/// again after the second.
fn survives(kind: Agent) -> Option<()> {
    let mut stage = stage(kind, |_| {})?;
    let first = stage.begin("first");
    let open = stage.model.wait().expect("it asks its model");
    stage.pinfold.crash_and_restart();
    stage.model.answer(open, &Act::Say("over the crash".into()));
    let first = stage.finish(first);
    assert_eq!((first.text.as_deref(), first.attempts), (Some("over the crash"), 1), "{first:?}");
    // The agent's environment is not stored, so the next turn sends it again.
    let second = stage.begin("second");
    let open = stage.model.wait().expect("it asks its model");
    let process = stage.show().process.expect("a process");
    let leader = stage.pinfold.show(&process).pid.expect("a leader");
    Pidfd::open(leader).expect("it lives").kill();
    drop(open);
    let second = stage.finish(second);
    assert_eq!(second.status, TurnStatus::Failed, "{second:?}");
    assert!(second.cause.as_deref().is_some_and(|cause| cause.contains("`env`")), "{second:?}");
    Some(())
}

#[test]
fn hosted_codex_survives_the_daemon() {
    survives(Agent::Codex);
}

#[test]
fn hosted_claude_survives_the_daemon() {
    survives(Agent::Claude);
}

/// The agent is killed in the middle of a turn, which then continues in the same session.
fn retried(kind: Agent) -> Option<()> {
    let mut stage = stage(kind, |_| {})?;
    let first = stage.begin("first");
    stage.model.act(&Act::Say("noted".into())).expect("it asks its model");
    stage.finish(first);
    let session = stage.show().session.expect("a session");
    let second = stage.begin("second");
    let open = stage.model.wait().expect("it asks its model");
    let leader = stage.pinfold.show(&stage.show().process.expect("a process")).pid.expect("a leader");
    Pidfd::open(leader).expect("it lives").kill();
    drop(open);
    let again = stage.model.wait().expect("the new one asks its model");
    assert!(again.history().contains("noted"), "it does not go on in its session");
    stage.model.answer(again, &Act::Say("again".into()));
    let second = stage.finish(second);
    assert_eq!((second.text.as_deref(), second.attempts), (Some("again"), 2), "{second:?}");
    let agent = stage.show();
    assert_eq!((agent.session.as_deref(), agent.lives.len()), (Some(session.as_str()), 2), "{agent:?}");
    Some(())
}

#[test]
fn hosted_codex_that_dies_is_started_again_in_its_session() {
    retried(Agent::Codex);
}

#[test]
fn hosted_claude_that_dies_is_started_again_in_its_session() {
    retried(Agent::Claude);
}

/// A new process and a new thread for each turn.
fn fresh(kind: Agent) -> Option<()> {
    let mut stage = stage(kind, |request| request.mode = Some(AgentMode::Fresh))?;
    let mut processes = Vec::new();
    for text in ["one", "two"] {
        let number = stage.begin(text);
        let open = stage.model.wait().expect("it asks its model");
        assert!(!open.history().contains("answer to"), "a thread of its own");
        stage.model.answer(open, &Act::Say(format!("answer to {text}")));
        processes.push(stage.finish(number).process.expect("a process"));
        until("it leaves", || stage.show().status == AgentStatus::Resting);
    }
    assert_ne!(processes[0], processes[1]);
    Some(())
}

#[test]
fn hosted_codex_can_be_fresh_for_each_turn() {
    fresh(Agent::Codex);
}

#[test]
fn hosted_claude_can_be_fresh_for_each_turn() {
    fresh(Agent::Claude);
}

/// Claude Code connects to a WebSocket of pinfold instead of using stdio.
fn by_websocket() -> Option<()> {
    let program = Agent::Claude.installed_as("claude-sdk")?;
    let mut stage = stage_of(Agent::Claude, &program, |request| request.transport = Some(Transport::Websocket));
    assert!(stage.agent.fault.is_none(), "{:?}", stage.agent);
    let first = stage.begin("first");
    stage.model.act(&Act::Say("by the wire".into())).expect("it asks its model");
    let first = stage.finish(first);
    assert_eq!((first.status, first.text.as_deref()), (TurnStatus::Completed, Some("by the wire")), "{first:?}");
    // It reconnects to the next daemon.
    stage.pinfold.crash_and_restart();
    let second = stage.begin("second");
    stage.model.act(&Act::Say("over the crash".into())).expect("it asks its model");
    let second = stage.finish(second);
    assert_eq!((second.text.as_deref(), second.attempts), (Some("over the crash"), 1), "{second:?}");
    assert_eq!(first.process, second.process);
    let third = stage.begin("third");
    let open = stage.model.wait().expect("it asks its model");
    assert_eq!(open.history().matches("second").count(), 1, "a prompt was sent twice");
    let interrupt = InterruptRequest { protocol_wait: Some("60s".into()), ..InterruptRequest::default() };
    let answer = stage.pinfold.block(stage.pinfold.client().interrupt_agent(&stage.agent.id, &interrupt));
    assert_eq!(answer.expect("an interrupt").rung, Some(Rung::Protocol));
    assert_eq!(stage.finish(third).status, TurnStatus::Interrupted);
    drop(open);
    // What the agent sends while no daemon runs is lost, so a turn that runs at that time is started again; here that
    // fails because `env` is missing.
    let fourth = stage.begin("fourth");
    let open = stage.model.wait().expect("it asks its model");
    stage.pinfold.crash_and_restart();
    drop(open);
    let fourth = stage.finish(fourth);
    assert!(
        fourth.retried.is_some() && fourth.cause.as_deref().is_some_and(|cause| cause.contains("`env`")),
        "{fourth:?}"
    );
    Some(())
}

#[test]
fn hosted_claude_connects_to_a_websocket_of_pinfold() {
    by_websocket();
}

/// Newer versions connect only to their vendor's servers; the agent's own error message is shown.
fn refused_websocket() -> Option<()> {
    let program = Agent::Claude.installed()?;
    let stage = stage_of(Agent::Claude, &program, |request| request.transport = Some(Transport::Websocket));
    let fault = stage.agent.fault.clone().expect("a fault");
    assert_eq!(fault.code, FaultCode::ExitedBeforeReady);
    assert!(fault.message.contains("--sdk-url"), "{}", fault.message);
    Some(())
}

#[test]
fn hosted_claude_that_refuses_the_websocket_fails_with_its_own_message() {
    refused_websocket();
}

/// codex works and Claude Code reviews, until the review passes.
fn looped() -> Option<()> {
    let (codex, claude) = (Agent::Codex.installed()?, Agent::Claude.installed()?);
    let pinfold = Pinfold::start(PINFOLD);
    let scratch = std::env::temp_dir().join(format!("pinfold-looped-{}", std::process::id()));
    let (mut worker, mut reviewer) = (Model::listen(), Model::listen());
    let way = ServerAccess::of(&pinfold);
    let works = codex.command(&scratch, worker.address, &way);
    let judges = claude.command(&scratch, reviewer.address, &way);
    let (work, dir) = (scratch.join("work"), scratch.join("loop"));
    let program = |command: &std::process::Command| command.get_program().to_string_lossy().into_owned();
    let mut command = pinfold.command(&["agent", "loop", "--task", "write the thing", "--limit", "3"]);
    command.args(["--worker-program", &program(&works), "--reviewer-program", &program(&judges)]);
    command.arg("--cwd").arg(&work).arg("--dir").arg(&dir).args(["--ready-timeout", "150s"]);
    for (name, value) in works.get_envs().chain(judges.get_envs()) {
        command.env(name, value.expect("a value"));
    }
    command.env("PINFOLD_HOME", pinfold.home());
    let output = std::process::Stdio::piped;
    let running = command.stdout(output()).stderr(output()).spawn().expect("a loop");
    for (report, verdict) in [("first try", "- no test\nVERDICT: FAIL"), ("second try", "good\nVERDICT: PASS")] {
        worker.act(&Act::Say(report.into())).expect("the worker asks its model");
        let open = reviewer.wait().expect("the reviewer asks its model");
        assert!(open.history().contains(report), "the reviewer did not get the report");
        reviewer.answer(open, &Act::Say(verdict.into()));
    }
    let done = running.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("passed after 2 of 3"), "{said}");
    let transcript = std::fs::read_to_string(dir.join("transcript.md")).expect("a transcript");
    assert!(transcript.contains("second try") && transcript.contains("- no test"), "{transcript}");
    let _ = std::fs::remove_dir_all(&scratch);
    Some(())
}

#[test]
fn hosted_codex_works_and_claude_judges_in_a_loop() {
    looped();
}
