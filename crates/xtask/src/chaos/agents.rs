//! Agents: each uses an MCP server of its own to start and wait for processes, while the server is killed and paused. No server
//! reports an end twice, every end is reported, and once everything is quiet nothing is reported again.
//!
//! An agent uses one owner after another, with [`MAX_CALLS`] starts each: a result does not list more ends than that.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clients::{Actor, Campaign, lock};
use super::random::Dice;
use super::workloads::Part;

/// Timeout of an answer: daemons and servers are paused for a few seconds at most.
const DEADLINE: Duration = Duration::from_secs(60);
/// Starts under one owner; a result lists up to 25 ends.
const MAX_CALLS: usize = 20;

/// What an agent started and which ends were reported to it, under one owner.
#[derive(Debug, Default)]
pub(super) struct Chat {
    pub(super) owner: String,
    /// Requested starts, by command. Whether it runs is known from the answer or from the list.
    pub(super) asked: BTreeMap<String, Part>,
    /// Reported ends, and how often, by all servers together.
    pub(super) reported: BTreeMap<String, u64>,
}

/// The server is gone or unusable.
#[derive(Debug)]
pub(super) struct Gone;

/// An MCP server and the ends it has reported.
#[derive(Debug)]
struct Server<'a> {
    play: &'a Campaign,
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Value>,
    calls: u64,
    reported: BTreeSet<String>,
}

impl Campaign {
    /// Acts as one agent until the end of the campaign.
    pub(super) fn act_as_agent(&self, number: u64) -> anyhow::Result<()> {
        let mut dice = Dice::new(self.seed, 100 + number);
        let mut starts = 0;
        for chat in 0.. {
            let mut chat = Chat { owner: format!("agent-{number}-{chat}"), ..Chat::default() };
            while chat.asked.len() < MAX_CALLS && !self.has_stopped_starting() {
                let mut server = Server::start(self, &chat.owner)?;
                while chat.asked.len() < MAX_CALLS && !self.has_stopped_starting() {
                    if self.act(&mut server, &mut chat, &mut dice, &mut starts).is_err() {
                        break;
                    }
                    std::thread::sleep(dice.millis(20, 500));
                }
            }
            lock(&self.chats).push(chat);
            if self.has_stopped_starting() {
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
                // An error (a full disk, for example) has no id; if the process runs anyway, it is in the list.
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

    /// At the end: every end was reported, or is reported by one more server; after that none is reported again.
    pub(super) fn close_chat(&self, chat: &mut Chat, ids: &BTreeSet<String>) -> anyhow::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        let missing =
            |chat: &Chat| ids.iter().filter(|id| !chat.reported.contains_key(*id)).cloned().collect::<Vec<_>>();
        let mut last = Server::start(self, &chat.owner)?;
        // The second call acknowledges the news of the first.
        for calls in 1.. {
            let listed = last.call(chat, "process_list", json!({ "status": "running" }));
            let left = missing(chat);
            if listed.is_err() || Instant::now() > deadline {
                self.violation(format!("{}: the ends of {left:?} were never reported", chat.owner));
                return Ok(());
            }
            if left.is_empty() && calls > 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        last.leave();
        let before = chat.reported.clone();
        let mut after = Server::start(self, &chat.owner)?;
        let listed = after.call(chat, "process_list", json!({ "status": "running" }));
        if listed.is_err() || chat.reported != before {
            self.violation(format!("{}: reported again: {:?}, before: {before:?}", chat.owner, chat.reported));
        }
        after.leave();
        Ok(())
    }
}

impl<'a> Server<'a> {
    /// Starts and initializes a server. None is started while the lock on them is held.
    fn start(play: &'a Campaign, owner: &str) -> anyhow::Result<Self> {
        let mut servers = lock(&play.servers);
        let mut command = play.scene.pinfold(&["mcp", "--owner", owner]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        servers.push(child.id());
        drop(servers);
        let (sender, answers) = channel();
        let stdout = child.stdout.take();
        std::thread::spawn(move || {
            let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines().map_while(Result::ok));
            // Ignore a line that was cut off when its writer was killed.
            let messages = lines.filter_map(|line| serde_json::from_str(&line).ok());
            for message in messages {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut server = Self { play, child, stdin, answers, calls: 0, reported: BTreeSet::new() };
        let client = json!({ "name": "chaos", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        // If it is killed this early, the first call notices.
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
        let deadline = Instant::now() + DEADLINE;
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

    /// Calls a tool and records the ends that the result shows.
    fn call(&mut self, chat: &mut Chat, tool: &str, arguments: Value) -> Result<Value, Gone> {
        let result = self.request("tools/call", json!({ "name": tool, "arguments": arguments }))?;
        if result["isError"] == true {
            self.play.repeated.fetch_add(1, Ordering::Relaxed);
        }
        let facts = result["structuredContent"].clone();
        if facts["more_news"].is_number() {
            self.play.violation(format!("{}: {} ends are counted but not listed", chat.owner, facts["more_news"]));
        }
        for news in facts["news"].as_array().into_iter().flatten() {
            let id = news["id"].as_str().unwrap_or_default().to_owned();
            *chat.reported.entry(id.clone()).or_default() += 1;
            if !self.reported.insert(id) {
                self.play.violation(format!("{}: one server reports an end twice: {news}", chat.owner));
            }
        }
        let is_over = ["exit_code", "signal", "failure"].iter().any(|name| !facts[name].is_null());
        if let Some(id) = facts["id"].as_str().filter(|_| is_over)
            && self.reported.insert(id.to_owned())
        {
            *chat.reported.entry(id.to_owned()).or_default() += 1;
        }
        Ok(facts)
    }

    /// Closes the server's stdin, as a client does when it exits.
    fn leave(mut self) {
        self.stdin = None;
        let deadline = Instant::now() + DEADLINE;
        while !matches!(self.child.try_wait(), Ok(Some(_))) {
            if Instant::now() > deadline {
                return self.play.violation("an MCP server does not exit with its client".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // Our child, not reaped yet: its pid cannot be reused while it is in the list.
        lock(&self.play.servers).retain(|pid| *pid != self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
