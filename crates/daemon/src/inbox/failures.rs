//! The latest failures of all owners, in memory.
//!
//! Only the payload of an event says whether it is a failure, and most events are not. A client that polls must not cause
//! the whole log to be read each time, so only new events are read, and the failures among them are remembered. Bounds: the
//! latest [`MAX_FAILURES`]; the first request reads the latest [`MAX_SCANNED`] events.

use std::collections::VecDeque;
use std::sync::Arc;

use pinfold_api::types::{Cause, Event, InboxItem, InboxKind, Outcome};
use pinfold_model::event::EventKind;
use pinfold_model::id::ProcessId;
use pinfold_store::queries::{Event as LoggedEvent, EventFilter};

use super::{is_of, process_item, shown};
use crate::core::{Core, blocking};
use crate::registry::service_records::is_followed;
use crate::request_error::RequestError;

const MAX_FAILURES: usize = 1000;
const MAX_SCANNED: u32 = 20_000;
/// Events read at a time.
const BATCH: usize = 1000;
/// The kinds of events that can be the completion of a process.
const KINDS: [EventKind; 3] = [EventKind::Exited, EventKind::Finished, EventKind::Lost];

/// The failures that are at hand. Locked while the log is read, so that it is read once for all who ask.
#[derive(Debug, Default)]
pub(crate) struct Failures(tokio::sync::Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Events up to this number were read; `None` before the first time.
    through: Option<u64>,
    /// Failures up to this number may be missing.
    missing_through: u64,
    /// Oldest first.
    failures: VecDeque<Failure>,
}

#[derive(Clone, Debug)]
struct Failure {
    seq: u64,
    process: ProcessId,
    item: InboxItem,
}

impl Core {
    /// The number of the latest event, whether failures may be missing, and those after this mark, newest first.
    pub(super) async fn unseen_failures(
        self: &Arc<Self>,
        owners: Option<&[String]>,
        seen: u64,
    ) -> Result<(u64, bool, Vec<InboxItem>), RequestError> {
        let mut known = self.failures.0.lock().await;
        self.index_writer.flush().await;
        let latest = *self.index_writer.last_event.borrow();
        let mut after = match known.through {
            Some(through) => through,
            None => {
                let first = self.query(|queries| queries.seq_before_latest(MAX_SCANNED)).await?;
                known.missing_through = first;
                first
            }
        };
        while after < latest {
            let filter = EventFilter { kinds: KINDS.to_vec(), through: Some(latest), ..EventFilter::default() };
            let events = self.query(move |queries| queries.events_after(after, &filter, BATCH)).await?;
            let is_last = events.len() < BATCH;
            for logged in events {
                after = logged.seq;
                let Some(failure) = self.failure_of(logged).await? else { continue };
                if known.failures.len() == MAX_FAILURES
                    && let Some(oldest) = known.failures.pop_front()
                {
                    known.missing_through = oldest.seq;
                }
                known.failures.push_back(failure);
            }
            if is_last {
                after = latest;
            }
            known.through = Some(after);
        }
        known.through = known.through.max(Some(after));
        let core = Arc::clone(self);
        let mut failures = std::mem::take(&mut known.failures);
        // A process that was removed needs no attention.
        let existing = blocking(move || {
            failures.retain(|failure| core.home.process(&failure.process).exists());
            failures
        });
        known.failures = existing.await?;
        let unseen =
            known.failures.iter().rev().filter(|failure| failure.seq > seen && is_of(owners, &failure.item.owner));
        let items = unseen.map(|failure| failure.item.clone()).collect();
        Ok((latest, seen < known.missing_through, items))
    }

    /// The item of an event that is a failure; `None` if it is none, or if its process is gone.
    async fn failure_of(self: &Arc<Self>, logged: LoggedEvent) -> Result<Option<Failure>, RequestError> {
        let Ok(event) = serde_json::from_str::<Event>(&logged.payload) else { return Ok(None) };
        if !is_failure(&event) {
            return Ok(None);
        }
        let Some(state) = self.state_of(&logged.process).await? else { return Ok(None) };
        if is_followed(&state.history) {
            return Ok(None);
        }
        let text = self.last_line_of(state.clone()).await?;
        let item = InboxItem {
            owner: logged.owner,
            at: shown(logged.at),
            seq: Some(logged.seq),
            text,
            outcome: event.outcome,
            cause: event.cause,
            ..process_item(InboxKind::Failed, &state)
        };
        Ok(Some(Failure { seq: logged.seq, process: logged.process, item }))
    }
}

/// Whether an event is the completion of a process that failed, and not because it was asked to end.
fn is_failure(event: &Event) -> bool {
    let wanted = matches!(event.cause, Some(Cause::StopRequested | Cause::OwnerEnded));
    let well = matches!(event.outcome, None | Some(Outcome::Exited { code: 0 }));
    // A limit is a failure whatever the process made of the signal.
    let limited = !matches!(event.cause, None | Some(Cause::OnItsOwn));
    event.completion && !wanted && (!well || limited)
}
