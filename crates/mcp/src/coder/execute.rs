//! `execute`: run a command, and wait for it in the foreground.

use std::time::{Duration, Instant};

use pinfold_api::input::Span;
use pinfold_api::types::{Lifetime, Record, StartRequest, WaitAnswer, WaitQuery};

use super::ampersand::promoted;
use super::result::Outcomes;
use super::{BACKGROUND, duration, invalid, plain};
use crate::arguments::Arguments;
use crate::tool_error::ToolError;
use crate::tools::{Answer, CallContext, Wait, directory, grace, patiently, surroundings};
use crate::{facts, random};

/// How long the foreground waits unless it is told.
const FOREGROUND: Duration = Duration::from_secs(10);
/// How long a read may take after a wait has failed.
const FALLBACK: Duration = Duration::from_secs(30);
/// How long the start itself waits: most commands are over by then, in one request.
const FIRST: Duration = Duration::from_millis(500);
/// Characters of a label.
const MAX_INTENT: usize = 200;

/// A chat's commands are told that nobody is there to ask.
const ENVIRONMENT: &[(&str, &str)] = &[
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

/// What to do about a machine without a shell.
const NO_SHELL: &str = "The machine has no POSIX shell: install one that provides `sh`, or add its directory to the \
                        PATH of the pinfold daemon, and restart it (`pinfold daemon stop`).";

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let mut command = arguments.text("command").map_err(invalid)?.unwrap_or_default();
    if command.is_empty() {
        return Err(plain("command is required"));
    }
    let mut background = arguments.flag("run_in_background").map_err(invalid)?;
    let timeout = arguments.text("timeout").map_err(invalid)?;
    if let (false, Some(rest)) = (background, promoted(&command)) {
        (background, command) = (true, rest.to_owned());
    }
    let limit = match timeout {
        _ if background => Duration::ZERO,
        None => FOREGROUND,
        Some(text) => {
            let span = duration::parse(&text).map_err(|bad| plain(format!("invalid timeout {text:?}: {bad}")))?;
            span.length()
        }
    };
    let mut request = request(ctx, arguments, command)?;
    request.labels.insert(BACKGROUND.to_owned(), background.to_string());
    match background {
        true => in_background(ctx, &request).await,
        false => in_foreground(ctx, request, limit).await,
    }
}

async fn in_background(ctx: &CallContext<'_>, request: &StartRequest) -> Result<Answer, ToolError> {
    let started = ctx.daemon.ask(|client| async move { client.start(request).await });
    let record = match ctx.hold("the start", started).await {
        Ok(started) => started.record,
        Err(refusal) => return failed("start background process", refusal),
    };
    let outcomes = Outcomes {
        success: true,
        background_process_id: Some(record.id.clone()),
        backgrounded: Some(true),
        state: Some(super::result::state(&record)),
        ..Outcomes::default()
    };
    Ok(outcomes.answer())
}

async fn in_foreground(ctx: &CallContext<'_>, mut request: StartRequest, limit: Duration) -> Result<Answer, ToolError> {
    let (patience, cut) = ctx.wait_limit(Some(limit));
    let first = patience.min(FIRST);
    request.wait = (!first.is_zero()).then(|| Span::Text(format!("{}ms", first.as_millis())));
    let begun = Instant::now();
    let request = &request;
    ctx.claim.starting();
    let started = ctx.daemon.ask(|client| async move { client.start(request).await });
    let started = match ctx.hold("the start", started).await {
        Ok(started) => started,
        Err(refusal) => return failed("start process", refusal),
    };
    let left = patience.saturating_sub(begun.elapsed());
    let waited = match facts::is_over(&started.record) || left.is_zero() {
        true => Ok(started.record.clone()),
        false => wait(ctx, &started.record.id, left).await.map(|answer| answer.record),
    };
    let (outcomes, record) = match waited {
        Ok(record) if facts::is_over(&record) => (Outcomes::over(&record), record),
        Ok(record) => (Outcomes { note: cut, ..Outcomes::timed_out(&record, patience) }, record),
        Err(refusal) if refusal.code == "cancelled" => return Err(refusal),
        Err(refusal) => match recovered(ctx, &started.record.id, &refusal.message).await {
            Ok(found) => found,
            Err(outcomes) => return Ok(timed(*outcomes, begun).answer()),
        },
    };
    match outcomes.clone().with_output(&ctx.daemon, &record).await {
        Ok(outcomes) => Ok(timed(outcomes, begun).showing(&record)),
        Err(refusal) => {
            let error = format!("{}get process output: {}", prefix(&outcomes), refusal.message);
            let outcomes = Outcomes { background_process_id: Some(record.id.clone()), ..Outcomes::failure(error) };
            Ok(timed(outcomes, begun).answer())
        }
    }
}

/// What was wrong before its output could not be read.
fn prefix(outcomes: &Outcomes) -> String {
    outcomes.error.as_ref().map(|error| format!("{error}; failed to ")).unwrap_or_default()
}

/// Waits for the end. `process_output` waits by the same means.
pub(super) async fn wait(ctx: &CallContext<'_>, id: &str, limit: Duration) -> Result<WaitAnswer, ToolError> {
    ctx.claim.waits_for(id);
    let query = WaitQuery { until: Some("exit".into()), ..WaitQuery::default() };
    ctx.hold(id, patiently(ctx, id, &Wait { limit, query })).await
}

/// After a wait that failed: one look at what became of it.
async fn recovered(ctx: &CallContext<'_>, id: &str, error: &str) -> Result<(Outcomes, Record), Box<Outcomes>> {
    let look = ctx.daemon.ask(|client| async move { client.show(id).await });
    match tokio::time::timeout(FALLBACK, look).await {
        Ok(Ok(record)) if facts::is_over(&record) => Ok((Outcomes::over(&record), record)),
        Ok(Ok(record)) => {
            let error =
                format!("get process output: {error} (process still running, use process_output to check later)");
            let state = Some(super::result::state(&record));
            let outcomes = Outcomes { background_process_id: Some(id.to_owned()), state, ..Outcomes::failure(error) };
            Ok((outcomes, record))
        }
        _ => {
            let error = format!("get process output: {error}; use process_output with ID {id} to retry");
            Err(Box::new(Outcomes { background_process_id: Some(id.to_owned()), ..Outcomes::failure(error) }))
        }
    }
}

fn timed(outcomes: Outcomes, begun: Instant) -> Outcomes {
    Outcomes { wall_duration_ms: begun.elapsed().as_millis() as u64, ..outcomes }
}

/// A start that failed is a result; a call that was cancelled has none.
fn failed(what: &str, refusal: ToolError) -> Result<Answer, ToolError> {
    match refusal.code.as_str() {
        "cancelled" => Err(refusal),
        "no_program" => Ok(Outcomes::failure(format!("{what}: {}\n\n{NO_SHELL}", refusal.message)).answer()),
        _ => Ok(Outcomes::failure(format!("{what}: {}", refusal.message)).answer()),
    }
}

fn request(ctx: &CallContext<'_>, arguments: &Arguments, command: String) -> Result<StartRequest, ToolError> {
    let cwd = directory(ctx, arguments).map_err(invalid)?;
    let mut env = surroundings(ctx, cwd.as_deref());
    env.extend(ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))));
    let intent = arguments.text("model_intent").map_err(invalid)?;
    Ok(StartRequest {
        command: Some(command),
        shell: Some("sh".to_owned()),
        cwd,
        env,
        inherit_env: Some(ctx.base.env.is_none()),
        owner: Some(ctx.caller.owner.clone()),
        parent: ctx.caller.parent.clone(),
        lifetime: Some(ctx.lifetime),
        owner_grace: (ctx.lifetime != Lifetime::Keep).then(|| grace(ctx)),
        intent: intent.map(|intent| intent.chars().take(MAX_INTENT).collect()),
        idempotency_key: Some(format!("mcp-{}", random::hex(16))),
        ..StartRequest::default()
    })
}
