//! `process_signal`: stops a process with all its descendants, or sends them a signal.

use std::time::Duration;

use pinfold_api::input::Span;
use pinfold_api::types::{SignalRequest, StopRequest};

use super::{Answer, CallContext, execute, wait};
use crate::arguments::Arguments;
use crate::facts;
use crate::tool_error::ToolError;
use crate::view::ReadRange;

/// An example of a correct call.
pub(super) const EXAMPLE: &str = r#"process_signal {"id":"k3v9x2","signal":"stop","grace":"5s"}"#;

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let id = arguments.required("id")?;
    let signal = arguments.text("signal")?.filter(|signal| !signal.eq_ignore_ascii_case("stop"));
    let grace = arguments.duration_text("grace")?;
    match signal {
        None => stop(ctx, &id, grace).await,
        Some(_) if grace.is_some() => Err(arguments.invalid("`grace` belongs to a stop: leave `signal` out")),
        Some(signal) => send(ctx, &id, &signal).await,
    }
}

/// Stops the process. The stop continues if the call is cancelled.
async fn stop(ctx: &CallContext<'_>, id: &str, grace: Option<String>) -> Result<Answer, ToolError> {
    let (limit, _) = ctx.wait_limit(Some(Duration::MAX));
    let request = StopRequest { signal: None, grace: grace.map(Span::Text), by: Some(ctx.caller.owner.clone()) };
    let request = &request;
    let stopping = ctx.daemon.retry(|client| async move { client.stop(id, request).await });
    let stopping = async {
        match tokio::time::timeout(limit, stopping).await {
            Ok(answer) => answer.map(Some),
            Err(_) => Ok(None),
        }
    };
    let answer = ctx.await_with_progress(id, stopping).await?;
    let record = match &answer {
        Some(answer) => answer.record.clone(),
        None => wait::record(ctx, id).await?,
    };
    let from = ctx.read_positions.cursor(&ctx.caller.owner, &record.id);
    let mut facts =
        execute::describe(ctx, &record, ReadRange { cursor: Some(from), ..ReadRange::default() }, None).await?;
    // Shows output since the last read; empty output is omitted.
    facts.drop_empty_output();
    match &answer {
        None => facts.notes.push(format!("still stopping: process_wait {{\"id\":\"{}\"}} waits for it", record.id)),
        Some(answer) if answer.already_over => {
            facts.notes.push("it had already ended: there was nothing to stop".into())
        }
        Some(answer) => {
            facts.survivors = facts::survivors(&answer.survivors);
            facts.notes.push(match answer.survivors.is_empty() {
                true => "stopped: its whole tree is gone".into(),
                false => "not everything could be ended: see survivors".into(),
            });
        }
    }
    Ok(Answer::for_process(ctx, facts, &record))
}

/// Sends a signal, without retrying: many programs react differently to a second signal.
async fn send(ctx: &CallContext<'_>, id: &str, signal: &str) -> Result<Answer, ToolError> {
    // Fetch the record first, which starts the daemon if necessary, since the signal itself is not retried.
    let record = wait::record(ctx, id).await?;
    let request = SignalRequest { signal: signal.to_owned(), by: Some(ctx.caller.owner.clone()) };
    let answer = ctx.daemon.client().signal(&record.id, &request).await.map_err(ToolError::from);
    let answer = answer.map_err(|error| error.with_example(EXAMPLE))?;
    let from = ctx.read_positions.cursor(&ctx.caller.owner, &record.id);
    let range = ReadRange { cursor: Some(from), ..ReadRange::default() };
    let mut facts = execute::describe(ctx, &answer.record, range, None).await?;
    facts.reached = Some(answer.reached);
    if !answer.refused.is_empty() {
        facts.survivors = facts::survivors(&answer.refused);
        facts.notes.push("the signal did not reach those under survivors".into());
    }
    Ok(Answer::for_process(ctx, facts, &answer.record))
}
