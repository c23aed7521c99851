//! `execute`: starts a command and waits for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use pinfold_api::input::{Size, Span};
use pinfold_api::trace::{TRACEPARENT_ENV, TraceParent};
use pinfold_api::types::{
    Lifetime, NewsState, OutputPage, Pty, ReadyState, Record, Restart, SandboxRequest, StartRequest, Started, Stdin,
    Streams, WaitAnswer, WaitQuery, WaitReason,
};
use serde::de::DeserializeOwned;

use super::wait::{self, Wait};
use super::{Answer, CallContext};
use crate::arguments::Arguments;
use crate::facts::{self, Facts};
use crate::tool_error::ToolError;
use crate::view::{self, ReadRange};
use crate::{random, tasks};

/// An example of a correct call.
pub(super) const EXAMPLE: &str = r#"execute {"command":"npm test","workdir":"app","timeout":"2m"}"#;

/// Examples of correct calls with each object argument.
const NOTIFY_EXAMPLE: &str =
    r#"execute {"command":"make","background":true,"notify":{"patterns":["error:"],"heartbeat":"5m"}}"#;
const READY_EXAMPLE: &str =
    r#"execute {"command":"npm run dev","background":true,"ready":{"port":3000,"timeout":"60s"}}"#;
const PORTS_EXAMPLE: &str =
    r#"execute {"command":"npm run dev","background":true,"ports":{"PORT":"lease"},"ready":{"port":"PORT"}}"#;

/// How long a background start waits, to report commands that fail immediately.
const BACKGROUND_WAIT: Duration = Duration::from_millis(200);
/// How long the start request itself waits: most commands end within this time, so one request is enough.
const START_WAIT: Duration = Duration::from_millis(500);

/// Variables that prevent prompts, pagers and colours. With a terminal, only the pager variables are set.
const NON_INTERACTIVE_ENV: &[(&str, &str)] = &[
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("NO_COLOR", "1"),
    ("TERM", "dumb"),
    ("DEBIAN_FRONTEND", "noninteractive"),
];
/// Variables of the managed process that this server runs in; commands must not inherit them.
const OUR_VARIABLES: &[&str] = &["PINFOLD_ID", "PINFOLD_OWNER", "PINFOLD_MARK", HOME_VARIABLE];
/// The pinfold home of a process. The daemon sets it, unless the call sets it or unsets it with null.
const HOME_VARIABLE: &str = "PINFOLD_HOME";

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let background = arguments.flag("background")?;
    let asked = arguments.duration("timeout")?;
    let waits_for_ready = arguments.object("ready")?.is_some();
    let (limit, limit_note) = match background && !waits_for_ready {
        true => (asked.unwrap_or(BACKGROUND_WAIT).min(BACKGROUND_WAIT), None),
        false => ctx.wait_limit(asked),
    };
    let (budget, budget_note) = view::budget(arguments)?;
    let mut request = request(ctx, arguments, limit.min(START_WAIT))?;
    request.budget = Some(Size::Text(budget.unwrap_or(view::MAX_WHOLE_OUTPUT).to_string()));
    request.news_after = match has_own_news(&request) {
        true => None,
        false => Some(ctx.news.up_to_date(&ctx.caller.owner).await),
    };
    let task = (!background && !waits_for_ready && ctx.may_create_task()).then(|| random::hex(16));
    request.labels.extend(task.iter().map(|task| (tasks::LABEL.to_owned(), task.clone())));
    let started_at = Instant::now();
    ctx.claim.starting();
    let started = ctx.await_with_progress("the start", start(ctx, &request)).await?;
    let hints = started.hints.clone();
    let mut record = started.record;
    let (mut page, mut news) = (started.output_page, started.news);
    let mut reason = started.waited.as_ref().map(|waited| waited.reason);
    if let Some(task) = task.filter(|_| !facts::has_ended(&record)) {
        return Ok(Answer { task: Some((task, record)), ..Answer::default() });
    }
    ctx.claim.waits_for(&record.id);
    let remaining = limit.saturating_sub(started_at.elapsed());
    let until = if waits_for_ready { "ready" } else { "exit" };
    let open = if waits_for_ready { is_readiness_pending(&record) } else { !facts::has_ended(&record) && !background };
    if open && !remaining.is_zero() {
        let can_prompt = request.pty.is_some() || request.stdin.is_some();
        let answer = ctx
            .await_with_progress(&record.id, wait_for_decision(ctx, &record.id, remaining, (until, can_prompt)))
            .await?;
        (reason, record) = (Some(answer.reason), answer.record);
        // The start's answer is out of date.
        (page, news) = (None, news.map(|news| NewsState { pending: true, ..news }));
    }
    let range = ReadRange { cursor: Some(0), budget, ..ReadRange::default() };
    let mut facts = describe(ctx, &record, range, page).await?;
    // Omit empty output of a running command, but show that an ended command wrote nothing.
    if !facts::has_ended(&record) {
        facts.drop_empty_output();
    }
    if !background || waits_for_ready {
        let never_ready = waits_for_ready && facts::has_ended(&record) && !is_ready(&record);
        facts.reason = if never_ready { Some(WaitReason::EndedBefore) } else { reason.or(Some(WaitReason::Timeout)) };
    }
    facts.notes.extend(hints);
    facts.notes.extend(budget_note);
    facts.notes.extend(limit_note.filter(|_| !facts::has_ended(&record)));
    facts.notes.extend(next_step_note(ctx, &record));
    Ok(Answer { news, ..Answer::for_process(ctx, facts, &record) })
}

/// Whether there may be news of the process itself other than its end, which the result shows.
fn has_own_news(request: &StartRequest) -> bool {
    request.notify.is_some() || request.ready.is_some() || request.restart.is_some() || request.pty.is_some()
}

/// Waits for the exit or for readiness. If the process has a terminal or stdin, also returns when it waits for input.
async fn wait_for_decision(
    ctx: &CallContext<'_>,
    id: &str,
    limit: Duration,
    (until, can_prompt): (&str, bool),
) -> Result<WaitAnswer, ToolError> {
    let wait = |what: &str| Wait { limit, query: WaitQuery { until: Some(what.into()), ..WaitQuery::default() } };
    let (decision, input) = (wait(until), wait("input"));
    tokio::select! {
        biased;
        answer = wait::wait_with_deadline(ctx, id, &decision) => answer,
        answer = wait::wait_with_deadline(ctx, id, &input), if can_prompt => answer,
    }
}

/// Whether the readiness check is still waiting.
fn is_readiness_pending(record: &Record) -> bool {
    record.ready.as_ref().is_some_and(|ready| ready.state == ReadyState::Waiting)
}

fn is_ready(record: &Record) -> bool {
    record.ready.as_ref().is_some_and(|ready| ready.state == ReadyState::Ready)
}

/// The result that the call would have had if it had waited for the end.
pub(super) async fn outcome(ctx: &CallContext<'_>, record: &Record) -> Result<Answer, ToolError> {
    let mut facts = describe(ctx, record, ReadRange { cursor: Some(0), ..ReadRange::default() }, None).await?;
    facts.reason = Some(WaitReason::Exited);
    facts.notes.extend(next_step_note(ctx, record));
    Ok(Answer::for_process(ctx, facts, record))
}

/// Starts the command. The idempotency key prevents a second start if the request is retried.
async fn start(ctx: &CallContext<'_>, request: &StartRequest) -> Result<Started, ToolError> {
    let started = ctx.daemon.retry(|client| async move { client.start(request).await }).await;
    started.map_err(|error| match error.code.as_str() {
        "no_program" => error.with_example(r#"execute {"command":"echo hi","shell":"bash"}"#),
        "invalid_request" | "bad_cwd" => error.with_example(EXAMPLE),
        _ => error,
    })
}

/// Returns the facts of a process with a range of its output, and marks this output as read. `page` is what the daemon has
/// already sent of this range.
pub(super) async fn describe(
    ctx: &CallContext<'_>,
    record: &Record,
    range: ReadRange,
    page: Option<OutputPage>,
) -> Result<Facts, ToolError> {
    let (seen, hint) = view::read_output(&ctx.daemon, record, &range, page).await?;
    ctx.read_positions.record_read(&ctx.caller.owner, &record.id, seen.1, seen.0.omitted);
    let mut facts = Facts::from_record(record).with_output(seen);
    facts.notes.extend(hint.filter(|_| ctx.read_positions.mark_explained(&ctx.caller.owner, "silence")));
    Ok(facts)
}

/// Explains the next step for a process that has not ended. Each kind of note is shown once per owner.
fn next_step_note(ctx: &CallContext<'_>, record: &Record) -> Option<String> {
    let id = &record.id;
    let (topic, note) = match () {
        () if record.waiting_for_input == Some(true) => (
            "input",
            format!(
                "it is waiting for input: answer with process_input {{\"id\":\"{id}\",\"text\":\"…\",\"keys\":[\"enter\"]}}"
            ),
        ),
        () if !facts::has_ended(record) => (
            "running",
            format!(
                "still running; its end will be in the news of a later result. process_wait {{\"id\":\"{id}\"}} waits for it, \
                 process_signal {{\"id\":\"{id}\"}} stops it"
            ),
        ),
        () if !record.tree.is_empty() => (
            "strays",
            format!("the command ended and left strays running; process_signal {{\"id\":\"{id}\"}} stops them"),
        ),
        () => return None,
    };
    ctx.read_positions.mark_explained(&ctx.caller.owner, topic).then_some(note)
}

fn request(ctx: &CallContext<'_>, arguments: &Arguments, wait: Duration) -> Result<StartRequest, ToolError> {
    let given = arguments.variables("env")?;
    let cwd = resolve_workdir(ctx, arguments)?;
    let mut env = command_env(ctx, cwd.as_deref());
    let pty = pty(arguments)?;
    let quiet = NON_INTERACTIVE_ENV.iter().filter(|(name, _)| pty.is_none() || name.ends_with("PAGER"));
    env.extend(quiet.map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))));
    if pty.is_some() {
        // Do not inherit the TERM of the program that started this server.
        env.remove("TERM");
    }
    env.extend(given);
    if ctx.command_defaults.env.is_some() {
        env.retain(|name, value| value.is_some() || name == HOME_VARIABLE);
    }
    let lifetime = lifetime(arguments)?.unwrap_or(ctx.lifetime);
    let streams = arguments.one_of("streams", &["merged", "separate"])?;
    Ok(StartRequest {
        command: Some(arguments.required("command")?),
        shell: arguments.text("shell")?,
        cwd,
        env,
        inherit_env: Some(ctx.command_defaults.env.is_none()),
        owner: Some(ctx.caller.owner.clone()),
        parent: ctx.caller.parent.clone(),
        name: arguments.text("name")?,
        intent: arguments.text("label")?,
        lifetime: Some(lifetime),
        owner_grace: (lifetime != Lifetime::Keep).then(|| Span::from(ctx.owner_grace)),
        notify: object(arguments, "notify", NOTIFY_EXAMPLE)?,
        ready: object(arguments, "ready", READY_EXAMPLE)?,
        sandbox: arguments.text("sandbox")?.map(SandboxRequest::Text),
        restart: arguments.one_of("restart", &["never", "on_failure", "always"])?.map(Restart::When),
        ports: object(arguments, "ports", PORTS_EXAMPLE)?.unwrap_or_default(),
        streams: streams.map(|word| if word == "separate" { Streams::Separate } else { Streams::Merged }),
        stdin: stdin(arguments)?,
        pty,
        idempotency_key: Some(format!("mcp-{}", random::hex(16))),
        traceparent: ctx.traceparent(),
        tool: Some("execute".to_owned()),
        wait: (!wait.is_zero()).then(|| Span::Text(format!("{}ms", wait.as_millis()))),
        ..StartRequest::default()
    })
}

/// Returns the environment of a command, before variables of the tool and the call are added.
pub(crate) fn command_env(ctx: &CallContext<'_>, cwd: Option<&str>) -> BTreeMap<String, Option<String>> {
    let mut env: BTreeMap<String, Option<String>> = BTreeMap::new();
    if let Some(base) = &ctx.command_defaults.env {
        env.extend(base.iter().map(|(name, value)| (name.clone(), Some(value.clone()))));
        for mark in OUR_VARIABLES {
            env.remove(*mark);
        }
        // It goes into the request: a command gets the span of its own run.
        if env.get(TRACEPARENT_ENV).and_then(Option::as_deref).is_some_and(|text| TraceParent::parse(text).is_ok()) {
            env.remove(TRACEPARENT_ENV);
        }
    }
    if let Some(cwd) = cwd {
        env.insert("PWD".into(), Some(cwd.to_owned()));
    }
    env
}

fn lifetime(arguments: &Arguments) -> Result<Option<Lifetime>, ToolError> {
    let word = arguments.one_of("lifetime", &["keep", "owner", "parent"])?;
    Ok(word.map(|word| match word.as_str() {
        "owner" => Lifetime::Owner,
        "parent" => Lifetime::Parent,
        _ => Lifetime::Keep,
    }))
}

/// Parses an object argument with the daemon's own types, so that its format is defined in one place.
fn object<T: DeserializeOwned>(arguments: &Arguments, key: &str, right: &str) -> Result<Option<T>, ToolError> {
    let Some(object) = arguments.object(key)? else { return Ok(None) };
    let read = serde_json::from_value(object.into());
    read.map(Some).map_err(|error| arguments.invalid(format!("`{key}`: {error}")).with_example(right))
}

/// Accepts a boolean, or `"pipe"` as in the HTTP API and its errors.
fn stdin(arguments: &Arguments) -> Result<Option<Stdin>, ToolError> {
    match arguments.raw("stdin").and_then(serde_json::Value::as_str) {
        Some("pipe") => Ok(Some(Stdin::Pipe)),
        Some("null" | "none") => Ok(None),
        _ => Ok(arguments.flag("stdin")?.then_some(Stdin::Pipe)),
    }
}

/// The requested terminal.
fn pty(arguments: &Arguments) -> Result<Option<Pty>, ToolError> {
    let Some(asked) = arguments.raw("pty") else { return Ok(None) };
    let pty = serde_json::from_value(asked.clone());
    let pty = pty.map_err(|_| arguments.invalid("`pty` must be true, or {\"rows\":24,\"cols\":80}"))?;
    Ok(Some(pty).filter(|pty| *pty != Pty::Wanted(false)))
}

/// Returns the working directory as an absolute path. A relative one is resolved against this server's directory.
pub(crate) fn resolve_workdir(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Option<String>, ToolError> {
    let base = ctx.command_defaults.cwd.as_deref();
    match (arguments.text("workdir")?, base) {
        (None, base) => Ok(base.map(str::to_owned)),
        (Some(given), _) if given.starts_with(['/', '~']) => Ok(Some(given)),
        (Some(given), Some(base)) => {
            let path = Path::new(base).join(&given);
            path.into_os_string().into_string().map(Some).map_err(|_| arguments.invalid("`workdir` is not UTF-8"))
        }
        (Some(given), None) => {
            Err(arguments.invalid(format!("`workdir`: `{given}` is relative: give an absolute path")))
        }
    }
}
