//! The tools: their definitions, and what each does with its arguments.
//!
//! A [`Shape`] is one set of tools. A second set has its definitions and its `call` in a module of its own, and is
//! named here; the server knows no tool by name.

mod definitions;
mod execute;
mod input;
mod list;
mod output;
mod signal;
mod wait;

use std::time::Duration;

use pinfold_api::types::{Lifetime, ReadyShown, ReadyState, Record};
use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use serde_json::{Map, Value};

pub use definitions::{definitions, names};
pub(crate) use execute::{directory, grace, surroundings};
pub(crate) use wait::{Wait, patiently};

use crate::arguments::Arguments;
use crate::claims::Claim;
use crate::endurance::{self, Patience};
use crate::facts::{self, Facts};
use crate::identity::Caller;
use crate::memory::Memory;
use crate::news::News;
use crate::options::Base;
use crate::presence::Presence;
use crate::reach::Reach;
use crate::refusal::Refusal;
use crate::sessions::Sessions;
use crate::{brief, coder, left_behind, render};

/// How long a call waits unless it says so, where its client survives that: as long as the clients' own shell tools.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(120);
/// How often a call that waits says so: also for a client whose timeout is set to a few seconds, which progress extends.
const PROGRESS: Duration = Duration::from_secs(3);

/// A set of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// pinfold's own.
    #[default]
    Native,
    /// Those of coder's chats.
    Coder,
}

/// One call of a tool.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) tool: String,
    pub(crate) values: Map<String, Value>,
    /// Keys that were given twice.
    pub(crate) doubled: Vec<String>,
}

/// What a call works with.
#[derive(Debug)]
pub(crate) struct Desk<'a> {
    /// The way to the daemon, in the caller's name.
    pub(crate) reach: Reach,
    pub(crate) caller: Caller,
    pub(crate) memory: &'a Memory,
    pub(crate) base: &'a Base,
    pub(crate) context: &'a RequestContext<RoleServer>,
    /// No call takes longer, if that is configured.
    pub(crate) longest_call: Option<Duration>,
    /// What becomes of processes when their owner is ended, unless a call says so.
    pub(crate) lifetime: Lifetime,
    pub(crate) owner_grace: Option<&'a str>,
    pub(crate) presence: &'a Presence,
    pub(crate) sessions: &'a Sessions,
    pub(crate) news: &'a News,
    /// The processes whose end this call reports.
    pub(crate) claim: Claim,
}

/// What a call gives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// Whether it says why the call could not be done.
    pub(crate) is_error: bool,
    pub(crate) facts: Map<String, Value>,
    /// The processes that it shows.
    pub(crate) shown: Vec<Shown>,
    /// The task that it became, for a client that has tasks.
    pub(crate) task: Option<(String, Record)>,
}

/// A process that a result shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) id: String,
    /// Whether it shows how it ended.
    pub(crate) ended: bool,
    /// Whether it shows the verdict on its readiness.
    pub(crate) ready: bool,
}

impl Shown {
    /// What a result with this record shows.
    pub(crate) fn of(record: &Record) -> Self {
        let decided = |ready: &ReadyShown| matches!(ready.state, ReadyState::Ready | ReadyState::TimedOut);
        let ready = record.ready.as_ref().is_some_and(decided);
        Self { id: record.id.clone(), ended: facts::is_over(record), ready }
    }
}

/// Calls a tool of the set.
pub(crate) async fn call(shape: Shape, desk: &Desk<'_>, call: Call) -> Result<Answer, Refusal> {
    match shape {
        Shape::Native => native(desk, call).await,
        Shape::Coder => {
            let definition = definitions::find(shape, &call.tool).ok_or_else(|| unknown(shape, &call.tool))?;
            coder::call(desk, call, &definition.keys()).await
        }
    }
}

/// What an `execute` says of a process that is over, for a client that got a task for it.
pub(crate) async fn outcome(desk: &Desk<'_>, record: &Record) -> Result<Answer, Refusal> {
    execute::outcome(desk, record).await
}

async fn native(desk: &Desk<'_>, call: Call) -> Result<Answer, Refusal> {
    let definition = definitions::find(Shape::Native, &call.tool).ok_or_else(|| unknown(Shape::Native, &call.tool))?;
    let right_call = match call.tool.as_str() {
        "execute" => execute::RIGHT,
        "process_output" => output::RIGHT,
        "process_wait" => wait::RIGHT,
        "process_list" => list::RIGHT,
        "process_input" => input::RIGHT,
        _ => signal::RIGHT,
    };
    let arguments = Arguments::new(call.values, &call.doubled, &definition.keys(), right_call)?;
    let answer = match call.tool.as_str() {
        "execute" => execute::call(desk, &arguments).await,
        "process_output" => output::call(desk, &arguments).await,
        "process_wait" => wait::call(desk, &arguments).await,
        "process_list" => list::call(desk, &arguments).await,
        "process_input" => input::call(desk, &arguments).await,
        _ => signal::call(desk, &arguments).await,
    };
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(refusal) => return Err(left_behind::explain(desk, &arguments, refusal).await),
    };
    answer.add_notes(arguments.notes());
    Ok(answer)
}

fn unknown(shape: Shape, tool: &str) -> Refusal {
    Refusal::invalid(format!("there is no tool `{tool}`: there are {}", names(shape).join(", ")))
}

/// The text of a result, from which a client without structured content learns the same.
pub(crate) fn text(shape: Shape, facts: &Map<String, Value>, is_error: bool, explain: render::Explain) -> String {
    match shape {
        Shape::Native => render::render(facts, explain),
        Shape::Coder => coder::text(facts, is_error),
    }
}

impl Answer {
    /// The answer about one process, without what the caller knows.
    fn of(desk: &Desk<'_>, facts: Facts, record: &Record) -> Self {
        let shown = Shown::of(record);
        let facts = brief::brief(facts, record, &desk.caller.owner);
        Answer { facts: object(&facts), shown: vec![shown], ..Answer::default() }
    }
}

impl Answer {
    /// Adds notes behind those that are there.
    fn add_notes(&mut self, notes: &[String]) {
        if notes.is_empty() {
            return;
        }
        if let Value::Array(all) = self.facts.entry("notes").or_insert_with(|| Value::Array(vec![])) {
            all.extend(notes.iter().cloned().map(Value::String));
        }
    }

    /// The answer to a call that could not be done.
    pub(crate) fn refused(refusal: &Refusal) -> Self {
        Answer { is_error: true, facts: object(&refusal.facts()), ..Answer::default() }
    }
}

/// A struct as the object that it is.
pub(crate) fn object(facts: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(facts) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

impl Desk<'_> {
    /// Whether an `execute` that takes longer than half a second becomes a task. Not for Claude Code, which announces tasks when it is
    /// interactive: its model would see neither the id nor the output, and would be told of the end twice.
    pub(crate) fn takes_tasks(&self) -> bool {
        let is_claude = self.context.client_info().is_some_and(|client| client.name.starts_with("claude-code"));
        !is_claude && self.context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
    }

    /// How long a call waits, and the note if that is less than it asked for.
    pub(crate) fn patience(&self, asked: Option<Duration>) -> (Duration, Option<String>) {
        let client = self.context.client_info().map(|client| client.name).unwrap_or_default();
        let patience = Patience {
            client: &client,
            progress: self.context.meta.get_progress_token().is_some(),
            configured: self.longest_call,
            // Over HTTP the environment is the daemon's, not one that the client made.
            told: self.base.env.as_ref().and_then(|_| endurance::told_by_environment(&client)),
        };
        let most = patience.longest();
        let note = asked.is_some_and(|asked| asked > most).then(|| {
            let seconds = most.as_secs_f64();
            format!("waited {seconds}s, not longer: this client may give up on a longer call; process_wait goes on")
        });
        (asked.unwrap_or(DEFAULT_WAIT).min(most), note)
    }

    /// Waits for the work, with progress for whoever asked for it; a cancelled call lets go of it.
    pub(crate) async fn hold<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        enum Happened<T> {
            Done(Result<T, Refusal>),
            Cancelled,
            Waiting,
        }
        let token = self.context.meta.get_progress_token();
        let mut work = std::pin::pin!(work);
        let mut waited = 0.0;
        loop {
            let happened = tokio::select! {
                done = work.as_mut() => Happened::Done(done),
                () = self.context.ct.cancelled() => Happened::Cancelled,
                () = tokio::time::sleep(PROGRESS) => Happened::Waiting,
            };
            match (happened, &token) {
                (Happened::Done(done), _) => return done,
                (Happened::Cancelled, _) => {
                    return Err(Refusal {
                        code: "cancelled".into(),
                        message: format!("the call was cancelled; {what} runs on"),
                        right_call: None,
                    });
                }
                (Happened::Waiting, None) => {}
                (Happened::Waiting, Some(token)) => {
                    waited += PROGRESS.as_secs_f64();
                    let progress = ProgressNotificationParam::new(token.clone(), waited);
                    // A client that does not listen is no reason to stop waiting.
                    let _ =
                        self.context.peer.notify_progress(progress.with_message(format!("waiting for {what}"))).await;
                }
            }
        }
    }
}
