//! Access to the daemon, which may be restarting: idempotent requests are retried with the next daemon.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::client::{Client, ClientError};
use pinfold_api::error::ErrorCode;

use crate::identity::Caller;
use crate::tool_error::ToolError;

/// Maximum number of retries of one request.
const TRIES: u32 = 5;
/// Delay before a retry while the daemon is shutting down.
const SHUTDOWN_PAUSE: Duration = Duration::from_millis(50);

/// The future that makes sure a daemon runs. Its error text is shown as it is.
pub type Ensuring = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Makes sure that a daemon answers, starting one if necessary.
#[derive(Clone)]
pub struct Ensure(Arc<dyn Fn() -> Ensuring + Send + Sync>);

impl Ensure {
    /// Makes sure in this way.
    pub fn new(ensure: impl Fn() -> Ensuring + Send + Sync + 'static) -> Self {
        Ensure(Arc::new(ensure))
    }
}

impl fmt::Debug for Ensure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ensure")
    }
}

/// Access to the daemon, as one caller or as none yet.
#[derive(Clone, Debug)]
pub(crate) struct DaemonAccess {
    client: Client,
    ensure: Option<Ensure>,
}

impl DaemonAccess {
    pub(crate) fn new(client: Client, ensure: Option<Ensure>) -> Self {
        DaemonAccess { client, ensure }
    }

    /// The same access as this caller, who counts as gone `grace` after its last request.
    pub(crate) fn acting_as(&self, caller: &Caller, grace: &str) -> Self {
        let client = self.client.acting_as(&caller.owner, caller.parent.as_deref()).leaving_after(grace);
        DaemonAccess { client, ensure: self.ensure.clone() }
    }

    /// The client, for requests that must not be retried.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Starts the daemon if none answers.
    pub(crate) async fn ensure(&self) -> Result<(), ToolError> {
        match &self.ensure {
            Some(Ensure(ensure)) => ensure().await.map_err(ToolError::trouble),
            None => Ok(()),
        }
    }

    /// Retries until a daemon has answered. For idempotent requests only.
    pub(crate) async fn ask<T, F>(&self, request: impl Fn(Client) -> F) -> Result<T, ToolError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut tries = 1;
        loop {
            let error = match request(self.client.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let code = if let ClientError::Api { error, .. } = &error { Some(error.code) } else { None };
            let passes = matches!(code, Some(ErrorCode::ShuttingDown | ErrorCode::Recovering));
            let again = passes || matches!(error, ClientError::Unreachable { .. });
            if tries == TRIES || !again || self.ensure.is_none() {
                return Err(error.into());
            }
            tries += 1;
            if passes {
                tokio::time::sleep(SHUTDOWN_PAUSE).await;
            }
            self.ensure().await?;
        }
    }
}
