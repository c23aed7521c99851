//! Records which processes the calls in progress will report themselves, so that a parallel call does not report the
//! same end in its news.
//!
//! A call claims the process that it waits for. A call that starts a process claims every process started since then,
//! until it knows the id. A claim is released when its call ends, so the end of a process whose call was cancelled is
//! reported as news.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use pinfold_api::types::{Event, EventKind};

/// The claims of all calls in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReportClaims {
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    next_call: u64,
    /// Claims by call number.
    calls: HashMap<u64, CallClaims>,
}

#[derive(Debug, Default)]
struct CallClaims {
    owner: String,
    /// When a start in progress began. In milliseconds: event times may have no finer resolution.
    starting_since: Option<i64>,
    processes: Vec<String>,
}

/// The claims of one call, released on drop.
#[derive(Debug)]
pub(crate) struct ReportClaim {
    open: Arc<Mutex<Open>>,
    call: u64,
}

impl ReportClaims {
    /// Registers a call of this owner.
    pub(crate) fn begin(&self, owner: &str) -> ReportClaim {
        let mut open = lock(&self.open);
        open.next_call += 1;
        let call = open.next_call;
        open.calls.insert(call, CallClaims { owner: owner.to_owned(), ..CallClaims::default() });
        ReportClaim { open: Arc::clone(&self.open), call }
    }
}

impl ReportClaim {
    /// The call is about to start a process.
    pub(crate) fn starting(&self) {
        self.change(|claims| claims.starting_since = Some(Timestamp::now().as_millisecond()));
    }

    /// The call will report the end of this process. Ends a claim made by [`ReportClaim::starting`].
    pub(crate) fn waits_for(&self, process: &str) {
        self.change(|claims| {
            claims.starting_since = None;
            claims.processes.push(process.to_owned());
        });
    }

    /// Whether another call of the owner will report this event.
    pub(crate) fn is_reported_by_another(&self, owner: &str, event: &Event) -> bool {
        let awaited = event.completion
            || matches!(event.kind, EventKind::Ready | EventKind::NotReady | EventKind::WaitingForInput);
        let started =
            event.started_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok()).map(Timestamp::as_millisecond);
        let open = lock(&self.open);
        let mut others = open.calls.iter().filter(|(call, claims)| **call != self.call && claims.owner == owner);
        awaited
            && others.any(|(_, claims)| {
                let may_be_its_start = claims.starting_since.is_some_and(|since| started.is_none_or(|at| at >= since));
                may_be_its_start || claims.processes.contains(&event.process)
            })
    }

    fn change(&self, change: impl FnOnce(&mut CallClaims)) {
        if let Some(claims) = lock(&self.open).calls.get_mut(&self.call) {
            change(claims);
        }
    }
}

impl Drop for ReportClaim {
    fn drop(&mut self) {
        lock(&self.open).calls.remove(&self.call);
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(process: &str, started_at: Timestamp) -> Event {
        Event {
            seq: 1,
            kind: EventKind::Finished,
            process: process.into(),
            owner: "chat".into(),
            at: started_at.to_string(),
            command: "true".into(),
            started_at: Some(started_at.to_string()),
            outcome: None,
            cause: None,
            completion: true,
            announce: true,
            cursor: None,
            text: None,
            suppressed: None,
        }
    }

    #[test]
    fn only_the_call_that_waits_for_a_process_reports_it() {
        let claims = ReportClaims::default();
        let (mine, other) = (claims.begin("chat"), claims.begin("chat"));
        let end = ended("p", Timestamp::now());
        mine.waits_for("p");
        assert!(other.is_reported_by_another("chat", &end));
        assert!(!mine.is_reported_by_another("chat", &end), "a call's own claim does not count");
        assert!(!other.is_reported_by_another("stranger", &end));
        drop(mine);
        assert!(!other.is_reported_by_another("chat", &end), "an ended call claims nothing");
    }

    #[test]
    fn a_start_in_progress_claims_only_processes_started_since() {
        let claims = ReportClaims::default();
        let (mine, other) = (claims.begin("chat"), claims.begin("chat"));
        let older = Timestamp::now() - jiff::SignedDuration::from_secs(1);
        mine.starting();
        assert!(other.is_reported_by_another("chat", &ended("new", Timestamp::now())));
        assert!(!other.is_reported_by_another("chat", &ended("old", older)));
        mine.waits_for("new");
        assert!(!other.is_reported_by_another("chat", &ended("third", Timestamp::now())));
    }
}
