//! Fixtures that ask back by an `input_required` result, as revision 2026-07-28 does: nothing is remembered here
//! between the rounds, and what the client carries back is sealed.

use std::hash::{BuildHasher, RandomState};

use rmcp::ErrorData;
use serde_json::{Map, Value, json};

use crate::content::said;

/// What a client sent with its call.
pub(crate) struct Asked<'a> {
    pub(crate) responses: &'a Map<String, Value>,
    pub(crate) state: Option<&'a str>,
    /// What the client can do, as its capabilities are written.
    pub(crate) able: &'a Value,
}

/// Seals what clients carry for us. Its key is as old as the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seal(RandomState);

impl Seal {
    fn close(&self, state: &str) -> String {
        format!("{state}.{:016x}", self.0.hash_one(state))
    }

    fn open<'a>(&self, sealed: &'a str) -> Result<&'a str, ErrorData> {
        let state = sealed.rsplit_once('.').map(|(state, _)| state).filter(|state| self.close(state) == sealed);
        state.ok_or_else(|| ErrorData::invalid_params("the request state was tampered with", None))
    }
}

/// The answer to a call of a tool that asks back; nothing if there is no such tool.
pub(crate) fn call(seal: &Seal, name: &str, asked: &Asked<'_>) -> Result<Option<Value>, ErrorData> {
    let state = asked.state.map(|state| seal.open(state)).transpose()?;
    let answer = match name {
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
            match asked.text("user_name", "name") {
                Some(name) => said(&format!("Hello, {name}!")),
                None => ask(&[("user_name", elicit("What is your name?", "name"))], None),
            }
        }
        "test_input_required_result_sampling" => match asked.responses.get("capital_question") {
            Some(answer) => said(answer["content"]["text"].as_str().unwrap_or("nothing")),
            None => ask(&[("capital_question", sample("What is the capital of France?"))], None),
        },
        "test_input_required_result_list_roots" => match asked.responses.get("client_roots") {
            Some(answer) => said(&format!("roots: {}", answer["roots"])),
            None => ask(&[("client_roots", roots())], None),
        },
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => match state {
            Some("confirming") if asked.responses.contains_key("confirm") => said("state-ok"),
            _ => ask(&[("confirm", confirm())], Some(seal.close("confirming"))),
        },
        "test_input_required_result_multiple_inputs" => several(seal, asked, state),
        "test_input_required_result_multi_round" => rounds(seal, asked, state),
        "test_input_required_result_capabilities" => by_capability(asked),
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

/// The prompt that asks back.
pub(crate) fn prompt(asked: &Asked<'_>) -> Value {
    match asked.text("user_context", "context") {
        Some(context) => crate::content::prompt(&[crate::content::text(&format!("In the context of {context}"))]),
        None => ask(&[("user_context", elicit("What context should the prompt use?", "context"))], None),
    }
}

fn several(seal: &Seal, asked: &Asked<'_>, state: Option<&str>) -> Value {
    let all = ["user_name", "greeting", "client_roots"];
    if state == Some("several") && all.iter().all(|key| asked.responses.contains_key(*key)) {
        return said("all answered");
    }
    let requests = [
        ("user_name", elicit("What is your name?", "name")),
        ("greeting", sample("Generate a greeting")),
        ("client_roots", roots()),
    ];
    ask(&requests, Some(seal.close("several")))
}

fn rounds(seal: &Seal, asked: &Asked<'_>, state: Option<&str>) -> Value {
    match (state, asked.text("step1", "name"), asked.text("step2", "color")) {
        (Some("second"), _, Some(color)) => said(&format!("{color} it is")),
        (Some("first"), Some(_), _) => {
            ask(&[("step2", elicit("Step 2: What is your favorite color?", "color"))], Some(seal.close("second")))
        }
        _ => ask(&[("step1", elicit("Step 1: What is your name?", "name"))], Some(seal.close("first"))),
    }
}

fn by_capability(asked: &Asked<'_>) -> Value {
    let can = |capability: &str| asked.able.get(capability).is_some_and(Value::is_object);
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
    if possible.is_empty() || possible.iter().all(|(key, _)| asked.responses.contains_key(*key)) {
        return said("nothing more to ask");
    }
    ask(&possible, None)
}

impl Asked<'_> {
    /// What the user filled in, if it is there and the user agreed.
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
