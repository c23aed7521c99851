//! `process_list`: lists all live processes, and the newest that ended recently.

use std::time::Duration;

use pinfold_api::types::{ListQuery, ProcessList, Record};
use serde::Serialize;
use serde_json::Value;

use super::BACKGROUND_LABEL;
use super::result::{CommandResult, code, reason};
use crate::facts;
use crate::tool_error::ToolError;
use crate::tools::{Answer, CallContext, Shown, object};

/// Maximum number of ended processes; live ones are always listed.
const MAX_ENDED: usize = 10;
/// How long an ended process stays listed.
const LISTED_FOR: Duration = Duration::from_secs(300);
/// Page size of the requests.
const PAGE_SIZE: u32 = 500;

#[derive(Serialize)]
struct Info {
    id: String,
    command: String,
    workdir: String,
    background: bool,
    running: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    started_at_unix: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    exited_at_unix: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    closed: bool,
}

pub(super) async fn call(ctx: &CallContext<'_>) -> Result<Answer, ToolError> {
    match records(ctx).await {
        Ok((records, total)) => Ok(answer(&records, total)),
        Err(error) if error.code == "cancelled" => Err(error),
        Err(error) => Ok(CommandResult::failure(format!("list processes: {}", error.message)).answer()),
    }
}

/// Returns the records to list, in order, and their total number.
async fn records(ctx: &CallContext<'_>) -> Result<(Vec<Record>, usize), ToolError> {
    let mut records = Vec::new();
    let mut page = None;
    loop {
        let status = Some("live".to_owned());
        let list = fetch(ctx, ListQuery { status, limit: Some(PAGE_SIZE), page, ..ListQuery::default() }).await?;
        records.extend(list.processes);
        page = list.next;
        if page.is_none() {
            break;
        }
    }
    let status = Some("ended".to_owned());
    let ended = fetch(ctx, ListQuery { status, limit: Some(PAGE_SIZE), ..ListQuery::default() }).await?;
    let since = jiff::Timestamp::now().as_second() - LISTED_FOR.as_secs() as i64;
    let live: Vec<String> = records.iter().map(|record: &Record| record.id.clone()).collect();
    let lately = |record: &Record| ended_at(record).is_some_and(|at| at >= since) && !live.contains(&record.id);
    let ended: Vec<Record> = ended.processes.into_iter().filter(lately).collect();
    let total = records.len() + ended.len();
    records.extend(ended.into_iter().take(MAX_ENDED));
    records.sort_by(|one, other| {
        let running = |record: &Record| !facts::has_ended(record);
        running(other).cmp(&running(one)).then_with(|| other.created_at.cmp(&one.created_at))
    });
    Ok((records, total))
}

async fn fetch(ctx: &CallContext<'_>, query: ListQuery) -> Result<ProcessList, ToolError> {
    let query = &query;
    ctx.daemon.retry(|client| async move { client.list(query).await }).await
}

fn answer(records: &[Record], total: usize) -> Answer {
    let mut answer = Answer::default();
    let list: Vec<Value> = records.iter().map(|record| Value::Object(object(&info(record)))).collect();
    answer.facts.insert("processes".into(), list.into());
    answer.facts.insert("total".into(), total.into());
    let shown = |record: &Record| Shown::from_record(record);
    answer.shown = records.iter().map(shown).collect();
    answer
}

fn info(record: &Record) -> Info {
    let ended = facts::has_ended(record);
    let (exit_code, signal) = code(record);
    Info {
        id: record.id.clone(),
        command: record.command.clone(),
        workdir: record.cwd.clone(),
        background: record.labels.get(BACKGROUND_LABEL).is_some_and(|background| background == "true"),
        running: !ended,
        exit_code: ended.then_some(exit_code),
        started_at_unix: record.started_at.as_deref().and_then(unix).or_else(|| unix(&record.created_at)).unwrap_or(0),
        exited_at_unix: ended_at(record),
        pid: record.pid.filter(|_| record.finished_at.is_none()),
        state: record.status.name(),
        signal: signal.filter(|_| ended),
        reason: reason(record).filter(|_| ended),
        closed: record.output.closed,
    }
}

fn ended_at(record: &Record) -> Option<i64> {
    record.exited_at.as_deref().or(record.finished_at.as_deref()).and_then(unix)
}

fn unix(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}
