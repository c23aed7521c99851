//! Agents: each speaks MCP to a server of its own, starts, waits and is told, while the server is killed and stopped under
//! it. No server tells an end twice; every end is told; and once all is quiet, nothing is told again.
//!
//! An agent acts under one owner after another, [`CALLS_MOST`] starts each: a result names no more ends than that.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cast::Part;
use super::crew::{Actor, Play, lock};
use super::dice::Dice;

/// How long an answer may take: daemons and servers stand still for a few seconds at most.
const PATIENCE: Duration = Duration::from_secs(60);
/// Starts under one owner; a result tells of 25 ends by name.
const CALLS_MOST: usize = 20;

/// What an agent asked for and was told under one owner.
#[derive(Debug, Default)]
pub(super) struct Chat {
    pub(super) owner: String,
    /// What was asked to be run, by its command. Whether it runs is known by the answer, or by the list.
    pub(super) asked: BTreeMap<String, Part>,
    /// Whose end was told, and how often, by all servers together.
    pub(super) told: BTreeMap<String, u64>,
}

/// The server is gone, or of no use any more.
#[derive(Debug)]
pub(super) struct Gone;

/// An MCP server and what it has told.
#[derive(Debug)]
struct Server<'a> {
    play: &'a Play,
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Value>,
    calls: u64,
    told: BTreeSet<String>,
}

impl Play {
    /// Acts as one agent until the last call.
    pub(super) fn act_as_agent(&self, number: u64) -> anyhow::Result<()> {
        let mut dice = Dice::new(self.seed, 100 + number);
        let mut starts = 0;
        for chat in 0.. {
            let mut chat = Chat { owner: format!("agent-{number}-{chat}"), ..Chat::default() };
            while chat.asked.len() < CALLS_MOST && !self.is_last_call() {
                let mut server = Server::start(self, &chat.owner)?;
                while chat.asked.len() < CALLS_MOST && !self.is_last_call() {
                    if self.act(&mut server, &mut chat, &mut dice, &mut starts).is_err() {
                        break;
                    }
                    std::thread::sleep(dice.millis(20, 500));
                }
            }
            lock(&self.chats).push(chat);
            if self.is_last_call() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One call.
    fn act(&self, server: &mut Server<'_>, chat: &mut Chat, dice: &mut Dice, starts: &mut u64) -> Result<(), Gone> {
        match dice.between(0, 10) {
            choice @ 0..7 => {
                *starts += 1;
                let part = Part::of_agent(dice, &chat.owner, *starts, &self.mark);
                let command = part.command().to_owned();
                chat.asked.insert(command.clone(), part.clone());
                let mut arguments = json!({ "command": command, "env": { "CHAOS": self.mark.0 } });
                match choice {
                    0..5 => arguments["background"] = true.into(),
                    _ => arguments["timeout"] = "1s".into(),
                }
                let facts = server.call(chat, "execute", arguments)?;
                // An error, say on a full disk, names nobody; if it runs all the same, the list will say so.
                if let Some(id) = facts["id"].as_str() {
                    lock(&self.actors).push(Actor { part, id: id.to_owned(), read: 0, stopped: true });
                }
            }
            7 | 8 => {
                let own = |actor: &&Actor| chat.asked.contains_key(actor.part.command());
                let ids: Vec<String> =
                    lock(&self.actors).iter().rev().take(60).filter(own).map(|actor| actor.id.clone()).collect();
                if let Some(id) = dice.pick(&ids) {
                    server.call(chat, "process_wait", json!({ "id": id, "timeout": "2s" }))?;
                }
            }
            _ => drop(server.call(chat, "process_list", json!({ "status": "running" }))?),
        }
        Ok(())
    }

    /// All is quiet: whatever these ids came to is told by now or by one more server; and after that, by none.
    pub(super) fn close_chat(&self, chat: &mut Chat, ids: &BTreeSet<String>) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let missing = |chat: &Chat| ids.iter().filter(|id| !chat.told.contains_key(*id)).cloned().collect::<Vec<_>>();
        let mut last = Server::start(self, &chat.owner)?;
        // The second call says that the first one's news has arrived.
        for calls in 1.. {
            let listed = last.call(chat, "process_list", json!({ "status": "running" }));
            let left = missing(chat);
            if listed.is_err() || Instant::now() > deadline {
                self.violation(format!("{}: the ends of {left:?} were never told", chat.owner));
                return Ok(());
            }
            if left.is_empty() && calls > 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        last.leave();
        let before = chat.told.clone();
        let mut after = Server::start(self, &chat.owner)?;
        let listed = after.call(chat, "process_list", json!({ "status": "running" }));
        if listed.is_err() || chat.told != before {
            self.violation(format!("{}: told again: {:?}, before: {before:?}", chat.owner, chat.told));
        }
        after.leave();
        Ok(())
    }
}

impl<'a> Server<'a> {
    /// A server that has shaken hands. None is started while somebody holds the lock on them.
    fn start(play: &'a Play, owner: &str) -> anyhow::Result<Self> {
        let mut servers = lock(&play.servers);
        let mut command = play.scene.pinfold(&["mcp", "--owner", owner]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        servers.push(child.id());
        drop(servers);
        let (sender, answers) = channel();
        let stdout = child.stdout.take();
        std::thread::spawn(move || {
            let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines().map_while(Result::ok));
            // A line that was cut off with its writer is none.
            let messages = lines.filter_map(|line| serde_json::from_str(&line).ok());
            for message in messages {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut server = Self { play, child, stdin, answers, calls: 0, told: BTreeSet::new() };
        let client = json!({ "name": "chaos", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        // One that is killed this early is noticed by the first call.
        if server.request("initialize", hello).is_ok() {
            let _ = server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        }
        Ok(server)
    }

    fn send(&mut self, message: &Value) -> Result<(), Gone> {
        let stdin = self.stdin.as_mut().ok_or(Gone)?;
        stdin.write_all(format!("{message}\n").as_bytes()).map_err(|_| Gone)
    }

    fn request(&mut self, method: &str, params: Value) -> Result<Value, Gone> {
        self.calls += 1;
        let id = self.calls;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(message) if message["id"] == id => return Ok(message["result"].clone()),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Gone),
                Err(RecvTimeoutError::Timeout) => {
                    self.play.violation(format!("an MCP server does not answer {method} {params}"));
                    return Err(Gone);
                }
            }
        }
    }

    /// Calls a tool; what the result shows and tells is noted.
    fn call(&mut self, chat: &mut Chat, tool: &str, arguments: Value) -> Result<Value, Gone> {
        let result = self.request("tools/call", json!({ "name": tool, "arguments": arguments }))?;
        if result["isError"] == true {
            self.play.repeated.fetch_add(1, Ordering::Relaxed);
        }
        let facts = result["structuredContent"].clone();
        if facts["more_news"].is_number() {
            self.play.violation(format!("{}: {} ends are told without a name", chat.owner, facts["more_news"]));
        }
        for news in facts["news"].as_array().into_iter().flatten() {
            let id = news["id"].as_str().unwrap_or_default().to_owned();
            *chat.told.entry(id.clone()).or_default() += 1;
            if !self.told.insert(id) {
                self.play.violation(format!("{}: one server tells an end twice: {news}", chat.owner));
            }
        }
        let is_over = ["exit_code", "signal", "failure"].iter().any(|name| !facts[name].is_null());
        if let Some(id) = facts["id"].as_str().filter(|_| is_over)
            && self.told.insert(id.to_owned())
        {
            *chat.told.entry(id.to_owned()).or_default() += 1;
        }
        Ok(facts)
    }

    /// Ends as a client does that leaves.
    fn leave(mut self) {
        self.stdin = None;
        let deadline = Instant::now() + PATIENCE;
        while !matches!(self.child.try_wait(), Ok(Some(_))) {
            if Instant::now() > deadline {
                return self.play.violation("an MCP server does not leave with its client".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // Our own child, not reaped yet: until it is out of the list its pid is its own.
        lock(&self.play.servers).retain(|pid| *pid != self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
