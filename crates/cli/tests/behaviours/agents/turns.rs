//! Turns: running them, waiting for them, permission requests, and who may see them.

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{
    AgentEventKind, AgentMode, AgentRequest, AgentStatus, AnswerRequest, Approvals, IfBusy, Status, TurnRequest,
    TurnStatus, Verdict,
};
use pinfold_testkit::until;

use super::{Host, assert_said};

#[test]
fn an_agent_is_a_managed_process_that_takes_turns() {
    let host = Host::start();
    let agent = host.agent();
    assert_eq!((agent.status, agent.version.as_deref()), (AgentStatus::Idle, Some("1.2.3")), "{agent:?}");
    assert_eq!(agent.session.as_deref(), Some("t1"));
    let process = host.pinfold.show(agent.process.as_deref().expect("a process"));
    assert_eq!((process.status, process.labels["pinfold.agent"].as_str()), (Status::Running, agent.id.as_str()));
    let first = host.turn(&agent.id, "say one");
    assert_said(&first, "one");
    let second = host.turn(&agent.id, "say two");
    assert_said(&second, "two");
    assert_eq!(first.process, second.process, "one spawn for two turns");
    assert_eq!((second.number, second.attempts), (2, 1));
    let kinds: Vec<_> = host.events(&agent.id).iter().map(|event| event.kind).collect();
    use AgentEventKind::{Message, Ready, Started, TurnEnded, TurnStarted};
    assert_eq!(kinds, [Started, Ready, TurnStarted, Message, TurnEnded, TurnStarted, Message, TurnEnded]);
}

#[test]
fn d12_turns_of_one_agent_are_serialised() {
    let host = Host::start();
    let agent = host.host(&AgentRequest { queue: Some(2), ..host.request() });
    let first = host.begin(&agent.id, "await go");
    let second = host.begin(&agent.id, "say two");
    let third = host.begin(&agent.id, "say three");
    host.until_asked(1);
    assert_eq!(host.peek(&agent.id, first.number).status, TurnStatus::Running);
    assert_eq!(host.peek(&agent.id, second.number).status, TurnStatus::Queued);
    let refuse = TurnRequest { text: "say no".into(), if_busy: Some(IfBusy::Refuse), ..TurnRequest::default() };
    assert_eq!(host.try_turn(&agent.id, &refuse).expect_err("busy").code, ErrorCode::AgentBusy);
    let full = TurnRequest { text: "say no".into(), ..TurnRequest::default() };
    let refusal = host.try_turn(&agent.id, &full).expect_err("full");
    assert_eq!(refusal.code, ErrorCode::AgentBusy, "{refusal}");
    assert_eq!(host.asked(), ["await go"]);
    host.touch("go");
    assert_said(&host.finish(&agent.id, third.number), "three");
    assert_eq!(host.asked(), ["await go", "say two", "say three"]);
}

#[test]
fn a_fresh_agent_has_a_process_and_a_thread_for_each_turn() {
    let host = Host::start();
    let agent = host.host(&AgentRequest { mode: Some(AgentMode::Fresh), ..host.request() });
    assert_eq!((agent.status, agent.process), (AgentStatus::Resting, None));
    let first = host.turn(&agent.id, "say one");
    let second = host.turn(&agent.id, "say two");
    assert_said(&second, "two");
    assert_ne!(first.process, second.process);
    until("the second leaves", || host.show(&agent.id).status == AgentStatus::Resting);
    assert!(!super::exists(&host.work.join("resumed")), "each has a thread of its own");
    for process in [first.process, second.process] {
        let record = host.pinfold.wait_finished(&process.expect("a process"));
        assert_eq!(record.outcome, Some(pinfold_api::types::Outcome::Exited { code: 0 }), "it left by itself");
    }
}

#[test]
fn permissions_are_given_by_policy_or_by_answer() {
    let host = Host::start();
    for (approvals, said) in [(None, "was denied"), (Some(Approvals::Allow), "was allowed")] {
        let agent = host.host(&AgentRequest { approvals, ..host.request() });
        assert_said(&host.turn(&agent.id, "permission"), said);
    }
    let agent = host.host(&AgentRequest { approvals: Some(Approvals::Ask), ..host.request() });
    let turn = host.begin(&agent.id, "permission");
    until("it asks", || host.show(&agent.id).status == AgentStatus::Asking);
    let ask = host.show(&agent.id).asks.remove(0);
    assert_eq!((ask.what.as_str(), ask.kind.as_str(), ask.turn), ("rm -rf x", "command", Some(1)));
    let answer = |ask: &str| AnswerRequest { ask: ask.into(), verdict: Verdict::Allow, message: None };
    let client = host.pinfold.client();
    assert!(host.pinfold.block(client.answer_agent(&agent.id, &answer("ask-9"))).is_err(), "it asks no such thing");
    // A permission request survives the daemon.
    host.pinfold.crash_and_restart();
    assert_eq!(host.show(&agent.id).asks, std::slice::from_ref(&ask));
    host.pinfold.block(client.answer_agent(&agent.id, &answer(&ask.id))).expect("answered");
    assert_said(&host.finish(&agent.id, turn.number), "was allowed");
}

#[test]
fn other_owner_not_found_agents_are_seen_by_their_owner_and_its_ancestors() {
    let host = Host::start();
    let request = AgentRequest { owner: Some("child".into()), parent: Some("parent".into()), ..host.request() };
    let agent = host.host(&request);
    let client = host.pinfold.client();
    for (owner, sees) in [("child", true), ("parent", true), ("stranger", false)] {
        let client = client.acting_as(owner, None);
        assert_eq!(host.pinfold.block(client.agent(&agent.id)).is_ok(), sees, "{owner}");
        let list = host.pinfold.block(client.agents(&Default::default())).expect("a list");
        assert_eq!(list.agents.len(), usize::from(sees), "{owner}");
        let turn = TurnRequest { text: "say x".into(), ..TurnRequest::default() };
        assert_eq!(host.pinfold.block(client.give_turn(&agent.id, &turn)).is_ok(), sees, "{owner}");
        assert_eq!(host.pinfold.block(client.interrupt_agent(&agent.id, &Default::default())).is_ok(), sees);
    }
}

#[test]
fn the_command_line_hosts_shows_and_stops() {
    let host = Host::start();
    let work = host.work.to_string_lossy().into_owned();
    let run =
        host.pinfold.cli(&["agent", "run", "codex", "--name", "fixer", "--program", &host.program(), "--cwd", &work]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let id = run.stdout.trim().to_owned();
    let turn = host.pinfold.cli(&["agent", "turn", "fixer", "say hello"]);
    assert_eq!((turn.code, turn.stdout.as_str()), (Some(0), "hello\n"), "{turn:?}");
    let listed = host.pinfold.cli(&["agent", "ps"]);
    assert!(listed.stdout.contains(&id) && listed.stdout.contains("idle"), "{listed:?}");
    let shown = host.pinfold.cli(&["agent", "show", "fixer"]);
    assert!(shown.stdout.contains("session  t1"), "{shown:?}");
    let logs = host.pinfold.cli(&["agent", "logs", "fixer"]);
    assert!(logs.stdout.contains("> say hello") && logs.stdout.contains("hello"), "{logs:?}");
    let answer = host.pinfold.cli(&["agent", "turn", "-d", "fixer", "hang"]);
    assert_eq!(answer.stdout, "2\n", "{answer:?}");
    host.until_asked(2);
    let interrupted = host.pinfold.cli(&["agent", "interrupt", "fixer"]);
    assert_eq!(interrupted.stdout, "turn 2 interrupted by its protocol\n", "{interrupted:?}");
    let stopped = host.pinfold.cli(&["agent", "stop", "fixer"]);
    assert_eq!(stopped.stdout, format!("{id}  stopped\n"), "{stopped:?}");
    let late = host.pinfold.cli(&["agent", "turn", &id, "say no"]);
    assert_eq!(late.code, Some(2), "{late:?}");
    assert!(late.stderr.contains("is over"), "{late:?}");
}
