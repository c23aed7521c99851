//! Permission requests of hosted agents in the inbox.

use pinfold_api::types::{AgentRequest, AgentStatus, AnswerRequest, Approvals, InboxKind, InboxQuery, Verdict};
use pinfold_testkit::until;

use super::{Host, assert_said};

#[test]
fn a_permission_request_is_in_the_inbox_of_its_owner_until_it_is_answered() {
    let host = Host::start();
    let request = AgentRequest { approvals: Some(Approvals::Ask), owner: Some("mine".into()), ..host.request() };
    let agent = host.host(&request);
    let turn = host.begin(&agent.id, "permission");
    until("it asks", || host.show(&agent.id).status == AgentStatus::Asking);
    let client = host.pinfold.client();
    let inbox = |owner: Option<&str>| {
        let client = owner.map_or(client.clone(), |owner| client.acting_as(owner, None));
        host.pinfold.block(client.inbox(&InboxQuery::default())).expect("an inbox")
    };
    let found = inbox(Some("mine"));
    assert_eq!((found.permission, found.items.len()), (1, 1));
    let item = &found.items[0];
    assert_eq!((item.kind, item.agent.as_deref()), (InboxKind::Permission, Some(&*agent.id)));
    assert_eq!((item.text.as_deref(), item.owner.as_str()), (Some("rm -rf x"), "mine"));
    let asked = host.events(&agent.id).into_iter().find(|event| event.ask.is_some()).expect("its event");
    assert_eq!(item.at.as_deref(), Some(asked.at.as_str()));
    assert_eq!(inbox(None).permission, 1, "the operator sees it too");
    assert_eq!((inbox(Some("other")).permission, inbox(Some("other")).items.len()), (0, 0));
    let ask = item.ask.as_ref().expect("the request").id.clone();
    let answer = AnswerRequest { ask, verdict: Verdict::Allow, message: None };
    host.pinfold.block(client.answer_agent(&agent.id, &answer)).expect("answered");
    assert_said(&host.finish(&agent.id, turn.number), "was allowed");
    assert_eq!(inbox(Some("mine")).permission, 0);
}
