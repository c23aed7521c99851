//! coder's process API at `/api/v0/processes`, used as coder's own clients use it.

mod answers;
mod chats;
mod keys;
mod lists;
mod outputs;
mod signalling;
mod starts;
mod tools;

use pinfold_testkit::{Pinfold, Setup};
use serde_json::{Value, json};

use crate::{PINFOLD, wire};

const ALICE: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
const BOB: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

/// A client like coder's: a connection for each request, and headers that are sent with every request.
#[derive(Clone, Copy)]
struct Client<'a> {
    pinfold: &'a Pinfold,
    chat: Option<&'a str>,
    parent: Option<&'a str>,
}

/// A raw response.
#[derive(Clone, Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// Status and message of an error.
    #[track_caller]
    fn error(&self) -> (u16, String) {
        (self.status, self.json()["message"].as_str().expect("a message").to_owned())
    }

    #[track_caller]
    fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap_or_else(|| panic!("no detail: {self:?}")).to_owned()
    }
}

impl<'a> Client<'a> {
    /// The operator, without a chat.
    fn new(pinfold: &'a Pinfold) -> Self {
        Self { pinfold, chat: None, parent: None }
    }

    fn chat(self, chat: &'a str) -> Self {
        Self { chat: Some(chat), ..self }
    }

    fn below(self, parent: &'a str) -> Self {
        Self { parent: Some(parent), ..self }
    }

    fn send(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        let mut head = format!("{method} /api/v0/processes{path} HTTP/1.1\r\nHost: p\r\nConnection: close\r\n");
        if let Some(chat) = self.chat {
            head += &format!("Coder-Chat-Id: {chat}\r\n");
        }
        if let Some(parent) = self.parent {
            head += &format!("Coder-Ancestor-Chat-Ids: [\"{parent}\"]\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        self.raw(&[head.as_bytes(), body].concat())
    }

    fn raw(&self, request: &[u8]) -> Reply {
        use std::io::{Read, Write};
        let mut stream = wire::connect(self.pinfold);
        stream.write_all(request).expect("a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let text = String::from_utf8(answer).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Reply { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, body.to_string().as_bytes())
    }

    fn get(&self, path: &str) -> Reply {
        self.send("GET", path, b"")
    }

    /// Starts a process with this request; returns its id.
    #[track_caller]
    fn start_with(&self, body: &Value) -> String {
        let reply = self.post("/start", body);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["id"].as_str().expect("an id").to_owned()
    }

    #[track_caller]
    fn start(&self, command: &str) -> String {
        self.start_with(&json!({ "command": command }))
    }

    #[track_caller]
    fn output(&self, id: &str) -> Value {
        let reply = self.get(&format!("/{id}/output"));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    /// The output after the process ended.
    #[track_caller]
    fn waited(&self, id: &str) -> Value {
        let reply = self.get(&format!("/{id}/output?wait=true"));
        assert_eq!(reply.status, 200, "{reply:?}");
        let output = reply.json();
        assert_eq!(output["running"], false, "{output}");
        output
    }

    /// The output of a command.
    #[track_caller]
    fn run(&self, body: &Value) -> String {
        let id = self.start_with(body);
        self.waited(&id)["output"].as_str().expect("a text").to_owned()
    }

    #[track_caller]
    fn list(&self) -> Vec<Value> {
        let reply = self.get("/list");
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["processes"].as_array().expect("a list").clone()
    }

    #[track_caller]
    fn listed(&self, id: &str) -> Value {
        self.list().into_iter().find(|info| info["id"] == id).unwrap_or_else(|| panic!("{id} is not listed"))
    }

    fn signal(&self, id: &str, signal: &str) -> Reply {
        self.post(&format!("/{id}/signal"), &json!({ "signal": signal }))
    }
}

fn ids(list: &[Value]) -> Vec<&str> {
    list.iter().map(|info| info["id"].as_str().expect("an id")).collect()
}

/// A daemon with these settings of `[coder]`.
fn with_settings(settings: &str) -> Pinfold {
    Pinfold::start_with(PINFOLD, Setup { config: format!("[coder]\n{settings}\n"), ..Setup::default() })
}
