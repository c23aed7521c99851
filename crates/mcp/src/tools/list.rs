//! `process_list`: lists the owner's processes.

use pinfold_api::types::{LeftBehindList, ListQuery, ProcessList};
use serde_json::{Map, Value};

use super::{Answer, CallContext, Shown, object};
use crate::arguments::Arguments;
use crate::compact;
use crate::left_behind::{self, Adopt};
use crate::tool_error::ToolError;

/// An example of a correct call.
pub(super) const EXAMPLE: &str = r#"process_list {"status":"live"}"#;

/// Entries per page: a hundred short ones fit into one result.
const PAGE_SIZE: u32 = 100;
/// Number of ended processes listed without `all`.
const MAX_RECENT: u32 = 10;

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let status = arguments.text("status")?;
    let (all, page) = (arguments.flag("all")?, arguments.text("page")?);
    let (adopted, notes) = match Adopt::parse(arguments)? {
        Some(wanted) => left_behind::adopt(ctx, wanted).await?,
        None => (None, Vec::new()),
    };
    let left = if page.is_none() { left_behind::list(ctx).await } else { LeftBehindList::default() };
    let is_default_view = status.is_none() && !all && page.is_none();
    let live = if is_default_view { Some("live".to_owned()) } else { status.clone() };
    let list = fetch(ctx, ListQuery { status: live, page, limit: Some(PAGE_SIZE), ..ListQuery::default() }).await?;
    let mut records = list.processes;
    let mut total = list.total;
    if is_default_view {
        let ended = Some("finished,lost".to_owned());
        let query = ListQuery { status: ended, limit: Some(MAX_RECENT), ..ListQuery::default() };
        let ended = fetch(ctx, query).await?;
        total += ended.total;
        if list.next.is_none() {
            records.extend(ended.processes);
        }
    }
    let mut answer = Answer::default();
    let mut entries = Vec::new();
    let owner = &ctx.caller.owner;
    for record in &records {
        let mut entry = object(&compact::list_entry(record, owner));
        entry.insert("output_bytes".into(), record.output.bytes.into());
        entries.push(Value::Object(entry));
        // If the owner is one chat, its news include the last lines of output, so a list entry does not replace them.
        if !ctx.caller.is_one_chat {
            answer.shown.push(Shown::from_record(record));
        }
    }
    answer.facts = summary(entries, total, list.next, is_default_view);
    answer.facts.extend(adopted.map(|adopted| ("adopted".to_owned(), adopted.into())));
    left_behind::add_to(&left, &mut answer.facts);
    answer.add_notes(&notes);
    Ok(answer)
}

fn summary(entries: Vec<Value>, total: u64, next: Option<String>, is_default_view: bool) -> Map<String, Value> {
    let mut facts = Map::new();
    let (shown, more) = (entries.len() as u64, next.is_some());
    facts.insert("processes".into(), entries.into());
    facts.insert("total".into(), total.into());
    if let Some(next) = next {
        facts.insert("next".into(), next.clone().into());
    }
    if more {
        facts.insert(
            "notes".into(),
            vec!["there are more: give `next` as `page`, with the same status".to_owned()].into(),
        );
    } else if is_default_view && shown < total {
        let note = format!("{} more have ended: process_list {{\"all\":true}} lists them", total - shown);
        facts.insert("notes".into(), vec![note].into());
    }
    facts
}

async fn fetch(ctx: &CallContext<'_>, query: ListQuery) -> Result<ProcessList, ToolError> {
    let query = &query;
    let list = ctx.daemon.retry(|client| async move { client.list(query).await }).await;
    list.map_err(|error| if error.code == "invalid_request" { error.with_example(EXAMPLE) } else { error })
}
