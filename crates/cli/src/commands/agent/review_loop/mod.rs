//! `agent loop`: a worker does a task and a reviewer judges it, until it passes or the limit is reached.
//!
//! Every turn has an idempotency key made of the loop's id and the step. A resumed loop requests the same turns with the same
//! keys: finished turns are not run again, and a running one is waited for.

mod journal;
mod prompts;

use std::path::PathBuf;

use clap::Args;
use pinfold_api::input::Span;
use pinfold_api::types::{Agent, AgentStopRequest, Approvals, Turn, TurnQuery, TurnRequest, TurnStatus};

use super::host::HostOptions;
use super::{environment_for_agent, turn};
use crate::args::Global;
use crate::commands::run::fresh_key;
use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::render::agent::render_fault;
use crate::session::Session;
use journal::{Ending, Entry, Journal, State};
use prompts::ReviewResult;

/// How often a turn is tried before the loop gives up.
const ATTEMPTS: u32 = 2;
/// Maximum length of a task.
const MAX_TASK: usize = 256 * 1024;

/// Let one agent do a task and another review it, until it passes or the limit is reached
///
/// The transcript is written to a directory of the loop. If this command, the daemon or an agent is killed, --resume
/// continues: finished turns are not run again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent loop --task TASK.md --worker codex --reviewer claude --limit 5\n  \
                        pinfold agent loop --task 'add a test for parse()' --worker codex --reviewer codex\n  \
                        pinfold agent loop --resume loop-1a2b3c\n\n\
                        Exit code: 0 if the reviewer passed it, 3 if the limit was reached, otherwise 1.")]
pub(crate) struct LoopArgs {
    /// Task: a file, or the text itself
    #[arg(long, required_unless_present = "resume", conflicts_with = "resume")]
    pub(crate) task: Option<String>,
    /// Agent that does the task
    #[arg(long, value_name = "KIND", default_value = "codex")]
    pub(crate) worker: String,
    /// Agent that reviews it
    #[arg(long, value_name = "KIND", default_value = "claude")]
    pub(crate) reviewer: String,
    /// Program of the worker, if it is not named like the agent
    #[arg(long, value_name = "PATH")]
    pub(crate) worker_program: Option<String>,
    /// Program of the reviewer, if it is not named like the agent
    #[arg(long, value_name = "PATH")]
    pub(crate) reviewer_program: Option<String>,
    /// Maximum number of iterations
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: u32,
    /// Continue a loop, given by id or directory
    #[arg(long, value_name = "LOOP")]
    pub(crate) resume: Option<String>,
    /// Directory for state and transcript [default: loops/ID in the state directory]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) dir: Option<PathBuf>,
    /// Do not stop the agents at the end
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) options: HostOptions,
}

/// Runs the loop.
pub(super) async fn run(
    session: &Session,
    args: &LoopArgs,
    global: &Global,
    console: &mut Console,
) -> Result<u8, Failure> {
    let (journal, mut state) = open(session, args)?;
    state.runs += 1;
    journal.save(&state)?;
    if !console.json {
        console.note(&format!("{}: transcript in {}", state.id, journal.dir().display()));
    }
    let mut review = ReviewLoop { session, args, global, journal, state, agents: [None, None] };
    let done = review.go(console).await;
    if !args.keep && (done.is_ok() || review.state.ending.is_some()) {
        review.stop_agents().await;
    }
    let ending = done?;
    match console.json {
        true => console.document(&review.state)?,
        false => console.text(&format!("{} {}\n", review.state.id, describe(&review.state)))?,
    }
    Ok(if ending == Ending::Passed { 0 } else { exit::NOT_PASSED })
}

fn describe(state: &State) -> String {
    match state.ending {
        Some(Ending::Passed) => format!("passed after {} of {} iterations", state.iteration, state.limit),
        _ => format!("not passed after {} iterations, the limit", state.limit),
    }
}

/// Opens the directory of the loop and reads or creates its state.
fn open(session: &Session, args: &LoopArgs) -> Result<(Journal, State), Failure> {
    let loops = session.paths().home.join("loops");
    if let Some(resume) = &args.resume {
        let dir = if resume.contains('/') { PathBuf::from(resume) } else { loops.join(resume) };
        if !dir.join("state.json").exists() {
            return Err(Failure::invalid(format!("no loop in {}: start one with --task", dir.display())));
        }
        let journal = Journal::open(&dir)?;
        let state = journal.read_state()?;
        let state = state.ok_or_else(|| {
            Failure::internal(format!("state.json in {} was removed: start a new loop with --task", dir.display()))
        })?;
        return Ok((journal, state));
    }
    let key = fresh_key().unwrap_or_default();
    let unique: String = key.chars().filter(char::is_ascii_alphanumeric).skip(3).take(8).collect();
    let id = format!("loop-{unique}");
    let journal = Journal::open(&args.dir.clone().unwrap_or_else(|| loops.join(&id)))?;
    if journal.read_state()?.is_some() {
        let dir = journal.dir().display();
        return Err(Failure::invalid(format!(
            "there is already a loop in {dir}: continue it with --resume {dir}, or choose another --dir"
        )));
    }
    let task = read_task(args.task.as_deref().unwrap_or_default())?;
    let state = State::new(id, task, args.worker.clone(), args.reviewer.clone(), args.limit);
    Ok((journal, state))
}

/// The content of the file with this name if it exists, otherwise the text itself.
fn read_task(given: &str) -> Result<String, Failure> {
    let path = PathBuf::from(given);
    let is_file = given.len() < 4096 && !given.contains('\n') && path.is_file();
    let task = match is_file {
        true => std::fs::read_to_string(&path).map_err(|error| Failure::invalid(format!("{given}: {error}")))?,
        false => given.to_owned(),
    };
    if task.trim().is_empty() {
        return Err(Failure::invalid("the task is empty: describe what the worker should do"));
    }
    if task.len() > MAX_TASK {
        return Err(Failure::invalid(format!(
            "the task is too long: {} bytes, at most {MAX_TASK}: put the details into files of the working directory",
            task.len()
        )));
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

/// A running loop.
struct ReviewLoop<'a> {
    session: &'a Session,
    args: &'a LoopArgs,
    global: &'a Global,
    journal: Journal,
    state: State,
    /// The worker and the reviewer, once they are needed.
    agents: [Option<String>; 2],
}

impl ReviewLoop<'_> {
    async fn go(&mut self, console: &mut Console) -> Result<Ending, Failure> {
        loop {
            if let Some(ending) = self.state.ending {
                return Ok(ending);
            }
            let (task, iteration) = (self.state.task.clone(), self.state.iteration);
            if self.state.report.is_none() {
                let prompt = prompts::work(&task, self.state.notes.as_deref());
                let turn = self.turn(Role::Worker, "work", &prompt, console).await?;
                self.state.report = Some(turn.text.unwrap_or_default());
                self.journal.save(&self.state)?;
            }
            let prompt = prompts::review(&task, self.state.report.as_deref().unwrap_or_default());
            let verdict = self.judge(&prompt, console).await?;
            match verdict {
                ReviewResult::Pass => self.state.ending = Some(Ending::Passed),
                ReviewResult::Fail(notes) => {
                    self.state.notes = Some(notes);
                    self.state.report = None;
                    if iteration >= self.state.limit {
                        self.state.ending = Some(Ending::LimitReached);
                    } else {
                        self.state.iteration += 1;
                    }
                }
                ReviewResult::None => {
                    return Err(Failure::internal(
                        "the reviewer gave no verdict: run the same command again to ask it once more",
                    ));
                }
            }
            self.journal.save(&self.state)?;
            self.journal.finish(&self.state)?;
        }
    }

    /// The reviewer's verdict. If there is none, the reviewer is asked once more; without an answer it counts as fail.
    async fn judge(&mut self, prompt: &str, console: &mut Console) -> Result<ReviewResult, Failure> {
        let answer = self.turn(Role::Reviewer, "review", prompt, console).await?.text.unwrap_or_default();
        let verdict = prompts::parse_verdict(&answer);
        if verdict != ReviewResult::None {
            return Ok(verdict);
        }
        let second =
            self.turn(Role::Reviewer, "verdict", &prompts::ask_verdict(), console).await?.text.unwrap_or_default();
        Ok(match prompts::parse_verdict(&second) {
            ReviewResult::None => ReviewResult::Fail(answer),
            ReviewResult::Fail(notes) if notes.is_empty() => ReviewResult::Fail(answer),
            verdict => verdict,
        })
    }

    /// A turn of the worker or the reviewer. A failed turn is repeated with another key, up to [`ATTEMPTS`] times per run of the
    /// loop.
    async fn turn(&mut self, role: Role, what: &str, prompt: &str, console: &mut Console) -> Result<Turn, Failure> {
        let mut attempt = 1;
        loop {
            let step = format!("{}-{what}-{attempt}", self.state.iteration);
            let turn = self.ask(role, &step, prompt, console).await?;
            let iteration = self.state.iteration;
            self.journal.note(Entry::of(&step, iteration, role.name(), &turn), &self.state)?;
            if turn.status == TurnStatus::Completed {
                return Ok(turn);
            }
            let cause = turn.cause.clone().unwrap_or_default();
            if attempt >= ATTEMPTS * self.state.runs {
                let message = format!(
                    "the {} did not complete its turn: {cause}: continue with --resume {}",
                    role.name(),
                    self.state.id
                );
                return Err(Failure::internal(message));
            }
            console.note(&format!("iteration {}: {} failed, retrying: {cause}", self.state.iteration, role.name()));
            attempt += 1;
        }
    }

    /// Sends a prompt and waits for the end of the turn.
    async fn ask(&mut self, role: Role, step: &str, prompt: &str, console: &mut Console) -> Result<Turn, Failure> {
        let agent = self.agent(role).await?;
        let key = format!("{}-{step}", self.state.id);
        let request = TurnRequest {
            text: prompt.to_owned(),
            idempotency_key: Some(key),
            env: environment_for_agent(self.session)?,
            wait: turn::turn_wait(),
            ..TurnRequest::default()
        };
        if !console.json {
            console.note(&format!("iteration {}: {}…", self.state.iteration, role.name()));
        }
        let mut given = self.session.ask(async |client| client.give_turn(&agent, &request).await).await?;
        let query = TurnQuery { wait: Some("30s".to_owned()) };
        while !given.status.is_over() {
            given = self.session.ask(async |client| client.turn(&agent, given.number, &query).await).await?;
        }
        Ok(given)
    }

    /// The agent of a role; started if it does not run, replaced if it has ended.
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
                return Err(Failure::internal(render_fault(&agent)));
            }
        }
        Err(Failure::internal(format!("the {} could not be started: see `pinfold agent ls --all`", role.name())))
    }

    async fn host(&self, role: Role, number: usize) -> Result<Agent, Failure> {
        let (kind, program) = match role {
            Role::Worker => (&self.state.worker, &self.args.worker_program),
            Role::Reviewer => (&self.state.reviewer, &self.args.reviewer_program),
        };
        let mut request = self.args.options.request(self.session, kind, self.global)?;
        request.program = program.clone().or(request.program);
        request.name = Some(format!("{}-{}", self.state.id, role.name()));
        request.idempotency_key = Some(format!("{}-{}-{number}", self.state.id, role.name()));
        request.wait = Some(request.ready_timeout.clone().unwrap_or_else(|| Span::from("61s")));
        if role == Role::Worker {
            // No person answers permission requests in a loop.
            request.approvals = request.approvals.or(Some(Approvals::Allow));
        }
        self.session.ask(async |client| client.host_agent(&request).await).await
    }

    async fn stop_agents(&self) {
        let request = AgentStopRequest { grace: None, by: Some("pinfold agent loop".into()) };
        for agent in self.agents.iter().flatten() {
            let _ = self.session.once().stop_agent(agent, &request).await;
        }
    }
}
