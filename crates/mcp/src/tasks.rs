//! The MCP Tasks extension: for clients that support it, a longer `execute` becomes a task.
//!
//! A task is a process whose label holds the unguessable task id, so that any server finds it after a crash. A task
//! whose command exits non-zero is `completed`; `cancelled` means that `tasks/cancel` stopped it.

use pinfold_api::types::{ListQuery, Record, StopRequest};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, CreateTaskResult, DetailedTask, Task, TaskPayload, TaskStatus};

use crate::daemon_access::DaemonAccess;
use crate::facts;
use crate::resources::protocol_error;

/// The label that holds the task id.
pub(crate) const LABEL: &str = "mcp.task";
/// The `by` of a stop requested by `tasks/cancel`.
const CANCELLED_BY: &str = "tasks/cancel";
/// The poll interval suggested to clients.
const POLL_INTERVAL_MS: u64 = 1_000;

/// The response to a call that became a task.
pub(crate) fn created(id: &str, record: &Record) -> CreateTaskResult {
    CreateTaskResult::new(task(id, record))
}

fn task(id: &str, record: &Record) -> Task {
    let updated = record.finished_at.as_ref().or(record.exited_at.as_ref()).or(record.started_at.as_ref());
    let updated = updated.unwrap_or(&record.created_at).clone();
    Task::new(id, TaskStatus::Working, record.created_at.clone(), updated)
        .with_poll_interval_ms(POLL_INTERVAL_MS)
        .with_status_message(format!("process {} is {}", record.id, record.status.name()))
}

/// Finds the process of a task, among those that the caller may see.
pub(crate) async fn find(daemon: &DaemonAccess, id: &str) -> Result<Record, ErrorData> {
    let not_found = || ErrorData::invalid_params(format!("there is no task `{}`", id.escape_debug()), None);
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(not_found());
    }
    let query = &ListQuery { label: vec![format!("{LABEL}={id}")], limit: Some(1), ..ListQuery::default() };
    let list = daemon.retry(|client| async move { client.list(query).await }).await;
    let list = list.map_err(|error| protocol_error(error, not_found))?;
    list.processes.into_iter().next().ok_or_else(not_found)
}

/// Returns the state of a task; `result` is called only if the task has ended.
pub(crate) async fn detailed<F>(id: &str, record: &Record, result: impl FnOnce() -> F) -> DetailedTask
where
    F: Future<Output = CallToolResult>,
{
    let payload = match () {
        () if !facts::has_ended(record) => TaskPayload::Working,
        () if record.stopped_by.as_deref() == Some(CANCELLED_BY) => TaskPayload::Cancelled,
        () => match serde_json::to_value(result().await) {
            Ok(serde_json::Value::Object(result)) => TaskPayload::Completed { result },
            _ => TaskPayload::Completed { result: serde_json::Map::new() },
        },
    };
    DetailedTask::new(task(id, record), payload)
}

/// Starts to stop the process and returns at once. A later status request shows whether it has ended.
pub(crate) fn cancel(daemon: &DaemonAccess, record: &Record) {
    let (client, id) = (daemon.client().clone(), record.id.clone());
    tokio::spawn(async move {
        let request = StopRequest { by: Some(CANCELLED_BY.into()), ..StopRequest::default() };
        // The cancellation was already acknowledged. If the stop fails, the task is still shown as working.
        let _ = client.stop(&id, &request).await;
    });
}
