//! Processes as resources: `pinfold://processes/{id}` is the record and the last of the output, as text.
//!
//! Whoever subscribes to one hears of each event of that process. Nothing is pushed for output: it is read by cursor.

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
use crate::view::{self, Look};

/// What every address begins with.
const SCHEME: &str = "pinfold://processes/";
/// How many are listed: live ones first, then the latest.
const LISTED: u32 = 50;
/// How much of the output a resource shows.
const TAIL: &str = "4k";
/// The pause before a stream of events that ended is opened again.
const AGAIN: Duration = Duration::from_secs(1);
/// The most that one connection follows; more are refused.
const MAX_FOLLOWED: usize = 256;

/// What one connection follows. Ends with it.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// By address. Never locked across an await.
    tasks: Mutex<HashMap<String, AbortHandle>>,
}

impl Followed {
    /// Whether one more can be followed.
    pub(crate) fn has_room(&self) -> bool {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).len() < MAX_FOLLOWED
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

impl Drop for Followed {
    fn drop(&mut self) {
        for task in self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            task.abort();
        }
    }
}

/// The form of every address.
pub(crate) fn template() -> ResourceTemplate {
    let mut template = ResourceTemplate::new(format!("{SCHEME}{{id}}"), "process");
    template.description = Some("one process: its record and the last of its output".into());
    template.mime_type = Some("text/plain".into());
    template
}

/// Live ones and the latest that ended.
pub(crate) async fn list(daemon: &DaemonAccess) -> Result<Vec<Resource>, ToolError> {
    let query = &ListQuery { limit: Some(LISTED), ..ListQuery::default() };
    let list = daemon.ask(|client| async move { client.list(query).await }).await?;
    Ok(list.processes.iter().map(resource).collect())
}

fn resource(record: &Record) -> Resource {
    let mut resource = Resource::new(format!("{SCHEME}{}", record.id), record.id.clone());
    resource.title = Some(facts::clip(&facts::printable(&record.command), 80));
    resource.description = Some(facts::state(record.status).to_owned());
    resource.mime_type = Some("text/plain".into());
    resource
}

/// The id in an address; `None` if it is not ours.
pub(crate) fn id_in(uri: &str) -> Option<&str> {
    uri.strip_prefix(SCHEME).filter(|id| !id.is_empty() && !id.contains('/'))
}

/// One process, as the text of a result has it.
pub(crate) async fn read(daemon: &DaemonAccess, uri: &str) -> Result<ResourceContents, ErrorData> {
    let none = || {
        let message = format!("there is no resource {uri}: see resources/list");
        ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
    };
    let id = id_in(uri).ok_or_else(none)?;
    let record = daemon.ask(|client| async move { client.show(id).await }).await;
    let record = record.map_err(|refusal| protocol_error(refusal, none))?;
    let look = Look { tail: Some(TAIL.into()), budget: Some(view::MAX_BUDGET), ..Look::default() };
    let (seen, hint) = view::look(daemon, &record, &look).await.map_err(|refusal| protocol_error(refusal, none))?;
    let mut facts = Facts::of(&record).seen(seen);
    facts.notes.extend(hint);
    let text = match serde_json::to_value(&facts) {
        Ok(Value::Object(facts)) => render::render(&facts, render::Explain::Marks),
        _ => String::new(),
    };
    Ok(ResourceContents::text(text, uri))
}

/// A refusal where the protocol has no tool error.
pub(crate) fn protocol_error(refusal: ToolError, none: impl Fn() -> ErrorData) -> ErrorData {
    match refusal.code.as_str() {
        "not_found" | "ambiguous_id" => none(),
        "invalid_arguments" | "invalid_request" => ErrorData::invalid_params(refusal.message, None),
        _ => ErrorData::internal_error(refusal.message, None),
    }
}

/// Tells of every event of these processes until nobody listens. Events that happen while there is no daemon are
/// told by its successor.
pub(crate) async fn follow<F>(daemon: &DaemonAccess, ids: &[String], mut tell: impl FnMut(String) -> F)
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
                let uri = format!("{SCHEME}{}", event.process);
                if ids.contains(&event.process) && !tell(uri).await {
                    return;
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_process() {
        assert_eq!(id_in("pinfold://processes/k3v9x2"), Some("k3v9x2"));
        for foreign in ["pinfold://processes/", "pinfold://processes/a/b", "file:///x", "k3v9x2"] {
            assert_eq!(id_in(foreign), None, "{foreign}");
        }
    }
}
