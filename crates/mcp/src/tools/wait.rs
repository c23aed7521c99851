//! `process_wait`: until something happens to one process, or to any or all of many.

use std::time::{Duration, Instant};

use pinfold_api::input::Span;
use pinfold_api::types::{Record, WaitAnswer, WaitManyAnswer, WaitManyRequest, WaitMode, WaitQuery, WaitReason};
use serde_json::Value;

use super::{Answer, CallContext, Shown, execute, object};
use crate::arguments::Arguments;
use crate::brief;
use crate::facts::{self, Facts, Line};
use crate::tool_error::ToolError;
use crate::view::{self, Look};

/// A right call.
pub(super) const RIGHT: &str = r#"process_wait {"id":"k3v9x2","pattern":"listening on","timeout":"30s"}"#;

/// How long one request waits; a longer wait is several.
const ONE_REQUEST: Duration = Duration::from_secs(3600);
/// What a wait for many may be for.
const ENDS: &[&str] = &["exit", "finished", "closed"];
const UNTIL: &[&str] = &["exit", "finished", "closed", "output", "match", "port", "quiet", "ready", "input"];

/// A wait and how long it may take.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) limit: Duration,
    pub(crate) query: WaitQuery,
}

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let (limit, cut) = ctx.wait_limit(arguments.duration("timeout")?);
    let ids = arguments.texts("ids")?;
    let id = arguments.text("id")?;
    match (id, ids.as_slice()) {
        (Some(id), []) => one(ctx, arguments, &id, (limit, cut)).await,
        (None, [id]) => one(ctx, arguments, id, (limit, cut)).await,
        (None, [_, _, ..]) => many(ctx, arguments, ids, (limit, cut)).await,
        (Some(_), [_, ..]) => Err(arguments.refuse("give `id` or `ids`, not both")),
        (None, []) => Err(arguments.refuse("`id` is missing")),
    }
}

async fn one(
    ctx: &CallContext<'_>,
    arguments: &Arguments,
    id: &str,
    (limit, cut): (Duration, Option<String>),
) -> Result<Answer, ToolError> {
    let mut query = query(arguments)?;
    let (budget, note) = view::budget(arguments)?;
    let record = ctx.daemon.ask(|client| async move { client.show(id).await }).await?;
    ctx.claim.waits_for(&record.id);
    let read = ctx.memory.cursor(&ctx.caller.owner, &record.id);
    if query.until.as_deref() == Some("output") {
        query.cursor = query.cursor.or(Some(read));
    }
    let until = query.until.clone();
    let answer = ctx.hold(&record.id, patiently(ctx, &record.id, &Wait { limit, query })).await?;
    let cursor = arguments.count("cursor")?.unwrap_or(read);
    let mut facts =
        execute::describe(ctx, &answer.record, Look { cursor: Some(cursor), budget, ..Look::default() }).await?;
    // Whoever waits for an end, a pause or a question learns from the outcome that there is none to come.
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
        facts.notes.extend(cut);
    }
    Ok(Answer::of(ctx, facts, &answer.record))
}

async fn many(
    ctx: &CallContext<'_>,
    arguments: &Arguments,
    ids: Vec<String>,
    (limit, cut): (Duration, Option<String>),
) -> Result<Answer, ToolError> {
    let until = arguments.word("until", UNTIL)?.unwrap_or_else(|| "exit".into());
    if !ENDS.contains(&until.as_str()) || arguments.raw("pattern").is_some() || arguments.raw("port").is_some() {
        return Err(arguments.refuse("of several only the end can be waited for: until exit, finished or closed"));
    }
    let mode = match arguments.word("mode", &["any", "all"])?.as_deref() {
        Some("all") => WaitMode::All,
        _ => WaitMode::Any,
    };
    // By id or name as they were given: a name that is not an id claims nothing, and its end may be told twice.
    ids.iter().for_each(|id| ctx.claim.waits_for(id));
    let request = WaitManyRequest { ids, mode: Some(mode), until: Some(until), timeout: None };
    let answer = ctx.hold("them", all_patiently(ctx, &request, limit)).await?;
    let mut told = Answer::default();
    for (key, records) in [("done", &answer.done), ("pending", &answer.pending)] {
        let mut list = Vec::new();
        for record in records {
            let cursor = ctx.memory.cursor(&ctx.caller.owner, &record.id);
            let facts = brief::brief(Facts { cursor: Some(cursor), ..Facts::of(record) }, record, &ctx.caller.owner);
            told.shown.push(Shown::of(record));
            list.push(Value::Object(object(&facts)));
        }
        told.facts.insert(key.into(), list.into());
    }
    told.facts.insert("reason".into(), serde_json::to_value(answer.reason).unwrap_or_default());
    let notes: Vec<String> = cut.into_iter().filter(|_| answer.reason == WaitReason::Timeout).collect();
    if !notes.is_empty() {
        told.facts.insert("notes".into(), notes.into());
    }
    Ok(told)
}

fn query(arguments: &Arguments) -> Result<WaitQuery, ToolError> {
    let pattern = arguments.text("pattern")?;
    let port = match arguments.count("port")? {
        None => None,
        Some(port) => {
            let port = u16::try_from(port).map_err(|_| arguments.refuse(format!("`port`: {port} is no TCP port")))?;
            Some(port)
        }
    };
    let quiet = arguments.span("quiet")?;
    let until = match arguments.word("until", UNTIL)? {
        Some(until) => until,
        None if pattern.is_some() => "match".into(),
        None if port.is_some() => "port".into(),
        None if quiet.is_some() => "quiet".into(),
        None => "exit".into(),
    };
    if until == "match" && pattern.is_none() {
        return Err(arguments.refuse("`pattern` is missing: what is a line to match?"));
    }
    let cursor = arguments.count("cursor")?;
    Ok(WaitQuery { until: Some(until), timeout: None, cursor, pattern, exclude: None, port, quiet })
}

/// Waits as long as it may take, over daemons that come and go.
pub(crate) async fn patiently(ctx: &CallContext<'_>, id: &str, wait: &Wait) -> Result<WaitAnswer, ToolError> {
    let deadline = Instant::now() + wait.limit;
    loop {
        let ask = |client: pinfold_api::client::Client| async move {
            let query = WaitQuery { timeout: Some(part(deadline)), ..wait.query.clone() };
            client.wait(id, &query).await
        };
        let answer = ctx.daemon.ask(ask).await?;
        if answer.reason != WaitReason::Timeout || Instant::now() >= deadline {
            return Ok(answer);
        }
    }
}

async fn all_patiently(
    ctx: &CallContext<'_>,
    request: &WaitManyRequest,
    limit: Duration,
) -> Result<WaitManyAnswer, ToolError> {
    let deadline = Instant::now() + limit;
    loop {
        let ask = |client: pinfold_api::client::Client| async move {
            let request = WaitManyRequest { timeout: Some(Span::Text(part(deadline))), ..request.clone() };
            client.wait_many(&request).await
        };
        let answer = ctx.daemon.ask(ask).await?;
        if answer.reason != WaitReason::Timeout || Instant::now() >= deadline {
            return Ok(answer);
        }
    }
}

/// How long the next request waits.
fn part(deadline: Instant) -> String {
    let left = deadline.saturating_duration_since(Instant::now()).min(ONE_REQUEST);
    format!("{}ms", left.as_millis())
}

/// The record as it is now.
pub(super) async fn record(ctx: &CallContext<'_>, id: &str) -> Result<Record, ToolError> {
    ctx.daemon.ask(|client| async move { client.show(id).await }).await
}
