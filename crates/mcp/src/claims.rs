//! Which processes the calls under way will report themselves: a parallel call must not report their end a second time.
//!
//! A call claims the process that it waits for. A start claims what it is about to start before its id is known: every process
//! that started since. Claims end with their call, so that a cancelled call leaves its process to the news.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use pinfold_api::types::{Event, EventKind};

/// The claims of all calls under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    next_call: u64,
    /// Claims by call.
    calls: HashMap<u64, CallClaims>,
}

#[derive(Debug, Default)]
struct CallClaims {
    owner: String,
    /// When the start that is under way began, in milliseconds: events may have no finer times.
    starting_since: Option<i64>,
    processes: Vec<String>,
}

/// The claims of one call. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    open: Arc<Mutex<Open>>,
    call: u64,
}

impl Claims {
    /// Begins a call of this owner.
    pub(crate) fn begin(&self, owner: &str) -> Claim {
        let mut open = lock(&self.open);
        open.next_call += 1;
        let call = open.next_call;
        open.calls.insert(call, CallClaims { owner: owner.to_owned(), ..CallClaims::default() });
        Claim { open: Arc::clone(&self.open), call }
    }
}

impl Claim {
    /// This call is about to start a process.
    pub(crate) fn starting(&self) {
        self.change(|claims| claims.starting_since = Some(Timestamp::now().as_millisecond()));
    }

    /// This call reports the end of that process; if it started it, its start is over.
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

impl Drop for Claim {
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
    fn a_process_is_reported_by_the_call_that_waits_for_it_and_by_no_other() {
        let claims = Claims::default();
        let (mine, other) = (claims.begin("chat"), claims.begin("chat"));
        let end = ended("p", Timestamp::now());
        mine.waits_for("p");
        assert!(other.is_reported_by_another("chat", &end));
        assert!(!mine.is_reported_by_another("chat", &end), "its own end is not another's");
        assert!(!other.is_reported_by_another("stranger", &end));
        drop(mine);
        assert!(!other.is_reported_by_another("chat", &end), "a call that is over reports nothing more");
    }

    #[test]
    fn a_start_under_way_claims_what_started_since_and_nothing_older() {
        let claims = Claims::default();
        let (mine, other) = (claims.begin("chat"), claims.begin("chat"));
        let older = Timestamp::now() - jiff::SignedDuration::from_secs(1);
        mine.starting();
        assert!(other.is_reported_by_another("chat", &ended("new", Timestamp::now())));
        assert!(!other.is_reported_by_another("chat", &ended("old", older)));
        mine.waits_for("new");
        assert!(!other.is_reported_by_another("chat", &ended("third", Timestamp::now())));
    }
}
