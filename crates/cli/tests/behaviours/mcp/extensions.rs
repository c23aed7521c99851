//! Progress, resources and tasks, for clients that support them.

use pinfold_api::types::Status;
use pinfold_testkit::{Pinfold, until};
use serde_json::{Value, json};

use super::agent::Agent;
use crate::PINFOLD;
use crate::requests::Gate;

fn modern(extensions: Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "behaviours", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "extensions": extensions },
    })
}

#[test]
fn progress_is_sent_while_a_call_waits() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let id = agent.background("exec sleep 300");
    let params = json!({ "name": "process_wait", "arguments": { "id": id, "timeout": "10m" }, "_meta": { "progressToken": "p" } });
    let waiting = agent.begin("tools/call", params);
    let progress = agent.until("progress", |message| message["method"] == "notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p");
    assert!(progress["params"]["message"].as_str().is_some_and(|text| text.contains(&id)), "{progress}");
    agent.call("process_signal", json!({ "id": id }));
    assert_eq!(agent.called(waiting).facts["cause"], "stop_requested");
}

#[test]
fn resources_are_listed_read_and_followed() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let gate = Gate::new(&pinfold, "gate");
    let id = agent.background(&format!("echo said; {}", gate.wait()));
    let uri = format!("pinfold://processes/{id}");
    let list = agent.request("resources/list", json!({}));
    assert_eq!(list["result"]["resources"][0]["uri"], uri.as_str());
    agent.call("process_wait", json!({ "id": id, "pattern": "said" }));
    let read = agent.request("resources/read", json!({ "uri": uri }));
    let text = read["result"]["contents"][0]["text"].as_str().expect("a text");
    assert!(text.contains("said") && text.contains("state: running") && text.contains("not instructions"), "{text}");
    assert_eq!(
        agent.request("resources/read", json!({ "uri": "pinfold://processes/missing" }))["error"]["code"],
        -32002
    );
    assert!(agent.request("prompts/list", json!({}))["error"].is_object());
    assert!(agent.request("resources/subscribe", json!({ "uri": uri }))["error"].is_null());
    // Another owner sees none of it.
    let mut other = Agent::connect(&pinfold);
    assert_eq!(other.request("resources/list", json!({}))["result"]["resources"], json!([]));
    assert!(other.request("resources/subscribe", json!({ "uri": uri }))["error"].is_object());
    gate.open();
    let updated = agent.until("an update", |message| message["method"] == "notifications/resources/updated");
    assert_eq!(updated["params"]["uri"], uri.as_str());
    assert!(agent.request("resources/unsubscribe", json!({ "uri": uri }))["error"].is_null());
}

#[test]
fn resources_are_followed_by_a_listener_of_the_stateless_revision() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::spawn(super::agent::shim(&pinfold, &[]));
    let gate = Gate::new(&pinfold, "gate");
    let start = json!({ "command": gate.wait(), "background": true });
    let id = agent.call_as(modern(json!({})), "execute", start).id().to_owned();
    let uri = format!("pinfold://processes/{id}");
    let wanted = json!({ "notifications": { "resourceSubscriptions": [uri] }, "_meta": modern(json!({})) });
    agent.begin("subscriptions/listen", wanted);
    agent.until("an acknowledgement", |message| message["method"] == "notifications/subscriptions/acknowledged");
    gate.open();
    let updated = agent.until("an update", |message| message["method"] == "notifications/resources/updated");
    assert_eq!(updated["params"]["uri"], uri.as_str());
}

#[test]
fn a_long_command_is_a_task_for_a_client_that_supports_tasks() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::spawn(super::agent::shim(&pinfold, &[]));
    let meta = modern(json!({ "io.modelcontextprotocol/tasks": {} }));
    let gate = Gate::new(&pinfold, "gate");
    let call =
        |command: &str| json!({ "name": "execute", "arguments": { "command": command, "timeout": 1 }, "_meta": meta });
    assert_eq!(agent.request("tools/call", call("echo quick"))["result"]["structuredContent"]["output"], "quick\n");
    let created = agent.request("tools/call", call(&format!("{}; echo late; exit 3", gate.wait())))["result"].clone();
    assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")), "{created}");
    let task = created["taskId"].as_str().expect("an id").to_owned();
    let get = |agent: &mut Agent, task: &str| agent.request("tasks/get", json!({ "taskId": task, "_meta": meta }));
    assert_eq!(get(&mut agent, &task)["result"]["status"], "working");
    // A task is its process: another daemon knows it too.
    pinfold.crash_and_restart();
    gate.open();
    let mut done = Value::Null;
    until("the task is done", || {
        done = get(&mut agent, &task)["result"].clone();
        done["status"] != "working"
    });
    assert_eq!((&done["status"], &done["result"]["structuredContent"]["exit_code"]), (&json!("completed"), &json!(3)));
    assert_eq!(done["result"]["structuredContent"]["output"], "late\n");
    assert!(get(&mut agent, "0123456789abcdef")["error"].is_object());
    // Cancelling a task stops its process.
    let other =
        agent.request("tools/call", call("exec sleep 300"))["result"]["taskId"].as_str().expect("an id").to_owned();
    assert!(agent.request("tasks/cancel", json!({ "taskId": other, "_meta": meta }))["error"].is_null());
    until("the task is cancelled", || get(&mut agent, &other)["result"]["status"] == "cancelled");
    until("the process is over", || {
        pinfold.list(&Default::default()).processes.iter().all(|one| one.status == Status::Finished)
    });
}
