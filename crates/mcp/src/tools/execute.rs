//! `execute`: start a command and wait for it a while.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use pinfold_api::input::Span;
use pinfold_api::types::{
    Lifetime, Pty, ReadyState, Record, Restart, StartRequest, Started, Stdin, Streams, WaitAnswer, WaitQuery,
    WaitReason,
};
use serde::de::DeserializeOwned;

use super::wait::{self, Wait};
use super::{Answer, CallContext};
use crate::arguments::Arguments;
use crate::facts::{self, Facts};
use crate::tool_error::ToolError;
use crate::view::{self, Look};
use crate::{presence, random, tasks};

/// A right call.
pub(super) const RIGHT: &str = r#"execute {"command":"npm test","workdir":"app","timeout":"2m"}"#;

/// Right calls with an object of each kind.
const NOTIFY: &str =
    r#"execute {"command":"make","background":true,"notify":{"patterns":["error:"],"heartbeat":"5m"}}"#;
const READY: &str = r#"execute {"command":"npm run dev","background":true,"ready":{"port":3000,"timeout":"60s"}}"#;
const PORTS: &str =
    r#"execute {"command":"npm run dev","background":true,"ports":{"PORT":"lease"},"ready":{"port":"PORT"}}"#;

/// How long a command in the background may take to fail at once.
const EARLY: Duration = Duration::from_millis(200);
/// How long the start itself waits: most commands are over by then, in one request.
const FIRST: Duration = Duration::from_millis(500);

/// Programs that ask, page or colour are told that nobody is there; where there is a terminal, only not to page.
const NON_INTERACTIVE: &[(&str, &str)] = &[
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
/// Marks of the process that the shim itself runs in; not those of what it starts.
const MARKS: &[&str] = &["PINFOLD_ID", "PINFOLD_OWNER", "PINFOLD_MARK", HOME];
/// The home that a process is kept in: the daemon sets it, unless a call sets it or unsets it with null.
const HOME: &str = "PINFOLD_HOME";

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let background = arguments.flag("background")?;
    let asked = arguments.duration("timeout")?;
    let waits_for_ready = arguments.object("ready")?.is_some();
    let (limit, cut) = match background && !waits_for_ready {
        true => (asked.unwrap_or(EARLY).min(EARLY), None),
        false => ctx.wait_limit(asked),
    };
    let (budget, budget_note) = view::budget(arguments)?;
    let mut request = request(ctx, arguments, limit.min(FIRST))?;
    let task = (!background && !waits_for_ready && ctx.takes_tasks()).then(|| random::hex(16));
    request.labels.extend(task.iter().map(|task| (tasks::LABEL.to_owned(), task.clone())));
    let begun = Instant::now();
    ctx.claim.starting();
    let started = ctx.hold("the start", start(ctx, &request)).await?;
    let hints = started.hints.clone();
    let mut record = started.record;
    let mut reason = started.waited.as_ref().map(|waited| waited.reason);
    if let Some(task) = task.filter(|_| !facts::is_over(&record)) {
        return Ok(Answer { task: Some((task, record)), ..Answer::default() });
    }
    ctx.claim.waits_for(&record.id);
    let left = limit.saturating_sub(begun.elapsed());
    let until = if waits_for_ready { "ready" } else { "exit" };
    let open = if waits_for_ready { is_undecided(&record) } else { !facts::is_over(&record) && !background };
    if open && !left.is_zero() {
        let asks = request.pty.is_some() || request.stdin.is_some();
        let answer = ctx.hold(&record.id, decided(ctx, &record.id, left, (until, asks))).await?;
        (reason, record) = (Some(answer.reason), answer.record);
    }
    let mut facts = describe(ctx, &record, Look { cursor: Some(0), budget, ..Look::default() }).await?;
    if let Some(sight) = facts.sight.as_mut().filter(|_| !facts::is_over(&record)) {
        // That a command has not written yet is no news; that one ended without a word is.
        sight.output = sight.output.take().filter(|output| !output.is_empty());
    }
    if !background || waits_for_ready {
        let never_ready = waits_for_ready && facts::is_over(&record) && !is_ready(&record);
        facts.reason = if never_ready { Some(WaitReason::EndedBefore) } else { reason.or(Some(WaitReason::Timeout)) };
    }
    facts.notes.extend(hints);
    facts.notes.extend(budget_note);
    facts.notes.extend(cut.filter(|_| !facts::is_over(&record)));
    facts.notes.extend(how_it_goes_on(ctx, &record));
    Ok(Answer::of(ctx, facts, &record))
}

/// Waits for the exit or its readiness; where it can ask, also until it waits for an answer.
async fn decided(
    ctx: &CallContext<'_>,
    id: &str,
    limit: Duration,
    (until, asks): (&str, bool),
) -> Result<WaitAnswer, ToolError> {
    let wait = |what: &str| Wait { limit, query: WaitQuery { until: Some(what.into()), ..WaitQuery::default() } };
    let (decision, input) = (wait(until), wait("input"));
    tokio::select! {
        biased;
        answer = wait::patiently(ctx, id, &decision) => answer,
        answer = wait::patiently(ctx, id, &input), if asks => answer,
    }
}

/// Whether it may still become ready.
fn is_undecided(record: &Record) -> bool {
    record.ready.as_ref().is_some_and(|ready| ready.state == ReadyState::Waiting)
}

fn is_ready(record: &Record) -> bool {
    record.ready.as_ref().is_some_and(|ready| ready.state == ReadyState::Ready)
}

/// What the call would have given, had it waited for the end.
pub(super) async fn outcome(ctx: &CallContext<'_>, record: &Record) -> Result<Answer, ToolError> {
    let mut facts = describe(ctx, record, Look { cursor: Some(0), ..Look::default() }).await?;
    facts.reason = Some(WaitReason::Exited);
    facts.notes.extend(how_it_goes_on(ctx, record));
    Ok(Answer::of(ctx, facts, record))
}

/// Starts it; asked again of the next daemon, the key keeps it from running twice.
async fn start(ctx: &CallContext<'_>, request: &StartRequest) -> Result<Started, ToolError> {
    let started = ctx.daemon.ask(|client| async move { client.start(request).await }).await;
    started.map_err(|refusal| match refusal.code.as_str() {
        "no_program" => refusal.show(r#"execute {"command":"echo hi","shell":"bash"}"#),
        "invalid_request" | "bad_cwd" => refusal.show(RIGHT),
        _ => refusal,
    })
}

/// The facts of a process with a look at its output, which counts as read.
pub(super) async fn describe(ctx: &CallContext<'_>, record: &Record, look: Look) -> Result<Facts, ToolError> {
    let (seen, hint) = view::look(&ctx.daemon, record, &look).await?;
    ctx.memory.read(&ctx.caller.owner, &record.id, seen.1, seen.0.omitted);
    let mut facts = Facts::of(record).seen(seen);
    facts.notes.extend(hint.filter(|_| ctx.memory.is_first(&ctx.caller.owner, "silence")));
    Ok(facts)
}

/// What can be done with a process that is not over, with the first of its kind for this owner: the state says the rest.
fn how_it_goes_on(ctx: &CallContext<'_>, record: &Record) -> Option<String> {
    let id = &record.id;
    let (topic, note) = match () {
        () if record.waiting_for_input == Some(true) => (
            "input",
            format!(
                "it waits for input: process_input {{\"id\":\"{id}\",\"text\":\"…\",\"keys\":[\"enter\"]}} answers"
            ),
        ),
        () if !facts::is_over(record) => (
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
    ctx.memory.is_first(&ctx.caller.owner, topic).then_some(note)
}

fn request(ctx: &CallContext<'_>, arguments: &Arguments, wait: Duration) -> Result<StartRequest, ToolError> {
    let given = arguments.variables("env")?;
    let cwd = directory(ctx, arguments)?;
    let mut env = surroundings(ctx, cwd.as_deref());
    let pty = pty(arguments)?;
    let quiet = NON_INTERACTIVE.iter().filter(|(name, _)| pty.is_none() || name.ends_with("PAGER"));
    env.extend(quiet.map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))));
    if pty.is_some() {
        // The terminal of whoever started us is not this one.
        env.remove("TERM");
    }
    env.extend(given);
    if ctx.base.env.is_some() {
        env.retain(|name, value| value.is_some() || name == HOME);
    }
    let lifetime = lifetime(arguments)?.unwrap_or(ctx.lifetime);
    let streams = arguments.word("streams", &["merged", "separate"])?;
    Ok(StartRequest {
        command: Some(arguments.required("command")?),
        shell: arguments.text("shell")?,
        cwd,
        env,
        inherit_env: Some(ctx.base.env.is_none()),
        owner: Some(ctx.caller.owner.clone()),
        parent: ctx.caller.parent.clone(),
        name: arguments.text("name")?,
        intent: arguments.text("label")?,
        lifetime: Some(lifetime),
        owner_grace: (lifetime != Lifetime::Keep).then(|| grace(ctx)),
        notify: object(arguments, "notify", NOTIFY)?,
        ready: object(arguments, "ready", READY)?,
        restart: arguments.word("restart", &["never", "on_failure", "always"])?.map(Restart::When),
        ports: object(arguments, "ports", PORTS)?.unwrap_or_default(),
        streams: streams.map(|word| if word == "separate" { Streams::Separate } else { Streams::Merged }),
        stdin: stdin(arguments)?,
        pty,
        idempotency_key: Some(format!("mcp-{}", random::hex(16))),
        wait: (!wait.is_zero()).then(|| Span::Text(format!("{}ms", wait.as_millis()))),
        ..StartRequest::default()
    })
}

/// The environment that a command is started in, before anything is laid over it.
pub(crate) fn surroundings(ctx: &CallContext<'_>, cwd: Option<&str>) -> BTreeMap<String, Option<String>> {
    let mut env: BTreeMap<String, Option<String>> = BTreeMap::new();
    if let Some(base) = &ctx.base.env {
        env.extend(base.iter().map(|(name, value)| (name.clone(), Some(value.clone()))));
        for mark in MARKS {
            env.remove(*mark);
        }
    }
    if let Some(cwd) = cwd {
        env.insert("PWD".into(), Some(cwd.to_owned()));
    }
    env
}

/// How long a process outlives the last contact of its owner, with whom this server stays in contact from here on.
pub(crate) fn grace(ctx: &CallContext<'_>) -> Span {
    if ctx.base.env.is_none() {
        return Span::from(ctx.owner_grace.unwrap_or(presence::GRACE_OVER_HTTP));
    }
    ctx.presence.keep(&ctx.caller.owner, &ctx.daemon);
    Span::from(ctx.owner_grace.unwrap_or(presence::GRACE))
}

fn lifetime(arguments: &Arguments) -> Result<Option<Lifetime>, ToolError> {
    let word = arguments.word("lifetime", &["keep", "owner", "parent"])?;
    Ok(word.map(|word| match word.as_str() {
        "owner" => Lifetime::Owner,
        "parent" => Lifetime::Parent,
        _ => Lifetime::Keep,
    }))
}

/// What an object asks for; read as the daemon reads it, so that one place says what is in it.
fn object<T: DeserializeOwned>(arguments: &Arguments, key: &str, right: &str) -> Result<Option<T>, ToolError> {
    let Some(object) = arguments.object(key)? else { return Ok(None) };
    let read = serde_json::from_value(object.into());
    read.map(Some).map_err(|error| arguments.refuse(format!("`{key}`: {error}")).show(right))
}

/// `true`, or `"pipe"` as the HTTP API and its errors call it.
fn stdin(arguments: &Arguments) -> Result<Option<Stdin>, ToolError> {
    match arguments.raw("stdin").and_then(serde_json::Value::as_str) {
        Some("pipe") => Ok(Some(Stdin::Pipe)),
        Some("null" | "none") => Ok(None),
        _ => Ok(arguments.flag("stdin")?.then_some(Stdin::Pipe)),
    }
}

/// The terminal that is asked for.
fn pty(arguments: &Arguments) -> Result<Option<Pty>, ToolError> {
    let Some(asked) = arguments.raw("pty") else { return Ok(None) };
    let pty = serde_json::from_value(asked.clone());
    let pty = pty.map_err(|_| arguments.refuse("`pty` must be true, or {\"rows\":24,\"cols\":80}"))?;
    Ok(Some(pty).filter(|pty| *pty != Pty::Wanted(false)))
}

/// The directory, absolute: a relative one is relative to the shim's own.
pub(crate) fn directory(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Option<String>, ToolError> {
    let base = ctx.base.cwd.as_deref();
    match (arguments.text("workdir")?, base) {
        (None, base) => Ok(base.map(str::to_owned)),
        (Some(given), _) if given.starts_with(['/', '~']) => Ok(Some(given)),
        (Some(given), Some(base)) => {
            let path = Path::new(base).join(&given);
            path.into_os_string().into_string().map(Some).map_err(|_| arguments.refuse("`workdir` is not UTF-8"))
        }
        (Some(given), None) => {
            Err(arguments.refuse(format!("`workdir`: `{given}` is relative to nothing here: give an absolute path")))
        }
    }
}
