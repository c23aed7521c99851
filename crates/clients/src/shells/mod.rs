//! What a model does in a scenario, whatever its tools are: the steps, and how each set of tools takes them.
//!
//! Each step is one decision of the model. How many calls it takes is the tools' affair: an implementation uses the
//! fewest that a competent model would need, and reads of results only what the model sees.

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
    /// These tools have no way to the goal.
    Cannot(&'static str),
    /// The goal was not reached.
    Failed(String),
}

pub type Done<T> = Result<T, Stop>;

/// What the model learnt of a command that ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub text: String,
    pub code: Option<i32>,
    /// The command left processes behind under this id.
    pub id: Option<String>,
}

/// A command that runs in the background.
#[derive(Clone, Debug)]
pub struct Job {
    /// What the tools know it by: an id, a session, a pid.
    pub id: String,
    /// A word that stands in its command line and in no other's.
    pub tag: String,
    /// Where its output goes, if the model had it redirected.
    pub log: String,
    /// What the model read when it was started.
    pub first: String,
}

/// What to wait for after a start.
#[derive(Clone, Copy, Debug)]
pub enum Until<'a> {
    /// A line with this in it.
    Says(&'a str),
    /// A TCP port that it listens on.
    Listens(u16),
    /// A question with this in it, on a terminal.
    Asks(&'a str),
}

/// A command to be started: its line, and the word that it is recognised by.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    pub line: &'a str,
    pub tag: &'a str,
}

/// Where and with what a command runs.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub directory: &'a str,
    pub variable: (&'a str, &'a str),
}

/// Lines that a model looks for.
#[derive(Clone, Copy, Debug)]
pub struct Reasons<'a> {
    /// What it looks for if it did not read them anyway.
    pub grep: &'a str,
    /// What they all say.
    pub lines: &'a [&'a str],
}

impl Reasons<'_> {
    /// Whether all of them were read.
    pub fn are_in(self, text: &str) -> bool {
        self.lines.iter().all(|line| text.contains(line))
    }
}

/// One set of tools.
pub trait Shell: Send {
    /// Runs a command to its end, however often that must be waited for, and reads its output.
    fn run(&mut self, chat: &mut Chat, line: &str) -> Done<Ended>;

    /// The same, and learns its exit code: most tools tell it anyway.
    fn run_for_code(&mut self, chat: &mut Chat, line: &str) -> Done<Ended> {
        self.run(chat, line)
    }

    /// Runs a command after the client was killed and resumed, so that the job can be used again then.
    fn run_after_resume(&mut self, chat: &mut Chat, line: &str, _: &Job) -> Done<Ended> {
        self.run(chat, line)
    }

    /// Runs a command in another directory, with a variable.
    fn run_in(&mut self, chat: &mut Chat, place: Place<'_>, line: &str) -> Done<Ended>;

    /// Runs commands that need not wait for each other, in one turn.
    fn run_together(&mut self, chat: &mut Chat, lines: &[String]) -> Done<Vec<Ended>>;

    /// Runs a command that fails somewhere in a large output, learns its exit code, and finds the lines that say why.
    fn run_and_find(&mut self, chat: &mut Chat, line: &str, reasons: Reasons<'_>) -> Done<Ended>;

    /// Runs a command that leaves a process behind.
    fn run_leaving(&mut self, chat: &mut Chat, start: Start<'_>, says: &str) -> Done<Job>;

    /// Starts a command in the background, and returns when it is as far as that.
    fn start(&mut self, chat: &mut Chat, start: Start<'_>, until: Until<'_>) -> Done<Job>;

    /// Starts a command that writes much, to be searched later; returns when it says this.
    fn start_logging(&mut self, chat: &mut Chat, start: Start<'_>, says: &str) -> Done<Job>;

    /// Starts several in one turn, without waiting for anything.
    fn start_together(&mut self, chat: &mut Chat, starts: &[Start<'_>]) -> Done<Vec<Job>>;

    /// Reads what the job has written since the model last looked.
    fn read(&mut self, chat: &mut Chat, job: &Job) -> Done<String>;

    /// Finds a line in all that the job has written.
    fn find(&mut self, chat: &mut Chat, job: &Job, wanted: &str) -> Done<String>;

    /// Does something, and waits for what the job says to it.
    fn do_and_await(&mut self, chat: &mut Chat, line: &str, job: &Job, says: &str) -> Done<String>;

    /// Types a line, and waits for what the job says to it.
    fn answer(&mut self, chat: &mut Chat, job: &Job, text: &str, says: &str) -> Done<String>;

    /// Runs a command during which the job ends by itself, and learns of that end: its exit code.
    fn learn_of_end(&mut self, chat: &mut Chat, line: &str, job: &Job, code: i32) -> Done<String>;

    /// Ends the job and all that belongs to it.
    fn stop(&mut self, chat: &mut Chat, job: &Job) -> Done<()>;
}

/// The tools of pinfold in a client, or the client's own.
pub fn of(agent: Agent, from: ToolSet) -> Box<dyn Shell> {
    match (from, agent) {
        (ToolSet::Pinfold, _) => Box::new(pinfold::Pinfold),
        (ToolSet::Own, Agent::Codex) => Box::new(codex::Codex),
        (ToolSet::Own, agent) => Box::new(bash::Bash::of(agent)),
    }
}

/// Fails unless the model has read this.
pub fn read(text: &str, wanted: &str) -> Done<()> {
    match text.contains(wanted) {
        true => Ok(()),
        false => Err(Stop::Failed(format!("the model did not read `{wanted}`"))),
    }
}

/// Makes one call.
fn one(chat: &mut Chat, from: ToolSet, tool: &str, arguments: serde_json::Value) -> Seen {
    let call = Call { from, tool: tool.to_owned(), arguments };
    chat.call_all(vec![call]).pop().expect("one result")
}

/// The number behind the first of these words that is there.
fn number_after(text: &str, words: &[&str]) -> Option<i32> {
    let behind = |word: &&str| {
        let rest = text.split_once(*word)?.1.trim_start_matches(['"', ':', ' ']);
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    words.iter().find_map(behind)
}
