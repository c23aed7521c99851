//! `process_signal`: stop a whole tree, or signal it.

use std::time::Duration;

use pinfold_api::input::Span;
use pinfold_api::types::{SignalRequest, StopRequest};

use super::{Answer, CallContext, execute, wait};
use crate::arguments::Arguments;
use crate::facts;
use crate::tool_error::ToolError;
use crate::view::Look;

/// A right call.
pub(super) const RIGHT: &str = r#"process_signal {"id":"k3v9x2","signal":"stop","grace":"5s"}"#;

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let id = arguments.required("id")?;
    let signal = arguments.text("signal")?.filter(|signal| !signal.eq_ignore_ascii_case("stop"));
    let grace = arguments.span("grace")?;
    match signal {
        None => stop(ctx, &id, grace).await,
        Some(_) if grace.is_some() => Err(arguments.refuse("`grace` belongs to a stop: leave `signal` out")),
        Some(signal) => send(ctx, &id, &signal).await,
    }
}

/// A stop that has begun goes on, also when nobody waits for it.
async fn stop(ctx: &CallContext<'_>, id: &str, grace: Option<String>) -> Result<Answer, ToolError> {
    let (limit, _) = ctx.wait_limit(Some(Duration::MAX));
    let request = StopRequest { signal: None, grace: grace.map(Span::Text), by: Some(ctx.caller.owner.clone()) };
    let request = &request;
    let stopping = ctx.daemon.ask(|client| async move { client.stop(id, request).await });
    let stopping = async {
        match tokio::time::timeout(limit, stopping).await {
            Ok(answer) => answer.map(Some),
            Err(_) => Ok(None),
        }
    };
    let answer = ctx.hold(id, stopping).await?;
    let record = match &answer {
        Some(answer) => answer.record.clone(),
        None => wait::record(ctx, id).await?,
    };
    let from = ctx.memory.cursor(&ctx.caller.owner, &record.id);
    let mut facts = execute::describe(ctx, &record, Look { cursor: Some(from), ..Look::default() }).await?;
    if let Some(sight) = &mut facts.sight {
        // Nobody stops a process to read it: only what came since the last read is worth showing.
        sight.output = sight.output.take().filter(|output| !output.is_empty());
    }
    match &answer {
        None => facts.notes.push(format!("the stop goes on: process_wait {{\"id\":\"{}\"}} sees its end", record.id)),
        Some(answer) if answer.already_over => facts.notes.push("it was over before: nothing was left to stop".into()),
        Some(answer) => {
            facts.survivors = facts::survivors(&answer.survivors);
            facts.notes.push(match answer.survivors.is_empty() {
                true => "stopped: its whole tree is gone".into(),
                false => "not everything could be ended: see survivors".into(),
            });
        }
    }
    Ok(Answer::of(ctx, facts, &record))
}

/// A signal is sent once: a second time may mean something else.
async fn send(ctx: &CallContext<'_>, id: &str, signal: &str) -> Result<Answer, ToolError> {
    // Asked for first, so that the daemon is there and the signal need not be repeated.
    let record = wait::record(ctx, id).await?;
    let request = SignalRequest { signal: signal.to_owned(), by: Some(ctx.caller.owner.clone()) };
    let answer = ctx.daemon.client().signal(&record.id, &request).await.map_err(ToolError::from);
    let answer = answer.map_err(|refusal| refusal.show(RIGHT))?;
    let from = ctx.memory.cursor(&ctx.caller.owner, &record.id);
    let look = Look { cursor: Some(from), ..Look::default() };
    let mut facts = execute::describe(ctx, &answer.record, look).await?;
    facts.reached = Some(answer.reached);
    if !answer.refused.is_empty() {
        facts.survivors = facts::survivors(&answer.refused);
        facts.notes.push("the signal did not reach those under survivors".into());
    }
    Ok(Answer::of(ctx, facts, &answer.record))
}
