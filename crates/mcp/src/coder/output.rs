//! `process_output`: wait for a process a while, and read it.

use std::time::Duration;

use pinfold_api::types::Record;

use super::execute::wait;
use super::result::Outcomes;
use super::{duration, invalid, plain};
use crate::arguments::Arguments;
use crate::facts;
use crate::tool_error::ToolError;
use crate::tools::{Answer, CallContext};

/// How long it waits unless it is told.
const WAIT: Duration = Duration::from_secs(10);

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let id = arguments.text("process_id").map_err(invalid)?.unwrap_or_default();
    let timeout = arguments.text("wait_timeout").map_err(invalid)?;
    if id.is_empty() {
        return Err(plain("process_id is required"));
    }
    let limit = match timeout {
        None => WAIT,
        Some(text) => {
            let span = duration::parse(&text).map_err(|bad| plain(format!("invalid wait_timeout {text:?}: {bad}")))?;
            span.length()
        }
    };
    match read(ctx, &id, limit).await {
        Err(refusal) if refusal.code != "cancelled" => {
            let error = format!("get process output: {}", refusal.message);
            let outcomes = Outcomes { background_process_id: Some(id), ..Outcomes::failure(error) };
            Ok(outcomes.answer())
        }
        answer => answer,
    }
}

async fn read(ctx: &CallContext<'_>, id: &str, limit: Duration) -> Result<Answer, ToolError> {
    let (patience, _) = ctx.wait_limit(Some(limit));
    let mut record = ctx.daemon.ask(|client| async move { client.show(id).await }).await?;
    if !facts::is_over(&record) && !patience.is_zero() {
        let waited = wait(ctx, &record.id, patience).await;
        record = match waited {
            Ok(answer) => answer.record,
            Err(refusal) if refusal.code == "cancelled" => return Err(refusal),
            Err(_) => ctx.daemon.ask(|client| async move { client.show(id).await }).await?,
        };
    }
    let outcomes = outcomes(&record).with_output(&ctx.daemon, &record).await?;
    Ok(outcomes.showing(&record))
}

fn outcomes(record: &Record) -> Outcomes {
    let command = Some(record.command.clone());
    if facts::is_over(record) {
        return Outcomes { command, ..Outcomes::over(record) };
    }
    Outcomes {
        success: true,
        running: Some(true),
        note: Some("process is still running".to_owned()),
        command,
        state: Some(super::result::state(record)),
        reason: Some("timeout".to_owned()),
        ..Outcomes::default()
    }
}
