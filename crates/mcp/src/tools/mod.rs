//! The tools: their definitions, their implementation, and how a call waits (progress, cancellation, time limits).
//!
//! A [`Shape`] selects one set of tools. Another set has its definitions and its `call` in a separate module and is
//! added here; the server knows no tool by name.

mod definitions;
mod execute;
mod input;
mod list;
mod output;
mod signal;
mod wait;

use std::time::Duration;

use axum::http::request::Parts;
use pinfold_api::trace::{TRACEPARENT_ENV, TraceParent};
use pinfold_api::types::{Lifetime, NewsState, ReadyShown, ReadyState, Record};
use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use serde_json::{Map, Value};

pub use definitions::{definitions, names};
pub(crate) use execute::{command_env, resolve_workdir};
pub(crate) use wait::{Wait, wait_with_deadline};

use crate::arguments::Arguments;
use crate::call_timeout::{self, CallLimits};
use crate::daemon_access::DaemonAccess;
use crate::facts::{self, Facts};
use crate::identity::Caller;
use crate::news::News;
use crate::options::CommandDefaults;
use crate::read_positions::ReadPositions;
use crate::report_claims::ReportClaim;
use crate::sessions::Sessions;
use crate::tool_error::ToolError;
use crate::{coder, compact, left_behind, render};

/// How long a call waits by default, if the client's timeout allows it: as long as the shell tools of the clients.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(120);
/// Interval of progress notifications: short enough for a client with a timeout of a few seconds that progress extends.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);

/// A set of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// pinfold's own tools.
    #[default]
    Native,
    /// The tools of coder's chats.
    Coder,
}

/// One call of a tool.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) tool: String,
    pub(crate) values: Map<String, Value>,
    /// Argument keys that were given twice.
    pub(crate) duplicate_keys: Vec<String>,
}

/// What a tool call has access to.
#[derive(Debug)]
pub(crate) struct CallContext<'a> {
    /// The daemon, acting as the caller.
    pub(crate) daemon: DaemonAccess,
    pub(crate) caller: Caller,
    pub(crate) read_positions: &'a ReadPositions,
    pub(crate) command_defaults: &'a CommandDefaults,
    pub(crate) context: &'a RequestContext<RoleServer>,
    /// Configured maximum duration of a call.
    pub(crate) longest_call: Option<Duration>,
    /// Default `lifetime` of processes.
    pub(crate) lifetime: Lifetime,
    pub(crate) owner_grace: &'a str,
    pub(crate) sessions: &'a Sessions,
    pub(crate) news: &'a News,
    /// The processes whose end this call reports.
    pub(crate) claim: ReportClaim,
}

/// The result of a tool call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// Whether it is an error.
    pub(crate) is_error: bool,
    pub(crate) facts: Map<String, Value>,
    /// The processes that the result shows.
    pub(crate) shown: Vec<Shown>,
    /// The task that the call became, if the client supports tasks.
    pub(crate) task: Option<(String, Record)>,
    /// What the daemon said about news of other processes in the same request.
    pub(crate) news: Option<NewsState>,
}

/// A process that a result shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) id: String,
    /// Whether the result shows how the process ended.
    pub(crate) ended: bool,
    /// Whether the result shows that it became ready, or did not in time.
    pub(crate) ready: bool,
}

impl Shown {
    /// What a result with this record shows.
    pub(crate) fn from_record(record: &Record) -> Self {
        let decided = |ready: &ReadyShown| matches!(ready.state, ReadyState::Ready | ReadyState::TimedOut);
        let ready = record.ready.as_ref().is_some_and(decided);
        Self { id: record.id.clone(), ended: facts::has_ended(record), ready }
    }
}

/// Calls a tool of this set.
pub(crate) async fn call(shape: Shape, ctx: &CallContext<'_>, call: Call) -> Result<Answer, ToolError> {
    match shape {
        Shape::Native => native(ctx, call).await,
        Shape::Coder => {
            let definition = definitions::find(shape, &call.tool).ok_or_else(|| unknown(shape, &call.tool))?;
            coder::call(ctx, call, &definition.keys()).await
        }
    }
}

/// The result of an `execute` whose process was a task and has ended.
pub(crate) async fn outcome(ctx: &CallContext<'_>, record: &Record) -> Result<Answer, ToolError> {
    execute::outcome(ctx, record).await
}

async fn native(ctx: &CallContext<'_>, call: Call) -> Result<Answer, ToolError> {
    let definition = definitions::find(Shape::Native, &call.tool).ok_or_else(|| unknown(Shape::Native, &call.tool))?;
    let right_call = match call.tool.as_str() {
        "execute" => execute::EXAMPLE,
        "process_output" => output::EXAMPLE,
        "process_wait" => wait::EXAMPLE,
        "process_list" => list::EXAMPLE,
        "process_input" => input::EXAMPLE,
        _ => signal::EXAMPLE,
    };
    let arguments = Arguments::new(call.values, &call.duplicate_keys, &definition.keys(), right_call)?;
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
        Err(error) => return Err(left_behind::explain_not_found(ctx, &arguments, error).await),
    };
    answer.add_notes(arguments.notes());
    Ok(answer)
}

fn unknown(shape: Shape, tool: &str) -> ToolError {
    ToolError::invalid(format!("there is no tool `{tool}`: there are {}", names(shape).join(", ")))
}

/// Renders a result as text, with the same content as its structured content.
pub(crate) fn text(shape: Shape, facts: &Map<String, Value>, is_error: bool, explain: &dyn Fn() -> bool) -> String {
    match shape {
        Shape::Native => render::render(facts, explain),
        Shape::Coder => coder::text(facts, is_error),
    }
}

impl Answer {
    /// The answer about one process, without what the caller already knows.
    fn for_process(ctx: &CallContext<'_>, facts: Facts, record: &Record) -> Self {
        let shown = Shown::from_record(record);
        let facts = compact::for_caller(facts, record, &ctx.caller.owner);
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

    /// The answer of a call that failed.
    pub(crate) fn error(error: &ToolError) -> Self {
        Answer { is_error: true, facts: object(&error.facts()), ..Answer::default() }
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
    /// Whether an `execute` that takes longer than half a second becomes a task. Not for Claude Code, which announces
    /// task support when interactive: its model would see neither the id nor the output, and would see the end twice.
    pub(crate) fn may_create_task(&self) -> bool {
        let is_claude = self.context.client_info().is_some_and(|client| client.name.starts_with("claude-code"));
        !is_claude && self.context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
    }

    /// The trace context of the call: `traceparent` of its `_meta`, else of its HTTP request, else of the environment of this
    /// server. One that cannot be parsed is ignored, as its standard demands.
    pub(crate) fn traceparent(&self) -> Option<String> {
        let in_meta = self.context.meta.0.0.get("traceparent").and_then(Value::as_str);
        let headers = self.context.extensions.get::<Parts>().map(|parts| &parts.headers);
        let in_header = headers.and_then(|headers| headers.get("traceparent")?.to_str().ok());
        let in_env = self.command_defaults.env.as_ref().and_then(|env| env.get(TRACEPARENT_ENV)).map(String::as_str);
        let parse = |text: &str| TraceParent::parse(text).ok().map(|parent| parent.to_string());
        [in_meta, in_header, in_env].into_iter().flatten().find_map(parse)
    }

    /// Returns how long a call may wait, and a note if that is less than `asked`.
    pub(crate) fn wait_limit(&self, asked: Option<Duration>) -> (Duration, Option<String>) {
        let client = self.context.client_info().map(|client| client.name).unwrap_or_default();
        let limits = CallLimits {
            client: &client,
            progress: self.context.meta.get_progress_token().is_some(),
            configured: self.longest_call,
            // Over HTTP this is the daemon's environment, not one that the client passed.
            client_limit: self
                .command_defaults
                .env
                .as_ref()
                .and_then(|_| call_timeout::client_limit_from_environment(&client)),
        };
        let max = limits.max_duration();
        let note = asked.is_some_and(|asked| asked > max).then(|| {
            let seconds = max.as_secs_f64();
            format!("waited {seconds}s, not longer: this client may time out; use process_wait to continue")
        });
        (asked.unwrap_or(DEFAULT_WAIT).min(max), note)
    }

    /// Awaits `work` and sends progress notifications if the client requested them. Cancelling the call drops `work`;
    /// the process keeps running.
    pub(crate) async fn await_with_progress<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        enum Progress<T> {
            Done(Result<T, ToolError>),
            Cancelled,
            Waiting,
        }
        let token = self.context.meta.get_progress_token();
        let mut work = std::pin::pin!(work);
        let mut waited = 0.0;
        loop {
            let progress = tokio::select! {
                done = work.as_mut() => Progress::Done(done),
                () = self.context.ct.cancelled() => Progress::Cancelled,
                () = tokio::time::sleep(PROGRESS_INTERVAL) => Progress::Waiting,
            };
            match (progress, &token) {
                (Progress::Done(done), _) => return done,
                (Progress::Cancelled, _) => {
                    return Err(ToolError {
                        code: "cancelled".into(),
                        message: format!("the call was cancelled; {what} runs on"),
                        right_call: None,
                    });
                }
                (Progress::Waiting, None) => {}
                (Progress::Waiting, Some(token)) => {
                    waited += PROGRESS_INTERVAL.as_secs_f64();
                    let progress = ProgressNotificationParam::new(token.clone(), waited);
                    // Ignore errors: the call continues without progress.
                    let _ =
                        self.context.peer.notify_progress(progress.with_message(format!("waiting for {what}"))).await;
                }
            }
        }
    }
}
