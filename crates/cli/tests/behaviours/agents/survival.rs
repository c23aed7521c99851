//! Agents survive the death of the daemon and of their clients; turns survive a crash of the agent.

use std::process::Stdio;

use pinfold_api::types::{AgentEventKind, AgentStatus, TurnRequest, TurnStatus};
use pinfold_testkit::{Pidfd, until};

use super::{Host, assert_said, exists};

#[test]
fn daemon_kill9_job_survives_a_turn_goes_on_over_a_crash_of_the_daemon() {
    let host = Host::start();
    let agent = host.agent();
    let turn = host.begin(&agent.id, "await go");
    let queued = host.begin(&agent.id, "say after");
    host.until_asked(1);
    host.pinfold.crash_and_restart();
    assert_eq!(host.peek(&agent.id, turn.number).status, TurnStatus::Running);
    host.touch("go");
    let turn = host.finish(&agent.id, turn.number);
    assert_said(&turn, "came");
    assert_eq!((turn.attempts, turn.process.as_ref()), (1, agent.process.as_ref()), "{turn:?}");
    assert_said(&host.finish(&agent.id, queued.number), "after");
    assert_eq!(host.asked(), ["await go", "say after"], "nothing was asked twice");
}

#[test]
fn daemon_down_exit_known_a_turn_that_ends_without_a_daemon_is_known_afterwards() {
    let host = Host::start();
    let agent = host.agent();
    let turn = host.begin(&agent.id, "await go");
    host.until_asked(1);
    host.pinfold.kill_daemon();
    host.touch("go");
    host.pinfold.start_daemon();
    assert_said(&host.finish(&agent.id, turn.number), "came");
    assert_eq!(host.asked().len(), 1);
}

#[test]
fn d11_a_turn_that_was_finished_is_not_run_again() {
    let host = Host::start();
    let agent = host.agent();
    let request = TurnRequest {
        text: "say once".into(),
        idempotency_key: Some("k".into()),
        wait: Some("30s".into()),
        ..TurnRequest::default()
    };
    let first = host.try_turn(&agent.id, &request).expect("a turn");
    assert_said(&first, "once");
    assert_eq!(host.try_turn(&agent.id, &request).expect("the same"), first);
    host.pinfold.crash_and_restart();
    assert_eq!(host.try_turn(&agent.id, &request).expect("the same"), first);
    let other = TurnRequest { text: "say twice".into(), ..request };
    assert!(host.try_turn(&agent.id, &other).is_err(), "another turn under the same key");
    host.stop(&agent.id);
    assert_eq!(host.peek(&agent.id, 1), first, "kept after the end of the agent");
    assert_eq!(host.asked(), ["say once"]);
}

#[test]
fn an_unexpected_exit_is_retried_once_with_resume_and_said() {
    let host = Host::start();
    let agent = host.agent();
    let turn = host.turn(&agent.id, "crash once");
    assert_said(&turn, "again");
    assert_eq!(turn.attempts, 2);
    let retried = turn.retried.as_deref().unwrap_or_default();
    assert!(retried.contains("exited with code 9"), "{turn:?}");
    let resumed = std::fs::read_to_string(host.work.join("resumed")).unwrap_or_default();
    assert!(resumed.contains(r#""threadId":"t1""#), "{resumed}");
    assert!(host.events(&agent.id).iter().any(|event| event.kind == AgentEventKind::TurnRetried));
    let agent = host.show(&agent.id);
    assert_eq!(agent.lives.len(), 2, "{agent:?}");
    let turn = host.turn(&agent.id, "crash");
    assert_eq!((turn.status, turn.attempts), (TurnStatus::Failed, 2), "{turn:?}");
    assert!(turn.cause.as_deref().is_some_and(|cause| cause.contains("a second time")), "{turn:?}");
    assert_said(&host.turn(&agent.id, "say well again"), "well again");
}

#[test]
fn an_agent_that_dies_between_turns_is_started_again_by_the_next() {
    let host = Host::start();
    let agent = host.agent();
    let leader = host.pinfold.show(agent.process.as_deref().expect("a process")).pid.expect("a leader");
    Pidfd::open(leader).expect("it lives").kill();
    until("it rests", || host.show(&agent.id).status == AgentStatus::Resting);
    assert_said(&host.turn(&agent.id, "say back"), "back");
    assert!(exists(&host.work.join("resumed")));
}

#[test]
fn client_death_policy_a_client_that_dies_leaves_the_agent_to_its_lifetime() {
    let host = Host::start();
    let agent = host.agent();
    for (number, signal) in [15, 1, 2, 9].into_iter().enumerate() {
        let gate = format!("go{number}");
        let mut command = host.pinfold.command(&["agent", "turn", &agent.id, &format!("await {gate}")]);
        let mut client = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a client");
        host.until_asked(number + 1);
        Pidfd::open(client.id()).expect("it lives").signal(signal);
        let status = client.wait().expect("it ends");
        assert!(!status.success(), "{status}");
        let turn = host.peek(&agent.id, number as u64 + 1);
        assert_eq!(turn.status, TurnStatus::Running, "signal {signal}: {turn:?}");
        host.touch(&gate);
        assert_said(&host.finish(&agent.id, turn.number), "came");
    }
    assert_eq!(host.show(&agent.id).lives.len(), 1);
}
