//! The steps with the shell tools of Claude Code, gemini-cli and opencode, which run a line of bash to its end.
//!
//! Background commands are started with `&` and write to a file, which takes the fewest calls: waiting, reading and
//! stopping then need only bash. Other features of a client are used where they save calls.

use serde_json::{Value, json};

use super::codex::until_open;
use super::{Done, Ended, Job, Place, Reasons, Shell, Start, Stop, Until, number_after, read};
use crate::agents::Agent;
use crate::chat::Chat;
use crate::dialect::{Call, ToolSet};
use crate::seen::Seen;

pub(super) struct Bash {
    agent: Agent,
}

impl Bash {
    pub(super) fn of(agent: Agent) -> Self {
        Bash { agent }
    }

    fn call(&self, line: &str) -> Call {
        let tool = match self.agent {
            Agent::Claude => "Bash",
            Agent::Gemini => "run_shell_command",
            Agent::Opencode | Agent::Codex => "bash",
        };
        Call { from: ToolSet::Own, tool: tool.to_owned(), arguments: json!({ "command": line }) }
    }

    fn bash(&self, chat: &mut Chat, line: &str) -> String {
        text_of(chat.call_all(vec![self.call(line)]))
    }

    /// A call that reports the exit code: opencode's shell does not, so the line prints it.
    fn telling(&self, line: &str) -> Call {
        match self.agent {
            Agent::Opencode => self.call(&format!("{line}; echo \"exit code $?\"")),
            _ => self.call(line),
        }
    }

    fn ended(&self, seen: &Seen) -> Ended {
        let text = seen.text.clone();
        let said = number_after(&text, &["Exit code ", "Exit Code: ", "exit code "]);
        let signal = number_after(&text, &["Signal: "]).map(|number| 128 + number);
        // Claude Code and gemini-cli report only failures.
        let silent = (self.agent != Agent::Opencode).then_some(0);
        Ended { code: said.or(signal).or(silent), id: None, text }
    }
}

fn text_of(mut results: Vec<Seen>) -> String {
    results.pop().expect("one result").text
}

// No line uses command substitution: gemini-cli refuses it.

/// Waits in bash until a file contains this text, at most 30 s.
fn until_says(file: &str, says: &str) -> String {
    format!("for i in {{1..300}}; do grep -q '{says}' {file} && break; sleep 0.1; done")
}

fn pid_in(text: &str) -> Done<String> {
    let pid = number_after(text, &["pid "]).ok_or_else(|| Stop::Failed(format!("no pid in: {text}")))?;
    Ok(pid.to_string())
}

/// Stops every process with this word in its command line: with TERM, then the rest with KILL by pid.
pub(super) fn stop_by_name(tag: &str, bash: &mut dyn FnMut(&str) -> Done<String>) -> Done<()> {
    // The bracket keeps the command from matching itself.
    let (first, rest) = tag.split_at(1);
    let look = format!("ps -eo pid,args | grep '[{first}]{rest}' || echo gone");
    let text = bash(&format!("pgrep -f '[{first}]{rest}' | xargs kill; sleep 0.5; {look}"))?;
    if text.contains("gone") {
        return Ok(());
    }
    let pids: Vec<&str> = text.lines().filter(|line| line.contains(tag)).filter_map(first_number).collect();
    let text = bash(&format!("kill -9 {}; sleep 0.5; {look}", pids.join(" ")))?;
    match text.contains("gone") {
        true => Ok(()),
        false => Err(Stop::Failed(format!("it was not stopped: {text}"))),
    }
}

fn first_number(line: &str) -> Option<&str> {
    line.split_whitespace().find(|word| word.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The file to which a client says it has saved the output.
fn file_in(text: &str) -> Option<&str> {
    let words = text.split_whitespace().map(|word| word.trim_end_matches(['.', ',', ')', '"']));
    words.into_iter().find(|word| word.starts_with('/') && word.matches('/').count() > 3)
}

impl Shell for Bash {
    fn run(&mut self, chat: &mut Chat, line: &str) -> Done<Ended> {
        let mut results = chat.call_all(vec![self.call(line)]);
        Ok(self.ended(&results.remove(0)))
    }

    fn run_for_code(&mut self, chat: &mut Chat, line: &str) -> Done<Ended> {
        let mut results = chat.call_all(vec![self.telling(line)]);
        Ok(self.ended(&results.remove(0)))
    }

    fn run_in(&mut self, chat: &mut Chat, place: Place<'_>, line: &str) -> Done<Ended> {
        let (name, value) = place.variable;
        let mut call = self.call(&format!("{name}={value} {line}"));
        match self.agent {
            Agent::Gemini => call.arguments["dir_path"] = place.directory.into(),
            Agent::Opencode => call.arguments["workdir"] = place.directory.into(),
            _ => call = self.call(&format!("cd {} && {name}={value} {line}", place.directory)),
        }
        let mut results = chat.call_all(vec![call]);
        Ok(self.ended(&results.remove(0)))
    }

    fn run_together(&mut self, chat: &mut Chat, lines: &[String]) -> Done<Vec<Ended>> {
        let results = chat.call_all(lines.iter().map(|line| self.call(line)).collect());
        Ok(results.iter().map(|seen| self.ended(seen)).collect())
    }

    fn run_and_find(&mut self, chat: &mut Chat, line: &str, reasons: Reasons<'_>) -> Done<Ended> {
        let ended = self.run_for_code(chat, line)?;
        let grep = reasons.grep;
        if reasons.are_in(&ended.text) {
            return Ok(ended);
        }
        let text = match file_in(&ended.text).map(str::to_owned) {
            Some(file) => self.bash(chat, &format!("grep {grep} {file} | head")),
            None => self.bash(chat, &format!("{line} 2>&1 | grep {grep} | head")),
        };
        Ok(Ended { text, ..ended })
    }

    fn run_leaving(&mut self, chat: &mut Chat, start: Start<'_>, says: &str) -> Done<Job> {
        let log = format!("{}.log", start.tag);
        // The shells of gemini-cli and opencode wait for every process that holds their pipe, so redirect to a file.
        let line = match self.agent {
            Agent::Claude => start.line.to_owned(),
            _ => format!("{} > {log} 2>&1; cat {log}", start.line),
        };
        let text = self.bash(chat, &line);
        read(&text, says)?;
        Ok(Job { id: String::new(), tag: start.tag.to_owned(), log, first: text })
    }

    fn start(&mut self, chat: &mut Chat, start: Start<'_>, until: Until<'_>) -> Done<Job> {
        let Start { line, tag } = start;
        let log = format!("{tag}.log");
        let line = match until {
            Until::Says(says) => {
                format!("{line} > {log} 2>&1 & echo pid $!; {}; cat {log}", until_says(&log, says))
            }
            Until::Listens(port) => {
                format!("{line} > {log} 2>&1 & echo pid $!; {} && echo port {port} is open", until_open(port))
            }
            // `script` provides a terminal; `sleep` keeps its input pipe open.
            Until::Asks(says) => format!(
                "mkfifo {tag}.in; sleep 600 > {tag}.in 2>&1 & script -qfc '{line}' {log} < {tag}.in > /dev/null 2>&1 & echo pid $!; {}; cat {log}",
                until_says(&log, says)
            ),
        };
        let text = self.bash(chat, &line);
        if let Until::Says(says) | Until::Asks(says) = until {
            read(&text, says)?;
        } else {
            read(&text, "is open")?;
        }
        Ok(Job { id: pid_in(&text)?, tag: tag.to_owned(), log, first: text })
    }

    fn start_logging(&mut self, chat: &mut Chat, start: Start<'_>, says: &str) -> Done<Job> {
        let Start { line, tag } = start;
        let log = format!("{tag}.log");
        let line = format!("{line} > {log} 2>&1 & echo pid $!; {}; tail -n 3 {log}", until_says(&log, says));
        let text = self.bash(chat, &line);
        Ok(Job { id: pid_in(&text)?, tag: tag.to_owned(), log, first: text })
    }

    fn start_together(&mut self, chat: &mut Chat, starts: &[Start<'_>]) -> Done<Vec<Job>> {
        let background = |start: &Start<'_>| {
            let mut call = self.call(start.line);
            match self.agent {
                Agent::Claude => call.arguments["run_in_background"] = Value::Bool(true),
                Agent::Gemini => call.arguments["is_background"] = Value::Bool(true),
                _ => {
                    // Nothing else reports how it ended.
                    let Start { line, tag } = start;
                    call = self.call(&format!("({line}; echo \"exit code $?\") > {tag}.log 2>&1 & echo pid $!"));
                }
            }
            call
        };
        let results = chat.call_all(starts.iter().map(background).collect());
        let job = |(seen, start): (&Seen, &Start<'_>)| {
            let id = match self.agent {
                Agent::Claude => seen.text.split_once("ID: ").and_then(|(_, rest)| rest.split('.').next()),
                Agent::Gemini => seen.text.split_once("PID: ").and_then(|(_, rest)| rest.split(')').next()),
                _ => seen.text.split_once("pid ").map(|(_, rest)| rest.trim()),
            };
            let id = id.ok_or_else(|| Stop::Failed(format!("no id in: {seen}")))?.to_owned();
            Ok(Job { id, tag: start.tag.to_owned(), log: format!("{}.log", start.tag), first: seen.text.clone() })
        };
        results.iter().zip(starts).map(job).collect()
    }

    fn read(&mut self, chat: &mut Chat, job: &Job) -> Done<String> {
        Ok(self.bash(chat, &format!("tail -n 20 {}", job.log)))
    }

    fn find(&mut self, chat: &mut Chat, job: &Job, wanted: &str) -> Done<String> {
        Ok(self.bash(chat, &format!("grep -n '{wanted}' {}", job.log)))
    }

    fn do_and_await(&mut self, chat: &mut Chat, line: &str, job: &Job, says: &str) -> Done<String> {
        let log = &job.log;
        Ok(self.bash(chat, &format!("{line}; {}; grep '{says}' {log}", until_says(log, says))))
    }

    fn answer(&mut self, chat: &mut Chat, job: &Job, text: &str, says: &str) -> Done<String> {
        let Job { log, tag, .. } = job;
        Ok(self.bash(chat, &format!("echo '{text}' > {tag}.in; {}; tail -n 3 {log}", until_says(log, says))))
    }

    fn learn_of_end(&mut self, chat: &mut Chat, line: &str, job: &Job, code: i32) -> Done<String> {
        self.run(chat, line)?;
        let text = match self.agent {
            // Claude Code sends a notice by itself, next to a result.
            Agent::Claude => chat.model.last_notices().join("\n"),
            Agent::Gemini => {
                let call = Call { from: ToolSet::Own, tool: "list_background_processes".into(), arguments: json!({}) };
                text_of(chat.call_all(vec![call]))
            }
            _ => self.bash(chat, &format!("tail -n 3 {}", job.log)),
        };
        let own = text.lines().filter(|line| self.agent != Agent::Gemini || line.contains(&job.id));
        let own = own.collect::<Vec<_>>().join("\n");
        match number_after(&own, &["exit code ", "Exit Code: "]) {
            Some(found) if found == code => Ok(text),
            _ => Err(Stop::Failed(format!("no exit code {code} in: {text}"))),
        }
    }

    fn stop(&mut self, chat: &mut Chat, job: &Job) -> Done<()> {
        stop_by_name(&job.tag, &mut |line| Ok(self.bash(chat, line)))
    }
}
