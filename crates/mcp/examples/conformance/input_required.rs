//! Fixture tools that request input with an `input_required` result, as in revision 2026-07-28. The server keeps no
//! state between the rounds: the client sends it back, signed.

use std::hash::{BuildHasher, RandomState};

use rmcp::ErrorData;
use serde_json::{Map, Value, json};

use crate::content::text_result;

/// What a client sent with its call.
pub(crate) struct ToolInput<'a> {
    pub(crate) responses: &'a Map<String, Value>,
    pub(crate) state: Option<&'a str>,
    /// The client's capabilities as JSON.
    pub(crate) capabilities: &'a Value,
}

/// Signs the state that clients send back. The key is new in each run.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateSigner(RandomState);

impl StateSigner {
    fn sign(&self, state: &str) -> String {
        format!("{state}.{:016x}", self.0.hash_one(state))
    }

    fn verify<'a>(&self, signed: &'a str) -> Result<&'a str, ErrorData> {
        let state = signed.rsplit_once('.').map(|(state, _)| state).filter(|state| self.sign(state) == signed);
        state.ok_or_else(|| ErrorData::invalid_params("the request state was tampered with", None))
    }
}

/// Calls a tool that requests input; `None` if there is no such tool.
pub(crate) fn call(signer: &StateSigner, name: &str, input: &ToolInput<'_>) -> Result<Option<Value>, ErrorData> {
    let state = input.state.map(|state| signer.verify(state)).transpose()?;
    let answer = match name {
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
            match input.text("user_name", "name") {
                Some(name) => text_result(&format!("Hello, {name}!")),
                None => ask(&[("user_name", elicit("What is your name?", "name"))], None),
            }
        }
        "test_input_required_result_sampling" => match input.responses.get("capital_question") {
            Some(answer) => text_result(answer["content"]["text"].as_str().unwrap_or("nothing")),
            None => ask(&[("capital_question", sample("What is the capital of France?"))], None),
        },
        "test_input_required_result_list_roots" => match input.responses.get("client_roots") {
            Some(answer) => text_result(&format!("roots: {}", answer["roots"])),
            None => ask(&[("client_roots", roots())], None),
        },
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => match state {
            Some("confirming") if input.responses.contains_key("confirm") => text_result("state-ok"),
            _ => ask(&[("confirm", confirm())], Some(signer.sign("confirming"))),
        },
        "test_input_required_result_multiple_inputs" => several(signer, input, state),
        "test_input_required_result_multi_round" => rounds(signer, input, state),
        "test_input_required_result_capabilities" => by_capability(input),
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

/// The prompt that requests input.
pub(crate) fn prompt(input: &ToolInput<'_>) -> Value {
    match input.text("user_context", "context") {
        Some(context) => crate::content::prompt(&[crate::content::text(&format!("In the context of {context}"))]),
        None => ask(&[("user_context", elicit("What context should the prompt use?", "context"))], None),
    }
}

fn several(signer: &StateSigner, input: &ToolInput<'_>, state: Option<&str>) -> Value {
    let all = ["user_name", "greeting", "client_roots"];
    if state == Some("several") && all.iter().all(|key| input.responses.contains_key(*key)) {
        return text_result("all answered");
    }
    let requests = [
        ("user_name", elicit("What is your name?", "name")),
        ("greeting", sample("Generate a greeting")),
        ("client_roots", roots()),
    ];
    ask(&requests, Some(signer.sign("several")))
}

fn rounds(signer: &StateSigner, input: &ToolInput<'_>, state: Option<&str>) -> Value {
    match (state, input.text("step1", "name"), input.text("step2", "color")) {
        (Some("second"), _, Some(color)) => text_result(&format!("{color} it is")),
        (Some("first"), Some(_), _) => {
            ask(&[("step2", elicit("Step 2: What is your favorite color?", "color"))], Some(signer.sign("second")))
        }
        _ => ask(&[("step1", elicit("Step 1: What is your name?", "name"))], Some(signer.sign("first"))),
    }
}

fn by_capability(input: &ToolInput<'_>) -> Value {
    let can = |capability: &str| input.capabilities.get(capability).is_some_and(Value::is_object);
    let requests = [
        ("elicitation", "user_name", elicit("What is your name?", "name")),
        ("sampling", "greeting", sample("Generate a greeting")),
        ("roots", "client_roots", roots()),
    ];
    let possible: Vec<(&str, Value)> = requests
        .into_iter()
        .filter(|(capability, ..)| can(capability))
        .map(|(_, key, request)| (key, request))
        .collect();
    if possible.is_empty() || possible.iter().all(|(key, _)| input.responses.contains_key(*key)) {
        return text_result("nothing more to ask");
    }
    ask(&possible, None)
}

impl ToolInput<'_> {
    /// The value that the user entered, if the user accepted.
    fn text(&self, key: &str, field: &str) -> Option<&str> {
        let response = self.responses.get(key).filter(|response| response["action"] == "accept")?;
        response["content"][field].as_str()
    }
}

fn ask(requests: &[(&str, Value)], state: Option<String>) -> Value {
    let requests: Map<String, Value> =
        requests.iter().map(|(key, request)| ((*key).to_owned(), request.clone())).collect();
    let mut answer = json!({ "resultType": "input_required", "inputRequests": requests });
    if let Some(state) = state {
        answer["requestState"] = state.into();
    }
    answer
}

fn elicit(message: &str, field: &str) -> Value {
    form(message, json!({ field: { "type": "string" } }), field)
}

fn confirm() -> Value {
    form("Please confirm", json!({ "ok": { "type": "boolean" } }), "ok")
}

fn form(message: &str, properties: Value, required: &str) -> Value {
    let schema = json!({ "type": "object", "properties": properties, "required": [required] });
    json!({ "method": "elicitation/create", "params": { "message": message, "requestedSchema": schema } })
}

fn sample(question: &str) -> Value {
    let messages = json!([{ "role": "user", "content": { "type": "text", "text": question } }]);
    json!({ "method": "sampling/createMessage", "params": { "messages": messages, "maxTokens": 100 } })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}
