//! Denials and interrupts of real agents that pinfold hosts: what their models are sent, and what is still running.

use pinfold_api::types::{AgentRequest, AgentStatus, AnswerRequest, Approvals, InterruptRequest, Rung, Verdict};
use pinfold_api::types::{Cause, Status, TurnStatus};
use pinfold_testkit::{until, until_some};
use serde_json::json;

use crate::hosted::{Stage, stage};
use pinfold_clients::agents::Agent;
use pinfold_clients::dialect::Act;

/// A command of the agent's own tool.
fn own(kind: Agent, command: &str, background: bool) -> Act {
    let (tool, arguments) = match kind {
        Agent::Codex => {
            ("exec_command", json!({ "cmd": command, "yield_time_ms": if background { 250 } else { 60_000 } }))
        }
        _ => ("Bash", json!({ "command": command, "description": "x", "run_in_background": background })),
    };
    Act::own(tool, arguments)
}

/// A denial with a message, which must be in the next request to the model.
fn denied(kind: Agent) -> Option<()> {
    let mut stage = stage(kind, |request| request.approvals = Some(Approvals::Ask))?;
    let turn = stage.begin("first");
    stage.model.act(&own(kind, "touch made", false)).expect("it asks its model");
    let ask = until_some("it asks", || stage.show().asks.first().cloned());
    let message = Some("not on this host: use the staging one".to_owned());
    let answer = AnswerRequest { ask: ask.id, verdict: Verdict::Deny, message };
    stage.pinfold.block(stage.pinfold.client().answer_agent(&stage.agent.id, &answer)).expect("answered");
    let next = stage.model.wait().expect("a request to the model");
    let history = next.history();
    assert_eq!(history.matches("use the staging one").count(), 1, "{history}");
    stage.model.answer(next, &Act::Say("then not".into()));
    let turn = stage.finish(turn);
    assert_eq!((turn.status, turn.text.as_deref()), (TurnStatus::Completed, Some("then not")), "{turn:?}");
    assert!(!stage.scratch.join("work/made").exists(), "it was denied");
    assert_eq!(stage.show().status, AgentStatus::Idle);
    assert!(stage.show().notices.iter().all(|notice| !notice.contains("denial")), "{:?}", stage.show().notices);
    Some(())
}

#[test]
fn a_denials_message_reaches_the_model_of_codex() {
    denied(Agent::Codex);
}

#[test]
fn a_denials_message_reaches_the_model_of_claude() {
    denied(Agent::Claude);
}

/// The commands of the agent's tree.
fn running(stage: &Stage) -> Vec<String> {
    let process = stage.show().process.expect("a process");
    stage.pinfold.show(&process).tree.into_iter().map(|member| member.command).collect()
}

fn runs(stage: &Stage, command: &str) -> bool {
    running(stage).iter().any(|running| running == command)
}

/// Adds the MCP server that codex already has in its configuration to Claude Code.
fn with_server(request: &mut AgentRequest) {
    let home = request.env.get("HOME").cloned().flatten().expect("a home");
    let config = format!("{home}/mcp.json");
    request.args.extend(["--strict-mcp-config".to_owned(), "--mcp-config".to_owned(), config]);
}

fn interrupted(kind: Agent) -> Option<()> {
    let mut stage = stage(kind, |request| {
        if kind == Agent::Claude {
            with_server(request)
        }
    })?;
    let first = stage.begin("first");
    stage.model.act(&own(kind, "exec sleep 3001", true)).expect("it asks its model");
    stage.model.act(&Act::Say("started".into())).expect("a request to the model");
    stage.finish(first);
    until("the earlier turn's command runs", || runs(&stage, "sleep 3001"));
    let second = stage.begin("second");
    let script = "sleep 3002 & setsid sleep 3003 & (setsid sleep 3004 &); trap '' TERM; while :; do sleep 3005; done";
    stage.model.act(&own(kind, script, true)).expect("it asks its model");
    let kept = json!({ "command": "exec sleep 3006", "background": true });
    stage.model.act(&Act::call("execute", kept)).expect("a request to the model");
    let open = stage.model.wait().expect("a request to the model");
    for number in 3001..=3005 {
        until("its commands run", || runs(&stage, &format!("sleep {number}")));
    }
    let listed = stage.pinfold.list(&Default::default()).processes;
    let kept = listed.into_iter().find(|process| process.command == "exec sleep 3006").expect("a managed process");
    assert_eq!(kept.status, Status::Running, "{kept:?}");
    let interrupt = InterruptRequest { protocol_wait: Some("60s".into()), ..InterruptRequest::default() };
    let answer = stage.pinfold.block(stage.pinfold.client().interrupt_agent(&stage.agent.id, &interrupt));
    let answer = answer.expect("an interrupt");
    drop(open);
    assert_eq!((answer.rung, stage.finish(second).status), (Some(Rung::Protocol), TurnStatus::Interrupted));
    let left = running(&stage);
    for number in 3002..=3005 {
        assert!(!left.iter().any(|command| command.contains(&format!("sleep {number}"))), "{left:?}");
    }
    assert!(
        left.iter().any(|command| command == "sleep 3001"),
        "an earlier turn's command is not this one's: {left:?}"
    );
    assert!(left.iter().any(|command| command.ends_with("pinfold mcp")), "its server is no command: {left:?}");
    let kept = stage.pinfold.show(&kept.id);
    assert_eq!(kept.cause, Some(Cause::StopRequested), "{kept:?}");
    assert!(kept.stopped_by.as_deref().is_some_and(|by| by.contains("interrupt of turn 2")), "{kept:?}");
    assert!(answer.stopped.contains(&kept.id), "{answer:?}");
    // Stopped commands do not make the agent start a turn; the next request to its model belongs to the next turn.
    let third = stage.begin("third prompt");
    let next = stage.model.wait().expect("it asks its model");
    assert!(next.history().contains("third prompt"), "{}", next.history());
    stage.model.answer(next, &Act::call("process_list", json!({})));
    let next = stage.model.wait().expect("its server answers");
    assert!(next.history().contains(&kept.id), "{}", next.history());
    stage.model.answer(next, &Act::Say("still here".into()));
    assert_eq!(stage.finish(third).text.as_deref(), Some("still here"));
    let notices = stage.show().notices;
    assert!(notices.iter().all(|notice| !notice.contains("between turns")), "{notices:?}");
    Some(())
}

#[test]
fn an_interrupt_leaves_nothing_running_of_the_turn_of_codex() {
    interrupted(Agent::Codex);
}

#[test]
fn an_interrupt_leaves_nothing_running_of_the_turn_of_claude() {
    interrupted(Agent::Claude);
}

/// Interrupts a foreground command that has started a background process.
fn interrupted_in_the_foreground(kind: Agent) -> Option<()> {
    let mut stage = stage(kind, |_| {})?;
    let turn = stage.begin("first");
    // Claude Code refuses a command that begins with a long sleep.
    let script = "echo go; (setsid sleep 3002 &); setsid sleep 3003 & sleep 3004 & tail -f /dev/null";
    stage.model.act(&own(kind, script, false)).expect("it asks its model");
    for number in 3002..=3004 {
        until("its commands run", || runs(&stage, &format!("sleep {number}")));
    }
    let interrupt = InterruptRequest { protocol_wait: Some("60s".into()), ..InterruptRequest::default() };
    let answer = stage.pinfold.block(stage.pinfold.client().interrupt_agent(&stage.agent.id, &interrupt));
    assert_eq!(answer.expect("an interrupt").rung, Some(Rung::Protocol));
    assert_eq!(stage.finish(turn).status, TurnStatus::Interrupted);
    let left = running(&stage);
    assert!(!left.iter().any(|command| command.contains("sleep 300") || command.contains("tail -f")), "{left:?}");
    Some(())
}

#[test]
fn an_interrupt_leaves_nothing_running_of_a_command_of_codex() {
    interrupted_in_the_foreground(Agent::Codex);
}

#[test]
fn an_interrupt_leaves_nothing_running_of_a_command_of_claude() {
    interrupted_in_the_foreground(Agent::Claude);
}
