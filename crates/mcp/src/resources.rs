//! MCP resources: `pinfold://processes/{id}` is the record of a process and the end of its output, as text.
//!
//! A subscriber is notified of each event of a process, but not of new output; it reads output by cursor.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pinfold_api::types::{EventsQuery, ListQuery, Record};
use rmcp::ErrorData;
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::daemon_access::DaemonAccess;
use crate::facts::{self, Facts};
use crate::render;
use crate::tool_error::ToolError;
use crate::view::{self, ReadRange};

/// The prefix of every resource URI.
const URI_PREFIX: &str = "pinfold://processes/";
/// Maximum number of listed processes: live ones first, then the latest.
const MAX_LISTED: u32 = 50;
/// How much of the end of the output a resource shows.
const OUTPUT_TAIL: &str = "4k";
/// Delay before a closed event stream is reopened.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of subscriptions per connection.
const MAX_SUBSCRIPTIONS: usize = 256;

/// The subscriptions of one connection. Dropping them stops their tasks.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// Tasks by URI. Never locked across an await.
    tasks: Mutex<HashMap<String, AbortHandle>>,
}

impl Subscriptions {
    /// Whether another subscription is allowed.
    pub(crate) fn has_room(&self) -> bool {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).len() < MAX_SUBSCRIPTIONS
    }

    pub(crate) fn add(&self, uri: &str, task: AbortHandle) {
        let before = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).insert(uri.to_owned(), task);
        if let Some(before) = before {
            before.abort();
        }
    }

    pub(crate) fn remove(&self, uri: &str) {
        let task = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).remove(uri);
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for task in self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            task.abort();
        }
    }
}

/// The URI template of process resources.
pub(crate) fn template() -> ResourceTemplate {
    let mut template = ResourceTemplate::new(format!("{URI_PREFIX}{{id}}"), "process");
    template.description = Some("one process: its record and the last of its output".into());
    template.mime_type = Some("text/plain".into());
    template
}

/// Lists live processes and the latest that ended.
pub(crate) async fn list(daemon: &DaemonAccess) -> Result<Vec<Resource>, ToolError> {
    let query = &ListQuery { limit: Some(MAX_LISTED), ..ListQuery::default() };
    let list = daemon.retry(|client| async move { client.list(query).await }).await?;
    Ok(list.processes.iter().map(resource).collect())
}

fn resource(record: &Record) -> Resource {
    let mut resource = Resource::new(format!("{URI_PREFIX}{}", record.id), record.id.clone());
    resource.title = Some(facts::clip(&facts::printable(&record.command), 80));
    resource.description = Some(record.status.name().to_owned());
    resource.mime_type = Some("text/plain".into());
    resource
}

/// The process id in a URI; `None` if it is not one of our URIs.
pub(crate) fn id_in(uri: &str) -> Option<&str> {
    uri.strip_prefix(URI_PREFIX).filter(|id| !id.is_empty() && !id.contains('/'))
}

/// Reads one process, in the same format as the text of a tool result.
pub(crate) async fn read(daemon: &DaemonAccess, uri: &str) -> Result<ResourceContents, ErrorData> {
    let not_found = || {
        let message = format!("there is no resource {uri}: see resources/list");
        ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
    };
    let id = id_in(uri).ok_or_else(not_found)?;
    let record = daemon.retry(|client| async move { client.show(id).await }).await;
    let record = record.map_err(|error| protocol_error(error, not_found))?;
    let range = ReadRange { tail: Some(OUTPUT_TAIL.into()), budget: Some(view::MAX_BUDGET), ..ReadRange::default() };
    let (seen, hint) =
        view::read_output(daemon, &record, &range, None).await.map_err(|error| protocol_error(error, not_found))?;
    let mut facts = Facts::from_record(&record).with_output(seen);
    facts.notes.extend(hint);
    let text = match serde_json::to_value(&facts) {
        Ok(Value::Object(facts)) => render::render(&facts, &|| true),
        _ => String::new(),
    };
    Ok(ResourceContents::text(text, uri))
}

/// Converts a tool error to a protocol error, for methods that have no tool errors.
pub(crate) fn protocol_error(error: ToolError, not_found: impl Fn() -> ErrorData) -> ErrorData {
    match error.code.as_str() {
        "not_found" | "ambiguous_id" => not_found(),
        "invalid_arguments" | "invalid_request" => ErrorData::invalid_params(error.message, None),
        _ => ErrorData::internal_error(error.message, None),
    }
}

/// Calls `notify` for every event of these processes until it returns false. Events that happen while no daemon runs
/// are sent after the next daemon has started.
pub(crate) async fn forward_events<F>(daemon: &DaemonAccess, ids: &[String], mut notify: impl FnMut(String) -> F)
where
    F: Future<Output = bool>,
{
    let mut after = "latest".to_owned();
    loop {
        let process = match ids {
            [one] => Some(one.clone()),
            _ => None,
        };
        let query = EventsQuery { after: Some(after.clone()), process, ..EventsQuery::default() };
        if let Ok(mut events) = daemon.client().events_stream(&query).await {
            while let Some(Ok(event)) = events.next().await {
                after = event.seq.to_string();
                let uri = format!("{URI_PREFIX}{}", event.process);
                if ids.contains(&event.process) && !notify(uri).await {
                    return;
                }
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_one_process() {
        assert_eq!(id_in("pinfold://processes/k3v9x2"), Some("k3v9x2"));
        for foreign in ["pinfold://processes/", "pinfold://processes/a/b", "file:///x", "k3v9x2"] {
            assert_eq!(id_in(foreign), None, "{foreign}");
        }
    }
}
