//! How each client talks to its model: what of a request is the last result, and how a turn is answered.

use serde_json::{Value, json};

use crate::seen::Seen;

/// A model's wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI's responses: codex.
    Responses,
    /// Anthropic's messages: Claude Code.
    Messages,
    /// Chat completions: opencode.
    Completions,
    /// Google's generateContent: gemini-cli.
    Contents,
}

/// What the scripted model does in a turn.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// A tool of pinfold's server.
    Call {
        tool: String,
        arguments: Value,
    },
    /// A tool of the client's own.
    Own {
        tool: String,
        arguments: Value,
    },
    Say(String),
}

impl Dialect {
    /// The wire that a path belongs to.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        match path {
            _ if path.ends_with("/responses") => Some(Dialect::Responses),
            _ if path.ends_with("/messages") => Some(Dialect::Messages),
            _ if path.ends_with("/chat/completions") => Some(Dialect::Completions),
            _ if path.ends_with("enerateContent") => Some(Dialect::Contents),
            _ => None,
        }
    }

    /// Whether a request is a turn of the chat; others ask for a title and the like, and offer no tools.
    pub(crate) fn is_turn(request: &Value) -> bool {
        request["tools"].as_array().is_some_and(|tools| !tools.is_empty())
    }

    /// The tools of ours that a request offers, under the names that the model must use.
    pub(crate) fn offers(request: &Value, tool: &str) -> bool {
        request["tools"].to_string().contains(tool)
    }

    /// The result of the call of this number.
    pub(crate) fn result(self, request: &Value, number: u32) -> Option<Seen> {
        let id = call_id(number);
        let list = |key: &str| request[key].as_array().cloned().unwrap_or_default();
        let found = match self {
            Dialect::Responses => {
                list("input").into_iter().rfind(|item| item["call_id"] == id && item["output"] != Value::Null)
            }
            Dialect::Messages => {
                let blocks = list("messages").into_iter().filter_map(|message| message["content"].as_array().cloned());
                blocks.flatten().find(|block| block["tool_use_id"] == id)
            }
            Dialect::Completions => list("messages").into_iter().find(|message| message["tool_call_id"] == id),
            Dialect::Contents => {
                let parts = list("contents").into_iter().filter_map(|content| content["parts"].as_array().cloned());
                // They have no ids, and a resumed chat has those of earlier runs, too.
                parts.flatten().rfind(|part| part["functionResponse"] != Value::Null)
            }
        }?;
        let text = match self {
            Dialect::Responses => plain(&found["output"]),
            Dialect::Messages | Dialect::Completions => plain(&found["content"]),
            Dialect::Contents => {
                let response = &found["functionResponse"]["response"];
                plain(response.get("output").unwrap_or(&response["error"]))
            }
        };
        Some(Seen { text })
    }

    /// The whole body of an answer, as a stream of events.
    pub(crate) fn answer(self, number: u32, act: &Act) -> String {
        match self {
            Dialect::Responses => responses(number, act),
            Dialect::Messages => messages(number, act),
            Dialect::Completions => completions(number, act),
            Dialect::Contents => contents(act),
        }
    }
}

fn call_id(number: u32) -> String {
    format!("call_{number}")
}

/// A text, or the texts of a list of parts.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    }
}

/// Events with their type as their name.
fn events(events: &[Value]) -> String {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(event).collect()
}

fn responses(number: u32, act: &Act) -> String {
    let item = match act {
        Act::Call { tool, arguments } => json!({
            "type": "function_call",
            "id": format!("fc_{number}"),
            "call_id": call_id(number),
            "namespace": "mcp__pinfold",
            "name": tool,
            "arguments": arguments.to_string(),
        }),
        Act::Own { tool, arguments } => json!({
            "type": "function_call",
            "id": format!("fc_{number}"),
            "call_id": call_id(number),
            "name": tool,
            "arguments": arguments.to_string(),
        }),
        Act::Say(text) => json!({
            "type": "message",
            "role": "assistant",
            "id": format!("msg_{number}"),
            "content": [{ "type": "output_text", "text": text }],
        }),
    };
    let id = format!("resp_{number}");
    let usage = json!({ "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 });
    events(&[
        json!({ "type": "response.created", "response": { "id": id } }),
        json!({ "type": "response.output_item.done", "item": item }),
        json!({ "type": "response.completed", "response": { "id": id, "usage": usage } }),
    ])
}

fn messages(number: u32, act: &Act) -> String {
    let (block, delta, reason) = match act {
        Act::Call { tool, arguments } => (
            json!({ "type": "tool_use", "id": call_id(number), "name": format!("mcp__pinfold__{tool}"), "input": {} }),
            json!({ "type": "input_json_delta", "partial_json": arguments.to_string() }),
            "tool_use",
        ),
        Act::Own { tool, arguments } => (
            json!({ "type": "tool_use", "id": call_id(number), "name": tool, "input": {} }),
            json!({ "type": "input_json_delta", "partial_json": arguments.to_string() }),
            "tool_use",
        ),
        Act::Say(text) => {
            (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": text }), "end_turn")
        }
    };
    let message = json!({
        "id": format!("msg_{number}"),
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": { "input_tokens": 1, "output_tokens": 1 },
    });
    let over = json!({ "stop_reason": reason, "stop_sequence": null });
    events(&[
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": over, "usage": { "output_tokens": 1 } }),
        json!({ "type": "message_stop" }),
    ])
}

fn completions(number: u32, act: &Act) -> String {
    let (delta, reason) = match act {
        Act::Call { tool, arguments } | Act::Own { tool, arguments } => {
            let function = json!({ "name": format!("pinfold_{tool}"), "arguments": arguments.to_string() });
            let call = json!({ "index": 0, "id": call_id(number), "type": "function", "function": function });
            (json!({ "role": "assistant", "tool_calls": [call] }), "tool_calls")
        }
        Act::Say(text) => (json!({ "role": "assistant", "content": text }), "stop"),
    };
    let chunk = |delta: Value, reason: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
        json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice] })
    };
    let mut last = chunk(json!({}), reason.into());
    last["usage"] = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
    format!("data: {}\n\ndata: {last}\n\ndata: [DONE]\n\n", chunk(delta, Value::Null))
}

fn contents(act: &Act) -> String {
    let part = match act {
        Act::Call { tool, arguments } | Act::Own { tool, arguments } => {
            json!({ "functionCall": { "name": format!("mcp_pinfold_{tool}"), "args": arguments } })
        }
        Act::Say(text) => json!({ "text": text }),
    };
    let candidate = json!({ "content": { "role": "model", "parts": [part] }, "finishReason": "STOP", "index": 0 });
    let usage = json!({ "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 });
    format!("data: {}\n\n", json!({ "candidates": [candidate], "usageMetadata": usage }))
}
