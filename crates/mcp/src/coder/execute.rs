//! `execute`: runs a command, and waits for it if it runs in the foreground.

use std::time::{Duration, Instant};

use pinfold_api::input::Span;
use pinfold_api::types::{Lifetime, Record, StartRequest, WaitAnswer, WaitQuery};

use super::ampersand::without_trailing_ampersand;
use super::result::CommandResult;
use super::{BACKGROUND_LABEL, duration, invalid, tool_error};
use crate::arguments::Arguments;
use crate::tool_error::ToolError;
use crate::tools::{Answer, CallContext, Wait, command_env, resolve_workdir, wait_with_deadline};
use crate::{facts, random};

/// Default time limit of a foreground command.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for reading the process after a wait failed.
const RETRY_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the start request itself waits: most commands end within this time, so one request is enough.
const START_WAIT: Duration = Duration::from_millis(500);
/// Maximum length of a label in characters.
const MAX_LABEL_CHARS: usize = 200;

/// Variables that prevent prompts, pagers and colours.
const NON_INTERACTIVE_ENV: &[(&str, &str)] = &[
    ("CODER_CHAT_AGENT", "true"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("NO_COLOR", "1"),
    ("TERM", "dumb"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
];

/// Advice for a machine without a shell.
const NO_SHELL: &str = "The machine has no POSIX shell: install one that provides `sh`, or add its directory to the \
                        PATH of the pinfold daemon, and restart it (`pinfold daemon stop`).";

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let mut command = arguments.text("command").map_err(invalid)?.unwrap_or_default();
    if command.is_empty() {
        return Err(tool_error("command is required"));
    }
    let mut background = arguments.flag("run_in_background").map_err(invalid)?;
    let timeout = arguments.text("timeout").map_err(invalid)?;
    if let (false, Some(rest)) = (background, without_trailing_ampersand(&command)) {
        (background, command) = (true, rest.to_owned());
    }
    let limit = match timeout {
        _ if background => Duration::ZERO,
        None => DEFAULT_TIMEOUT,
        Some(text) => {
            let span = duration::parse(&text).map_err(|bad| tool_error(format!("invalid timeout {text:?}: {bad}")))?;
            span.to_duration()
        }
    };
    let mut request = request(ctx, arguments, command)?;
    request.labels.insert(BACKGROUND_LABEL.to_owned(), background.to_string());
    match background {
        true => in_background(ctx, &request).await,
        false => in_foreground(ctx, request, limit).await,
    }
}

async fn in_background(ctx: &CallContext<'_>, request: &StartRequest) -> Result<Answer, ToolError> {
    let started = ctx.daemon.retry(|client| async move { client.start(request).await });
    let record = match ctx.await_with_progress("the start", started).await {
        Ok(started) => started.record,
        Err(error) => return start_failed("start background process", error),
    };
    let result = CommandResult {
        success: true,
        background_process_id: Some(record.id.clone()),
        backgrounded: Some(true),
        state: Some(record.status.name()),
        ..CommandResult::default()
    };
    Ok(result.answer())
}

async fn in_foreground(ctx: &CallContext<'_>, mut request: StartRequest, limit: Duration) -> Result<Answer, ToolError> {
    let (limit, limit_note) = ctx.wait_limit(Some(limit));
    let first = limit.min(START_WAIT);
    request.wait = (!first.is_zero()).then(|| Span::Text(format!("{}ms", first.as_millis())));
    let started_at = Instant::now();
    let request = &request;
    ctx.claim.starting();
    let started = ctx.daemon.retry(|client| async move { client.start(request).await });
    let started = match ctx.await_with_progress("the start", started).await {
        Ok(started) => started,
        Err(error) => return start_failed("start process", error),
    };
    let remaining = limit.saturating_sub(started_at.elapsed());
    let waited = match facts::has_ended(&started.record) || remaining.is_zero() {
        true => Ok(started.record.clone()),
        false => wait(ctx, &started.record.id, remaining).await.map(|answer| answer.record),
    };
    let (result, record) = match waited {
        Ok(record) if facts::has_ended(&record) => (CommandResult::ended(&record), record),
        Ok(record) => (CommandResult { note: limit_note, ..CommandResult::timed_out(&record, limit) }, record),
        Err(error) if error.code == "cancelled" => return Err(error),
        Err(error) => match read_after_failed_wait(ctx, &started.record.id, &error.message).await {
            Ok(found) => found,
            Err(result) => return Ok(timed(*result, started_at).answer()),
        },
    };
    match result.clone().with_output(&ctx.daemon, &record).await {
        Ok(result) => Ok(timed(result, started_at).showing(&record)),
        Err(error) => {
            let error = format!("{}get process output: {}", prefix(&result), error.message);
            let result =
                CommandResult { background_process_id: Some(record.id.clone()), ..CommandResult::failure(error) };
            Ok(timed(result, started_at).answer())
        }
    }
}

/// The earlier error, as a prefix for the error that the output could not be read.
fn prefix(result: &CommandResult) -> String {
    result.error.as_ref().map(|error| format!("{error}; failed to ")).unwrap_or_default()
}

/// Waits for the exit. Also used by `process_output`.
pub(super) async fn wait(ctx: &CallContext<'_>, id: &str, limit: Duration) -> Result<WaitAnswer, ToolError> {
    ctx.claim.waits_for(id);
    let query = WaitQuery { until: Some("exit".into()), ..WaitQuery::default() };
    ctx.await_with_progress(id, wait_with_deadline(ctx, id, &Wait { limit, query })).await
}

/// After a failed wait, reads the process once more.
async fn read_after_failed_wait(
    ctx: &CallContext<'_>,
    id: &str,
    error: &str,
) -> Result<(CommandResult, Record), Box<CommandResult>> {
    let show = ctx.daemon.retry(|client| async move { client.show(id).await });
    match tokio::time::timeout(RETRY_READ_TIMEOUT, show).await {
        Ok(Ok(record)) if facts::has_ended(&record) => Ok((CommandResult::ended(&record), record)),
        Ok(Ok(record)) => {
            let error =
                format!("get process output: {error} (process still running, use process_output to check later)");
            let state = Some(record.status.name());
            let result =
                CommandResult { background_process_id: Some(id.to_owned()), state, ..CommandResult::failure(error) };
            Ok((result, record))
        }
        _ => {
            let error = format!("get process output: {error}; use process_output with ID {id} to retry");
            Err(Box::new(CommandResult { background_process_id: Some(id.to_owned()), ..CommandResult::failure(error) }))
        }
    }
}

fn timed(result: CommandResult, started_at: Instant) -> CommandResult {
    CommandResult { wall_duration_ms: started_at.elapsed().as_millis() as u64, ..result }
}

/// A failed start is a result, not a tool error. Only a cancelled call is an error.
fn start_failed(what: &str, error: ToolError) -> Result<Answer, ToolError> {
    match error.code.as_str() {
        "cancelled" => Err(error),
        "no_program" => Ok(CommandResult::failure(format!("{what}: {}\n\n{NO_SHELL}", error.message)).answer()),
        _ => Ok(CommandResult::failure(format!("{what}: {}", error.message)).answer()),
    }
}

fn request(ctx: &CallContext<'_>, arguments: &Arguments, command: String) -> Result<StartRequest, ToolError> {
    let cwd = resolve_workdir(ctx, arguments).map_err(invalid)?;
    let mut env = command_env(ctx, cwd.as_deref());
    env.extend(NON_INTERACTIVE_ENV.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))));
    let intent = arguments.text("model_intent").map_err(invalid)?;
    Ok(StartRequest {
        command: Some(command),
        shell: Some("sh".to_owned()),
        cwd,
        env,
        inherit_env: Some(ctx.command_defaults.env.is_none()),
        owner: Some(ctx.caller.owner.clone()),
        parent: ctx.caller.parent.clone(),
        lifetime: Some(ctx.lifetime),
        owner_grace: (ctx.lifetime != Lifetime::Keep).then(|| Span::from(ctx.owner_grace)),
        intent: intent.map(|intent| intent.chars().take(MAX_LABEL_CHARS).collect()),
        idempotency_key: Some(format!("mcp-{}", random::hex(16))),
        traceparent: ctx.traceparent(),
        tool: Some("execute".to_owned()),
        ..StartRequest::default()
    })
}
