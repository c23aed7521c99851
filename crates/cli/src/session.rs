//! The connection of a command to the daemon: starts a daemon if none runs.
//!
//! If the daemon dies during a request that may be repeated, the request is sent to the next daemon.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pinfold_api::client::{Client, ClientError};
use pinfold_api::error::ErrorCode;
use pinfold_daemon::config::Paths;

use crate::args::Global;
use crate::commands::daemon::upgrade;
use crate::console::Console;
use crate::daemon_on_demand;
use crate::failure::Failure;
use crate::progress_line;

/// How often a request is sent before the command gives up.
const TRIES: u32 = 5;
/// After this long without an answer, the command prints what it is waiting for.
const NOTE_AFTER: Duration = Duration::from_secs(1);
/// Pause before a retry while the daemon shuts down or recovers.
const SHUTDOWN_PAUSE: Duration = Duration::from_millis(50);

/// Identifies this process among the readers of one event consumer.
pub(crate) fn reader() -> String {
    static READER: OnceLock<String> = OnceLock::new();
    let name = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("cli-{}-{}", std::process::id(), now.as_nanos())
    };
    READER.get_or_init(name).clone()
}

/// A client of a running daemon.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    client: Client,
    paths: Paths,
    /// Whether to print notes about waiting to stderr. Not with `--json`: stderr then holds only the error, as JSON.
    prints_notes: bool,
}

impl Session {
    /// Connects as the operator or as the owner given by `--as`; starts a daemon if none runs.
    pub(crate) async fn open(paths: Paths, global: &Global) -> Result<Self, Failure> {
        let operator = Client::new(paths.socket());
        let acting_as = global.acting_as.as_deref();
        let client = acting_as.map_or_else(|| operator.clone(), |owner| operator.acting_as(owner, None));
        upgrade::replace_if_older(&paths).await?;
        daemon_on_demand::ensure(&client, &paths).await?;
        Ok(Session { client, paths, prints_notes: !global.json })
    }

    /// The daemon's home and configuration file.
    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The client, without retries: for requests that must not be done twice.
    pub(crate) fn once(&self) -> &Client {
        &self.client
    }

    /// Sends a request until a daemon answers: for requests that may be done twice.
    pub(crate) async fn ask<T>(&self, request: impl AsyncFn(&Client) -> Result<T, ClientError>) -> Result<T, Failure> {
        let mut tries = 1;
        loop {
            let error = match self.note_if_silent(request(&self.client)).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let code = if let ClientError::Api { error, .. } = &error { Some(error.code) } else { None };
            // Both end by themselves. A recovering daemon holds the request for a while before it answers with this error.
            let passes = matches!(code, Some(ErrorCode::ShuttingDown | ErrorCode::Recovering));
            if tries == TRIES || !(passes || matches!(error, ClientError::Unreachable { .. })) {
                return Err(error.into());
            }
            tries += 1;
            if code == Some(ErrorCode::Recovering) {
                progress_line::erase();
                eprintln!("pinfold: still waiting: the daemon has just started and is reading its process directories");
            }
            if passes {
                tokio::time::sleep(SHUTDOWN_PAUSE).await;
            }
            daemon_on_demand::ensure(&self.client, &self.paths).await?;
        }
    }

    /// Waits for an answer; after [`NOTE_AFTER`] prints what it is waiting for.
    pub(crate) async fn note_if_slow<T>(&self, what: impl FnOnce() -> String, answer: impl Future<Output = T>) -> T {
        tokio::pin!(answer);
        if let Ok(answer) = tokio::time::timeout(NOTE_AFTER, &mut answer).await {
            return answer;
        }
        self.say(&what());
        answer.await
    }

    /// Waits for an answer, which may take long by design. Prints a note if the daemon does not answer a health check either.
    async fn note_if_silent<T>(&self, answer: impl Future<Output = T>) -> T {
        tokio::pin!(answer);
        if let Ok(answer) = tokio::time::timeout(NOTE_AFTER, &mut answer).await {
            return answer;
        }
        let alive = tokio::time::timeout(NOTE_AFTER, self.client.health());
        tokio::select! {
            answer = &mut answer => return answer,
            alive = alive => if alive.is_err() {
                self.say(&format!("waiting: the daemon does not answer on {}", self.paths.socket().display()));
            },
        }
        answer.await
    }

    fn say(&self, text: &str) {
        if self.prints_notes {
            Console::new(false).note(text);
        }
    }
}
