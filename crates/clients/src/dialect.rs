//! The API that each client uses for its model: parsing requests and encoding replies.

use serde_json::{Value, json};

use crate::seen::Seen;

/// A model API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI responses: codex.
    Responses,
    /// Anthropic messages: Claude Code.
    Messages,
    /// Chat completions: opencode.
    Completions,
    /// Google's generateContent: gemini-cli.
    Contents,
}

/// The scripted model's reply to one request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Calls these tools, all in one turn.
    Use(Vec<Call>),
    Say(String),
}

/// A tool call.
#[derive(Clone, Debug)]
pub struct Call {
    pub from: ToolSet,
    pub tool: String,
    pub arguments: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolSet {
    /// pinfold's server.
    Pinfold,
    /// The client itself.
    Own,
}

impl Act {
    /// Calls a tool of pinfold's server.
    pub fn call(tool: &str, arguments: Value) -> Self {
        Act::Use(vec![Call { from: ToolSet::Pinfold, tool: tool.to_owned(), arguments }])
    }

    /// Calls one of the client's own tools.
    pub fn own(tool: &str, arguments: Value) -> Self {
        Act::Use(vec![Call { from: ToolSet::Own, tool: tool.to_owned(), arguments }])
    }
}

impl Call {
    /// The tool's name with the prefix that this client gives to server tools.
    fn name(&self, prefix: &str) -> String {
        match self.from {
            ToolSet::Pinfold => format!("{prefix}{}", self.tool),
            ToolSet::Own => self.tool.clone(),
        }
    }
}

impl Dialect {
    /// The API that a request path belongs to.
    pub fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        match path {
            _ if path.ends_with("/responses") => Some(Dialect::Responses),
            _ if path.ends_with("/messages") => Some(Dialect::Messages),
            _ if path.ends_with("/chat/completions") => Some(Dialect::Completions),
            _ if path.ends_with("enerateContent") => Some(Dialect::Contents),
            _ => None,
        }
    }

    /// Whether a request is a turn of the chat; others, such as those for a title, have no tools.
    pub fn is_turn(request: &Value) -> bool {
        request["tools"].as_array().is_some_and(|tools| !tools.is_empty())
    }

    /// Whether a request offers this tool.
    pub fn offers(request: &Value, tool: &str) -> bool {
        request["tools"].to_string().contains(tool)
    }

    /// Notices of the client itself about commands that ended. Claude Code sends them as separate messages.
    pub fn notices(request: &Value) -> Vec<String> {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let texts = messages.iter().flat_map(|message| match &message["content"] {
            Value::String(text) => vec![text.clone()],
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str().map(str::to_owned)).collect(),
            _ => vec![],
        });
        texts.filter(|text| text.contains("<task-notification>")).collect()
    }

    /// The result of the call with this number.
    pub fn result(self, request: &Value, number: u32) -> Option<Seen> {
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
                parts.flatten().find(|part| part["functionResponse"]["id"] == id)
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

    /// The body of a reply, as a stream of events. Calls are numbered from `first`.
    pub fn answer(self, first: u32, act: &Act) -> String {
        match self {
            Dialect::Responses => responses(first, act),
            Dialect::Messages => messages(first, act),
            Dialect::Completions => completions(first, act),
            Dialect::Contents => contents(first, act),
        }
    }
}

fn call_id(number: u32) -> String {
    format!("call_{number}")
}

fn numbered(first: u32, calls: &[Call]) -> impl Iterator<Item = (u32, &Call)> {
    (first..).zip(calls)
}

/// A text, or the joined texts of a list of parts.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    }
}

/// Encodes server-sent events, each named by its type.
fn events(events: &[Value]) -> String {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(event).collect()
}

fn responses(first: u32, act: &Act) -> String {
    let items: Vec<Value> = match act {
        Act::Use(calls) => numbered(first, calls).map(|(number, call)| response_item(number, call)).collect(),
        Act::Say(text) => vec![json!({
            "type": "message",
            "role": "assistant",
            "id": format!("msg_{first}"),
            "content": [{ "type": "output_text", "text": text }],
        })],
    };
    let id = format!("resp_{first}");
    let usage = json!({ "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 });
    let mut stream = vec![json!({ "type": "response.created", "response": { "id": id } })];
    stream.extend(items.into_iter().map(|item| json!({ "type": "response.output_item.done", "item": item })));
    stream.push(json!({ "type": "response.completed", "response": { "id": id, "usage": usage } }));
    events(&stream)
}

fn response_item(number: u32, call: &Call) -> Value {
    let mut item = json!({
        "type": "function_call",
        "id": format!("fc_{number}"),
        "call_id": call_id(number),
        "name": call.tool,
        "arguments": call.arguments.to_string(),
    });
    if call.from == ToolSet::Pinfold {
        item["namespace"] = "mcp__pinfold".into();
    }
    item
}

fn messages(first: u32, act: &Act) -> String {
    let (blocks, reason): (Vec<(Value, Value)>, &str) = match act {
        Act::Use(calls) => {
            let block = |(number, call): (u32, &Call)| {
                let name = call.name("mcp__pinfold__");
                (
                    json!({ "type": "tool_use", "id": call_id(number), "name": name, "input": {} }),
                    json!({ "type": "input_json_delta", "partial_json": call.arguments.to_string() }),
                )
            };
            (numbered(first, calls).map(block).collect(), "tool_use")
        }
        Act::Say(text) => {
            let block = (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": text }));
            (vec![block], "end_turn")
        }
    };
    let message = json!({
        "id": format!("msg_{first}"),
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": { "input_tokens": 1, "output_tokens": 1 },
    });
    let mut stream = vec![json!({ "type": "message_start", "message": message })];
    for (index, (block, delta)) in blocks.into_iter().enumerate() {
        stream.push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
        stream.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        stream.push(json!({ "type": "content_block_stop", "index": index }));
    }
    let over = json!({ "stop_reason": reason, "stop_sequence": null });
    stream.push(json!({ "type": "message_delta", "delta": over, "usage": { "output_tokens": 1 } }));
    stream.push(json!({ "type": "message_stop" }));
    events(&stream)
}

fn completions(first: u32, act: &Act) -> String {
    let (delta, reason) = match act {
        Act::Use(calls) => {
            let call = |(index, (number, call)): (usize, (u32, &Call))| {
                let function = json!({ "name": call.name("pinfold_"), "arguments": call.arguments.to_string() });
                json!({ "index": index, "id": call_id(number), "type": "function", "function": function })
            };
            let calls: Vec<Value> = numbered(first, calls).enumerate().map(call).collect();
            (json!({ "role": "assistant", "tool_calls": calls }), "tool_calls")
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

fn contents(first: u32, act: &Act) -> String {
    let parts: Vec<Value> = match act {
        Act::Use(calls) => {
            let part = |(number, call): (u32, &Call)| {
                let name = call.name("mcp_pinfold_");
                json!({ "functionCall": { "id": call_id(number), "name": name, "args": call.arguments } })
            };
            numbered(first, calls).map(part).collect()
        }
        Act::Say(text) => vec![json!({ "text": text })],
    };
    let candidate = json!({ "content": { "role": "model", "parts": parts }, "finishReason": "STOP", "index": 0 });
    let usage = json!({ "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 });
    format!("data: {}\n\n", json!({ "candidates": [candidate], "usageMetadata": usage }))
}
