//! `up` and `down`: start and stop the processes of a project file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use pinfold_api::types::{ListQuery, Outcome, ReadyState, Record, StartRequest, StopRequest, WaitQuery};
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};

use super::wait::wait_for_one;
use super::{ps, stop};
use crate::args::Global;
use crate::commands::run::environment::Environment;
use crate::commands::run::inherited_owner;
use crate::console::Console;
use crate::failure::Failure;
use crate::project::{self, Action, CONFIG_LABEL, Condition, Definition, Location, Project};
use crate::render::outcome::render_outcome;
use crate::session::Session;
use crate::{exit, paths};

/// How many processes are searched for the latest one of each name.
const MAX_LISTED: u32 = 2000;

/// Start the processes of a project file, in the order of their dependencies
///
/// Reads pinfold.toml or a Procfile, in this directory or the nearest one above it. Returns when every process is
/// started, and ready if it has a readiness check. Processes that run and whose definition has not changed are left alone;
/// changed ones are replaced, and processes that are no longer in the file are stopped. Tasks that exited with 0 are
/// not run again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold up                start everything\n  \
                        pinfold up web            start web and what it depends on\n  \
                        pinfold up --force init   run a finished task again\n  \
                        pinfold up --json         print the result as JSON, for agents\n\n\
                        Exit code: 0 if everything is up, 1 if something failed, 2 if the file has an error.")]
pub(crate) struct UpArgs {
    /// Only these processes, and those they depend on [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Project file [default: pinfold.toml or Procfile, in this directory or one above]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Replace the named processes (without names: all) even if they have not changed
    #[arg(long)]
    pub(crate) force: bool,
}

/// Stop the processes of a project, dependents first
///
/// Stops each process and everything it started. Also works if the project file has an error.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold down\n  pinfold down web")]
pub(crate) struct DownArgs {
    /// Only these processes [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Project file [default: pinfold.toml or Procfile, in this directory or one above]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// What `up --json` prints.
#[derive(Debug, Serialize)]
struct UpSummary {
    directory: String,
    owner: String,
    processes: Vec<ProcessSummary>,
    /// Names of processes that were stopped because they are no longer in the file.
    removed: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct ProcessSummary {
    name: String,
    id: Option<String>,
    /// `kept`, `started`, `replaced`, or `none` if it was not started.
    action: &'static str,
    state: State,
    /// Why it failed or was skipped, or how it became ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Its leased ports, by variable.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ports: BTreeMap<String, u16>,
}

/// How far a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Waiting,
    Started,
    Ready,
    Finished,
    Failed,
    /// A dependency failed.
    Skipped,
}

impl State {
    fn satisfies(self, condition: Condition) -> bool {
        match condition {
            Condition::Started => matches!(self, State::Started | State::Ready | State::Finished),
            Condition::Ready => self == State::Ready,
            Condition::Finished => self == State::Finished,
        }
    }

    fn is_failure(self) -> bool {
        matches!(self, State::Failed | State::Skipped)
    }
}

/// Brings the project up.
pub(crate) async fn up(
    session: &Session,
    args: &UpArgs,
    global: &Global,
    console: &mut Console,
) -> Result<u8, Failure> {
    let location = locate(args.file.as_ref())?;
    let project = project::read(&location).map_err(|error| Failure::invalid(error.to_string()))?;
    let selected = project.select(&args.names).map_err(Failure::invalid)?;
    let owner = project::owner_of(&location);
    let existing = processes_of(session, &owner).await?;
    let config = paths::load_config(session.paths())?;
    let passes = |(name, _): &(OsString, OsString)| config.environment.passes(&name.to_string_lossy());
    let environment = Environment::read(std::env::vars_os().filter(passes));
    let removed = match args.names.is_empty() {
        true => stop_removed(session, &project, &existing, console).await?,
        false => Vec::new(),
    };
    let (sender, mut changes) = mpsc::unbounded_channel();
    let states: Vec<_> = project.processes.iter().map(|_| watch::Sender::new(State::Waiting)).collect();
    let here = LocalSet::new();
    let mut tasks = JoinSet::new();
    let mut summaries: BTreeMap<usize, ProcessSummary> = BTreeMap::new();
    for position in &selected {
        let definition = &project.processes[*position];
        let latest = existing.iter().find(|record| record.name.as_ref() == Some(&definition.name));
        let force = args.force && (args.names.is_empty() || args.names.contains(&definition.name));
        let action = project::decide(definition, latest, force);
        let mut request = start_request(definition, &environment);
        request.owner = Some(owner.clone());
        request.parent = global.acting_as.clone().or_else(|| inherited_owner(global));
        let awaits_end = project.processes.iter().flat_map(|process| &process.depends_on);
        let awaits_end =
            awaits_end.into_iter().any(|needed| needed.on == *position && needed.until == Condition::Finished);
        let dependencies = definition.depends_on.iter().map(|dependency| NeededProcess {
            name: project.processes[dependency.on].name.clone(),
            until: dependency.until,
            state: states[dependency.on].subscribe(),
        });
        summaries.insert(*position, summary(definition, &action));
        let task = BringUp {
            session: session.clone(),
            position: *position,
            dependencies: dependencies.collect(),
            awaits_end,
            request,
            state: states[*position].clone(),
            changes: sender.clone(),
        };
        tasks.spawn_local_on(task.run(action), &here);
    }
    drop(sender);
    here.run_until(async {
        while let Some(change) = changes.recv().await {
            let Some(summary) = summaries.get_mut(&change.position) else { continue };
            change.apply(summary);
            if !console.json {
                console.text_now(&render_change(summary))?;
            }
        }
        while tasks.join_next().await.is_some() {}
        Ok::<_, Failure>(())
    })
    .await?;
    let failed = summaries.values().any(|summary| summary.state.is_failure());
    if console.json {
        let directory = location.directory.to_string_lossy().into_owned();
        console.document(&UpSummary { directory, owner, processes: summaries.into_values().collect(), removed })?;
    } else {
        console.hint(&format!("`pinfold ps --owner {owner}` lists them, `pinfold down` stops them"));
    }
    Ok(if failed { exit::FAILED } else { 0 })
}

/// Stops the project, dependents first.
pub(crate) async fn down(session: &Session, args: &DownArgs, console: &mut Console) -> Result<u8, Failure> {
    let location = locate(args.file.as_ref())?;
    let project = match project::read(&location) {
        Ok(project) => project,
        Err(error) => {
            console.note(&format!("{error}; the processes are stopped in any order"));
            Project { processes: Vec::new() }
        }
    };
    let depths = project::depths(&project.processes);
    let mut live: Vec<_> = processes_of(session, &project::owner_of(&location)).await?;
    live.retain(stop::is_live_or_restarts);
    for name in &args.names {
        let runs = live.iter().any(|record| record.name.as_ref() == Some(name));
        if !runs && project.position(name).is_none() && !project.processes.is_empty() {
            return Err(Failure::invalid(project.select(std::slice::from_ref(name)).err().unwrap_or_default()));
        }
    }
    if !args.names.is_empty() {
        live.retain(|record| record.name.as_ref().is_some_and(|name| args.names.contains(name)));
    }
    if live.is_empty() {
        console.note("nothing to stop: no process of this project is running");
    }
    let depth_of = |record: &Record| {
        let position = record.name.as_ref().and_then(|name| project.position(name));
        position.map_or(usize::MAX, |position| depths[position])
    };
    live.sort_by_key(|record| std::cmp::Reverse(depth_of(record)));
    let request = StopRequest { by: Some("pinfold down".into()), ..StopRequest::default() };
    let mut code = 0;
    for level in live.chunk_by(|one, other| depth_of(one) == depth_of(other)) {
        let ids = level.iter().map(|record| record.id.clone()).collect();
        code = code.max(stop::stop_all(session, ids, &request, console).await?);
    }
    Ok(code)
}

fn locate(given: Option<&PathBuf>) -> Result<Location, Failure> {
    let start = std::env::current_dir()
        .map_err(|error| Failure::invalid(format!("cannot use the working directory: {error}: change to another")))?;
    project::find(given.map(PathBuf::as_path), &start).map_err(|error| Failure::invalid(error.to_string()))
}

/// The owner's processes, live ones first, then the latest.
async fn processes_of(session: &Session, owner: &str) -> Result<Vec<Record>, Failure> {
    let query = ListQuery { owner: Some(owner.to_owned()), ..ListQuery::default() };
    match ps::list(session, query, MAX_LISTED).await {
        Ok(list) => Ok(list.processes.into_iter().filter(|record| record.owner == owner).collect()),
        Err(failure) if failure.error.code == pinfold_api::error::ErrorCode::NotFound => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// Stops live processes that an earlier `up` started and that are no longer in the file; gives their names.
async fn stop_removed(
    session: &Session,
    project: &Project,
    existing: &[Record],
    console: &mut Console,
) -> Result<Vec<String>, Failure> {
    let is_removed = |record: &&Record| {
        record.labels.contains_key(CONFIG_LABEL)
            && stop::is_live_or_restarts(record)
            && record.name.as_ref().is_some_and(|name| project.position(name).is_none())
    };
    let mut names = Vec::new();
    for record in existing.iter().filter(is_removed) {
        let request = StopRequest { by: Some("pinfold up: not in the project file".into()), ..StopRequest::default() };
        session.ask(async |client| client.stop(&record.id, &request).await).await?;
        let name = record.name.clone().unwrap_or_default();
        if !console.json {
            console.text_now(&format!("{name}: stopped, no longer in the file\n"))?;
        }
        names.push(name);
    }
    Ok(names)
}

/// The request of a definition, with this shell's environment below its own variables.
fn start_request(definition: &Definition, environment: &Environment) -> StartRequest {
    let mut request = definition.request.clone();
    let mut environment = environment.clone();
    if let Some(cwd) = &request.cwd {
        environment.set("PWD", cwd);
    }
    for (name, value) in &request.env {
        environment.set(name, value.as_deref().unwrap_or_default());
    }
    request.traceparent = environment.take_traceparent();
    request.env = environment.variables;
    request.inherit_env = Some(false);
    request.labels.insert(CONFIG_LABEL.into(), definition.digest());
    request
}

fn summary(definition: &Definition, action: &Action) -> ProcessSummary {
    let (action, id) = match action {
        Action::Keep { id } | Action::Done { id } => ("kept", Some(id.clone())),
        Action::Replace { .. } => ("replaced", None),
        Action::Start { .. } => ("started", None),
    };
    let name = definition.name.clone();
    ProcessSummary { name, id, action, state: State::Waiting, text: None, ports: BTreeMap::new() }
}

/// The line that is printed when a process of the project changes its state.
fn render_change(summary: &ProcessSummary) -> String {
    let ProcessSummary { name, state, action, .. } = summary;
    let id = summary.id.as_deref().map(|id| format!(" ({id})")).unwrap_or_default();
    let text = summary.text.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
    let state = match (state, *action) {
        (State::Waiting, _) => "waiting",
        (State::Started, "kept") => "unchanged",
        (State::Started, action) => action,
        (State::Ready, _) => "ready",
        (State::Finished, _) => "finished",
        (State::Failed, _) => "failed",
        (State::Skipped, _) => "skipped",
    };
    format!("{name}: {state}{id}{text}\n")
}

/// A dependency, as its dependent sees it.
#[derive(Debug)]
struct NeededProcess {
    name: String,
    until: Condition,
    state: watch::Receiver<State>,
}

/// A process has come to another state.
#[derive(Debug)]
struct Change {
    position: usize,
    state: State,
    id: Option<String>,
    text: Option<String>,
    ports: BTreeMap<String, u16>,
}

impl Change {
    fn apply(self, summary: &mut ProcessSummary) {
        summary.state = self.state;
        if self.state.is_failure() && self.id.is_none() {
            summary.action = "none";
        }
        summary.id = self.id.or(summary.id.take());
        summary.text = self.text;
        if !self.ports.is_empty() {
            summary.ports = self.ports;
        }
    }
}

/// The task that brings up one process.
#[derive(Debug)]
struct BringUp {
    session: Session,
    position: usize,
    dependencies: Vec<NeededProcess>,
    /// Whether another process waits for its end.
    awaits_end: bool,
    request: StartRequest,
    state: watch::Sender<State>,
    changes: mpsc::UnboundedSender<Change>,
}

impl BringUp {
    async fn run(mut self, action: Action) {
        if let Some(failed) = self.failed_dependency().await {
            return self.change(State::Skipped, None, Some(failed));
        }
        if let Action::Done { id } = action {
            return self.change(State::Finished, Some(id), Some("unchanged".into()));
        }
        if let Err(failure) = self.bring_up(action).await {
            self.change(State::Failed, None, Some(failure.error.message));
        }
    }

    /// Waits for all dependencies; the message if one of them failed.
    async fn failed_dependency(&mut self) -> Option<String> {
        for needed in &mut self.dependencies {
            let reached = needed.state.wait_for(|state| state.satisfies(needed.until) || state.is_failure()).await;
            if reached.is_ok_and(|state| state.is_failure()) {
                return Some(format!("`{}`, which it depends on, failed", needed.name));
            }
        }
        None
    }

    async fn bring_up(&self, action: Action) -> Result<(), Failure> {
        let record = match action {
            Action::Keep { id } | Action::Done { id } => {
                self.session.ask(async |client| client.show(&id).await).await?
            }
            Action::Start { latest } => self.start(latest.as_deref().unwrap_or("first")).await?,
            Action::Replace { id } => {
                let by = Some("pinfold up: its definition changed".into());
                let request = StopRequest { by, ..StopRequest::default() };
                let stopped = self.session.ask(async |client| client.stop(&id, &request).await).await?;
                if !stopped.survivors.is_empty() {
                    let message = format!("{id} could not be stopped completely: see `pinfold show {id}`");
                    return Err(Failure::internal(message));
                }
                self.start(&id).await?
            }
        };
        let id = record.id.clone();
        self.send(Change { ports: record.ports.clone(), ..self.new_change(State::Started, Some(id.clone()), None) });
        if record.ready.is_some() {
            let query = WaitQuery { until: Some("ready".into()), ..WaitQuery::default() };
            let record = wait_for_one(&self.session, &id, &query).await?.record;
            let ready = record.ready.as_ref();
            let text = ready.and_then(|ready| ready.text.clone());
            match ready.map(|ready| ready.state) {
                Some(ReadyState::Ready) => self.change(State::Ready, Some(id.clone()), text),
                Some(ReadyState::Exited) => {
                    self.change(
                        State::Failed,
                        Some(id.clone()),
                        Some(format!("{}, before it was ready; see `pinfold logs {id}`", ended(&record))),
                    );
                }
                _ => {
                    let text = text.unwrap_or_default();
                    self.change(
                        State::Failed,
                        Some(id.clone()),
                        Some(format!("still running, but not ready in time: {text}; see `pinfold logs {id}`")),
                    );
                }
            }
        }
        if self.awaits_end {
            let record = wait_for_one(&self.session, &id, &WaitQuery::default()).await?.record;
            match record.outcome {
                Some(Outcome::Exited { code: 0 }) => self.change(State::Finished, Some(id), None),
                _ => self.change(
                    State::Failed,
                    Some(id.clone()),
                    Some(format!("{}; see `pinfold logs {id}`", ended(&record))),
                ),
            }
        }
        Ok(())
    }

    /// Starts it. Two `up` at once use the same key, and start one process.
    async fn start(&self, previous: &str) -> Result<Record, Failure> {
        let digest = self.request.labels.get(CONFIG_LABEL).cloned().unwrap_or_default();
        let name = self.request.name.as_deref().unwrap_or_default();
        let request =
            StartRequest { idempotency_key: Some(format!("up-{name}-{digest}-{previous}")), ..self.request.clone() };
        Ok(self.session.ask(async |client| client.start(&request).await).await?.record)
    }

    fn change(&self, state: State, id: Option<String>, text: Option<String>) {
        self.send(self.new_change(state, id, text));
    }

    fn new_change(&self, state: State, id: Option<String>, text: Option<String>) -> Change {
        Change { position: self.position, state, id, text, ports: BTreeMap::new() }
    }

    /// Reports the change before dependents act on it.
    fn send(&self, change: Change) {
        let state = change.state;
        let _ = self.changes.send(change);
        self.state.send_replace(state);
    }
}

fn ended(record: &Record) -> String {
    record.outcome.as_ref().map_or_else(|| "ended".into(), |outcome| render_outcome(outcome, record.cause))
}
