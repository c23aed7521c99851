//! The steps with codex's own tools: `exec_command`, which returns a session for a command that is still running, and
//! `write_stdin`.
//!
//! codex kills everything outside of a session when the command ends, so `&` cannot be used.

use serde_json::{Value, json};

use super::{Done, Ended, Job, Place, Reasons, Shell, Start, Stop, Until, number_after, one, read};
use crate::chat::Chat;
use crate::dialect::{Call, ToolSet};
use crate::seen::Seen;

/// How often a session is polled.
const POLLS: usize = 10;
/// The longest poll, in milliseconds; it returns early if the command ends.
const LONG: u32 = 120_000;
/// The shortest poll that codex allows, in milliseconds.
const SHORT: u32 = 5_000;

pub(super) struct Codex;

fn call(tool: &str, arguments: Value) -> Call {
    Call { from: ToolSet::Own, tool: tool.to_owned(), arguments }
}

fn exec(chat: &mut Chat, arguments: Value) -> Seen {
    one(chat, ToolSet::Own, "exec_command", arguments)
}

fn poll(chat: &mut Chat, session: &str, milliseconds: u32) -> Seen {
    let session: u64 = session.parse().unwrap_or_default();
    one(chat, ToolSet::Own, "write_stdin", json!({ "session_id": session, "yield_time_ms": milliseconds }))
}

fn session(seen: &Seen) -> Option<String> {
    number_after(&seen.text, &["running with session ID "]).map(|session| session.to_string())
}

fn ended(seen: &Seen) -> Ended {
    Ended { code: number_after(&seen.text, &["exited with code "]), id: None, text: seen.text.clone() }
}

fn to_the_end(chat: &mut Chat, mut seen: Seen) -> Done<Ended> {
    let mut text = seen.text.clone();
    for _ in 0..POLLS {
        let Some(session) = session(&seen) else { return Ok(Ended { text, ..ended(&seen) }) };
        seen = poll(chat, &session, LONG);
        text.push_str(&seen.text);
    }
    Err(Stop::Failed("it never ended".into()))
}

fn job(seen: &Seen, start: Start<'_>, first: String) -> Done<Job> {
    let id = session(seen).ok_or_else(|| Stop::Failed(format!("no session in: {seen}")))?;
    Ok(Job { id, tag: start.tag.to_owned(), log: String::new(), first })
}

impl Shell for Codex {
    fn run(&mut self, chat: &mut Chat, line: &str) -> Done<Ended> {
        let seen = exec(chat, json!({ "cmd": line }));
        to_the_end(chat, seen)
    }

    fn run_in(&mut self, chat: &mut Chat, place: Place<'_>, line: &str) -> Done<Ended> {
        let (name, value) = place.variable;
        let seen = exec(chat, json!({ "cmd": format!("{name}={value} {line}"), "workdir": place.directory }));
        to_the_end(chat, seen)
    }

    fn run_together(&mut self, chat: &mut Chat, lines: &[String]) -> Done<Vec<Ended>> {
        let calls = lines.iter().map(|line| call("exec_command", json!({ "cmd": line }))).collect();
        Ok(chat.call_all(calls).iter().map(ended).collect())
    }

    fn run_and_find(&mut self, chat: &mut Chat, line: &str, reasons: Reasons<'_>) -> Done<Ended> {
        let mut ended = self.run(chat, line)?;
        if !reasons.are_in(&ended.text) {
            // codex drops the middle of the output, so the command must run again.
            let again = exec(chat, json!({ "cmd": format!("{line} 2>&1 | grep {} | head", reasons.grep) }));
            ended.text = to_the_end(chat, again)?.text;
        }
        Ok(ended)
    }

    fn run_leaving(&mut self, _: &mut Chat, _: Start<'_>, _: &str) -> Done<Job> {
        Err(Stop::Cannot("codex kills what a command leaves behind"))
    }

    fn start(&mut self, chat: &mut Chat, start: Start<'_>, until: Until<'_>) -> Done<Job> {
        let line = start.line;
        let (arguments, says) = match until {
            Until::Says(says) => (json!({ "cmd": line, "yield_time_ms": SHORT }), says.to_owned()),
            Until::Asks(says) => (json!({ "cmd": line, "tty": true, "yield_time_ms": 2_000 }), says.to_owned()),
            Until::Listens(port) => {
                // The server prints nothing, so a second call of the same turn checks the port.
                let look = format!("{}; echo port {port} is open", until_open(port));
                let calls = vec![
                    call("exec_command", json!({ "cmd": line, "yield_time_ms": 250 })),
                    call("exec_command", json!({ "cmd": look, "yield_time_ms": 30_000 })),
                ];
                let results = chat.call_all(calls);
                read(&results[1].text, "is open")?;
                return job(&results[0], start, results[1].text.clone());
            }
        };
        let seen = exec(chat, arguments);
        let mut text = seen.text.clone();
        let mut job = job(&seen, start, String::new())?;
        for _ in 0..POLLS {
            if text.contains(&says) {
                break;
            }
            text.push_str(&poll(chat, &job.id, SHORT).text);
        }
        read(&text, &says)?;
        job.first = text;
        Ok(job)
    }

    fn start_logging(&mut self, chat: &mut Chat, start: Start<'_>, _: &str) -> Done<Job> {
        let log = format!("{}.log", start.tag);
        let seen = exec(chat, json!({ "cmd": format!("{} > {log} 2>&1", start.line), "yield_time_ms": SHORT }));
        let job = job(&seen, start, seen.text.clone())?;
        Ok(Job { log, ..job })
    }

    fn start_together(&mut self, chat: &mut Chat, starts: &[Start<'_>]) -> Done<Vec<Job>> {
        let command = |start: &Start<'_>| call("exec_command", json!({ "cmd": start.line, "yield_time_ms": 250 }));
        let results = chat.call_all(starts.iter().map(command).collect());
        results.iter().zip(starts).map(|(seen, start)| job(seen, *start, seen.text.clone())).collect()
    }

    fn read(&mut self, chat: &mut Chat, job: &Job) -> Done<String> {
        Ok(poll(chat, &job.id, SHORT).text)
    }

    fn find(&mut self, chat: &mut Chat, job: &Job, wanted: &str) -> Done<String> {
        let file = &job.log;
        Ok(exec(chat, json!({ "cmd": format!("grep -n '{wanted}' {file}") })).text)
    }

    fn do_and_await(&mut self, chat: &mut Chat, line: &str, job: &Job, says: &str) -> Done<String> {
        let session: u64 = job.id.parse().unwrap_or_default();
        let wait = call("write_stdin", json!({ "session_id": session, "yield_time_ms": SHORT }));
        let mut text = chat.call_all(vec![call("exec_command", json!({ "cmd": line })), wait])[1].text.clone();
        for _ in 0..POLLS {
            if text.contains(says) {
                return Ok(text);
            }
            text.push_str(&poll(chat, &job.id, SHORT).text);
        }
        Err(Stop::Failed(format!("`{says}` never came: {text}")))
    }

    fn answer(&mut self, chat: &mut Chat, job: &Job, text: &str, says: &str) -> Done<String> {
        let session: u64 = job.id.parse().unwrap_or_default();
        let arguments = json!({ "session_id": session, "chars": format!("{text}\n"), "yield_time_ms": 1_000 });
        let mut seen = one(chat, ToolSet::Own, "write_stdin", arguments).text;
        if !seen.contains(says) {
            seen.push_str(&poll(chat, &job.id, SHORT).text);
        }
        Ok(seen)
    }

    fn learn_of_end(&mut self, chat: &mut Chat, line: &str, job: &Job, code: i32) -> Done<String> {
        self.run(chat, line)?;
        // codex sends no notice: the model has to poll.
        let seen = poll(chat, &job.id, SHORT);
        match ended(&seen).code {
            Some(found) if found == code => Ok(seen.text),
            _ => Err(Stop::Failed(format!("no exit code {code} in: {seen}"))),
        }
    }

    fn stop(&mut self, chat: &mut Chat, job: &Job) -> Done<()> {
        super::bash::stop_by_name(&job.tag, &mut |line| Ok(exec(chat, json!({ "cmd": line })).text))
    }
}

/// Waits in bash until a port is open.
pub(super) fn until_open(port: u16) -> String {
    format!(
        "for i in {{1..150}}; do (: > /dev/tcp/127.0.0.1/{port}) 2>/dev/null && break; sleep 0.1; done; (: > /dev/tcp/127.0.0.1/{port})"
    )
}
