//! A small MCP client that writes JSON lines itself, so that it can send what no library would.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use pinfold_testkit::Pinfold;
use serde_json::{Value, json};

/// How long a response may take before the test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// A client with its shim.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) shim: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Value>,
    /// Messages that arrived while another was awaited.
    aside: Vec<Value>,
    last_id: u64,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub(crate) text: String,
    pub(crate) facts: Value,
    pub(crate) is_error: bool,
    /// The whole result, as JSON.
    pub(crate) whole: Value,
}

impl Called {
    pub(crate) fn id(&self) -> &str {
        self.facts["id"].as_str().unwrap_or_else(|| panic!("no id: {}", self.text))
    }

    pub(crate) fn output(&self) -> &str {
        self.facts["output"].as_str().unwrap_or_else(|| panic!("no output: {}", self.text))
    }

    /// The notes as one text.
    pub(crate) fn notes(&self) -> String {
        self.facts["notes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
    }

    /// The news in the result.
    pub(crate) fn news(&self) -> Vec<Value> {
        self.facts["news"].as_array().cloned().unwrap_or_default()
    }
}

/// The command of a shim, without variables of the test's environment that would set an owner.
pub(crate) fn shim(pinfold: &Pinfold, arguments: &[&str]) -> Command {
    let mut command = pinfold.command(&[&["mcp"], arguments].concat());
    command.env_remove("CLAUDE_CODE_SESSION_ID").env_remove("PINFOLD_OWNER");
    command
}

impl Agent {
    /// A client that is initialized.
    pub(crate) fn connect(pinfold: &Pinfold) -> Self {
        Self::connect_with(shim(pinfold, &[]))
    }

    pub(crate) fn connect_with(command: Command) -> Self {
        let mut agent = Self::spawn(command);
        agent.initialize("2025-06-18");
        agent
    }

    /// A client that has sent nothing yet.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut shim = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shim");
        let stdout = shim.stdout.take().expect("its stdout");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = shim.stdin.take();
        Agent { shim, stdin, messages, aside: Vec::new(), last_id: 0 }
    }

    /// Initializes with this protocol revision; returns the server's response.
    pub(crate) fn initialize(&mut self, version: &str) -> Value {
        self.initialize_as("behaviours", version)
    }

    /// The same as a client of this name.
    pub(crate) fn initialize_as(&mut self, name: &str, version: &str) -> Value {
        let client = json!({ "name": name, "version": "1" });
        let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
        let answer = self.request("initialize", params);
        self.notify("notifications/initialized", json!({}));
        answer["result"].clone()
    }

    /// Sends a raw line.
    pub(crate) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("an open stdin");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("a line sent");
        stdin.flush().expect("a line sent");
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send_line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Sends a request and does not wait; returns its id.
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        self.send_line(&request.to_string());
        self.last_id
    }

    pub(crate) fn begin_call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.begin("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// The first matching message, received or still to come.
    pub(crate) fn until(&mut self, what: &str, mut fits: impl FnMut(&Value) -> bool) -> Value {
        if let Some(at) = self.aside.iter().position(&mut fits) {
            return self.aside.remove(at);
        }
        loop {
            match self.messages.recv_timeout(DEADLINE) {
                Ok(message) if fits(&message) => return message,
                Ok(message) => self.aside.push(message),
                Err(RecvTimeoutError::Timeout) => panic!("never came: {what}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the shim left before {what}"),
            }
        }
    }

    /// The response to a request.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.until(&format!("the answer to {id}"), |message| message["id"] == id && message["method"].is_null())
    }

    /// Whether a response to this request has arrived.
    pub(crate) fn has_answered(&mut self, id: u64) -> bool {
        self.aside.extend(self.messages.try_iter());
        self.aside.iter().any(|message| message["id"] == id && message["method"].is_null())
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Called {
        let id = self.begin_call(tool, arguments);
        self.called(id)
    }

    /// A call that carries this `_meta`.
    pub(crate) fn call_as(&mut self, meta: Value, tool: &str, arguments: Value) -> Called {
        let id = self.begin("tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta }));
        self.called(id)
    }

    /// The result of a call that was sent before.
    pub(crate) fn called(&mut self, id: u64) -> Called {
        result_of(&self.answer(id))
    }

    /// Runs a command in the foreground.
    pub(crate) fn execute(&mut self, command: &str) -> Called {
        self.call("execute", json!({ "command": command }))
    }

    /// Starts a command in the background; returns its id.
    pub(crate) fn background(&mut self, command: &str) -> String {
        let called = self.call("execute", json!({ "command": command, "background": true }));
        called.id().to_owned()
    }

    /// Closes the shim's stdin.
    pub(crate) fn hang_up(&mut self) {
        self.stdin = None;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Our own child, not yet reaped, so its pid cannot have been reused.
        let _ = self.shim.kill();
        let _ = self.shim.wait();
    }
}

/// The lines of an error, which is text only: one fact on each line.
fn facts_of_error(text: &str) -> Value {
    text.lines().filter_map(|line| line.split_once(": ")).map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

/// The result in a response to `tools/call`.
pub(crate) fn result_of(answer: &Value) -> Called {
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no result: {answer}"));
    Called {
        text: text.to_owned(),
        facts: match &result["structuredContent"] {
            Value::Null => facts_of_error(text),
            facts => facts.clone(),
        },
        is_error: result["isError"] == true,
        whole: result.clone(),
    }
}
