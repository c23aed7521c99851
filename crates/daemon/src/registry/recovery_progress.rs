//! How far recovery is, and what requests do meanwhile.
//!
//! Until every directory was read (`is_reading`), this daemon does not know which ids, names, keys and ports are taken. A
//! request waits for that, but no longer than [`READ_WAIT`]: then a list is answered with what is known and a note, and
//! everything else is refused with `recovering`. After that all processes are known, and only the ends of those whose
//! keepers died may still be missing; they are settled in the background.

use std::time::Duration;

use pinfold_api::error::ErrorCode;
use tokio::sync::watch;

use crate::refusal::Refusal;

/// How long a request waits for the directories to be read.
const READ_WAIT: Duration = Duration::from_secs(10);
/// How long a question for the daemon's health does: usually there is little to read, and nothing to say of it.
const HEALTH_WAIT: Duration = Duration::from_millis(250);

/// What recovery still has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Remaining {
    /// Directories were not read yet.
    is_reading: bool,
    /// Processes whose keepers died and whose end is not known yet.
    unsettled: usize,
    /// Why the directories could not be read; they are read again soon.
    trouble: Option<String>,
}

/// Shared by recovery, which writes it, and by all requests.
#[derive(Debug)]
pub(crate) struct Progress {
    remaining: watch::Sender<Remaining>,
    read_wait: Duration,
}

impl Default for Progress {
    fn default() -> Self {
        let remaining = Remaining { is_reading: true, ..Remaining::default() };
        Self { remaining: watch::Sender::new(remaining), read_wait: READ_WAIT }
    }
}

impl Progress {
    pub(crate) fn is_reading(&self) -> bool {
        self.remaining.borrow().is_reading
    }

    /// Processes of the last daemon whose end is not known yet.
    pub(crate) fn unsettled(&self) -> usize {
        self.remaining.borrow().unsettled
    }

    pub(crate) fn note_trouble(&self, trouble: String) {
        self.remaining.send_modify(|remaining| remaining.trouble = Some(trouble));
    }

    /// So many processes have dead keepers.
    pub(crate) fn note_dead(&self, count: usize) {
        self.remaining.send_modify(|remaining| remaining.unsettled = count);
    }

    /// All directories were read.
    pub(crate) fn note_read(&self) {
        self.remaining.send_modify(|remaining| (remaining.is_reading, remaining.trouble) = (false, None));
    }

    pub(crate) fn note_settled(&self, count: usize) {
        self.remaining.send_modify(|remaining| remaining.unsettled = remaining.unsettled.saturating_sub(count));
    }

    /// Waits until all directories were read.
    pub(super) async fn read(&self) {
        let _ = self.remaining.subscribe().wait_for(|remaining| !remaining.is_reading).await;
    }

    /// Waits until all directories were read, or the daemon is to end.
    pub(crate) async fn read_or_shutdown(&self, shutdown: &watch::Sender<bool>) {
        let mut shutdown = shutdown.subscribe();
        tokio::select! {
            () = self.read() => {}
            _ = shutdown.wait_for(|shutdown| *shutdown) => {}
        }
    }

    /// Lets a request for this path through as soon as it can be answered truly; refuses it if that takes too long.
    pub(crate) async fn admit(&self, method: &str, path: &str) -> Result<(), Refusal> {
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

    /// Waits until all directories were read, but no longer than a request waits.
    pub(crate) async fn until_read(&self) -> Result<(), Refusal> {
        if tokio::time::timeout(self.read_wait, self.read()).await.is_ok() {
            return Ok(());
        }
        let why = self.remaining.borrow().trouble.clone().map(|why| format!(" ({why})")).unwrap_or_default();
        let message = format!(
            "the daemon has just started and still reads the process directories{why}: try again in a few seconds; `pinfold daemon status` tells how far it is"
        );
        Err(Refusal::new(ErrorCode::Recovering, message))
    }

    /// What a reader of a list should know; nothing once recovery is done.
    pub(crate) fn notes(&self) -> Vec<String> {
        let remaining = self.remaining.borrow();
        let mut notes = Vec::new();
        if remaining.is_reading {
            let why = remaining.trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            notes.push(format!("the daemon has just started and has not read all processes yet{why}"));
        }
        if remaining.unsettled > 0 {
            let count = remaining.unsettled;
            notes.push(format!("the keepers of {count} processes died: what they left is being stopped"));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn until_the_directories_are_read_a_request_waits_and_is_then_refused() {
        let mut progress = Progress { read_wait: Duration::from_millis(1), ..Progress::default() };
        assert!(progress.admit("GET", "/healthz").await.is_ok());
        assert!(progress.admit("GET", "/v1/processes").await.is_ok(), "a list says what is known");
        for (method, path) in [("POST", "/v1/processes"), ("GET", "/v1/processes/a"), ("POST", "/v1/wait")] {
            let refusal = progress.admit(method, path).await.expect_err("not known yet");
            assert_eq!(refusal.0.code, ErrorCode::Recovering);
        }
        progress.note_trouble("no room".into());
        assert!(progress.notes()[0].ends_with("no room"), "{:?}", progress.notes());
        progress.note_dead(3);
        progress.read_wait = READ_WAIT;
        let (admitted, ()) = tokio::join!(progress.admit("POST", "/v1/processes"), async { progress.note_read() });
        admitted.expect("answered as soon as they are read");
        assert_eq!((progress.unsettled(), progress.notes().len()), (3, 1));
        progress.note_settled(3);
        assert_eq!(progress.notes(), Vec::<String>::new());
    }
}
