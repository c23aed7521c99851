//! Fixture tools that request input with a request from the server, as in revisions before 2026-07-28.

use rmcp::model::{CreateMessageRequest, ElicitRequest, ServerRequest};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::content::text_result;

/// Calls a tool that requests input; `None` if there is no such tool.
pub(crate) async fn call(
    name: &str,
    arguments: &Map<String, Value>,
    context: &RequestContext<RoleServer>,
) -> Result<Option<Value>, ErrorData> {
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let answer = match name {
        "test_sampling" => {
            let messages = json!([{ "role": "user", "content": { "type": "text", "text": argument("prompt") } }]);
            let params = json!({ "messages": messages, "maxTokens": 100 });
            let request = ServerRequest::CreateMessageRequest(CreateMessageRequest::new(read(params)?));
            let answer = ask(request, context).await?;
            text_result(&format!("LLM response: {}", answer["content"]["text"].as_str().unwrap_or_default()))
        }
        "test_elicitation" => {
            let field = json!({ "type": "string", "description": "User's response" });
            let properties = json!({ "username": field, "email": field });
            let answer = elicit(argument("message"), properties, &["username", "email"], context).await?;
            text_result(&format!("User response: action={}, content={}", answer["action"], answer["content"]))
        }
        "test_elicitation_sep1034_defaults" => done(&elicit("All have defaults", defaults(), &[], context).await?),
        "test_elicitation_sep1330_enums" => done(&elicit("Choose", choices(), &[], context).await?),
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

fn done(answer: &Value) -> Value {
    text_result(&format!("Elicitation completed: action={}, content={}", answer["action"], answer["content"]))
}

async fn elicit(
    message: &str,
    properties: Value,
    required: &[&str],
    context: &RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
    ask(ServerRequest::ElicitRequest(ElicitRequest::new(read(params)?)), context).await
}

async fn ask(request: ServerRequest, context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
    let answer = context.peer.send_request(request).await;
    let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    serde_json::to_value(answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    })
}

fn choices() -> Value {
    let plain = json!(["option1", "option2", "option3"]);
    let titled = json!([
        { "const": "value1", "title": "First Option" },
        { "const": "value2", "title": "Second Option" },
        { "const": "value3", "title": "Third Option" },
    ]);
    json!({
        "untitledSingle": { "type": "string", "enum": plain },
        "titledSingle": { "type": "string", "oneOf": titled },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled } },
    })
}
