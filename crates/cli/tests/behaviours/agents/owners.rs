//! Agents end with their owner or go to its parent, by their lifetime, whether they have a process at that time or not.

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{
    Agent, AgentMode, AgentRequest, AgentStatus, Cause, EndAnswer, Lifetime, TurnRequest, TurnStatus,
};
use pinfold_testkit::{Pidfd, until};

use super::Host;

impl Host {
    fn owned(&self, lifetime: Lifetime, mode: AgentMode) -> AgentRequest {
        let (lifetime, mode) = (Some(lifetime), Some(mode));
        AgentRequest { owner: Some("chat".into()), lifetime, mode, ..self.request() }
    }

    fn end(&self, owner: &str) -> EndAnswer {
        self.pinfold.block(self.pinfold.client().end_owner(owner, &Default::default())).expect("ended")
    }

    #[track_caller]
    fn assert_ended_with_its_owner(&self, id: &str) {
        let agent = self.show(id);
        assert_eq!((agent.status, agent.cause), (AgentStatus::Stopped, Some(Cause::OwnerEnded)), "{agent:?}");
        let refused = self.try_turn(id, &say("more")).expect_err("no further turn");
        assert_eq!(refused.code, ErrorCode::AlreadyOver, "{refused}");
        let shown = self.pinfold.cli(&["agent", "show", id]).stdout;
        assert!(shown.contains("cause    owner ended"), "{shown}");
    }

    fn rests(&self, agent: &Agent) {
        until("it rests", || self.show(&agent.id).status == AgentStatus::Resting);
    }
}

fn say(text: &str) -> TurnRequest {
    TurnRequest { text: format!("say {text}"), ..TurnRequest::default() }
}

#[test]
fn owner_end_policy_an_agent_ends_with_its_owner() {
    let host = Host::start();
    let agent = host.host(&host.owned(Lifetime::Owner, AgentMode::Persistent));
    let turn = host.begin(&agent.id, "hang");
    let queued = host.begin(&agent.id, "say never");
    host.until_asked(1);
    assert_eq!(host.end("chat").agents_stopped, [agent.id.as_str()]);
    host.assert_ended_with_its_owner(&agent.id);
    for number in [turn.number, queued.number] {
        assert_eq!(host.peek(&agent.id, number).status, TurnStatus::Interrupted);
    }
    assert_eq!(host.asked(), ["hang"], "a stopped turn is not started again");
    let process = host.pinfold.wait_finished(agent.process.as_deref().expect("a process"));
    assert_eq!(process.cause, Some(Cause::OwnerEnded), "{process:?}");
}

#[test]
fn owner_end_policy_an_agent_that_rests_ends_with_its_owner() {
    let host = Host::start();
    let unused = host.host(&host.owned(Lifetime::Owner, AgentMode::Fresh));
    let between_turns = host.host(&host.owned(Lifetime::Owner, AgentMode::Fresh));
    host.turn(&between_turns.id, "say one");
    host.rests(&between_turns);
    let between_lives = host.host(&host.owned(Lifetime::Owner, AgentMode::Persistent));
    let leader = host.pinfold.show(between_lives.process.as_deref().expect("a process")).pid.expect("a leader");
    Pidfd::open(leader).expect("it lives").kill();
    host.rests(&between_lives);
    let kept = host.host(&host.owned(Lifetime::Keep, AgentMode::Fresh));
    let ended = host.end("chat");
    assert_eq!(ended.agents_stopped, [&between_lives, &between_turns, &unused].map(|agent| agent.id.clone()));
    for agent in [&unused, &between_turns, &between_lives] {
        host.assert_ended_with_its_owner(&agent.id);
    }
    assert_eq!(host.show(&kept.id).status, AgentStatus::Resting, "its lifetime says so");
    host.pinfold.crash_and_restart();
    host.assert_ended_with_its_owner(&between_turns.id);
    assert_eq!(host.asked(), ["say one"]);
}

#[test]
fn owner_end_policy_an_agent_whose_owner_went_silent_ends_though_it_rests() {
    let host = Host::start();
    let graced = |mode| AgentRequest { owner_grace: Some("300ms".into()), ..host.owned(Lifetime::Owner, mode) };
    let resting = host.host(&graced(AgentMode::Fresh));
    let idle = host.host(&graced(AgentMode::Persistent));
    // Operators do not count as contact, so these requests do not end the silence of the owner.
    for agent in [&resting, &idle] {
        until("it is over", || host.show(&agent.id).ended_at.is_some());
        host.assert_ended_with_its_owner(&agent.id);
    }
    // The next daemon counts from its own start.
    let late = host.host(&AgentRequest { owner_grace: Some("2s".into()), ..graced(AgentMode::Fresh) });
    host.pinfold.crash_and_restart();
    until("it is over", || host.show(&late.id).ended_at.is_some());
    host.assert_ended_with_its_owner(&late.id);
}

#[test]
fn owner_end_policy_an_agent_is_handed_over_to_the_parent_of_its_owner() {
    let host = Host::start();
    let request = |mode| AgentRequest { parent: Some("boss".into()), ..host.owned(Lifetime::Parent, mode) };
    let resting = host.host(&request(AgentMode::Fresh));
    let idle = host.host(&request(AgentMode::Persistent));
    let ended = host.end("chat");
    assert_eq!(ended.agents_handed_over, [idle.id.as_str(), resting.id.as_str()]);
    assert_eq!(ended.handed_over, [idle.process.clone().expect("a process")]);
    host.pinfold.crash_and_restart();
    for agent in [&resting, &idle] {
        assert_eq!(host.show(&agent.id).owner, "boss");
        let turn = host.turn(&agent.id, "say on");
        assert_eq!(turn.status, TurnStatus::Completed, "{turn:?}");
        assert_eq!(host.pinfold.show(turn.process.as_deref().expect("a process")).owner, "boss");
    }
    host.end("boss");
    for agent in [&resting, &idle] {
        host.assert_ended_with_its_owner(&agent.id);
    }
}

#[test]
fn owner_grace_of_an_agent_needs_a_lifetime_that_ends() {
    let host = Host::start();
    let request = AgentRequest { owner_grace: Some("1s".into()), ..host.owned(Lifetime::Keep, AgentMode::Fresh) };
    let refused = host.try_host(&request).expect_err("refused");
    assert_eq!(refused.code, ErrorCode::InvalidRequest, "{refused}");
    assert!(refused.message.contains("`lifetime`"), "{refused}");
}
