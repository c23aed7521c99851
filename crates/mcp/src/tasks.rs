//! The Tasks extension, for clients that have it: an `execute` that takes longer becomes a task.
//!
//! A task is its process: its unguessable id is a label of it, so that it is found again by any server after any
//! crash. A non-zero exit is `completed`; `cancelled` is what `tasks/cancel` stopped.

use pinfold_api::types::{ListQuery, Record, StopRequest};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, CreateTaskResult, DetailedTask, Task, TaskPayload, TaskStatus};

use crate::daemon_access::DaemonAccess;
use crate::facts;
use crate::resources::protocol_error;

/// The label that carries a task's id.
pub(crate) const LABEL: &str = "mcp.task";
/// Who stops what `tasks/cancel` stops.
const CANCELLED_BY: &str = "tasks/cancel";
/// How often a client may look.
const POLL_MS: u64 = 1_000;

/// The answer to a call that became a task.
pub(crate) fn created(id: &str, record: &Record) -> CreateTaskResult {
    CreateTaskResult::new(task(id, record))
}

fn task(id: &str, record: &Record) -> Task {
    let updated = record.finished_at.as_ref().or(record.exited_at.as_ref()).or(record.started_at.as_ref());
    let updated = updated.unwrap_or(&record.created_at).clone();
    Task::new(id, TaskStatus::Working, record.created_at.clone(), updated)
        .with_poll_interval_ms(POLL_MS)
        .with_status_message(format!("process {} is {}", record.id, facts::state(record.status)))
}

/// The process of a task that the caller may see.
pub(crate) async fn find(daemon: &DaemonAccess, id: &str) -> Result<Record, ErrorData> {
    let none = || ErrorData::invalid_params(format!("there is no task `{}`", id.escape_debug()), None);
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(none());
    }
    let query = &ListQuery { label: Some(format!("{LABEL}={id}")), limit: Some(1), ..ListQuery::default() };
    let list = daemon.ask(|client| async move { client.list(query).await }).await;
    let list = list.map_err(|refusal| protocol_error(refusal, none))?;
    list.processes.into_iter().next().ok_or_else(none)
}

/// A task as it stands; `result` is asked for only if it is over.
pub(crate) async fn detailed<F>(id: &str, record: &Record, result: impl FnOnce() -> F) -> DetailedTask
where
    F: Future<Output = CallToolResult>,
{
    let payload = match () {
        () if !facts::is_over(record) => TaskPayload::Working,
        () if record.stopped_by.as_deref() == Some(CANCELLED_BY) => TaskPayload::Cancelled,
        () => match serde_json::to_value(result().await) {
            Ok(serde_json::Value::Object(result)) => TaskPayload::Completed { result },
            _ => TaskPayload::Completed { result: serde_json::Map::new() },
        },
    };
    DetailedTask::new(task(id, record), payload)
}

/// Begins to stop the process; its end is seen by the next look.
pub(crate) fn cancel(daemon: &DaemonAccess, record: &Record) {
    let (client, id) = (daemon.client().clone(), record.id.clone());
    tokio::spawn(async move {
        let request = StopRequest { by: Some(CANCELLED_BY.into()), ..StopRequest::default() };
        // The acknowledgement has gone out; what could not be stopped shows as still working.
        let _ = client.stop(&id, &request).await;
    });
}
