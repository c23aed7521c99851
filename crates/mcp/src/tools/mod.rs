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
use crate::daemon_access::DaemonAccess;
use crate::endurance::{self, Patience};
use crate::facts::{self, Facts};
use crate::identity::Caller;
use crate::memory::Memory;
use crate::news::News;
use crate::options::Base;
use crate::presence::Presence;
use crate::sessions::Sessions;
use crate::tool_error::ToolError;
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

/// What a tool call has access to.
#[derive(Debug)]
pub(crate) struct CallContext<'a> {
    /// The daemon, as the caller.
    pub(crate) daemon: DaemonAccess,
    pub(crate) caller: Caller,
    pub(crate) memory: &'a Memory,
    pub(crate) base: &'a Base,
    pub(crate) context: &'a RequestContext<RoleServer>,
    /// Configured maximum duration of a call.
    pub(crate) longest_call: Option<Duration>,
    /// Default `lifetime` of processes.
    pub(crate) lifetime: Lifetime,
    pub(crate) owner_grace: Option<&'a str>,
    pub(crate) presence: &'a Presence,
    pub(crate) sessions: &'a Sessions,
    pub(crate) news: &'a News,
    /// The processes whose end this call reports.
    pub(crate) claim: Claim,
}

/// The result of a tool call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// Whether it is an error.
    pub(crate) is_error: bool,
    pub(crate) facts: Map<String, Value>,
    /// The processes that it shows.
    pub(crate) shown: Vec<Shown>,
    /// The task that the call became, for a client with tasks.
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
pub(crate) async fn call(shape: Shape, ctx: &CallContext<'_>, call: Call) -> Result<Answer, ToolError> {
    match shape {
        Shape::Native => native(ctx, call).await,
        Shape::Coder => {
            let definition = definitions::find(shape, &call.tool).ok_or_else(|| unknown(shape, &call.tool))?;
            coder::call(ctx, call, &definition.keys()).await
        }
    }
}

/// The result of an `execute` for an ended process that was a task.
pub(crate) async fn outcome(ctx: &CallContext<'_>, record: &Record) -> Result<Answer, ToolError> {
    execute::outcome(ctx, record).await
}

async fn native(ctx: &CallContext<'_>, call: Call) -> Result<Answer, ToolError> {
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
        "execute" => execute::call(ctx, &arguments).await,
        "process_output" => output::call(ctx, &arguments).await,
        "process_wait" => wait::call(ctx, &arguments).await,
        "process_list" => list::call(ctx, &arguments).await,
        "process_input" => input::call(ctx, &arguments).await,
        _ => signal::call(ctx, &arguments).await,
    };
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(refusal) => return Err(left_behind::explain(ctx, &arguments, refusal).await),
    };
    answer.add_notes(arguments.notes());
    Ok(answer)
}

fn unknown(shape: Shape, tool: &str) -> ToolError {
    ToolError::invalid(format!("there is no tool `{tool}`: there are {}", names(shape).join(", ")))
}

/// The text of a result, with the same content as the structured result.
pub(crate) fn text(shape: Shape, facts: &Map<String, Value>, is_error: bool, explain: render::Explain) -> String {
    match shape {
        Shape::Native => render::render(facts, explain),
        Shape::Coder => coder::text(facts, is_error),
    }
}

impl Answer {
    /// The answer about one process, without what the caller knows.
    fn of(ctx: &CallContext<'_>, facts: Facts, record: &Record) -> Self {
        let shown = Shown::of(record);
        let facts = brief::brief(facts, record, &ctx.caller.owner);
        Answer { facts: object(&facts), shown: vec![shown], ..Answer::default() }
    }
}

impl Answer {
    /// Appends notes.
    fn add_notes(&mut self, notes: &[String]) {
        if notes.is_empty() {
            return;
        }
        if let Value::Array(all) = self.facts.entry("notes").or_insert_with(|| Value::Array(vec![])) {
            all.extend(notes.iter().cloned().map(Value::String));
        }
    }

    /// The answer of a failed call.
    pub(crate) fn refused(refusal: &ToolError) -> Self {
        Answer { is_error: true, facts: object(&refusal.facts()), ..Answer::default() }
    }
}

/// A struct as a JSON object.
pub(crate) fn object(facts: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(facts) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

impl CallContext<'_> {
    /// Whether an `execute` that takes longer than half a second becomes a task. Not for Claude Code, which announces tasks when it is
    /// interactive: its model would see neither the id nor the output, and would be told of the end twice.
    pub(crate) fn takes_tasks(&self) -> bool {
        let is_claude = self.context.client_info().is_some_and(|client| client.name.starts_with("claude-code"));
        !is_claude && self.context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
    }

    /// How long a call may wait, and a note if that is less than it asked for.
    pub(crate) fn wait_limit(&self, asked: Option<Duration>) -> (Duration, Option<String>) {
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

    /// Waits for the work and sends progress if the client asked for it. Cancelling the call drops the work, not the process.
    pub(crate) async fn hold<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        enum Happened<T> {
            Done(Result<T, ToolError>),
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
                    return Err(ToolError {
                        code: "cancelled".into(),
                        message: format!("the call was cancelled; {what} runs on"),
                        right_call: None,
                    });
                }
                (Happened::Waiting, None) => {}
                (Happened::Waiting, Some(token)) => {
                    waited += PROGRESS.as_secs_f64();
                    let progress = ProgressNotificationParam::new(token.clone(), waited);
                    // Ignore failures: the call goes on without progress.
                    let _ =
                        self.context.peer.notify_progress(progress.with_message(format!("waiting for {what}"))).await;
                }
            }
        }
    }
}
