//! Access to the daemon. Idempotent requests are retried, because the daemon may be restarting.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::client::{Client, ClientError};
use pinfold_api::error::ErrorCode;

use crate::identity::Caller;
use crate::tool_error::ToolError;

/// Maximum number of attempts for one request.
const MAX_ATTEMPTS: u32 = 5;
/// Delay before a retry while the daemon shuts down or recovers.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The future of [`Ensure`]. Its error is shown to the user unchanged.
pub type EnsureFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Starts a daemon if none is running.
#[derive(Clone)]
pub struct Ensure(Arc<dyn Fn() -> EnsureFuture + Send + Sync>);

impl Ensure {
    /// Wraps a function that starts a daemon if none is running.
    pub fn new(ensure: impl Fn() -> EnsureFuture + Send + Sync + 'static) -> Self {
        Ensure(Arc::new(ensure))
    }
}

impl fmt::Debug for Ensure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ensure")
    }
}

/// Access to the daemon, optionally acting as one caller.
#[derive(Clone, Debug)]
pub(crate) struct DaemonAccess {
    client: Client,
    ensure: Option<Ensure>,
}

impl DaemonAccess {
    pub(crate) fn new(client: Client, ensure: Option<Ensure>) -> Self {
        DaemonAccess { client, ensure }
    }

    /// Returns access as this caller, whose owner counts as disconnected `grace` after its last request.
    pub(crate) fn acting_as(&self, caller: &Caller, grace: &str) -> Self {
        let client = self.client.acting_as(&caller.owner, caller.parent.as_deref()).with_owner_grace(grace);
        DaemonAccess { client, ensure: self.ensure.clone() }
    }

    /// The client, for requests that must not be retried.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Starts the daemon if none answers.
    pub(crate) async fn ensure(&self) -> Result<(), ToolError> {
        match &self.ensure {
            Some(Ensure(ensure)) => ensure().await.map_err(ToolError::internal),
            None => Ok(()),
        }
    }

    /// Sends a request, and retries while the daemon is unreachable, shutting down or recovering. For idempotent
    /// requests only.
    pub(crate) async fn retry<T, F>(&self, request: impl Fn(Client) -> F) -> Result<T, ToolError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut attempts = 1;
        loop {
            let error = match request(self.client.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let code = if let ClientError::Api { error, .. } = &error { Some(error.code) } else { None };
            let is_temporary = matches!(code, Some(ErrorCode::ShuttingDown | ErrorCode::Recovering));
            let should_retry = is_temporary || matches!(error, ClientError::Unreachable { .. });
            if attempts == MAX_ATTEMPTS || !should_retry || self.ensure.is_none() {
                return Err(error.into());
            }
            attempts += 1;
            if is_temporary {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            self.ensure().await?;
        }
    }
}
