//! The steps of a scenario, and how each set of tools performs them.
//!
//! Each step is one decision of the model. An implementation makes the fewest calls that a competent model would
//! need, and uses only what the model sees of the results.

mod bash;
mod codex;
mod pinfold;

use crate::agents::Agent;
use crate::chat::Chat;
use crate::dialect::{Call, ToolSet};
use crate::seen::Seen;

/// Why a scenario was not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// These tools cannot reach the goal.
    Cannot(&'static str),
    /// The goal was not reached.
    Failed(String),
}

pub type Done<T> = Result<T, Stop>;

/// What the model learned of a command that ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub text: String,
    pub code: Option<i32>,
    /// The id under which the command left processes running.
    pub id: Option<String>,
}

/// A command that runs in the background.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its identifier in the tools: an id, a session, a pid.
    pub id: String,
    /// A word that is only in its command line.
    pub tag: String,
    /// The file of its output, if the model redirected it.
    pub log: String,
    /// What the model read at its start.
    pub first: String,
}

/// What to wait for after a start.
#[derive(Clone, Copy, Debug)]
pub enum Until<'a> {
    /// A line that contains this.
    Says(&'a str),
    Listens(u16),
    /// A question on a terminal that contains this.
    Asks(&'a str),
}

/// A command line, and the word that identifies its processes.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    pub line: &'a str,
    pub tag: &'a str,
}

/// The directory and a variable for a command.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub directory: &'a str,
    pub variable: (&'a str, &'a str),
}

/// Lines that a model looks for.
#[derive(Clone, Copy, Debug)]
pub struct Reasons<'a> {
    /// The pattern to search for if they are not in the first result.
    pub grep: &'a str,
    /// Texts that must be found.
    pub lines: &'a [&'a str],
}

impl Reasons<'_> {
    /// Whether all of them are in the text.
    pub fn are_in(self, text: &str) -> bool {
        self.lines.iter().all(|line| text.contains(line))
    }
}

/// One set of tools.
pub trait Shell: Send {
    /// Runs a command until it ends, with as many waits as needed, and reads its output.
    fn run(&mut self, chat: &mut Chat, line: &str) -> Done<Ended>;

    /// The same, and learns its exit code, which most tools report anyway.
    fn run_for_code(&mut self, chat: &mut Chat, line: &str) -> Done<Ended> {
        self.run(chat, line)
    }

    /// Runs a command after the client was killed and resumed, in a access that the job can be used again.
    fn run_after_resume(&mut self, chat: &mut Chat, line: &str, _: &Job) -> Done<Ended> {
        self.run(chat, line)
    }

    /// Runs a command in another directory, with a variable.
    fn run_in(&mut self, chat: &mut Chat, place: Place<'_>, line: &str) -> Done<Ended>;

    /// Runs independent commands in one turn.
    fn run_together(&mut self, chat: &mut Chat, lines: &[String]) -> Done<Vec<Ended>>;

    /// Runs a command that fails with much output, learns its exit code, and finds the lines with the reason.
    fn run_and_find(&mut self, chat: &mut Chat, line: &str, reasons: Reasons<'_>) -> Done<Ended>;

    /// Runs a command that leaves a process running.
    fn run_leaving(&mut self, chat: &mut Chat, start: Start<'_>, says: &str) -> Done<Job>;

    /// Starts a command in the background, and waits for `until`.
    fn start(&mut self, chat: &mut Chat, start: Start<'_>, until: Until<'_>) -> Done<Job>;

    /// Starts a command with much output, to be searched later; waits until it prints `says`.
    fn start_logging(&mut self, chat: &mut Chat, start: Start<'_>, says: &str) -> Done<Job>;

    /// Starts several commands in one turn, without waiting.
    fn start_together(&mut self, chat: &mut Chat, starts: &[Start<'_>]) -> Done<Vec<Job>>;

    /// Reads what the job has printed since the last read.
    fn read(&mut self, chat: &mut Chat, job: &Job) -> Done<String>;

    /// Finds a line in everything the job has printed.
    fn find(&mut self, chat: &mut Chat, job: &Job, wanted: &str) -> Done<String>;

    /// Runs a command, and waits until the job prints `says`.
    fn do_and_await(&mut self, chat: &mut Chat, line: &str, job: &Job, says: &str) -> Done<String>;

    /// Types a line, and waits until the job prints `says`.
    fn answer(&mut self, chat: &mut Chat, job: &Job, text: &str, says: &str) -> Done<String>;

    /// Runs a command during which the job ends, and learns the job's exit code.
    fn learn_of_end(&mut self, chat: &mut Chat, line: &str, job: &Job, code: i32) -> Done<String>;

    /// Stops the job with its whole tree.
    fn stop(&mut self, chat: &mut Chat, job: &Job) -> Done<()>;
}

/// pinfold's tools, or the client's own.
pub fn of(agent: Agent, from: ToolSet) -> Box<dyn Shell> {
    match (from, agent) {
        (ToolSet::Pinfold, _) => Box::new(pinfold::Pinfold),
        (ToolSet::Own, Agent::Codex) => Box::new(codex::Codex),
        (ToolSet::Own, agent) => Box::new(bash::Bash::of(agent)),
    }
}

/// Fails unless the model has read this text.
pub fn read(text: &str, wanted: &str) -> Done<()> {
    match text.contains(wanted) {
        true => Ok(()),
        false => Err(Stop::Failed(format!("the model did not read `{wanted}`"))),
    }
}

fn one(chat: &mut Chat, from: ToolSet, tool: &str, arguments: serde_json::Value) -> Seen {
    let call = Call { from, tool: tool.to_owned(), arguments };
    chat.call_all(vec![call]).pop().expect("one result")
}

/// The number after the first of these words that occurs.
fn number_after(text: &str, words: &[&str]) -> Option<i32> {
    let behind = |word: &&str| {
        let rest = text.split_once(*word)?.1.trim_start_matches(['"', ':', ' ']);
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    words.iter().find_map(behind)
}
