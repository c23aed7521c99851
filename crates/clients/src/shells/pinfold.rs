//! The steps with pinfold's tools.

use serde_json::{Value, json};

use super::{Done, Ended, Job, Place, Reasons, Shell, Start, Stop, Until, number_after, one, read};
use crate::agents::Agent;
use crate::chat::Chat;
use crate::dialect::{Call, ToolSet};
use crate::seen::Seen;

/// How often a running command is waited for.
const WAITS: usize = 10;

pub(super) struct Pinfold;

fn call(tool: &str, arguments: Value) -> Call {
    Call { from: ToolSet::Pinfold, tool: tool.to_owned(), arguments }
}

fn use_tool(chat: &mut Chat, tool: &str, arguments: Value) -> Seen {
    one(chat, ToolSet::Pinfold, tool, arguments)
}

fn ended(seen: &Seen) -> Ended {
    Ended { code: number_after(&seen.text, &["exit_code"]), id: seen.find("id"), text: seen.text.clone() }
}

fn still_runs(seen: &Seen) -> bool {
    matches!(seen.find("state").as_deref(), Some("running" | "starting"))
}

/// Waits until the command has ended.
fn to_the_end(chat: &mut Chat, mut seen: Seen) -> Done<Ended> {
    for _ in 0..WAITS {
        if !still_runs(&seen) {
            return Ok(ended(&seen));
        }
        let id = id_of(&seen)?;
        seen = use_tool(chat, "process_wait", json!({ "id": id }));
    }
    Err(Stop::Failed("it never ended".into()))
}

fn id_of(seen: &Seen) -> Done<String> {
    seen.find("id").ok_or_else(|| Stop::Failed(format!("no id in: {seen}")))
}

fn job(seen: &Seen, start: Start<'_>) -> Done<Job> {
    Ok(Job { id: id_of(seen)?, tag: start.tag.to_owned(), log: String::new(), first: seen.text.clone() })
}

impl Shell for Pinfold {
    fn run(&mut self, chat: &mut Chat, line: &str) -> Done<Ended> {
        let seen = use_tool(chat, "execute", json!({ "command": line }));
        to_the_end(chat, seen)
    }

    fn run_after_resume(&mut self, chat: &mut Chat, line: &str, job: &Job) -> Done<Ended> {
        let execute = call("execute", json!({ "command": line }));
        if matches!(chat.agent(), Agent::Codex | Agent::Claude) {
            return Ok(ended(&chat.call_all(vec![execute])[0]));
        }
        // Servers of these clients do not learn the chat's id, so the model adopts what the previous run left, in the
        // same turn.
        let results = chat.call_all(vec![execute, call("process_list", json!({ "adopt": "all" }))]);
        match results[1].text.contains(&job.id) {
            true => Ok(ended(&results[0])),
            false => Err(Stop::Failed(format!("it is lost: {}", results[1]))),
        }
    }

    fn run_in(&mut self, chat: &mut Chat, place: Place<'_>, line: &str) -> Done<Ended> {
        let (name, value) = place.variable;
        let arguments = json!({ "command": line, "workdir": place.directory, "env": { name: value } });
        let seen = use_tool(chat, "execute", arguments);
        to_the_end(chat, seen)
    }

    fn run_together(&mut self, chat: &mut Chat, lines: &[String]) -> Done<Vec<Ended>> {
        let calls = lines.iter().map(|line| call("execute", json!({ "command": line }))).collect();
        Ok(chat.call_all(calls).iter().map(ended).collect())
    }

    fn run_and_find(&mut self, chat: &mut Chat, line: &str, reasons: Reasons<'_>) -> Done<Ended> {
        let mut ended = self.run(chat, line)?;
        if !reasons.are_in(&ended.text) {
            let id = ended.id.clone().unwrap_or_default();
            ended.text = use_tool(chat, "process_output", json!({ "id": id, "grep": reasons.grep })).text;
        }
        Ok(ended)
    }

    fn run_leaving(&mut self, chat: &mut Chat, start: Start<'_>, says: &str) -> Done<Job> {
        let seen = use_tool(chat, "execute", json!({ "command": start.line }));
        read(&seen.text, says)?;
        job(&seen, start)
    }

    fn start(&mut self, chat: &mut Chat, start: Start<'_>, until: Until<'_>) -> Done<Job> {
        let arguments = match until {
            Until::Says(line) => json!({ "command": start.line, "ready": { "output": line } }),
            Until::Listens(port) => json!({ "command": start.line, "ready": { "port": port } }),
            // A question ends the wait.
            Until::Asks(_) => json!({ "command": start.line, "pty": true }),
        };
        let seen = use_tool(chat, "execute", arguments);
        let job = job(&seen, start)?;
        match until {
            Until::Says(line) | Until::Asks(line) if !seen.text.contains(line) => {
                let seen = use_tool(chat, "process_wait", json!({ "id": job.id, "pattern": line }));
                read(&seen.text, line)?;
                Ok(Job { first: seen.text, ..job })
            }
            _ => Ok(job),
        }
    }

    fn start_logging(&mut self, chat: &mut Chat, start: Start<'_>, says: &str) -> Done<Job> {
        let arguments = json!({ "command": start.line, "ready": { "output": says }, "max_output": 300 });
        let seen = use_tool(chat, "execute", arguments);
        job(&seen, start)
    }

    fn start_together(&mut self, chat: &mut Chat, starts: &[Start<'_>]) -> Done<Vec<Job>> {
        let command = |start: &Start<'_>| call("execute", json!({ "command": start.line, "background": true }));
        let results = chat.call_all(starts.iter().map(command).collect());
        results.iter().zip(starts).map(|(seen, start)| job(seen, *start)).collect()
    }

    fn read(&mut self, chat: &mut Chat, job: &Job) -> Done<String> {
        Ok(use_tool(chat, "process_output", json!({ "id": job.id })).text)
    }

    fn find(&mut self, chat: &mut Chat, job: &Job, wanted: &str) -> Done<String> {
        Ok(use_tool(chat, "process_output", json!({ "id": job.id, "grep": wanted })).text)
    }

    fn do_and_await(&mut self, chat: &mut Chat, line: &str, job: &Job, says: &str) -> Done<String> {
        // Both in one turn: the wait searches from the model's last read, so their order does not matter.
        let wait = call("process_wait", json!({ "id": job.id, "pattern": says }));
        let results = chat.call_all(vec![call("execute", json!({ "command": line })), wait]);
        Ok(results[1].text.clone())
    }

    fn answer(&mut self, chat: &mut Chat, job: &Job, text: &str, says: &str) -> Done<String> {
        let arguments = json!({ "id": job.id, "text": text, "keys": ["enter"] });
        let mut seen = use_tool(chat, "process_input", arguments);
        if !seen.text.contains(says) {
            seen = use_tool(chat, "process_wait", json!({ "id": job.id, "pattern": says }));
        }
        Ok(seen.text)
    }

    fn learn_of_end(&mut self, chat: &mut Chat, line: &str, job: &Job, code: i32) -> Done<String> {
        let ended = self.run(chat, line)?;
        let notice = ended.text.split_once(&job.id).map(|(_, behind)| behind.to_owned());
        if let Some(notice) = notice.filter(|notice| number_after(notice, &["exit_code"]) == Some(code)) {
            return Ok(notice);
        }
        let seen = use_tool(chat, "process_wait", json!({ "id": job.id }));
        match number_after(&seen.text, &["exit_code"]) {
            Some(found) if found == code => Ok(seen.text),
            _ => Err(Stop::Failed(format!("no exit code {code} in: {seen}"))),
        }
    }

    fn stop(&mut self, chat: &mut Chat, job: &Job) -> Done<()> {
        let seen = use_tool(chat, "process_signal", json!({ "id": job.id }));
        match seen.text.contains("its whole tree is gone") {
            true => Ok(()),
            false => Err(Stop::Failed(format!("it was not stopped: {seen}"))),
        }
    }
}
