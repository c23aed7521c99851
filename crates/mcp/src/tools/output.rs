//! `process_output`: read on, read a place, search.

use pinfold_api::types::OutputQuery;
use serde_json::Value;

use super::{Answer, CallContext, execute};
use crate::arguments::Arguments;
use crate::facts::{self, Facts};
use crate::tool_error::ToolError;
use crate::view::{self, Look};

/// A right call.
pub(super) const RIGHT: &str = r#"process_output {"id":"k3v9x2"}"#;

/// After this many reads in a row that brought nothing, a wait is pointed out.
const EMPTY_READS_BEFORE_HINT: u32 = 3;
/// How much a search shows unless it says so.
const SEARCH: u64 = 8 << 10;

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let id = arguments.required("id")?;
    let (budget, note) = view::budget(arguments)?;
    let (cursor, tail) = (arguments.count("cursor")?, tail(arguments)?);
    if cursor.is_some() && tail.is_some() {
        return Err(arguments.refuse("give `cursor` or `tail`, not both"));
    }
    let screen = arguments.flag("screen")?;
    let stream = arguments.word("stream", &["stdout", "stderr"])?;
    let grep = arguments.text("grep")?;
    let context = arguments.count("context")?.map(|lines| u32::try_from(lines).unwrap_or(u32::MAX));
    let record = {
        let id = id.as_str();
        ctx.daemon.ask(|client| async move { client.show(id).await }).await?
    };
    if screen {
        let (id, facts) = (record.id.as_str(), Facts::of(&record));
        let shown = ctx.daemon.ask(|client| async move { client.screen(id).await }).await?;
        let cursor = ctx.memory.cursor(&ctx.caller.owner, id);
        return Ok(Answer::of(ctx, Facts { cursor: Some(cursor), ..facts.showing(&shown) }, &record));
    }
    if grep.is_some() {
        let budget = Some(budget.unwrap_or(SEARCH).to_string());
        let query = OutputQuery { cursor, tail, grep, context, stream, budget, ..OutputQuery::default() };
        let page = view::ask(&ctx.daemon, &record.id, &query).await?;
        let mut facts = Facts::of(&record).seen(facts::sight(&page, cursor));
        facts.notes.extend(page.hint);
        facts.notes.extend(note);
        return Ok(Answer::of(ctx, facts, &record));
    }
    let (owner, id) = (&ctx.caller.owner, &record.id);
    let before = ctx.memory.cursor(owner, id);
    let from = if tail.is_some() { None } else { cursor.or(Some(before)) };
    let mut facts = execute::describe(ctx, &record, Look { cursor: from, tail, budget, stream }).await?;
    if !facts::is_over(&record) && facts.cursor.is_none_or(|cursor| cursor <= before) {
        let empty = ctx.memory.read_nothing(owner, id);
        facts.notes.extend((empty >= EMPTY_READS_BEFORE_HINT).then(|| format!(
            "{empty} reads in a row brought nothing: process_wait {{\"id\":\"{id}\",\"until\":\"output\"}} returns when \
             there is more, process_wait {{\"id\":\"{id}\"}} when it ends"
        )));
    }
    facts.notes.extend(note);
    Ok(Answer::of(ctx, facts, &record))
}

/// A number is lines.
fn tail(arguments: &Arguments) -> Result<Option<String>, ToolError> {
    match arguments.raw("tail") {
        None => Ok(None),
        Some(Value::String(text)) => match text.trim().parse::<u64>() {
            Ok(lines) => Ok(Some(format!("{lines} lines"))),
            Err(_) => Ok(Some(text.clone())),
        },
        Some(_) => Ok(arguments.count("tail")?.map(|lines| format!("{lines} lines"))),
    }
}
