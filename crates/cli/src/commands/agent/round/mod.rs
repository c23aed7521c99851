//! `agent loop`: a worker does a task, a reviewer judges it, until the reviewer passes it or the limit is reached.
//!
//! Every turn has a key made of the loop's id and its place in the loop. A loop that is taken up again asks for the same
//! turns under the same keys: those that were finished are not run again, one that is running is waited for.

mod journal;
mod words;

use std::path::PathBuf;

use clap::Args;
use pinfold_api::input::Span;
use pinfold_api::types::{Agent, AgentStopRequest, Approvals, Turn, TurnQuery, TurnRequest, TurnStatus};

use super::super::run::fresh_key;
use super::host::Manner;
use super::{surroundings, turn};
use crate::args::Global;
use crate::console::Screen;
use crate::exit;
use crate::failure::Failure;
use crate::render::agent::render_fault;
use crate::session::Session;
use journal::{Ending, Entry, Journal, State};
use words::Verdict;

/// How often a turn is begun anew before the loop gives up.
const ATTEMPTS: u32 = 2;
/// A task is not longer.
const TASK_MOST: usize = 256 * 1024;

/// Let a worker do a task and a reviewer judge it, until it passes or the limit is reached
///
/// The transcript is written to a directory of the loop. If this command, the daemon or an agent is killed, `--resume` goes
/// on where it was: no turn that was finished is run again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent loop --task TASK.md --worker codex --reviewer claude --limit 5\n  \
                        pinfold agent loop --task 'add a test for parse()' --worker codex --reviewer codex\n  \
                        pinfold agent loop --resume loop-1a2b3c\n\n\
                        Exits with 0 if the reviewer passed it, 3 if the limit was reached, else 1.")]
pub(crate) struct LoopArgs {
    /// The task: a file, or the text itself
    #[arg(long, required_unless_present = "resume", conflicts_with = "resume")]
    pub(crate) task: Option<String>,
    /// The agent that works
    #[arg(long, value_name = "KIND", default_value = "codex")]
    pub(crate) worker: String,
    /// The agent that judges
    #[arg(long, value_name = "KIND", default_value = "claude")]
    pub(crate) reviewer: String,
    /// The program of the worker, if it is not the agent's name
    #[arg(long, value_name = "PATH")]
    pub(crate) worker_program: Option<String>,
    /// The program of the reviewer, if it is not the agent's name
    #[arg(long, value_name = "PATH")]
    pub(crate) reviewer_program: Option<String>,
    /// How often the worker may try
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: u32,
    /// Go on with a loop: its id, or its directory
    #[arg(long, value_name = "LOOP")]
    pub(crate) resume: Option<String>,
    /// Where state and transcript are written [default: loops/ID in the state directory]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) dir: Option<PathBuf>,
    /// Leave the agents there when it is over
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) manner: Manner,
}

/// Runs the loop.
pub(super) async fn run(
    session: &Session,
    args: &LoopArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<u8, Failure> {
    let (journal, mut state) = open(session, args)?;
    state.runs += 1;
    journal.save(&state)?;
    if !screen.json {
        screen.note(&format!("{}: transcript in {}", state.id, journal.dir().display()));
    }
    let mut circle = Circle { session, args, global, journal, state, agents: [None, None] };
    let done = circle.go(screen).await;
    if !args.keep && (done.is_ok() || circle.state.ending.is_some()) {
        circle.dismiss().await;
    }
    let ending = done?;
    match screen.json {
        true => screen.document(&circle.state)?,
        false => screen.text(&format!("{} {}\n", circle.state.id, describe(&circle.state)))?,
    }
    Ok(if ending == Ending::Passed { 0 } else { exit::NOT_PASSED })
}

fn describe(state: &State) -> String {
    match state.ending {
        Some(Ending::Passed) => format!("passed after {} of {}", state.iteration, state.limit),
        _ => format!("not passed after {}, which is the limit", state.limit),
    }
}

/// The loop's directory and where it is.
fn open(session: &Session, args: &LoopArgs) -> Result<(Journal, State), Failure> {
    let loops = session.paths().home.join("loops");
    if let Some(resume) = &args.resume {
        let dir = if resume.contains('/') { PathBuf::from(resume) } else { loops.join(resume) };
        if !dir.join("state.json").exists() {
            return Err(Failure::refused(format!("there is no loop in {}: see --task", dir.display())));
        }
        let journal = Journal::open(&dir)?;
        let state = journal.read_state()?.ok_or_else(|| Failure::trouble("its state is gone"))?;
        return Ok((journal, state));
    }
    let key = fresh_key().unwrap_or_default();
    let unique: String = key.chars().filter(char::is_ascii_alphanumeric).skip(3).take(8).collect();
    let id = format!("loop-{unique}");
    let journal = Journal::open(&args.dir.clone().unwrap_or_else(|| loops.join(&id)))?;
    if journal.read_state()?.is_some() {
        let dir = journal.dir().display();
        return Err(Failure::refused(format!(
            "{dir} holds a loop already: go on with it (--resume {dir}), or choose another --dir"
        )));
    }
    let task = read_task(args.task.as_deref().unwrap_or_default())?;
    let state = State::new(id, task, args.worker.clone(), args.reviewer.clone(), args.limit);
    Ok((journal, state))
}

/// A file's text, if there is such a file, or the text itself.
fn read_task(given: &str) -> Result<String, Failure> {
    let path = PathBuf::from(given);
    let is_file = given.len() < 4096 && !given.contains('\n') && path.is_file();
    let task = match is_file {
        true => std::fs::read_to_string(&path).map_err(|error| Failure::refused(format!("{given}: {error}")))?,
        false => given.to_owned(),
    };
    if task.trim().is_empty() {
        return Err(Failure::refused("the task is empty: say what is to be done"));
    }
    if task.len() > TASK_MOST {
        return Err(Failure::refused(format!("the task has {} bytes, at most {TASK_MOST} are taken", task.len())));
    }
    Ok(task.trim().to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Worker,
    Reviewer,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Worker => "worker",
            Role::Reviewer => "reviewer",
        }
    }
}

/// A loop that runs.
struct Circle<'a> {
    session: &'a Session,
    args: &'a LoopArgs,
    global: &'a Global,
    journal: Journal,
    state: State,
    /// The worker and the reviewer, once they are needed.
    agents: [Option<String>; 2],
}

impl Circle<'_> {
    async fn go(&mut self, screen: &mut Screen) -> Result<Ending, Failure> {
        loop {
            if let Some(ending) = self.state.ending {
                return Ok(ending);
            }
            let (task, iteration) = (self.state.task.clone(), self.state.iteration);
            if self.state.report.is_none() {
                let prompt = words::work(&task, self.state.notes.as_deref());
                let turn = self.turn(Role::Worker, "work", &prompt, screen).await?;
                self.state.report = Some(turn.text.unwrap_or_default());
                self.journal.save(&self.state)?;
            }
            let prompt = words::review(&task, self.state.report.as_deref().unwrap_or_default());
            let verdict = self.judge(&prompt, screen).await?;
            match verdict {
                Verdict::Pass => self.state.ending = Some(Ending::Passed),
                Verdict::Fail(notes) => {
                    self.state.notes = Some(notes);
                    self.state.report = None;
                    if iteration >= self.state.limit {
                        self.state.ending = Some(Ending::LimitReached);
                    } else {
                        self.state.iteration += 1;
                    }
                }
                Verdict::None => return Err(Failure::trouble("the reviewer gives no verdict")),
            }
            self.journal.save(&self.state)?;
            self.journal.finish(&self.state)?;
        }
    }

    /// The reviewer's verdict; one that gives none is asked once more, and then counts as not passing.
    async fn judge(&mut self, prompt: &str, screen: &mut Screen) -> Result<Verdict, Failure> {
        let answer = self.turn(Role::Reviewer, "review", prompt, screen).await?.text.unwrap_or_default();
        let verdict = words::parse_verdict(&answer);
        if verdict != Verdict::None {
            return Ok(verdict);
        }
        let second =
            self.turn(Role::Reviewer, "verdict", &words::ask_verdict(), screen).await?.text.unwrap_or_default();
        Ok(match words::parse_verdict(&second) {
            Verdict::None => Verdict::Fail(answer),
            Verdict::Fail(notes) if notes.is_empty() => Verdict::Fail(answer),
            verdict => verdict,
        })
    }

    /// A turn of one of them. One that failed is tried again under another key; a loop that is taken up again tries those
    /// anew that failed before.
    async fn turn(&mut self, role: Role, what: &str, prompt: &str, screen: &mut Screen) -> Result<Turn, Failure> {
        let mut attempt = 1;
        loop {
            let step = format!("{}-{what}-{attempt}", self.state.iteration);
            let turn = self.ask(role, &step, prompt, screen).await?;
            let iteration = self.state.iteration;
            self.journal.note(Entry::of(&step, iteration, role.name(), &turn), &self.state)?;
            if turn.status == TurnStatus::Completed {
                return Ok(turn);
            }
            let cause = turn.cause.clone().unwrap_or_default();
            if attempt >= ATTEMPTS * self.state.runs {
                let message =
                    format!("the {} did not complete its turn: {cause}  (--resume {})", role.name(), self.state.id);
                return Err(Failure::trouble(message));
            }
            screen.note(&format!("{} {}: {cause}: once more", self.state.iteration, role.name()));
            attempt += 1;
        }
    }

    /// Gives a turn and waits for its end.
    async fn ask(&mut self, role: Role, step: &str, prompt: &str, screen: &mut Screen) -> Result<Turn, Failure> {
        let agent = self.agent(role).await?;
        let key = format!("{}-{step}", self.state.id);
        let request = TurnRequest {
            text: prompt.to_owned(),
            idempotency_key: Some(key),
            env: surroundings(self.session)?,
            wait: turn::patience(),
            ..TurnRequest::default()
        };
        if !screen.json {
            screen.note(&format!("{} {}…", self.state.iteration, role.name()));
        }
        let mut given = self.session.ask(async |client| client.give_turn(&agent, &request).await).await?;
        let query = TurnQuery { wait: Some("30s".to_owned()) };
        while !given.status.is_over() {
            given = self.session.ask(async |client| client.turn(&agent, given.number, &query).await).await?;
        }
        Ok(given)
    }

    /// The agent of a role, hosted if it is not; one that is over is replaced.
    async fn agent(&mut self, role: Role) -> Result<String, Failure> {
        let place = role as usize;
        if let Some(agent) = &self.agents[place] {
            return Ok(agent.clone());
        }
        for number in 1..=100 {
            let agent = self.host(role, number).await?;
            if agent.ended_at.is_none() {
                self.agents[place] = Some(agent.id.clone());
                return Ok(agent.id);
            }
            if number as u32 >= ATTEMPTS * self.state.runs {
                return Err(Failure::trouble(render_fault(&agent)));
            }
        }
        Err(Failure::trouble(format!("no {} can be hosted", role.name())))
    }

    async fn host(&self, role: Role, number: usize) -> Result<Agent, Failure> {
        let (kind, program) = match role {
            Role::Worker => (&self.state.worker, &self.args.worker_program),
            Role::Reviewer => (&self.state.reviewer, &self.args.reviewer_program),
        };
        let mut request = self.args.manner.request(self.session, kind, self.global)?;
        request.program = program.clone().or(request.program);
        request.name = Some(format!("{}-{}", self.state.id, role.name()));
        request.idempotency_key = Some(format!("{}-{}-{number}", self.state.id, role.name()));
        request.wait = Some(request.ready_timeout.clone().unwrap_or_else(|| Span::from("61s")));
        if role == Role::Worker {
            // Nobody is there to be asked.
            request.approvals = request.approvals.or(Some(Approvals::Allow));
        }
        self.session.ask(async |client| client.host_agent(&request).await).await
    }

    async fn dismiss(&self) {
        let request = AgentStopRequest { grace: None, by: Some("pinfold agent loop".into()) };
        for agent in self.agents.iter().flatten() {
            let _ = self.session.once().stop_agent(agent, &request).await;
        }
    }
}
