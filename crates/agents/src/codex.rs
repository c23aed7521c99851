//! codex, through `codex app-server`: JSON-RPC without the version field, one message per line.
//!
//! `initialize` → `initialized` → `thread/start` or `thread/resume` → ready; then per turn `turn/start` → items and
//! deltas → `turn/completed`. A second `turn/start` would be added to the running turn, so start a turn only after the
//! previous one has ended. Messages of other threads (sub-agents) are ignored. The answer to an approval request carries no text:
//! the message of a denial goes to the model by `turn/steer`.

use pinfold_api::types::{Ask, ToolCall, TurnUsage, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::adapter::{Adapter, AgentMessage, Settings, TurnEnd};
use crate::bounds::{MAX_DETAIL, cut, long_id};

/// The protocol state of one app-server. Saved on disk: its fields and variants are a file format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Codex {
    settings: Settings,
    /// The id of the last request.
    requests: u64,
    step: Step,
    thread: Option<String>,
    turn: TurnStep,
    /// Whether the running turn is being interrupted.
    interrupt: Interrupt,
    /// The last error that will end the turn.
    error: Option<String>,
    /// Denials that wait until codex has taken their message: the request that sent it, and the denial.
    #[serde(default)]
    denials: Vec<(u64, Value)>,
    /// Token counts of the thread: at the start of the turn, and now.
    before: Option<TurnUsage>,
    now: Option<TurnUsage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Step {
    New,
    /// Waiting for the response to this `initialize` request.
    Initialize(u64),
    /// Waiting for the response to this request that opens a thread.
    Thread(u64),
    Ready,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum TurnStep {
    None,
    /// Waiting for the response to this `turn/start` request.
    #[serde(rename = "Asked")]
    Sent(u64),
    /// The turn with this id is running.
    Running(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Interrupt {
    No,
    /// To be sent when the turn is known to run.
    Wanted,
    /// Sent with this request.
    #[serde(rename = "Asked")]
    Sent(u64),
}

impl Codex {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            requests: 0,
            step: Step::New,
            thread: None,
            turn: TurnStep::None,
            interrupt: Interrupt::No,
            error: None,
            denials: vec![],
            before: None,
            now: None,
        }
    }

    pub fn arguments(settings: &Settings) -> Vec<String> {
        let own = ["app-server".to_owned()];
        own.into_iter().chain(settings.args.iter().cloned()).collect()
    }

    fn request(&mut self, method: &str, params: Value) -> (u64, Value) {
        self.requests += 1;
        (self.requests, json!({ "id": self.requests, "method": method, "params": params }))
    }

    fn open_thread(&mut self) -> Value {
        let mut params = self.settings.extra.clone();
        params.entry("cwd").or_insert_with(|| self.settings.cwd.clone().into());
        if let Some(model) = &self.settings.model {
            params.insert("model".into(), model.clone().into());
        }
        let method = match &self.settings.resume {
            Some(thread) => {
                params.insert("threadId".into(), thread.clone().into());
                "thread/resume"
            }
            None => "thread/start",
        };
        let (id, request) = self.request(method, Value::Object(params));
        self.step = Step::Thread(id);
        request
    }

    fn ask_interrupt(&mut self) -> Option<Value> {
        let TurnStep::Running(turn) = self.turn.clone() else {
            self.interrupt = Interrupt::Wanted;
            return None;
        };
        let (id, request) = self.request("turn/interrupt", json!({ "threadId": self.thread, "turnId": turn }));
        self.interrupt = Interrupt::Sent(id);
        Some(request)
    }

    /// The message of a denial, as input to the turn that asked: an answer to a request for approval has no place for text.
    fn steer(&mut self, ask: &Ask, message: &str) -> Option<(u64, Value)> {
        let params = &ask.detail["params"];
        let own = match &self.turn {
            TurnStep::Running(turn) => Some(turn.clone()),
            _ => None,
        };
        let turn = text_of(&params["turnId"]).or(own)?;
        let thread = text_of(&params["threadId"]).or_else(|| self.thread.clone())?;
        let text = format!("Permission was denied ({}): {message}", cut(&ask.what, 200));
        let input = json!([{ "type": "text", "text": cut(&text, MAX_DETAIL) }]);
        let params = json!({ "threadId": thread, "expectedTurnId": turn, "input": input });
        Some(self.request("turn/steer", params))
    }

    /// The denial whose message was sent with this request.
    fn take_denial(&mut self, request: u64) -> Option<Value> {
        let place = self.denials.iter().position(|(id, _)| *id == request)?;
        Some(self.denials.remove(place).1)
    }

    fn answered(&mut self, id: u64, message: &Value) -> Vec<AgentMessage> {
        let error = message.get("error").map(|error| error["message"].as_str().unwrap_or("an error").to_owned());
        match (&self.step, &self.turn, self.interrupt) {
            (Step::Initialize(wanted), ..) if *wanted == id => self.initialized(message, error),
            (Step::Thread(wanted), ..) if *wanted == id => self.thread_opened(message, error),
            (_, TurnStep::Sent(wanted), _) if *wanted == id => self.turn_begun(message, error),
            // Most likely too early: try again when codex reports that the turn has started.
            (.., Interrupt::Sent(wanted)) if wanted == id && error.is_some() => {
                self.interrupt = Interrupt::Wanted;
                vec![]
            }
            _ => {
                let Some(denial) = self.take_denial(id) else { return vec![] };
                let text = |error: String| format!("it did not take the message of a denial: {}", cut(&error, 300));
                let notice = error.map(|error| AgentMessage::Notice(text(error)));
                notice.into_iter().chain([AgentMessage::Reply(denial)]).collect()
            }
        }
    }

    fn initialized(&mut self, message: &Value, error: Option<String>) -> Vec<AgentMessage> {
        if let Some(error) = error {
            return vec![AgentMessage::Unfit(format!("it rejected `initialize`: {}", cut(&error, 300)))];
        }
        let Some(agent) = message["result"]["userAgent"].as_str() else {
            return vec![AgentMessage::Unfit("its response to `initialize` has no userAgent".to_owned())];
        };
        let version = agent.split_once('/').and_then(|(_, rest)| rest.split(' ').next()).map(str::to_owned);
        self.settings.client_version = version.unwrap_or_default();
        vec![AgentMessage::Reply(json!({ "method": "initialized" })), AgentMessage::Reply(self.open_thread())]
    }

    fn thread_opened(&mut self, message: &Value, error: Option<String>) -> Vec<AgentMessage> {
        let thread = message["result"]["thread"]["id"].as_str();
        match (error, thread) {
            (Some(error), _) => vec![AgentMessage::Unfit(format!("it could not open a thread: {}", cut(&error, 300)))],
            (None, None) => vec![AgentMessage::Unfit("its response to `thread/start` has no thread id".to_owned())],
            (None, Some(thread)) => {
                self.thread = Some(thread.to_owned());
                self.step = Step::Ready;
                let version = Some(self.settings.client_version.clone()).filter(|version| !version.is_empty());
                vec![AgentMessage::Session(thread.to_owned()), AgentMessage::Ready { version }]
            }
        }
    }

    fn turn_begun(&mut self, message: &Value, error: Option<String>) -> Vec<AgentMessage> {
        let turn = message["result"]["turn"]["id"].as_str();
        match (error, turn) {
            (None, Some(turn)) => {
                self.turn = TurnStep::Running(turn.to_owned());
                let interrupt = if self.interrupt == Interrupt::Wanted { self.ask_interrupt() } else { None };
                interrupt.map(AgentMessage::Reply).into_iter().collect()
            }
            (error, _) => {
                let cause = error.unwrap_or_else(|| "its response to `turn/start` has no turn id".to_owned());
                self.end_turn(TurnEnd::Failed { cause: cut(&cause, MAX_DETAIL), usage: None })
            }
        }
    }

    fn end_turn(&mut self, ended: TurnEnd) -> Vec<AgentMessage> {
        self.turn = TurnStep::None;
        self.interrupt = Interrupt::No;
        self.denials.clear();
        self.error = None;
        vec![AgentMessage::Ended(ended)]
    }

    /// Whether a notification belongs to our thread, and to our turn if it names one.
    fn is_ours(&self, params: &Value) -> bool {
        let thread = params["threadId"].as_str();
        let turn = params["turnId"].as_str().or_else(|| params["turn"]["id"].as_str());
        let ours = match (&self.turn, turn) {
            (TurnStep::Running(ours), Some(turn)) => ours == turn,
            (_, None) => true,
            // codex may send notifications of a turn before its response to `turn/start`.
            (TurnStep::Sent(_), Some(_)) => true,
            (TurnStep::None, Some(_)) => false,
        };
        ours && (thread.is_none() || thread == self.thread.as_deref())
    }

    fn notified(&mut self, method: &str, params: &Value) -> Vec<AgentMessage> {
        match method {
            "warning" | "configWarning" | "deprecationNotice" => notice(params),
            "serverRequest/resolved" => vec![AgentMessage::PermissionWithdrawn(ask_id(&params["requestId"]))],
            _ if !self.is_ours(params) => vec![],
            "turn/started" => self.started(params),
            "item/agentMessage/delta" => text_of(&params["delta"]).map(AgentMessage::Delta).into_iter().collect(),
            "item/started" => tool(&params["item"], None).map(AgentMessage::Tool).into_iter().collect(),
            "item/completed" => completed(&params["item"]),
            "thread/tokenUsage/updated" => self.used(&params["tokenUsage"]),
            "error" => self.erred(params),
            "turn/completed" => self.turn_completed(&params["turn"]),
            _ => vec![],
        }
    }

    fn started(&mut self, params: &Value) -> Vec<AgentMessage> {
        if let (TurnStep::Sent(_), Some(turn)) = (&self.turn, params["turn"]["id"].as_str()) {
            self.turn = TurnStep::Running(turn.to_owned());
        }
        let interrupt = if self.interrupt == Interrupt::Wanted { self.ask_interrupt() } else { None };
        interrupt.map(AgentMessage::Reply).into_iter().collect()
    }

    fn used(&mut self, usage: &Value) -> Vec<AgentMessage> {
        let (total, last) = (tokens(&usage["total"]), tokens(&usage["last"]));
        // For a resumed thread, the first report shows how many tokens it had used before.
        if self.before.is_none() {
            self.before = Some(less(total, last));
        }
        self.now = Some(total);
        vec![]
    }

    fn erred(&mut self, params: &Value) -> Vec<AgentMessage> {
        let Some(error) = text_of(&params["error"]["message"]) else { return vec![] };
        if params["willRetry"] == true {
            return vec![AgentMessage::Notice(cut(&error, MAX_DETAIL))];
        }
        self.error = Some(cut(&error, MAX_DETAIL));
        vec![]
    }

    fn turn_completed(&mut self, turn: &Value) -> Vec<AgentMessage> {
        let usage = self.now.map(|now| less(now, self.before.unwrap_or_default()));
        self.before = self.now.or(self.before);
        let ended = match turn["status"].as_str() {
            Some("completed") => TurnEnd::Completed { text: last_message(turn), usage },
            Some("interrupted") => TurnEnd::Interrupted { usage },
            _ => {
                let said = text_of(&turn["error"]["message"]).map(|error| cut(&error, MAX_DETAIL));
                let cause = said.or_else(|| self.error.take()).unwrap_or_else(|| "codex gave no reason".to_owned());
                TurnEnd::Failed { cause, usage }
            }
        };
        self.end_turn(ended)
    }
}

impl Adapter for Codex {
    fn open(&mut self) -> Vec<Value> {
        let client = json!({ "name": "pinfold", "title": "pinfold", "version": self.settings.client_version });
        let (id, request) = self.request("initialize", json!({ "clientInfo": client }));
        self.step = Step::Initialize(id);
        vec![request]
    }

    fn hear(&mut self, message: &Value) -> Vec<AgentMessage> {
        match (message["method"].as_str(), message.get("id")) {
            (Some(method), Some(id)) => {
                let too_long = long_id(&plain(id)).map(AgentMessage::Unfit);
                vec![too_long.unwrap_or_else(|| asked(method, id, &message["params"]))]
            }
            (Some(method), None) => self.notified(method, &message["params"]),
            (None, Some(id)) => id.as_u64().map(|id| self.answered(id, message)).unwrap_or_default(),
            (None, None) => vec![AgentMessage::Unfit("it sent a message with neither method nor id".to_owned())],
        }
    }

    fn prompt(&mut self, text: &str) -> Vec<Value> {
        let input = json!([{ "type": "text", "text": text }]);
        let (id, request) = self.request("turn/start", json!({ "threadId": self.thread, "input": input }));
        self.turn = TurnStep::Sent(id);
        self.interrupt = Interrupt::No;
        vec![request]
    }

    fn interrupt(&mut self) -> Vec<Value> {
        self.ask_interrupt().into_iter().collect()
    }

    fn answer(&mut self, ask: &Ask, verdict: Verdict, message: Option<&str>) -> Vec<Value> {
        let steer = message.filter(|_| verdict == Verdict::Deny).and_then(|message| self.steer(ask, message));
        let native = &ask.detail["id"];
        let params = &ask.detail["params"];
        let result = match (ask.detail["method"].as_str().unwrap_or_default(), verdict) {
            ("execCommandApproval" | "applyPatchApproval", Verdict::Allow) => json!({ "decision": "approved" }),
            ("execCommandApproval" | "applyPatchApproval", Verdict::Deny) => json!({ "decision": "denied" }),
            ("item/permissions/requestApproval", Verdict::Allow) => json!({ "permissions": params["permissions"] }),
            ("item/permissions/requestApproval", Verdict::Deny) => json!({ "permissions": {} }),
            (_, Verdict::Allow) => json!({ "decision": "accept" }),
            (_, Verdict::Deny) => json!({ "decision": "decline" }),
        };
        let answer = json!({ "id": native, "result": result });
        // The message first, and the denial once codex has taken it: both are then in the next request to the model.
        match steer {
            Some((id, steer)) => {
                self.denials.push((id, answer));
                vec![steer]
            }
            None => vec![answer],
        }
    }

    fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Parses a request of codex: a permission request, or one that pinfold does not support.
fn asked(method: &str, id: &Value, params: &Value) -> AgentMessage {
    let kind = match method {
        "item/commandExecution/requestApproval" | "execCommandApproval" => "command",
        "item/fileChange/requestApproval" | "applyPatchApproval" => "file_change",
        "item/permissions/requestApproval" => "permissions",
        // There is no user to answer questions.
        "item/tool/requestUserInput" => return AgentMessage::Reply(json!({ "id": id, "result": { "answers": {} } })),
        "mcpServer/elicitation/request" => {
            return AgentMessage::Reply(json!({ "id": id, "result": { "action": "decline", "content": null } }));
        }
        _ => {
            let error = json!({ "code": -32601, "message": format!("pinfold does not support {}", cut(method, 200)) });
            return AgentMessage::Reply(json!({ "id": id, "error": error }));
        }
    };
    let what = [&params["command"], &params["reason"], &params["itemId"]];
    let what = what.into_iter().find_map(words).unwrap_or_else(|| method.to_owned());
    let detail = json!({ "id": id, "method": method, "params": params });
    AgentMessage::PermissionRequested(Ask {
        id: ask_id(id),
        turn: None,
        kind: kind.to_owned(),
        what: cut(&what, MAX_DETAIL),
        detail,
    })
}

fn ask_id(id: &Value) -> String {
    format!("ask-{}", words(id).unwrap_or_default())
}

/// A string, a number, or a list of strings, as one line.
fn words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(parts) => Some(parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    }
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn notice(params: &Value) -> Vec<AgentMessage> {
    let text = text_of(&params["message"]).or_else(|| text_of(&params["summary"]));
    text.map(|text| AgentMessage::Notice(cut(&text, MAX_DETAIL))).into_iter().collect()
}

fn completed(item: &Value) -> Vec<AgentMessage> {
    match item["type"].as_str() {
        Some("agentMessage") => text_of(&item["text"]).map(AgentMessage::Message).into_iter().collect(),
        _ => tool(item, Some(item)).map(AgentMessage::Tool).into_iter().collect(),
    }
}

/// Parses an item that is a tool call. `done` is the completed item, `None` while it runs.
fn tool(item: &Value, done: Option<&Value>) -> Option<ToolCall> {
    let (name, input) = match item["type"].as_str()? {
        "commandExecution" => ("command".to_owned(), words(&item["command"])),
        "fileChange" => ("file_change".to_owned(), Some(paths(&item["changes"]))),
        "mcpToolCall" => {
            (format!("{}.{}", plain(&item["server"]), plain(&item["tool"])), Some(plain(&item["arguments"])))
        }
        "dynamicToolCall" => (plain(&item["tool"]), Some(plain(&item["arguments"]))),
        "webSearch" => ("web_search".to_owned(), words(&item["query"])),
        _ => return None,
    };
    let failed =
        done.map(|item| matches!(item["status"].as_str(), Some("failed" | "declined")) || item["success"] == false);
    let output = done.and_then(|item| {
        let out = [&item["aggregatedOutput"], &item["result"], &item["error"], &item["contentItems"]];
        out.into_iter().find(|value| !value.is_null()).map(plain)
    });
    Some(ToolCall {
        id: plain(&item["id"]),
        name: cut(&name, 200),
        input: cut(&input.unwrap_or_default(), MAX_DETAIL),
        output: output.map(|output| cut(&output, MAX_DETAIL)),
        exit_code: item["exitCode"].as_i64(),
        failed,
    })
}

fn paths(changes: &Value) -> String {
    let paths = changes.as_array().into_iter().flatten().filter_map(|change| change["path"].as_str());
    paths.collect::<Vec<_>>().join(" ")
}

fn plain(value: &Value) -> String {
    words(value).unwrap_or_else(|| if value.is_null() { String::new() } else { value.to_string() })
}

fn tokens(usage: &Value) -> TurnUsage {
    let count = |key: &str| usage[key].as_u64().unwrap_or(0);
    TurnUsage {
        input_tokens: count("inputTokens"),
        cached_input_tokens: count("cachedInputTokens"),
        output_tokens: count("outputTokens"),
    }
}

fn less(one: TurnUsage, other: TurnUsage) -> TurnUsage {
    TurnUsage {
        input_tokens: one.input_tokens.saturating_sub(other.input_tokens),
        cached_input_tokens: one.cached_input_tokens.saturating_sub(other.cached_input_tokens),
        output_tokens: one.output_tokens.saturating_sub(other.output_tokens),
    }
}

/// The last message in `turn/completed`; some versions of codex include none.
fn last_message(turn: &Value) -> Option<String> {
    let items: &[Value] = turn["items"].as_array().map_or(&[], Vec::as_slice);
    items.iter().rev().find(|item| item["type"] == "agentMessage").and_then(|item| text_of(&item["text"]))
}

/// A field in the user's settings that only the adapter may set in the request that opens a thread, if there is one.
pub fn reserved_in(settings: &Map<String, Value>) -> Option<&'static str> {
    ["threadId"].into_iter().find(|name| settings.contains_key(*name))
}
