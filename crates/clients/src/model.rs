//! A model server on loopback, scripted by the test turn by turn.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::dialect::{Act, Call, Dialect, ToolSet};
use crate::seen::Seen;

/// How long a client may take for its next request. The first start unpacks files.
const DEADLINE: Duration = Duration::from_secs(150);

/// A request of the client that has no reply yet.
pub struct Turn {
    dialect: Dialect,
    request: Value,
    answer: Sender<String>,
}

impl Turn {
    /// The chat so far, as the client sends it.
    pub fn history(&self) -> String {
        let history = ["input", "messages", "contents"].into_iter().find_map(|key| self.request.get(key));
        history.map(Value::to_string).unwrap_or_default()
    }
}

/// The scripted model of one chat.
pub struct Model {
    pub address: SocketAddr,
    turns: Receiver<Turn>,
    /// The request to reply to next.
    open: Option<Turn>,
    /// How many tool calls were made.
    calls: u32,
    cost: Cost,
    /// How many of the client's notices are counted in `cost`.
    notices: usize,
    /// When to stop waiting for the client.
    deadline: Option<Instant>,
}

/// The model's cost of a chat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Requests of the client, including the one with the last result.
    pub requests: usize,
    /// Bytes of tool results, and of the client's notices about commands that ended, as the model reads them.
    pub bytes: usize,
}

impl Model {
    pub fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, turns) = channel();
        // Runs until the test program ends: a client may still connect after the chat.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                thread::spawn(move || serve(stream, &sender));
            }
        });
        Model { address, turns, open: None, calls: 0, cost: Cost::default(), notices: 0, deadline: None }
    }

    /// Calls a tool of pinfold; `None` if the client sent no request in time.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Option<Seen> {
        let call = Call { from: ToolSet::Pinfold, tool: tool.to_owned(), arguments: arguments.clone() };
        self.call_all(vec![call])?.pop()
    }

    /// Makes these calls in one turn; returns their results in order.
    pub fn call_all(&mut self, calls: Vec<Call>) -> Option<Vec<Seen>> {
        let turn = self.take()?;
        for call in &calls {
            let offered = &turn.request["tools"];
            assert!(Dialect::offers(&turn.request, &call.tool), "{} is not offered: {offered}", call.tool);
        }
        let first = self.calls + 1;
        self.calls += calls.len() as u32;
        let act = Act::Use(calls.clone());
        let _ = turn.answer.send(turn.dialect.answer(first, &act));
        let next = self.take()?;
        let result = |(number, call): (u32, &Call)| {
            let seen = next.dialect.result(&next.request, number);
            seen.unwrap_or_else(|| panic!("no result of {} in the next request: {}", call.tool, next.request))
        };
        let results: Vec<Seen> = (first..).zip(&calls).map(result).collect();
        self.cost.bytes += results.iter().map(|seen| seen.text.len()).sum::<usize>();
        self.open = Some(next);
        Some(results)
    }

    /// Ends the turn with a text.
    pub fn finish(&mut self) {
        if let Some(turn) = self.take() {
            let _ = turn.answer.send(turn.dialect.answer(self.calls + 1, &Act::Say("done".to_owned())));
        }
    }

    /// The client's notices about commands that ended, in the whole chat.
    pub fn last_notices(&self) -> Vec<String> {
        self.open.as_ref().map(|turn| Dialect::notices(&turn.request)).unwrap_or_default()
    }

    /// Waits for the next request without replying.
    pub fn wait(&mut self) -> Option<Turn> {
        self.take()
    }

    /// Replies to a request.
    pub fn answer(&mut self, turn: Turn, act: &Act) {
        let first = self.calls + 1;
        self.calls += if let Act::Use(calls) = act { calls.len() as u32 } else { 0 };
        let _ = turn.answer.send(turn.dialect.answer(first, act));
    }

    /// Waits for the next request and replies.
    pub fn act(&mut self, act: &Act) -> Option<()> {
        let turn = self.take()?;
        self.answer(turn, act);
        Some(())
    }

    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Sets a deadline for all further requests.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Drops a pending request, because its client is gone.
    pub fn forget_turn(&mut self) {
        self.open = None;
        while self.turns.try_recv().is_ok() {}
    }

    fn take(&mut self) -> Option<Turn> {
        if let Some(turn) = self.open.take() {
            return Some(turn);
        }
        let remaining = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let turn = self.turns.recv_timeout(remaining.unwrap_or(DEADLINE).min(DEADLINE)).ok()?;
        self.cost.requests += 1;
        let notices = Dialect::notices(&turn.request);
        for notice in notices.iter().skip(self.notices) {
            self.cost.bytes += notice.len();
        }
        self.notices = self.notices.max(notices.len());
        Some(turn)
    }
}

/// Serves one request, then closes the connection.
fn serve(stream: TcpStream, turns: &Sender<Turn>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = String::new();
    while reader.read_line(&mut head).ok()? > 2 {}
    let path = head.split(' ').nth(1)?.to_owned();
    let body = body(&head, &mut reader)?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(dialect) = Dialect::of(&path) else {
        // Requests besides the chat: health checks, token counts, lists of models.
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
