//! One command's talk with the daemon: the api client, and a daemon started where none is.
//!
//! If the daemon goes away in the middle, what may be asked again is asked again of its successor.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pinfold_api::client::{Client, ClientError};
use pinfold_api::error::ErrorCode;
use pinfold_daemon::config::Paths;

use crate::args::Global;
use crate::console::Screen;
use crate::daemon_on_demand;
use crate::failure::Failure;

/// How often one request is asked of new daemons before the command gives up.
const TRIES: u32 = 5;
/// A command that has waited this long says what it waits for.
const SAY_AFTER: Duration = Duration::from_secs(1);
/// The pause before a daemon that is shutting down is asked again.
const SHUTDOWN_PAUSE: Duration = Duration::from_millis(50);

/// This program among those that read as the same consumer.
pub(crate) fn reader() -> String {
    static READER: OnceLock<String> = OnceLock::new();
    let name = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("cli-{}-{}", std::process::id(), now.as_nanos())
    };
    READER.get_or_init(name).clone()
}

/// The way to a daemon that is there, or will be.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    client: Client,
    paths: Paths,
    /// Whether to say on stderr what is waited for. Not with `--json`: there stderr holds the error alone, as JSON.
    says_waiting: bool,
}

impl Session {
    /// Connects, starting a daemon if there is none; as the operator, or as the owner that is named.
    pub(crate) async fn open(paths: Paths, global: &Global) -> Result<Self, Failure> {
        let operator = Client::new(paths.socket());
        let acting_as = global.acting_as.as_deref();
        let client = acting_as.map_or_else(|| operator.clone(), |owner| operator.acting_as(owner, None));
        daemon_on_demand::ensure(&client, &paths).await?;
        Ok(Session { client, paths, says_waiting: !global.json })
    }

    /// Where the daemon's things are.
    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Asks once. For requests that must not be done twice.
    pub(crate) fn once(&self) -> &Client {
        &self.client
    }

    /// Asks until a daemon has answered. For requests that do the same when done twice.
    pub(crate) async fn ask<T>(&self, request: impl AsyncFn(&Client) -> Result<T, ClientError>) -> Result<T, Failure> {
        let mut tries = 1;
        loop {
            let error = match self.saying_if_silent(request(&self.client)).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let code = if let ClientError::Api { error, .. } = &error { Some(error.code) } else { None };
            // One that has just started has kept the request waiting for a while already.
            let passes = matches!(code, Some(ErrorCode::ShuttingDown | ErrorCode::Recovering));
            if tries == TRIES || !(passes || matches!(error, ClientError::Unreachable { .. })) {
                return Err(error.into());
            }
            tries += 1;
            if code == Some(ErrorCode::Recovering) {
                eprintln!("pinfold: still waiting: the daemon has just started and reads its process directories");
            }
            if passes {
                tokio::time::sleep(SHUTDOWN_PAUSE).await;
            }
            daemon_on_demand::ensure(&self.client, &self.paths).await?;
        }
    }

    /// Waits for an answer; after a second it says what for.
    pub(crate) async fn saying<T>(&self, what: impl FnOnce() -> String, answer: impl Future<Output = T>) -> T {
        tokio::pin!(answer);
        if let Ok(answer) = tokio::time::timeout(SAY_AFTER, &mut answer).await {
            return answer;
        }
        self.say(&what());
        answer.await
    }

    /// Waits for an answer, which may take long because that was asked for. Says so if the daemon answers nothing at all.
    async fn saying_if_silent<T>(&self, answer: impl Future<Output = T>) -> T {
        tokio::pin!(answer);
        if let Ok(answer) = tokio::time::timeout(SAY_AFTER, &mut answer).await {
            return answer;
        }
        let alive = tokio::time::timeout(SAY_AFTER, self.client.health());
        tokio::select! {
            answer = &mut answer => return answer,
            alive = alive => if alive.is_err() {
                self.say(&format!("waiting for the daemon, which does not answer yet ({})", self.paths.socket().display()));
            },
        }
        answer.await
    }

    fn say(&self, text: &str) {
        if self.says_waiting {
            Screen::new(false).note(text);
        }
    }
}
