//! The result fields of `execute` and `process_output`.

use pinfold_api::types::{Cause, Outcome, OutputPage, OutputQuery, Record, WaitReason};
use serde::Serialize;

use super::duration;
use crate::daemon_access::DaemonAccess;
use crate::tool_error::ToolError;
use crate::tools::{Answer, Shown, object};

/// Maximum bytes of output in a result.
const MAX_OUTPUT: u64 = 32 << 10;
/// Maximum bytes of output as JSON, where escapes make it longer.
const MAX_ESCAPED_OUTPUT: usize = 56 << 10;
/// The exit code if there is none: the process is running, its end was not observed, or the daemon did not answer.
pub(super) const NO_EXIT_CODE: i32 = -1;

/// The result of `execute` and `process_output`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct CommandResult {
    pub(super) success: bool,
    pub(super) exit_code: i32,
    pub(super) wall_duration_ms: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) output: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) truncated: Option<Truncated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) background_process_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) running: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backgrounded: Option<bool>,
    /// Not in coder: the state of the process; absent if the daemon did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<String>,
    /// Not in coder: why the wait ended, or why the command ended if not on its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// How much was cut from the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Truncated {
    original_bytes: u64,
    retained_bytes: u64,
    omitted_bytes: u64,
    strategy: &'static str,
}

impl CommandResult {
    /// An error of the daemon, or of the connection to it.
    pub(super) fn failure(error: String) -> Self {
        Self { exit_code: NO_EXIT_CODE, error: Some(error), ..Self::default() }
    }

    /// A command that has ended.
    pub(super) fn ended(record: &Record) -> Self {
        let (exit_code, signal) = code(record);
        Self {
            success: exit_code == 0,
            exit_code,
            signal,
            state: Some(record.status.name()),
            reason: reason(record),
            ..Self::default()
        }
    }

    /// A command that is still running after its time limit.
    pub(super) fn timed_out(record: &Record, limit: std::time::Duration) -> Self {
        Self {
            exit_code: NO_EXIT_CODE,
            error: Some(format!("command timed out after {}", duration::render(limit))),
            background_process_id: Some(record.id.clone()),
            state: Some(record.status.name()),
            reason: Some(wire_name(WaitReason::Timeout)),
            ..Self::default()
        }
    }

    /// Adds the current output.
    pub(super) async fn with_output(self, daemon: &DaemonAccess, record: &Record) -> Result<Self, ToolError> {
        let (output, truncated) = read(daemon, &record.id).await?;
        Ok(Self { output, truncated, ..self })
    }

    pub(super) fn answer(&self) -> Answer {
        Answer { facts: object(self), ..Answer::default() }
    }

    /// The answer, marked as showing this process.
    pub(super) fn showing(&self, record: &Record) -> Answer {
        let shown = Shown::from_record(record);
        Answer { shown: vec![shown], ..self.answer() }
    }
}

/// The exit code and signal name; the code is 128 plus the signal number.
pub(super) fn code(record: &Record) -> (i32, Option<String>) {
    match &record.outcome {
        Some(Outcome::Exited { code }) => (i32::from(*code), None),
        Some(Outcome::Signaled { signal, name, .. }) => (128 + signal, Some(name.clone())),
        Some(Outcome::FailedToStart { .. } | Outcome::Lost { .. }) | None => (NO_EXIT_CODE, None),
    }
}

/// Why it ended, if not on its own.
pub(super) fn reason(record: &Record) -> Option<String> {
    match (&record.outcome, record.cause) {
        (Some(Outcome::Lost { evidence }), _) => Some(format!("lost: {evidence}")),
        (Some(Outcome::FailedToStart { error, .. }), _) => Some(format!("failed to start: {error}")),
        (_, Some(cause)) if cause != Cause::OnItsOwn => Some(cause.name().to_owned()),
        (Some(Outcome::Signaled { .. }), _) => Some("signal".to_owned()),
        _ => None,
    }
}

/// The name of an enum value in JSON.
fn wire_name(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads the output within both size limits.
async fn read(daemon: &DaemonAccess, id: &str) -> Result<(String, Option<Truncated>), ToolError> {
    let mut budget = MAX_OUTPUT;
    loop {
        let query = OutputQuery {
            budget: Some(budget.to_string()),
            strip_ansi: Some(true),
            collapse_cr: Some(true),
            ..OutputQuery::default()
        };
        let query = &query;
        let page = daemon.retry(|client| async move { client.output(id, query).await }).await?;
        let shown = shown(page);
        let escaped = serde_json::to_string(&shown.0).map_or(0, |text| text.len());
        if escaped <= MAX_ESCAPED_OUTPUT || budget <= 1024 {
            return Ok(shown);
        }
        budget /= 2;
    }
}

/// Replaces pinfold's omission marker with coder's, and reports what was omitted.
fn shown(page: OutputPage) -> (String, Option<Truncated>) {
    let Some(omitted) = page.omitted else { return (page.text, None) };
    let count = omitted.to - omitted.from;
    let ours = format!("\n[pinfold: {count} bytes omitted here, cursor {}..{}]\n", omitted.from, omitted.to);
    let text = page.text.replacen(&ours, &format!("\n\n... [omitted {count} bytes] ...\n\n"), 1);
    let truncated = Truncated {
        original_bytes: page.original_bytes,
        retained_bytes: text.len() as u64,
        omitted_bytes: page.omitted_bytes,
        strategy: "head_tail",
    };
    (text, Some(truncated))
}
