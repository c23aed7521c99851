//! A model controls agents with the tools that it has: `execute`, and the command line in it.

use pinfold_api::types::{AgentStatus, TurnStatus};
use serde_json::json;

use super::{Host, assert_said};
use crate::mcp::agent::{Agent, shim};

#[test]
fn a_model_hosts_and_leads_an_agent_of_its_own_with_execute() {
    let host = Host::start();
    let mut model = Agent::connect_with(shim(&host.pinfold, &["--owner", "chat"]));
    let (pinfold, work) = (host.pinfold.binary().display().to_string(), host.work.display());
    let run = format!("{pinfold} agent run codex --name helper --lifetime owner --program /bin/sh --cwd {work}");
    let called = model.execute(&run);
    assert_eq!(called.facts["exit_code"], json!(0), "{}", called.text);
    let agent = host.show("helper");
    assert_eq!((agent.owner.as_str(), agent.id.as_str()), ("chat", called.output().trim()), "it is the chat's own");
    let called = model.execute(&format!("{pinfold} agent turn helper 'say done'"));
    assert_eq!((&called.facts["exit_code"], called.output()), (&json!(0), "done\n"), "{}", called.text);
    // A long turn in the background: its end is reported to the model like that of any process.
    let turn = json!({ "command": format!("{pinfold} agent turn helper 'await go'"), "background": true });
    let id = model.call("execute", turn).id().to_owned();
    host.until_asked(2);
    host.touch("go");
    let waited = model.call("process_wait", json!({ "id": id }));
    assert_eq!(waited.facts["exit_code"], json!(0), "{}", waited.text);
    assert_said(&host.peek(&agent.id, 2), "came");
    assert_eq!(host.peek(&agent.id, 1).status, TurnStatus::Completed);
    host.pinfold.block(host.pinfold.client().end_owner("chat", &Default::default())).expect("ended");
    assert_eq!(host.show(&agent.id).status, AgentStatus::Stopped);
}
