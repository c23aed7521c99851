//! Hosted agents of an ordinary user: no part of them needs root.

use std::os::unix::fs::MetadataExt;

use pinfold_api::types::{AgentMode, AgentRequest, AgentStatus, InterruptRequest, Rung, TurnStatus};
use pinfold_testkit::environments::{NOBODY, is_root};
use pinfold_testkit::until;

use super::{Host, assert_said, exists};
use crate::requests::ordinary_user;

/// The uid of a process, if it is alive.
fn user_of(pid: u32) -> Option<u32> {
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|process| process.uid())
}

#[test]
fn a_hosted_agent_runs_as_the_user_of_its_daemon() {
    let host = Host::at(ordinary_user());
    let agent = host.agent();
    let process = agent.process.clone().expect("a process");
    let leader = host.pinfold.show(&process).pid.expect("a leader");
    let own = std::fs::metadata("/proc/self").expect("this process").uid();
    assert_eq!(user_of(leader), Some(if is_root() { NOBODY } else { own }));
    assert_said(&host.turn(&agent.id, "say one"), "one");
    // Its files belong to its user, and so do pinfold's files about it.
    for path in [host.work.join("asked"), host.pinfold.home().join("agents").join(&agent.id)] {
        assert_eq!(
            std::fs::metadata(&path).expect("it is there").uid(),
            user_of(leader).expect("it lives"),
            "{path:?}"
        );
    }
    let turn = host.begin(&agent.id, "await go");
    host.until_asked(2);
    host.pinfold.crash_and_restart();
    host.touch("go");
    assert_said(&host.finish(&agent.id, turn.number), "came");
    let turn = host.begin(&agent.id, "deaf to INT");
    host.until_asked(3);
    let quick = |wait: &str| Some(wait.into());
    let request =
        InterruptRequest { protocol_wait: quick("200ms"), int_wait: quick("200ms"), ..InterruptRequest::default() };
    let answer = host.interrupt(&agent.id, &request);
    assert_eq!(answer.rung, Some(Rung::Term), "{answer:?}");
    assert_eq!(host.peek(&agent.id, turn.number).status, TurnStatus::Interrupted);
    assert_said(&host.turn(&agent.id, "stray"), "left one");
    let process = host.show(&agent.id).process.expect("a process");
    assert_eq!(host.stop(&agent.id).status, AgentStatus::Stopped);
    assert!(host.pinfold.show(&process).tree.is_empty(), "nothing outlives it");
}

#[test]
fn a_fresh_agent_of_an_ordinary_user_has_a_process_for_each_turn() {
    let host = Host::at(ordinary_user());
    let agent = host.host(&AgentRequest { mode: Some(AgentMode::Fresh), ..host.request() });
    let [first, second] = ["one", "two"].map(|word| host.turn(&agent.id, &format!("say {word}")));
    assert_said(&second, "two");
    assert_ne!(first.process, second.process);
    until("it rests", || host.show(&agent.id).status == AgentStatus::Resting);
    assert!(!exists(&host.work.join("resumed")));
}
