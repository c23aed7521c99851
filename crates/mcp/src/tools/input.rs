//! `process_input`: text, keys and the end of input, and what the process says to it.

use std::time::Duration;

use pinfold_api::types::{InputAnswer, InputRequest, Record, WaitAnswer, WaitQuery, WaitReason};

use super::wait::{self, Wait};
use super::{Answer, CallContext, execute};
use crate::arguments::Arguments;
use crate::random;
use crate::tool_error::ToolError;
use crate::view::{self, Look};

/// A right call.
pub(super) const RIGHT: &str = r#"process_input {"id":"k3v9x2","text":"print(6 * 7)","keys":["enter"]}"#;
/// How a process gets a stdin.
const STDIN: &str = r#"execute {"command":"python3 -iq","stdin":true,"background":true}"#;

/// How long an answer is waited for unless the call says so.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Output that pauses for this long is taken for the whole answer.
const QUIET: &str = "400ms";
/// How long a full queue is tried.
const ROOM: &str = "5s";

pub(super) async fn call(ctx: &CallContext<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let id = arguments.required("id")?;
    let (limit, cut) = ctx.wait_limit(Some(arguments.duration("timeout")?.unwrap_or(DEFAULT_TIMEOUT)));
    let (budget, note) = view::budget(arguments)?;
    let request = InputRequest {
        text: arguments.text("text")?.filter(|text| !text.is_empty()),
        keys: arguments.texts("keys")?,
        eof: arguments.flag("eof")?,
        // Asked again of the next daemon, it is not typed twice.
        input_id: Some(format!("mcp-{}", random::hex(16))),
        wait: Some(ROOM.into()),
        ..InputRequest::default()
    };
    let sent = ctx.hold(&id, send(ctx, &id, &request)).await?;
    let id = sent.record.id.clone();
    ctx.claim.waits_for(&id);
    let before = ctx.memory.cursor(&ctx.caller.owner, &id);
    let (reason, record) = ctx.hold(&id, reaction(ctx, &id, sent.cursor, limit)).await?;
    let mut facts = execute::describe(ctx, &record, Look { cursor: Some(before), budget, ..Look::default() }).await?;
    if record.pty.is_some() {
        let wanted = id.as_str();
        let screen = ctx.daemon.ask(|client| async move { client.screen(wanted).await }).await?;
        // What a full-screen program writes is drawing: what it has drawn is what can be read.
        if screen.alternate {
            facts.sight = None;
            facts = facts.showing(&screen);
        }
    }
    facts.reason = Some(reason).filter(|reason| *reason != WaitReason::EndedBefore);
    if !sent.complete {
        facts.accepted = Some(sent.accepted);
        facts.notes.push(format!(
            "not all was taken: it does not read, and {} bytes wait for it; send the rest when it has read",
            sent.queued
        ));
    }
    facts.notes.extend(note);
    if reason == WaitReason::Timeout {
        facts.notes.extend(cut);
    }
    Ok(Answer::of(ctx, facts, &record))
}

async fn send(ctx: &CallContext<'_>, id: &str, request: &InputRequest) -> Result<InputAnswer, ToolError> {
    let sent = ctx.daemon.ask(|client| async move { client.input(id, request).await }).await;
    sent.map_err(|refusal| match refusal.code.as_str() {
        "no_stdin" => refusal.show(STDIN),
        "invalid_request" => refusal.show(RIGHT),
        _ => refusal,
    })
}

/// Waits for what the process says, until it pauses or waits for more.
async fn reaction(
    ctx: &CallContext<'_>,
    id: &str,
    cursor: u64,
    limit: Duration,
) -> Result<(WaitReason, Record), ToolError> {
    let input = WaitQuery { until: Some("input".into()), ..WaitQuery::default() };
    let input = Wait { limit, query: input };
    let answer = tokio::select! {
        answer = wait::patiently(ctx, id, &input) => answer?,
        answer = pause(ctx, id, cursor, limit) => answer?,
    };
    Ok((answer.reason, answer.record))
}

async fn pause(ctx: &CallContext<'_>, id: &str, cursor: u64, limit: Duration) -> Result<WaitAnswer, ToolError> {
    let begun = std::time::Instant::now();
    let output = WaitQuery { until: Some("output".into()), cursor: Some(cursor), ..WaitQuery::default() };
    let first = wait::patiently(ctx, id, &Wait { limit, query: output }).await?;
    if first.reason != WaitReason::Output {
        return Ok(first);
    }
    let left = limit.saturating_sub(begun.elapsed());
    let quiet = WaitQuery { until: Some("quiet".into()), quiet: Some(QUIET.into()), ..WaitQuery::default() };
    wait::patiently(ctx, id, &Wait { limit: left, query: quiet }).await
}
