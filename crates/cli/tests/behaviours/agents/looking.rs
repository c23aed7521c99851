//! A permission request of an agent, answered from `pinfold top`.

use pinfold_api::types::{AgentRequest, Approvals};

use super::{Host, assert_said};
use crate::top::Looker;

#[test]
fn a_permission_request_is_answered_with_one_key() {
    let host = Host::start();
    let agent = host.host(&AgentRequest { approvals: Some(Approvals::Ask), ..host.request() });
    for (key, said) in [("y", "was allowed"), ("n", "was denied")] {
        let turn = host.begin(&agent.id, "permission");
        let looker = Looker::open(&host.pinfold, 100, 24);
        looker.until("1 need you");
        looker.keys("!");
        looker.until("y allows it, n denies it");
        looker.keys(key);
        assert_said(&host.finish(&agent.id, turn.number), said);
    }
}
