//! The tools, prompts and resources of the fixture server, as the suite names them.

use serde_json::{Value, json};

/// Tools without arguments, the same in every revision.
const PLAIN: &[&str] = &[
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_error_handling",
    "test_tool_with_progress",
    "test_reconnection",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];

/// All tools.
pub(crate) fn tools() -> Value {
    let mut tools: Vec<Value> =
        PLAIN.iter().map(|name| tool(name, json!({ "type": "object", "properties": {} }))).collect();
    tools.push(tool("test_sampling", one_text("prompt")));
    tools.push(tool("test_elicitation", one_text("message")));
    tools.push(tool("test_mirrored_header", mirrored()));
    tools.push(tool("json_schema_2020_12_tool", json_schema()));
    Value::Array(tools)
}

fn tool(name: &str, schema: Value) -> Value {
    json!({ "name": name, "description": format!("the suite's {name}"), "inputSchema": schema })
}

fn one_text(name: &str) -> Value {
    json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] })
}

/// An argument that clients repeat in a header.
fn mirrored() -> Value {
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    json!({ "type": "object", "properties": { "region": region }, "required": ["region"] })
}

/// A schema with keywords of JSON Schema 2020-12, all of which must be preserved.
fn json_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
        } },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

/// All prompts.
pub(crate) fn prompts() -> Value {
    let argument = |name: &str| json!({ "name": name, "description": format!("the {name}"), "required": true });
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<Value> = arguments.iter().map(|name| argument(name)).collect();
        json!({ "name": name, "description": format!("the suite's {name}"), "arguments": arguments })
    };
    json!([
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt("test_input_required_result_prompt", &[]),
    ])
}

/// All resources with a fixed URI.
pub(crate) fn resources() -> Value {
    let resource = |name: &str, mime_type: &str| {
        let description = format!("the suite's {name}");
        json!({ "uri": format!("test://{name}"), "name": name, "description": description, "mimeType": mime_type })
    };
    json!([
        resource("static-text", "text/plain"),
        resource("static-binary", "image/png"),
        resource("watched-resource", "text/plain"),
    ])
}

/// Resource templates.
pub(crate) fn templates() -> Value {
    json!([{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "the suite's template",
        "mimeType": "application/json",
    }])
}

/// The contents of a resource.
pub(crate) fn read(uri: &str) -> Option<Value> {
    let contents = match uri {
        "test://static-text" => {
            json!({ "uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource." })
        }
        "test://watched-resource" => json!({ "uri": uri, "mimeType": "text/plain", "text": "watched" }),
        "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": crate::content::PNG }),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            json!({ "uri": uri, "mimeType": "application/json", "text": data.to_string() })
        }
    };
    Some(json!({ "contents": [contents] }))
}
