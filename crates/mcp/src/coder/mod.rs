//! The tools of coder's chats, on the processes that pinfold keeps: `execute`, `process_output`, `process_list` and
//! `process_signal`, with the arguments, texts and result fields that models trained on them know.
//!
//! Two channels, as there: a call that makes no sense is a tool error in plain words; whatever the daemon says is a
//! result with `success` and `error`. What differs from coder's, and why, is in docs/from-coder.md.

mod ampersand;
mod duration;
mod execute;
mod list;
mod output;
mod result;
mod signal;

use serde_json::{Map, Value};

use crate::arguments::Arguments;
use crate::tool_error::ToolError;
use crate::tools::{Answer, Call, CallContext};

/// The label by which `/api/v0/processes` knows what was started in the background.
const BACKGROUND: &str = "coder.background";

/// What a model is told of the server as a whole.
pub(crate) const INSTRUCTIONS: &str = "Run shell commands with execute; prefer the foreground with a timeout that fits. \
A command that outlives its timeout runs on: read it with process_output under its background_process_id. Servers and \
watchers: run_in_background. What ended meanwhile is told in `news`.";

/// Calls a tool. `keys` are the names of its arguments.
pub(crate) async fn call(ctx: &CallContext<'_>, call: Call, keys: &[&str]) -> Result<Answer, ToolError> {
    let arguments = Arguments::new(call.values, &call.doubled, keys, "").map_err(invalid)?;
    match call.tool.as_str() {
        "execute" => execute::call(ctx, &arguments).await,
        "process_output" => output::call(ctx, &arguments).await,
        "process_list" => list::call(ctx).await,
        _ => signal::call(ctx, &arguments).await,
    }
}

/// The text of a result: its JSON, or the words of a tool error.
pub(crate) fn text(facts: &Map<String, Value>, is_error: bool) -> String {
    match facts.get("error") {
        Some(Value::String(message)) if is_error => message.clone(),
        _ => serde_json::to_string(facts).unwrap_or_default(),
    }
}

/// Arguments that are not what they should be.
fn invalid(refusal: ToolError) -> ToolError {
    plain(format!("invalid parameters: {}", refusal.message))
}

/// A tool error in these very words.
fn plain(message: impl Into<String>) -> ToolError {
    ToolError::invalid(message)
}
