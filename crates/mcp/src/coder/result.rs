//! What `execute` and `process_output` give, field by field.

use pinfold_api::types::{Cause, Outcome, OutputPage, OutputQuery, Record, Status, WaitReason};
use serde::Serialize;

use super::duration;
use crate::daemon_access::DaemonAccess;
use crate::tool_error::ToolError;
use crate::tools::{Answer, Shown, object};

/// Bytes of output that a model gets.
const OUTPUT: u64 = 32 << 10;
/// Bytes of output as JSON: escapes may make it longer.
const ESCAPED: usize = 56 << 10;
/// The code where there is none: it runs, nobody saw its end, or it could not be asked.
pub(super) const NO_CODE: i32 = -1;

/// The result of `execute` and `process_output`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Outcomes {
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
    /// Ours: what it is doing, in a word; absent where it could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<String>,
    /// Ours: why the wait ended, or why the command did where that was not its own doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// What is missing from the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Truncated {
    original_bytes: u64,
    retained_bytes: u64,
    omitted_bytes: u64,
    strategy: &'static str,
}

impl Outcomes {
    /// Whatever the daemon or the way to it says.
    pub(super) fn failure(error: String) -> Self {
        Self { exit_code: NO_CODE, error: Some(error), ..Self::default() }
    }

    /// A command that is over.
    pub(super) fn over(record: &Record) -> Self {
        let (exit_code, signal) = code(record);
        Self {
            success: exit_code == 0,
            exit_code,
            signal,
            state: Some(state(record)),
            reason: reason(record),
            ..Self::default()
        }
    }

    /// A command that outlived the wait for it.
    pub(super) fn timed_out(record: &Record, limit: std::time::Duration) -> Self {
        Self {
            exit_code: NO_CODE,
            error: Some(format!("command timed out after {}", duration::render(limit))),
            background_process_id: Some(record.id.clone()),
            state: Some(state(record)),
            reason: Some(word(WaitReason::Timeout)),
            ..Self::default()
        }
    }

    /// With the output as it stands.
    pub(super) async fn with_output(self, daemon: &DaemonAccess, record: &Record) -> Result<Self, ToolError> {
        let (output, truncated) = read(daemon, &record.id).await?;
        Ok(Self { output, truncated, ..self })
    }

    pub(super) fn answer(&self) -> Answer {
        Answer { facts: object(self), ..Answer::default() }
    }

    /// The answer, and which process it shows.
    pub(super) fn showing(&self, record: &Record) -> Answer {
        let shown = Shown::of(record);
        Answer { shown: vec![shown], ..self.answer() }
    }
}

/// How it ended: 128 and the number for a signal.
pub(super) fn code(record: &Record) -> (i32, Option<String>) {
    match &record.outcome {
        Some(Outcome::Exited { code }) => (i32::from(*code), None),
        Some(Outcome::Signaled { signal, name, .. }) => (128 + signal, Some(name.clone())),
        Some(Outcome::FailedToStart { .. } | Outcome::Lost { .. }) | None => (NO_CODE, None),
    }
}

/// Why it ended, where that was not its own doing.
pub(super) fn reason(record: &Record) -> Option<String> {
    match (&record.outcome, record.cause) {
        (Some(Outcome::Lost { evidence }), _) => Some(format!("lost: {evidence}")),
        (Some(Outcome::FailedToStart { error, .. }), _) => Some(format!("failed to start: {error}")),
        (_, Some(cause)) if cause != Cause::OnItsOwn => Some(word(cause)),
        (Some(Outcome::Signaled { .. }), _) => Some("signal".to_owned()),
        _ => None,
    }
}

pub(super) fn state(record: &Record) -> &'static str {
    match record.status {
        Status::Starting => "starting",
        Status::Running => "running",
        Status::Lingering => "lingering",
        Status::Finished => "finished",
        Status::Lost => "lost",
    }
}

/// A word of the wire.
fn word(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads the output within what a model gets.
async fn read(daemon: &DaemonAccess, id: &str) -> Result<(String, Option<Truncated>), ToolError> {
    let mut budget = OUTPUT;
    loop {
        let query = OutputQuery {
            budget: Some(budget.to_string()),
            strip_ansi: Some(true),
            collapse_cr: Some(true),
            ..OutputQuery::default()
        };
        let query = &query;
        let page = daemon.ask(|client| async move { client.output(id, query).await }).await?;
        let shown = shown(page);
        let escaped = serde_json::to_string(&shown.0).map_or(0, |text| text.len());
        if escaped <= ESCAPED || budget <= 1024 {
            return Ok(shown);
        }
        budget /= 2;
    }
}

/// The text with coder's marker in the place of ours, and its account.
fn shown(page: OutputPage) -> (String, Option<Truncated>) {
    let Some(hole) = page.omitted else { return (page.text, None) };
    let count = hole.to - hole.from;
    let ours = format!("\n[pinfold: {count} bytes omitted here, cursor {}..{}]\n", hole.from, hole.to);
    let text = page.text.replacen(&ours, &format!("\n\n... [omitted {count} bytes] ...\n\n"), 1);
    let truncated = Truncated {
        original_bytes: page.original_bytes,
        retained_bytes: text.len() as u64,
        omitted_bytes: page.omitted_bytes,
        strategy: "head_tail",
    };
    (text, Some(truncated))
}
