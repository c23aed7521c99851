//! An agent in `pinfold top`: its question answered, its process called by its name.

use pinfold_api::types::{AgentRequest, Approvals};

use super::{Host, assert_said};
use crate::top::Looker;

#[test]
fn what_an_agent_asks_is_answered_in_the_inbox_and_in_the_list() {
    let host = Host::start();
    let request = AgentRequest { approvals: Some(Approvals::Ask), name: Some("reviewer".into()), ..host.request() };
    let agent = host.host(&request);
    let turn = host.begin(&agent.id, "permission");
    let looker = Looker::open(&host.pinfold, 100, 24);
    // Its process is called by the agent's name, with the question.
    looker.until("1 needs you (!)");
    let shown = looker.until("asks: rm -rf x").lines;
    assert!(shown.iter().any(|line| line.contains("reviewer") && line.contains("asks: rm -rf x")), "{shown:?}");
    // In the inbox one key answers it.
    looker.keys("!");
    let shown = looker.until("y allows it, n denies it").lines;
    let item = shown.iter().find(|line| line.starts_with(" asks")).expect("an item");
    assert!(item.split_whitespace().nth(1).is_some_and(|age| age.ends_with('s')), "how long it waits: {item}");
    looker.keys("y");
    assert_said(&host.finish(&agent.id, turn.number), "was allowed");
    looker.until("nothing waits for you");
    // In the list the question is shown in full first.
    let turn = host.begin(&agent.id, "permission");
    looker.keys("1");
    looker.select("reviewer");
    looker.until("asks: rm -rf x");
    looker.keys("n");
    looker.until("reviewer asks: allow?");
    looker.keys("n");
    assert_said(&host.finish(&agent.id, turn.number), "was denied");
}

#[test]
fn a_stop_of_an_agent_names_the_members_of_its_tree() {
    let host = Host::start();
    let agent = host.host(&AgentRequest { name: Some("reviewer".into()), ..host.request() });
    host.turn(&agent.id, "say hello");
    let process = agent.process.as_deref().expect("a process");
    let pid = host.pinfold.show(process).pid.expect("a pid");
    let looker = Looker::open(&host.pinfold, 100, 24);
    looker.keys("3");
    looker.until("1 turn, 0 queued");
    looker.keys("x");
    looker.until("Stop the agent reviewer?");
    looker.until("1 turn so far");
    looker.until(&format!("{pid} /bin/sh app-server"));
    looker.keys("n");
}
