//! `process_wait`: waits for an event of one process, or for the end of any or all of several.

use std::time::{Duration, Instant};

use pinfold_api::input::Span;
use pinfold_api::types::{Record, WaitAnswer, WaitManyAnswer, WaitManyRequest, WaitMode, WaitQuery, WaitReason};
use serde_json::Value;

use super::{Answer, CallContext, Shown, execute, object};
use crate::arguments::Arguments;
use crate::compact;
use crate::facts::{self, Facts, Line};
use crate::tool_error::ToolError;
use crate::view::{self, ReadRange};

/// An example of a correct call.
pub(super) const EXAMPLE: &str = r#"process_wait {"id":"k3v9x2","pattern":"listening on","timeout":"30s"}"#;

/// Maximum wait of one request; a longer wait sends several.
const MAX_REQUEST_WAIT: Duration = Duration::from_secs(3600);
/// Conditions allowed when waiting for several processes.
const UNTIL_FOR_MANY: &[&str] = &["exit", "finished", "closed"];
const UNTIL: &[&str] = &["exit", "finished", "closed", "output", "match", "port", "quiet", "ready", "input"];

/// A wait and its time limit.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) limit: Duration,
    pub(crate) query: WaitQuery,
}

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let (limit, limit_note) = ctx.wait_limit(arguments.duration("timeout")?);
    let ids = arguments.texts("ids")?;
    let id = arguments.text("id")?;
    match (id, ids.as_slice()) {
        (Some(id), []) => one(ctx, arguments, &id, (limit, limit_note)).await,
        (None, [id]) => one(ctx, arguments, id, (limit, limit_note)).await,
        (None, [_, _, ..]) => many(ctx, arguments, ids, (limit, limit_note)).await,
        (Some(_), [_, ..]) => Err(arguments.invalid("give `id` or `ids`, not both")),
        (None, []) => Err(arguments.invalid("`id` is missing")),
    }
}

async fn one(
    ctx: &CallContext<'_>,
    arguments: &Arguments,
    id: &str,
    (limit, limit_note): (Duration, Option<String>),
) -> Result<Answer, ToolError> {
    let mut query = query(arguments)?;
    let (budget, note) = view::budget(arguments)?;
    let record = ctx.daemon.retry(|client| async move { client.show(id).await }).await?;
    ctx.claim.waits_for(&record.id);
    let read = ctx.read_positions.cursor(&ctx.caller.owner, &record.id);
    if query.until.as_deref() == Some("output") {
        query.cursor = query.cursor.or(Some(read));
    }
    let until = query.until.clone();
    let answer =
        ctx.await_with_progress(&record.id, wait_with_deadline(ctx, &record.id, &Wait { limit, query })).await?;
    let cursor = arguments.count("cursor")?.unwrap_or(read);
    let mut facts = execute::describe(
        ctx,
        &answer.record,
        ReadRange { cursor: Some(cursor), budget, ..ReadRange::default() },
        None,
    )
    .await?;
    // Omit `ended_before` if the call waited for the exit, a quiet period or a prompt: the outcome already says that
    // the process ended.
    let waits_for_more = matches!(until.as_deref(), Some("match" | "port" | "ready"));
    facts.reason = Some(answer.reason).filter(|reason| waits_for_more || *reason != WaitReason::EndedBefore);
    facts.port = answer.port.or(facts.port);
    facts.matched = answer.matched.map(|line| Line {
        cursor: answer.cursor,
        line: facts::clip(&facts::printable(&line), 1000),
        context: false,
    });
    facts.notes.extend(note);
    if answer.reason == WaitReason::Timeout {
        facts.notes.extend(limit_note);
    }
    Ok(Answer::for_process(ctx, facts, &answer.record))
}

async fn many(
    ctx: &CallContext<'_>,
    arguments: &Arguments,
    ids: Vec<String>,
    (limit, limit_note): (Duration, Option<String>),
) -> Result<Answer, ToolError> {
    let until = arguments.one_of("until", UNTIL)?.unwrap_or_else(|| "exit".into());
    if !UNTIL_FOR_MANY.contains(&until.as_str())
        || arguments.raw("pattern").is_some()
        || arguments.raw("port").is_some()
    {
        return Err(arguments.invalid("with several ids, `until` must be exit, finished or closed"));
    }
    let mode = match arguments.one_of("mode", &["any", "all"])?.as_deref() {
        Some("all") => WaitMode::All,
        _ => WaitMode::Any,
    };
    // These may be names. A name claims nothing, so the end of that process may be reported twice.
    ids.iter().for_each(|id| ctx.claim.waits_for(id));
    let request = WaitManyRequest { ids, mode: Some(mode), until: Some(until), timeout: None };
    let waited = ctx.await_with_progress("them", wait_many_with_deadline(ctx, &request, limit)).await?;
    let mut answer = Answer::default();
    for (key, records) in [("done", &waited.done), ("pending", &waited.pending)] {
        let mut list = Vec::new();
        for record in records {
            let cursor = ctx.read_positions.cursor(&ctx.caller.owner, &record.id);
            let facts = compact::for_caller(
                Facts { cursor: Some(cursor), ..Facts::from_record(record) },
                record,
                &ctx.caller.owner,
            );
            answer.shown.push(Shown::from_record(record));
            list.push(Value::Object(object(&facts)));
        }
        answer.facts.insert(key.into(), list.into());
    }
    answer.facts.insert("reason".into(), serde_json::to_value(waited.reason).unwrap_or_default());
    let notes: Vec<String> = limit_note.into_iter().filter(|_| waited.reason == WaitReason::Timeout).collect();
    if !notes.is_empty() {
        answer.facts.insert("notes".into(), notes.into());
    }
    Ok(answer)
}

fn query(arguments: &Arguments) -> Result<WaitQuery, ToolError> {
    let pattern = arguments.text("pattern")?;
    let port = match arguments.count("port")? {
        None => None,
        Some(port) => {
            let port = u16::try_from(port).map_err(|_| arguments.invalid(format!("`port`: {port} is no TCP port")))?;
            Some(port)
        }
    };
    let quiet = arguments.duration_text("quiet")?;
    let until = match arguments.one_of("until", UNTIL)? {
        Some(until) => until,
        None if pattern.is_some() => "match".into(),
        None if port.is_some() => "port".into(),
        None if quiet.is_some() => "quiet".into(),
        None => "exit".into(),
    };
    if until == "match" && pattern.is_none() {
        return Err(arguments.invalid("`pattern` is missing: give a regex"));
    }
    let cursor = arguments.count("cursor")?;
    Ok(WaitQuery { until: Some(until), timeout: None, cursor, pattern, exclude: None, port, quiet })
}

/// Waits until the deadline, and continues the wait if the daemon restarts.
pub(crate) async fn wait_with_deadline(ctx: &CallContext<'_>, id: &str, wait: &Wait) -> Result<WaitAnswer, ToolError> {
    let deadline = Instant::now() + wait.limit;
    loop {
        let ask = |client: pinfold_api::client::Client| async move {
            let query = WaitQuery { timeout: Some(next_timeout(deadline)), ..wait.query.clone() };
            client.wait(id, &query).await
        };
        let answer = ctx.daemon.retry(ask).await?;
        if answer.reason != WaitReason::Timeout || Instant::now() >= deadline {
            return Ok(answer);
        }
    }
}

async fn wait_many_with_deadline(
    ctx: &CallContext<'_>,
    request: &WaitManyRequest,
    limit: Duration,
) -> Result<WaitManyAnswer, ToolError> {
    let deadline = Instant::now() + limit;
    loop {
        let ask = |client: pinfold_api::client::Client| async move {
            let request = WaitManyRequest { timeout: Some(Span::Text(next_timeout(deadline))), ..request.clone() };
            client.wait_many(&request).await
        };
        let answer = ctx.daemon.retry(ask).await?;
        if answer.reason != WaitReason::Timeout || Instant::now() >= deadline {
            return Ok(answer);
        }
    }
}

/// The timeout of the next request.
fn next_timeout(deadline: Instant) -> String {
    let remaining = deadline.saturating_duration_since(Instant::now()).min(MAX_REQUEST_WAIT);
    format!("{}ms", remaining.as_millis())
}

/// Fetches the current record.
pub(super) async fn record(ctx: &CallContext<'_>, id: &str) -> Result<Record, ToolError> {
    ctx.daemon.retry(|client| async move { client.show(id).await }).await
}
