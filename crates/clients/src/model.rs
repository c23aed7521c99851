//! A model server on loopback that does what the test says, turn by turn.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::dialect::{Act, Dialect};
use crate::seen::Seen;

/// How long a client may take for its next request. A cold one unpacks itself first.
const PATIENCE: Duration = Duration::from_secs(150);

/// A turn of the chat that waits for its answer.
pub struct Turn {
    dialect: Dialect,
    request: Value,
    answer: Sender<String>,
}

impl Turn {
    /// What the client tells of the chat so far.
    pub fn history(&self) -> String {
        let told = ["input", "messages", "contents"].into_iter().find_map(|key| self.request.get(key));
        told.map(Value::to_string).unwrap_or_default()
    }
}

/// The scripted model of one chat.
pub struct Model {
    pub address: SocketAddr,
    turns: Receiver<Turn>,
    /// The turn that is the model's.
    open: Option<Turn>,
    /// How many calls were made.
    calls: u32,
}

impl Model {
    pub fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, turns) = channel();
        // Ends with the test program: a client may still come after the chat is over.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                thread::spawn(move || serve(stream, &sender));
            }
        });
        Model { address, turns, open: None, calls: 0 }
    }

    /// Calls a tool, and gives what comes back; nothing if the client did not come in time.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Option<Seen> {
        let turn = self.take()?;
        assert!(Dialect::offers(&turn.request, tool), "{tool} is not offered: {}", turn.request["tools"]);
        self.calls += 1;
        let act = Act::Call { tool: tool.to_owned(), arguments: arguments.clone() };
        let _ = turn.answer.send(turn.dialect.answer(self.calls, &act));
        let next = self.take()?;
        let seen = next.dialect.result(&next.request, self.calls);
        let seen = seen.unwrap_or_else(|| panic!("no result of {tool} in the next request: {}", next.request));
        self.open = Some(next);
        Some(seen)
    }

    /// Says a last word, which ends the turn.
    pub fn finish(&mut self) {
        if let Some(turn) = self.take() {
            let _ = turn.answer.send(turn.dialect.answer(self.calls + 1, &Act::Say("done".to_owned())));
        }
    }

    /// Waits until the client asks, and leaves it waiting.
    pub fn wait(&mut self) -> Option<Turn> {
        self.take()
    }

    /// Answers a client that waits.
    pub fn answer(&mut self, turn: Turn, act: &Act) {
        self.calls += 1;
        let _ = turn.answer.send(turn.dialect.answer(self.calls, act));
    }

    /// Does this when the client asks.
    pub fn act(&mut self, act: &Act) -> Option<()> {
        let turn = self.take()?;
        self.answer(turn, act);
        Some(())
    }

    fn take(&mut self) -> Option<Turn> {
        self.open.take().or_else(|| self.turns.recv_timeout(PATIENCE).ok())
    }
}

/// Serves one connection: one request, then it is closed.
fn serve(stream: TcpStream, turns: &Sender<Turn>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = String::new();
    while reader.read_line(&mut head).ok()? > 2 {}
    let path = head.split(' ').nth(1)?.to_owned();
    let body = body(&head, &mut reader)?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(dialect) = Dialect::of(&path) else {
        // What a client wants to know beside the chat: that it is there, how many tokens, which models.
        let answer = if path.contains("count_tokens") { r#"{"input_tokens":1}"# } else { "{}" };
        let status = if head.starts_with("GET") { "404 Not Found" } else { "200 OK" };
        return reply(stream, status, "application/json", answer);
    };
    let text = if Dialect::is_turn(&request) {
        let (answer, answered) = channel();
        turns.send(Turn { dialect, request, answer }).ok()?;
        answered.recv().ok()?
    } else {
        dialect.answer(0, &Act::Say("a chat".to_owned()))
    };
    reply(stream, "200 OK", "text/event-stream", &text)
}

fn body(head: &str, reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    let mut body = Vec::new();
    if header("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = u64::from_str_radix(size.trim(), 16).ok()?;
            reader.by_ref().take(size).read_to_end(&mut body).ok()?;
            reader.read_line(&mut String::new()).ok()?;
            if size == 0 {
                return Some(body);
            }
        }
    }
    let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    reader.take(length).read_to_end(&mut body).ok()?;
    Some(body)
}

fn reply(mut stream: TcpStream, status: &str, kind: &str, body: &str) -> Option<()> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()
}
