//! A model server on loopback that does what the test says, turn by turn.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::dialect::{Act, Call, Dialect, ToolSet};
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
    cost: Cost,
    /// How many notices of the client's were counted.
    notices: usize,
    /// When to give up waiting for the client.
    deadline: Option<Instant>,
}

/// What a chat costs its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Requests of the client, the one with the last result included.
    pub requests: usize,
    /// Bytes of the results of tools, and of the client's own notices of commands that ended, as the model reads them.
    pub bytes: usize,
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
        Model { address, turns, open: None, calls: 0, cost: Cost::default(), notices: 0, deadline: None }
    }

    /// Calls a tool of pinfold's, and gives what comes back; nothing if the client did not come in time.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Option<Seen> {
        let call = Call { from: ToolSet::Pinfold, tool: tool.to_owned(), arguments: arguments.clone() };
        self.call_all(vec![call])?.pop()
    }

    /// Makes these calls in one turn, and gives what comes back of each, in their order.
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

    /// Says a last word, which ends the turn.
    pub fn finish(&mut self) {
        if let Some(turn) = self.take() {
            let _ = turn.answer.send(turn.dialect.answer(self.calls + 1, &Act::Say("done".to_owned())));
        }
    }

    /// What the client has said by itself of commands that ended, in all of the chat.
    pub fn last_notices(&self) -> Vec<String> {
        self.open.as_ref().map(|turn| Dialect::notices(&turn.request)).unwrap_or_default()
    }

    /// Waits until the client asks, and leaves it waiting.
    pub fn wait(&mut self) -> Option<Turn> {
        self.take()
    }

    /// Answers a client that waits.
    pub fn answer(&mut self, turn: Turn, act: &Act) {
        let first = self.calls + 1;
        self.calls += if let Act::Use(calls) = act { calls.len() as u32 } else { 0 };
        let _ = turn.answer.send(turn.dialect.answer(first, act));
    }

    /// Does this when the client asks.
    pub fn act(&mut self, act: &Act) -> Option<()> {
        let turn = self.take()?;
        self.answer(turn, act);
        Some(())
    }

    /// What the chat has cost so far.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// From now on the client is waited for until then at most.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Forgets a turn that was open: its client is gone.
    pub fn forget_turn(&mut self) {
        self.open = None;
        while self.turns.try_recv().is_ok() {}
    }

    fn take(&mut self) -> Option<Turn> {
        if let Some(turn) = self.open.take() {
            return Some(turn);
        }
        let remaining = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let turn = self.turns.recv_timeout(remaining.unwrap_or(PATIENCE).min(PATIENCE)).ok()?;
        self.cost.requests += 1;
        let notices = Dialect::notices(&turn.request);
        for notice in notices.iter().skip(self.notices) {
            self.cost.bytes += notice.len();
        }
        self.notices = self.notices.max(notices.len());
        Some(turn)
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
