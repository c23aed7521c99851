//! What is sent to an agent besides its protocol's answers: the reason of a denial, and the end of background tasks.

use pinfold_agents::{Conversation, Effect, Kind, Settings};
use pinfold_api::types::{Approvals, Turn, Verdict};
use serde_json::{Value, json};

fn sent(effects: &[Effect]) -> Vec<Value> {
    let lines = effects.iter().filter_map(|effect| match effect {
        Effect::Send { line, .. } => Some(serde_json::from_str(line).expect("JSON")),
        _ => None,
    });
    lines.collect()
}

/// A codex in a turn that asks for permission.
fn asking(method: &str, params: &Value) -> Conversation {
    let mut conversation = Conversation::new(Kind::Codex, Settings::default(), Approvals::Ask, 0);
    conversation.open();
    conversation.line(br#"{"id":1,"result":{"userAgent":"pinfold/9.9.9 (x)"}}"#);
    conversation.line(br#"{"id":2,"result":{"thread":{"id":"t"}}}"#);
    conversation.begin(Turn { number: 1, ..Turn::default() });
    conversation.line(br#"{"id":3,"result":{"turn":{"id":"u1"}}}"#);
    let ask = json!({ "id": 77, "method": method, "params": params });
    conversation.line(ask.to_string().as_bytes());
    assert_eq!(conversation.asks().len(), 1);
    conversation
}

const COMMAND: &str = "item/commandExecution/requestApproval";

#[test]
fn the_message_of_a_denial_goes_to_codex_before_the_denial() {
    let params = json!({ "threadId": "t", "turnId": "u1", "command": "rm -rf x" });
    let mut conversation = asking(COMMAND, &params);
    let effects = conversation.answer("ask-77", Verdict::Deny, Some("use trash")).expect("it asks");
    let [steer] = sent(&effects).try_into().expect("the message alone");
    assert_eq!((&steer["method"], &steer["params"]["expectedTurnId"]), (&json!("turn/steer"), &json!("u1")));
    let text = steer["params"]["input"][0]["text"].as_str().expect("a text");
    assert!(text.contains("use trash") && text.contains("rm -rf x"), "{text}");
    let denial = json!({ "id": 77, "result": { "decision": "decline" } });
    let taken = json!({ "id": steer["id"], "result": {} }).to_string();
    assert_eq!(sent(&conversation.line(taken.as_bytes())), std::slice::from_ref(&denial));
    assert_eq!(sent(&conversation.line(taken.as_bytes())), [Value::Null; 0], "once");
    // If codex does not take the message, the denial is sent all the same, and a notice says so.
    let mut conversation = asking(COMMAND, &params);
    conversation.answer("ask-77", Verdict::Deny, Some("use trash")).expect("it asks");
    let refused = json!({ "id": steer["id"], "error": { "code": 1, "message": "no active turn" } });
    assert_eq!(sent(&conversation.line(refused.to_string().as_bytes())), [denial]);
    assert!(conversation.notices().iter().any(|notice| notice.contains("no active turn")));
}

#[test]
fn a_message_goes_to_the_thread_that_asked_or_to_our_own() {
    let of_another = json!({ "threadId": "sub", "turnId": "s9", "command": "rm -rf x" });
    let old = json!({ "conversationId": "t", "command": ["rm", "x"] });
    for (method, params, thread, turn) in [(COMMAND, of_another, "sub", "s9"), ("execCommandApproval", old, "t", "u1")]
    {
        let effects = asking(method, &params).answer("ask-77", Verdict::Deny, Some("no")).expect("it asks");
        let steer = &sent(&effects)[0]["params"];
        assert_eq!((&steer["threadId"], &steer["expectedTurnId"]), (&json!(thread), &json!(turn)), "{method}");
    }
}

#[test]
fn without_a_message_and_with_a_permission_nothing_else_is_sent() {
    let params = json!({ "threadId": "t", "turnId": "u1", "command": "rm -rf x" });
    for (verdict, message) in [(Verdict::Deny, None), (Verdict::Allow, Some("fine"))] {
        let effects = asking(COMMAND, &params).answer("ask-77", verdict, message).expect("it asks");
        assert_eq!(sent(&effects).len(), 1, "{verdict:?}");
    }
}

fn tasks(ids: &[&str]) -> Vec<u8> {
    let tasks: Vec<_> = ids.iter().map(|id| json!({ "task_id": id, "task_type": "local_bash" })).collect();
    json!({ "type": "system", "subtype": "background_tasks_changed", "tasks": tasks }).to_string().into_bytes()
}

#[test]
fn an_interrupt_of_claude_stops_the_tasks_that_the_turn_put_into_the_background() {
    let mut conversation = Conversation::new(Kind::Claude, Settings::default(), Approvals::Allow, 0);
    conversation.open();
    conversation.line(br#"{"type":"control_response","response":{"subtype":"success","request_id":"pinfold-1"}}"#);
    conversation.begin(Turn { number: 1, ..Turn::default() });
    conversation.line(&tasks(&["early"]));
    conversation.line(br#"{"type":"result","subtype":"success","result":"ok"}"#);
    conversation.begin(Turn { number: 2, ..Turn::default() });
    conversation.line(&tasks(&["early", "over", "late"]));
    conversation.line(&tasks(&["early", "late"]));
    // Also after the daemon was killed.
    let mut conversation = Conversation::restore(conversation.save()).expect("it is restored");
    let requests: Vec<_> = sent(&conversation.interrupt()).iter().map(|message| message["request"].clone()).collect();
    assert_eq!(requests, [json!({ "subtype": "interrupt" }), json!({ "subtype": "stop_task", "task_id": "late" })]);
}
