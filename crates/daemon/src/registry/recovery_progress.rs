//! The progress of recovery, and how requests are answered meanwhile.
//!
//! Until every directory was read (`is_reading`), the daemon does not know which ids, names, keys and ports are taken.
//! A request waits for that at most [`READ_WAIT`]: then a list is answered with what is known and a note, and anything
//! else is refused with `recovering`. Afterwards all processes are known, and only the ends of those whose keepers died
//! may be missing; they are determined in the background.

use std::time::Duration;

use pinfold_api::error::ErrorCode;
use tokio::sync::watch;

use crate::request_error::RequestError;

/// How long a request waits for the directories to be read.
const READ_WAIT: Duration = Duration::from_secs(10);
/// How long a health request waits: usually recovery is done by then and there is nothing to report.
const HEALTH_WAIT: Duration = Duration::from_millis(250);

/// What recovery still has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RecoveryState {
    /// Directories were not all read yet.
    is_reading: bool,
    /// Processes whose keepers died and whose end is not known yet.
    unresolved: usize,
    /// Why the directories could not be read; reading is retried.
    error: Option<String>,
}

/// Written by recovery and read by all requests.
#[derive(Debug)]
pub(crate) struct RecoveryProgress {
    state: watch::Sender<RecoveryState>,
    read_wait: Duration,
}

impl Default for RecoveryProgress {
    fn default() -> Self {
        let state = RecoveryState { is_reading: true, ..RecoveryState::default() };
        Self { state: watch::Sender::new(state), read_wait: READ_WAIT }
    }
}

impl RecoveryProgress {
    pub(crate) fn is_reading(&self) -> bool {
        self.state.borrow().is_reading
    }

    /// Processes of the earlier daemon whose end is not known yet.
    pub(crate) fn unresolved(&self) -> usize {
        self.state.borrow().unresolved
    }

    pub(crate) fn note_error(&self, error: String) {
        self.state.send_modify(|state| state.error = Some(error));
    }

    /// Sets the number of processes whose keepers died.
    pub(crate) fn note_dead(&self, count: usize) {
        self.state.send_modify(|state| state.unresolved = count);
    }

    /// All directories were read.
    pub(crate) fn note_read(&self) {
        self.state.send_modify(|state| (state.is_reading, state.error) = (false, None));
    }

    pub(crate) fn note_resolved(&self, count: usize) {
        self.state.send_modify(|state| state.unresolved = state.unresolved.saturating_sub(count));
    }

    /// Waits until all directories were read.
    async fn read(&self) {
        let _ = self.state.subscribe().wait_for(|state| !state.is_reading).await;
    }

    /// Waits until all directories were read, or the daemon shuts down.
    pub(crate) async fn read_or_shutdown(&self, shutdown: &watch::Sender<bool>) {
        let mut shutdown = shutdown.subscribe();
        tokio::select! {
            () = self.read() => {}
            _ = shutdown.wait_for(|shutdown| *shutdown) => {}
        }
    }

    /// Admits a request once it can be answered correctly; refuses it if that takes too long.
    pub(crate) async fn admit(&self, method: &str, path: &str) -> Result<(), RequestError> {
        match path {
            _ if !self.is_reading() => return Ok(()),
            "/openapi.json" | "/v1/shutdown" => return Ok(()),
            "/healthz" => {
                let _ = tokio::time::timeout(HEALTH_WAIT, self.read()).await;
                return Ok(());
            }
            _ => {}
        }
        let read = self.until_read().await;
        if method == "GET" && matches!(path, "/v1/processes" | "/v1/events") { Ok(()) } else { read }
    }

    /// Waits until all directories were read; an error after [`READ_WAIT`].
    pub(crate) async fn until_read(&self) -> Result<(), RequestError> {
        if tokio::time::timeout(self.read_wait, self.read()).await.is_ok() {
            return Ok(());
        }
        let why = self.state.borrow().error.clone().map(|why| format!(" ({why})")).unwrap_or_default();
        let message = format!(
            "the daemon has just started and is still reading the process directories{why}: try again in a few seconds; `pinfold daemon status` shows its progress"
        );
        Err(RequestError::new(ErrorCode::Recovering, message))
    }

    /// Notes for lists; none once recovery is done.
    pub(crate) fn notes(&self) -> Vec<String> {
        let state = self.state.borrow();
        let mut notes = Vec::new();
        if state.is_reading {
            let why = state.error.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            notes.push(format!("the daemon has just started and has not read all processes yet{why}"));
        }
        if state.unresolved > 0 {
            let count = state.unresolved;
            notes.push(format!(
                "the keepers of {count} processes died: remaining processes of their trees are being killed"
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn until_the_directories_are_read_a_request_waits_and_is_then_refused() {
        let mut progress = RecoveryProgress { read_wait: Duration::from_millis(1), ..RecoveryProgress::default() };
        assert!(progress.admit("GET", "/healthz").await.is_ok());
        assert!(progress.admit("GET", "/v1/processes").await.is_ok(), "a list says what is known");
        for (method, path) in [("POST", "/v1/processes"), ("GET", "/v1/processes/a"), ("POST", "/v1/wait")] {
            let error = progress.admit(method, path).await.expect_err("not known yet");
            assert_eq!(error.0.code, ErrorCode::Recovering);
        }
        progress.note_error("no room".into());
        assert!(progress.notes()[0].ends_with("no room"), "{:?}", progress.notes());
        progress.note_dead(3);
        progress.read_wait = READ_WAIT;
        let (admitted, ()) = tokio::join!(progress.admit("POST", "/v1/processes"), async { progress.note_read() });
        admitted.expect("answered as soon as they are read");
        assert_eq!((progress.unresolved(), progress.notes().len()), (3, 1));
        progress.note_resolved(3);
        assert_eq!(progress.notes(), Vec::<String>::new());
    }
}
