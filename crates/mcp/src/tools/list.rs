//! `process_list`: what an owner has, also when it forgot every id.

use pinfold_api::types::{LeftBehindList, ListQuery, ProcessList};
use serde_json::{Map, Value};

use super::{Answer, CallContext, Shown, object};
use crate::arguments::Arguments;
use crate::brief;
use crate::left_behind::{self, Adopt};
use crate::tool_error::ToolError;

/// A right call.
pub(super) const RIGHT: &str = r#"process_list {"status":"live"}"#;

/// One page; a hundred short entries fit a result.
const PAGE: u32 = 100;
/// How many that ended are listed unless all are asked for.
const RECENT: u32 = 10;

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let status = arguments.text("status")?;
    let (all, page) = (arguments.flag("all")?, arguments.text("page")?);
    let (adopted, notes) = match Adopt::of(arguments)? {
        Some(wanted) => left_behind::adopt(ctx, wanted).await?,
        None => (None, Vec::new()),
    };
    let left = if page.is_none() { left_behind::list(ctx).await } else { LeftBehindList::default() };
    let some = status.is_none() && !all && page.is_none();
    let live = if some { Some("live".to_owned()) } else { status.clone() };
    let list = ask(ctx, ListQuery { status: live, page, limit: Some(PAGE), ..ListQuery::default() }).await?;
    let mut records = list.processes;
    let mut total = list.total;
    if some {
        let ended = Some("finished,lost".to_owned());
        let query = ListQuery { status: ended, limit: Some(RECENT), ..ListQuery::default() };
        let ended = ask(ctx, query).await?;
        total += ended.total;
        if list.next.is_none() {
            records.extend(ended.processes);
        }
    }
    let mut answer = Answer::default();
    let mut entries = Vec::new();
    let owner = &ctx.caller.owner;
    for record in &records {
        let mut entry = object(&brief::listed(record, owner));
        entry.insert("output_bytes".into(), record.output.bytes.into());
        entries.push(Value::Object(entry));
        // Where news bring the last lines of output, an entry does not take their place.
        if !ctx.caller.is_one_chat {
            answer.shown.push(Shown::of(record));
        }
    }
    answer.facts = summary(entries, total, list.next, some);
    answer.facts.extend(adopted.map(|adopted| ("adopted".to_owned(), adopted.into())));
    left_behind::show(&left, &mut answer.facts);
    answer.add_notes(&notes);
    Ok(answer)
}

fn summary(entries: Vec<Value>, total: u64, next: Option<String>, some: bool) -> Map<String, Value> {
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
    } else if some && shown < total {
        let note = format!("{} more have ended: process_list {{\"all\":true}} lists them", total - shown);
        facts.insert("notes".into(), vec![note].into());
    }
    facts
}

async fn ask(ctx: &CallContext<'_>, query: ListQuery) -> Result<ProcessList, ToolError> {
    let query = &query;
    let list = ctx.daemon.ask(|client| async move { client.list(query).await }).await;
    list.map_err(|refusal| if refusal.code == "invalid_request" { refusal.show(RIGHT) } else { refusal })
}
