//! `process_input`: sends text, keys or end of input to a process, and returns its reaction.

use std::time::Duration;

use pinfold_api::types::{InputAnswer, InputRequest, Record, WaitAnswer, WaitQuery, WaitReason};

use super::wait::{self, Wait};
use super::{Answer, CallContext, execute};
use crate::arguments::Arguments;
use crate::random;
use crate::tool_error::ToolError;
use crate::view::{self, ReadRange};

/// An example of a correct call.
pub(super) const EXAMPLE: &str = r#"process_input {"id":"k3v9x2","text":"print(6 * 7)","keys":["enter"]}"#;
/// An example that starts a process with stdin.
const STDIN_EXAMPLE: &str = r#"execute {"command":"python3 -iq","stdin":true,"background":true}"#;

/// Default wait for a reaction.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Output followed by this much silence counts as complete.
const QUIET_PERIOD: &str = "400ms";
/// How long to wait for room in a full input queue.
const MAX_QUEUE_WAIT: &str = "5s";

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let id = arguments.required("id")?;
    let (limit, limit_note) = ctx.wait_limit(Some(arguments.duration("timeout")?.unwrap_or(DEFAULT_TIMEOUT)));
    let (budget, note) = view::budget(arguments)?;
    let request = InputRequest {
        text: arguments.text("text")?.filter(|text| !text.is_empty()),
        keys: arguments.texts("keys")?,
        eof: arguments.flag("eof")?,
        // Prevents the text from being typed twice if the request is retried.
        input_id: Some(format!("mcp-{}", random::hex(16))),
        wait: Some(MAX_QUEUE_WAIT.into()),
        ..InputRequest::default()
    };
    let sent = ctx.await_with_progress(&id, send(ctx, &id, &request)).await?;
    let id = sent.record.id.clone();
    ctx.claim.waits_for(&id);
    let before = ctx.read_positions.cursor(&ctx.caller.owner, &id);
    let (reason, record) = ctx.await_with_progress(&id, reaction(ctx, &id, sent.cursor, limit)).await?;
    let mut facts =
        execute::describe(ctx, &record, ReadRange { cursor: Some(before), budget, ..ReadRange::default() }, None)
            .await?;
    if record.pty.is_some() {
        let wanted = id.as_str();
        let screen = ctx.daemon.retry(|client| async move { client.screen(wanted).await }).await?;
        // The output of a full-screen program consists of escape sequences; show the resulting screen instead.
        if screen.alternate {
            facts.output_view = None;
            facts = facts.with_screen(&screen);
        }
    }
    facts.reason = Some(reason).filter(|reason| *reason != WaitReason::EndedBefore);
    if !sent.complete {
        facts.accepted = Some(sent.accepted);
        facts.notes.push(format!(
            "only part was accepted: it is not reading, and {} bytes are queued; send the rest later",
            sent.queued
        ));
    }
    facts.notes.extend(note);
    if reason == WaitReason::Timeout {
        facts.notes.extend(limit_note);
    }
    Ok(Answer::for_process(ctx, facts, &record))
}

async fn send(ctx: &CallContext<'_>, id: &str, request: &InputRequest) -> Result<InputAnswer, ToolError> {
    let sent = ctx.daemon.retry(|client| async move { client.input(id, request).await }).await;
    sent.map_err(|error| match error.code.as_str() {
        "no_stdin" => error.with_example(STDIN_EXAMPLE),
        "invalid_request" => error.with_example(EXAMPLE),
        _ => error,
    })
}

/// Waits until the process has written something and paused, or waits for input again.
async fn reaction(
    ctx: &CallContext<'_>,
    id: &str,
    cursor: u64,
    limit: Duration,
) -> Result<(WaitReason, Record), ToolError> {
    let input = WaitQuery { until: Some("input".into()), ..WaitQuery::default() };
    let input = Wait { limit, query: input };
    let answer = tokio::select! {
        answer = wait::wait_with_deadline(ctx, id, &input) => answer?,
        answer = pause(ctx, id, cursor, limit) => answer?,
    };
    Ok((answer.reason, answer.record))
}

async fn pause(ctx: &CallContext<'_>, id: &str, cursor: u64, limit: Duration) -> Result<WaitAnswer, ToolError> {
    let started_at = std::time::Instant::now();
    let output = WaitQuery { until: Some("output".into()), cursor: Some(cursor), ..WaitQuery::default() };
    let first = wait::wait_with_deadline(ctx, id, &Wait { limit, query: output }).await?;
    if first.reason != WaitReason::Output {
        return Ok(first);
    }
    let remaining = limit.saturating_sub(started_at.elapsed());
    let quiet = WaitQuery { until: Some("quiet".into()), quiet: Some(QUIET_PERIOD.into()), ..WaitQuery::default() };
    wait::wait_with_deadline(ctx, id, &Wait { limit: remaining, query: quiet }).await
}
