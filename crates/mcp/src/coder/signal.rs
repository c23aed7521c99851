//! `process_signal`: sends `terminate` or `kill` to a process and all its descendants.

use pinfold_api::input::Span;
use pinfold_api::types::{SignalRequest, StopRequest};
use serde_json::json;

use super::result::CommandResult;
use super::{invalid, tool_error};
use crate::arguments::Arguments;
use crate::tool_error::ToolError;
use crate::tools::{Answer, CallContext};

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let id = arguments.text("process_id").map_err(invalid)?.unwrap_or_default();
    let signal = arguments.text("signal").map_err(invalid)?.unwrap_or_default();
    if id.is_empty() {
        return Err(tool_error("process_id is required"));
    }
    let sent = match signal.as_str() {
        "terminate" => ctx.await_with_progress(&id, terminate(ctx, &id)).await,
        "kill" => ctx.await_with_progress(&id, kill(ctx, &id)).await,
        _ => return Err(tool_error("signal must be \"terminate\" or \"kill\"")),
    };
    match sent {
        Ok(()) => {
            let mut answer = Answer::default();
            let message = format!("signal {signal:?} sent to process {id}");
            answer.facts.insert("success".into(), true.into());
            answer.facts.insert("message".into(), json!(message));
            Ok(answer)
        }
        Err(error) if error.code == "cancelled" => Err(error),
        Err(error) => Ok(CommandResult::failure(format!("signal process: {}", error.message)).answer()),
    }
}

/// Sends SIGTERM, without retrying: many programs react differently to a second signal.
async fn terminate(ctx: &CallContext<'_>, id: &str) -> Result<(), ToolError> {
    ctx.daemon.retry(|client| async move { client.show(id).await }).await?;
    let request = SignalRequest { signal: "TERM".to_owned(), by: Some(ctx.caller.owner.clone()) };
    ctx.daemon.client().signal(id, &request).await?;
    Ok(())
}

/// Kills the process and all its descendants.
async fn kill(ctx: &CallContext<'_>, id: &str) -> Result<(), ToolError> {
    let by = Some(ctx.caller.owner.clone());
    let request = StopRequest { signal: Some("KILL".to_owned()), grace: Some(Span::Text("0s".to_owned())), by };
    let request = &request;
    let answer = ctx.daemon.retry(|client| async move { client.stop(id, request).await }).await?;
    match answer.survivors.first() {
        _ if answer.already_over => Err(ToolError::invalid(format!("Process {id:?} is not running."))),
        Some(survivor) => Err(ToolError::internal(format!("{} (pid {})", survivor.reason, survivor.pid))),
        None => Ok(()),
    }
}
