//! `process_output`: waits for a process, and returns its output.

use std::time::Duration;

use pinfold_api::types::Record;

use super::execute::wait;
use super::result::CommandResult;
use super::{duration, invalid, tool_error};
use crate::arguments::Arguments;
use crate::facts;
use crate::tool_error::ToolError;
use crate::tools::{Answer, CallContext};

/// Default wait.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let id = arguments.text("process_id").map_err(invalid)?.unwrap_or_default();
    let timeout = arguments.text("wait_timeout").map_err(invalid)?;
    if id.is_empty() {
        return Err(tool_error("process_id is required"));
    }
    let limit = match timeout {
        None => DEFAULT_WAIT,
        Some(text) => {
            let span =
                duration::parse(&text).map_err(|bad| tool_error(format!("invalid wait_timeout {text:?}: {bad}")))?;
            span.to_duration()
        }
    };
    match read(ctx, &id, limit).await {
        Err(error) if error.code != "cancelled" => {
            let error = format!("get process output: {}", error.message);
            let result = CommandResult { background_process_id: Some(id), ..CommandResult::failure(error) };
            Ok(result.answer())
        }
        answer => answer,
    }
}

async fn read(ctx: &CallContext<'_>, id: &str, limit: Duration) -> Result<Answer, ToolError> {
    let (limit, _) = ctx.wait_limit(Some(limit));
    let mut record = ctx.daemon.retry(|client| async move { client.show(id).await }).await?;
    if !facts::has_ended(&record) && !limit.is_zero() {
        let waited = wait(ctx, &record.id, limit).await;
        record = match waited {
            Ok(answer) => answer.record,
            Err(error) if error.code == "cancelled" => return Err(error),
            Err(_) => ctx.daemon.retry(|client| async move { client.show(id).await }).await?,
        };
    }
    let result = result(&record).with_output(&ctx.daemon, &record).await?;
    Ok(result.showing(&record))
}

fn result(record: &Record) -> CommandResult {
    let command = Some(record.command.clone());
    if facts::has_ended(record) {
        return CommandResult { command, ..CommandResult::ended(record) };
    }
    CommandResult {
        success: true,
        running: Some(true),
        note: Some("process is still running".to_owned()),
        command,
        state: Some(record.status.name()),
        reason: Some("timeout".to_owned()),
        ..CommandResult::default()
    }
}
