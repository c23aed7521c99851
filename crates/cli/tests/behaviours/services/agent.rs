//! Services over MCP.

use pinfold_testkit::Pinfold;
use serde_json::json;

use super::SERVER;
use crate::PINFOLD;
use crate::mcp::agent::Agent;

/// A model starts a server and learns from the result when and where it listens.
#[test]
fn execute_returns_when_it_is_ready() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let service = json!({ "command": SERVER, "background": true, "name": "web",
                          "ports": { "PORT": "lease" }, "ready": { "port": "PORT" }, "timeout": "60s" });
    let called = agent.call("execute", service);
    let port = pinfold.show("web").ports["PORT"];
    assert_eq!((&called.facts["reason"], &called.facts["port"]), (&json!("ready"), &json!(port)), "{:?}", called.facts);
    assert_eq!((&called.facts["reason"], &called.facts["leased"]["PORT"]), (&json!("ready"), &json!(port)));
    // What the result said is not repeated as news.
    assert!(agent.execute("true").news().is_empty());
    let early = agent.call("execute", json!({ "command": "echo no; exit 4", "ready": { "port": "any" } }));
    assert_eq!((&early.facts["exit_code"], &early.facts["reason"]), (&json!(4), &json!("ended_before")));
    let refused = agent.call("execute", json!({ "command": "true", "ready": { "moon": 1 } }));
    assert!(refused.facts["right_call"].as_str().is_some_and(|call| call.contains("ready")), "{:?}", refused.facts);
}
