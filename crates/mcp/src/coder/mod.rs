//! The tools of coder's chats, implemented with pinfold's processes: `execute`, `process_output`, `process_list` and
//! `process_signal`, with the arguments, texts and result fields that models trained on them know.
//!
//! As in coder, a malformed call is a tool error with plain text, and an error of the daemon is a result with `success`
//! and `error`. Differences from coder are listed in docs/from-coder.md.

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

/// The label by which `/api/v0/processes` recognizes background processes.
const BACKGROUND_LABEL: &str = "coder.background";

/// The server's instructions for the model.
pub(crate) const INSTRUCTIONS: &str = "Run shell commands with execute; prefer the foreground with a timeout that fits. \
A command that outlives its timeout runs on: read it with process_output under its background_process_id. Servers and \
watchers: run_in_background. `news` reports processes that ended.";

/// Calls a tool. `keys` are the names of its arguments.
pub(crate) async fn call(ctx: &CallContext<'_>, call: Call, keys: &[&str]) -> Result<Answer, ToolError> {
    let arguments = Arguments::new(call.values, &call.duplicate_keys, keys, "").map_err(invalid)?;
    match call.tool.as_str() {
        "execute" => execute::call(ctx, &arguments).await,
        "process_output" => output::call(ctx, &arguments).await,
        "process_list" => list::call(ctx).await,
        _ => signal::call(ctx, &arguments).await,
    }
}

/// The text of a result: its JSON, or the message of a tool error.
pub(crate) fn text(facts: &Map<String, Value>, is_error: bool) -> String {
    match facts.get("error") {
        Some(Value::String(message)) if is_error => message.clone(),
        _ => serde_json::to_string(facts).unwrap_or_default(),
    }
}

/// Wraps an argument error in coder's wording.
fn invalid(error: ToolError) -> ToolError {
    tool_error(format!("invalid parameters: {}", error.message))
}

/// A tool error with exactly this message.
fn tool_error(message: impl Into<String>) -> ToolError {
    ToolError::invalid(message)
}
