//! `process_output`: reads new output, reads a range, or searches.

use pinfold_api::types::OutputQuery;
use serde_json::Value;

use super::{Answer, CallContext, execute};
use crate::arguments::Arguments;
use crate::facts::{self, Facts};
use crate::tool_error::ToolError;
use crate::view::{self, ReadRange};

/// An example of a correct call.
pub(super) const EXAMPLE: &str = r#"process_output {"id":"k3v9x2"}"#;

/// After this many reads in a row without new output, a note suggests process_wait.
const EMPTY_READS_BEFORE_HINT: u32 = 3;
/// Default output budget of a search.
const SEARCH_BUDGET: u64 = 8 << 10;

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let id = arguments.required("id")?;
    let (budget, note) = view::budget(arguments)?;
    let (cursor, tail) = (arguments.count("cursor")?, tail(arguments)?);
    if cursor.is_some() && tail.is_some() {
        return Err(arguments.invalid("give `cursor` or `tail`, not both"));
    }
    let screen = arguments.flag("screen")?;
    let stream = arguments.one_of("stream", &["stdout", "stderr"])?;
    let grep = arguments.text("grep")?;
    let context = arguments.count("context")?.map(|lines| u32::try_from(lines).unwrap_or(u32::MAX));
    let record = {
        let id = id.as_str();
        ctx.daemon.retry(|client| async move { client.show(id).await }).await?
    };
    if screen {
        let (id, facts) = (record.id.as_str(), Facts::from_record(&record));
        let shown = ctx.daemon.retry(|client| async move { client.screen(id).await }).await?;
        let cursor = ctx.read_positions.cursor(&ctx.caller.owner, id);
        return Ok(Answer::for_process(ctx, Facts { cursor: Some(cursor), ..facts.with_screen(&shown) }, &record));
    }
    if grep.is_some() {
        let budget = Some(budget.unwrap_or(SEARCH_BUDGET).to_string());
        let query = OutputQuery { cursor, tail, grep, context, stream, budget, ..OutputQuery::default() };
        let page = view::fetch_page(&ctx.daemon, &record.id, &query).await?;
        let mut facts = Facts::from_record(&record).with_output(facts::output_view(&page, cursor));
        facts.notes.extend(page.hint);
        facts.notes.extend(note);
        return Ok(Answer::for_process(ctx, facts, &record));
    }
    let (owner, id) = (&ctx.caller.owner, &record.id);
    let before = ctx.read_positions.cursor(owner, id);
    let from = if tail.is_some() { None } else { cursor.or(Some(before)) };
    let mut facts = execute::describe(ctx, &record, ReadRange { cursor: from, tail, budget, stream }, None).await?;
    if !facts::has_ended(&record) && facts.cursor.is_none_or(|cursor| cursor <= before) {
        let empty = ctx.read_positions.record_empty_read(owner, id);
        facts.notes.extend((empty >= EMPTY_READS_BEFORE_HINT).then(|| {
            format!(
                "{empty} reads without new output: process_wait {{\"id\":\"{id}\",\"until\":\"output\"}} returns when \
             there is more, process_wait {{\"id\":\"{id}\"}} when it ends"
            )
        }));
    }
    facts.notes.extend(note);
    Ok(Answer::for_process(ctx, facts, &record))
}

/// A bare number means lines.
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
