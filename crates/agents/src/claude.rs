//! Claude Code: JSON messages in both directions, over stdio or over a WebSocket that it connects to.
//!
//! It answers a `control_request` `initialize` when it is ready. A `user` message starts a turn, a `result` ends it, a
//! `control_request` `interrupt` interrupts it, and `can_use_tool` is a permission request. It reports its session id
//! with the first turn. A second `user` message during a turn would be added to that turn, so start a turn only after the
//! previous one has ended.

use pinfold_api::types::{Ask, ToolCall, TurnUsage, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::adapter::{Adapter, AgentMessage, Settings, TurnEnd};
use crate::bounds::{MAX_DETAIL, cut, long_id};

/// Background tasks that are remembered.
const MAX_TASKS: usize = 1000;

/// The protocol state of one Claude Code process. Saved on disk: its fields are a file format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claude {
    requests: u64,
    /// The id of the `initialize` request, until it is answered.
    opening: Option<String>,
    session: Option<String>,
    version: Option<String>,
    in_turn: bool,
    interrupted: bool,
    /// Its background tasks, as it reports them: now, and at the start of the turn.
    #[serde(default)]
    tasks: Vec<String>,
    #[serde(default)]
    earlier_tasks: Vec<String>,
}

impl Claude {
    pub fn new(settings: Settings) -> Self {
        Self {
            requests: 0,
            opening: None,
            session: settings.resume,
            version: None,
            in_turn: false,
            interrupted: false,
            tasks: vec![],
            earlier_tasks: vec![],
        }
    }

    pub fn arguments(settings: &Settings) -> Vec<String> {
        let own = "-p --input-format stream-json --output-format stream-json --verbose --include-partial-messages \
                   --permission-prompt-tool stdio";
        let mut arguments: Vec<String> = own.split_whitespace().map(str::to_owned).collect();
        let options = [("--model", &settings.model), ("--resume", &settings.resume), ("--sdk-url", &settings.url)];
        for (option, value) in options {
            if let Some(value) = value {
                arguments.extend([option.to_owned(), value.clone()]);
            }
        }
        arguments.extend(settings.args.iter().cloned());
        arguments
    }

    fn control(&mut self, request: Value) -> (String, Value) {
        self.requests += 1;
        let id = format!("pinfold-{}", self.requests);
        let message = json!({ "type": "control_request", "request_id": id, "request": request });
        (id, message)
    }

    fn answered(&mut self, response: &Value) -> Vec<AgentMessage> {
        let is_opening =
            response["request_id"].as_str().is_some() && response["request_id"].as_str() == self.opening.as_deref();
        let error = response["error"].as_str().unwrap_or("an error");
        match (is_opening, response["subtype"] == "success") {
            (true, true) => {
                self.opening = None;
                vec![AgentMessage::Ready { version: self.version.clone() }]
            }
            (true, false) => vec![AgentMessage::Unfit(format!("it rejected `initialize`: {}", cut(error, 300)))],
            (false, true) => vec![],
            (false, false) => vec![AgentMessage::Notice(format!("it rejected a request: {}", cut(error, 300)))],
        }
    }

    fn requested(&self, id: &Value, request: &Value) -> AgentMessage {
        if let Some(reason) = long_id(&id.to_string()) {
            return AgentMessage::Unfit(reason);
        }
        if request["subtype"] != "can_use_tool" {
            let error =
                format!("pinfold does not support {}", cut(request["subtype"].as_str().unwrap_or("this request"), 200));
            let response = json!({ "subtype": "error", "request_id": id, "error": error });
            return AgentMessage::Reply(json!({ "type": "control_response", "response": response }));
        }
        let tool = request["tool_name"].as_str().unwrap_or("a tool");
        let shown = [&request["input"]["command"], &request["input"]["file_path"], &request["description"]];
        let shown =
            shown.into_iter().find_map(Value::as_str).map_or_else(|| request["input"].to_string(), str::to_owned);
        AgentMessage::PermissionRequested(Ask {
            id: id.as_str().unwrap_or_default().to_owned(),
            turn: None,
            kind: "tool".to_owned(),
            what: cut(&format!("{tool}: {shown}"), MAX_DETAIL),
            detail: request.clone(),
        })
    }

    fn initialized(&mut self, message: &Value) -> Vec<AgentMessage> {
        let mut news = Vec::new();
        let changed = |key: &str, known: &Option<String>| {
            message[key].as_str().filter(|text| Some(*text) != known.as_deref()).map(str::to_owned)
        };
        if let Some(version) = changed("claude_code_version", &self.version) {
            self.version = Some(version.clone());
            news.push(AgentMessage::Version(version));
        }
        if let Some(session) = changed("session_id", &self.session) {
            self.session = Some(session.clone());
            news.push(AgentMessage::Session(session));
        }
        news
    }

    fn result(&mut self, message: &Value) -> Vec<AgentMessage> {
        if !std::mem::take(&mut self.in_turn) {
            let text = message["result"].as_str().unwrap_or_default();
            return vec![AgentMessage::Notice(cut(&format!("message outside of a turn: {text}"), MAX_DETAIL))];
        }
        let usage = Some(tokens(&message["usage"]));
        let interrupted = std::mem::take(&mut self.interrupted);
        let failed = message["is_error"] == true || message["subtype"] != "success";
        let ended = match (failed, interrupted) {
            (false, _) => TurnEnd::Completed { text: message["result"].as_str().map(str::to_owned), usage },
            (true, true) => TurnEnd::Interrupted { usage },
            (true, false) => TurnEnd::Failed { cause: cut(&cause(message), MAX_DETAIL), usage },
        };
        vec![AgentMessage::Ended(ended)]
    }
}

impl Adapter for Claude {
    fn open(&mut self) -> Vec<Value> {
        let (id, message) = self.control(json!({ "subtype": "initialize" }));
        self.opening = Some(id);
        vec![message]
    }

    fn hear(&mut self, message: &Value) -> Vec<AgentMessage> {
        // Messages of sub-agents are ignored: their result is part of the main agent's tool call.
        let is_main = message["parent_tool_use_id"].is_null();
        match message["type"].as_str() {
            Some("control_response") => self.answered(&message["response"]),
            Some("control_request") => vec![self.requested(&message["request_id"], &message["request"])],
            Some("control_cancel_request") => {
                vec![AgentMessage::PermissionWithdrawn(message["request_id"].as_str().unwrap_or_default().to_owned())]
            }
            Some("system") if message["subtype"] == "init" => self.initialized(message),
            Some("system") if message["subtype"] == "background_tasks_changed" => {
                let tasks = message["tasks"].as_array().into_iter().flatten().take(MAX_TASKS);
                self.tasks = tasks.filter_map(|task| task["task_id"].as_str().map(str::to_owned)).collect();
                vec![]
            }
            Some("stream_event") if is_main => delta(&message["event"]),
            Some("assistant") if is_main => content(message, said),
            Some("user") if is_main => content(message, tool_result),
            Some("result") => self.result(message),
            Some(_) => vec![],
            None => vec![AgentMessage::Unfit("it sent a message without a type".to_owned())],
        }
    }

    fn prompt(&mut self, text: &str) -> Vec<Value> {
        (self.in_turn, self.interrupted) = (true, false);
        self.earlier_tasks = self.tasks.clone();
        let message = json!({ "role": "user", "content": text });
        let session = self.session.clone().unwrap_or_default();
        vec![json!({ "type": "user", "message": message, "parent_tool_use_id": null, "session_id": session })]
    }

    fn interrupt(&mut self) -> Vec<Value> {
        self.interrupted = true;
        let new_tasks = self.tasks.iter().filter(|task| !self.earlier_tasks.contains(task));
        let new_tasks: Vec<String> = new_tasks.cloned().collect();
        let mut messages = vec![self.control(json!({ "subtype": "interrupt" })).1];
        // An interrupt does not stop background tasks. One that is stopped by this request is not reported to the model.
        messages
            .extend(new_tasks.iter().map(|task| self.control(json!({ "subtype": "stop_task", "task_id": task })).1));
        messages
    }

    fn answer(&mut self, ask: &Ask, verdict: Verdict, message: Option<&str>) -> Vec<Value> {
        let decision = match verdict {
            Verdict::Allow => json!({ "behavior": "allow", "updatedInput": ask.detail["input"] }),
            Verdict::Deny => json!({ "behavior": "deny", "message": message.unwrap_or("denied by pinfold's policy") }),
        };
        let response = json!({ "subtype": "success", "request_id": ask.id, "response": decision });
        vec![json!({ "type": "control_response", "response": response })]
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn delta(event: &Value) -> Vec<AgentMessage> {
    let text = (event["delta"]["type"] == "text_delta").then(|| event["delta"]["text"].as_str()).flatten();
    text.map(|text| AgentMessage::Delta(text.to_owned())).into_iter().collect()
}

fn content(message: &Value, meaning: fn(&Value) -> Option<AgentMessage>) -> Vec<AgentMessage> {
    message["message"]["content"].as_array().into_iter().flatten().filter_map(meaning).collect()
}

/// Parses a content block of an assistant message.
fn said(block: &Value) -> Option<AgentMessage> {
    match block["type"].as_str()? {
        "text" => Some(AgentMessage::Message(block["text"].as_str()?.to_owned())),
        "tool_use" => Some(AgentMessage::Tool(ToolCall {
            id: block["id"].as_str()?.to_owned(),
            name: cut(block["name"].as_str()?, 200),
            input: cut(&block["input"].to_string(), MAX_DETAIL),
            ..ToolCall::default()
        })),
        _ => None,
    }
}

/// Parses a tool result.
fn tool_result(block: &Value) -> Option<AgentMessage> {
    if block["type"] != "tool_result" {
        return None;
    }
    let output = match &block["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    };
    Some(AgentMessage::Tool(ToolCall {
        id: block["tool_use_id"].as_str()?.to_owned(),
        output: Some(cut(&output, MAX_DETAIL)),
        failed: Some(block["is_error"] == true),
        ..ToolCall::default()
    }))
}

fn tokens(usage: &Value) -> TurnUsage {
    let count = |key: &str| usage[key].as_u64().unwrap_or(0);
    TurnUsage {
        input_tokens: count("input_tokens"),
        cached_input_tokens: count("cache_read_input_tokens"),
        output_tokens: count("output_tokens"),
    }
}

fn cause(result: &Value) -> String {
    let errors = result["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let said = result["result"].as_str().into_iter().chain(errors).collect::<Vec<_>>().join("; ");
    if said.is_empty() { result["subtype"].as_str().unwrap_or("it gave no reason").to_owned() } else { said }
}
