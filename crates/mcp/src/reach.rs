//! The way to a daemon that is there, or will be: what may be asked again is asked again of its successor.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::client::{Client, ClientError};
use pinfold_api::error::ErrorCode;

use crate::identity::Caller;
use crate::refusal::Refusal;

/// How often one request is asked of new daemons before the call gives up.
const TRIES: u32 = 5;
/// The pause before a daemon that is shutting down is asked again.
const SHUTDOWN_PAUSE: Duration = Duration::from_millis(50);

/// The making sure of a daemon, under way; an error is said as it is.
pub type Ensuring = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Makes sure that a daemon answers, by starting one if need be.
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

/// The way to the daemon, for one caller or for none yet.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    client: Client,
    ensure: Option<Ensure>,
}

impl Reach {
    pub(crate) fn new(client: Client, ensure: Option<Ensure>) -> Self {
        Reach { client, ensure }
    }

    /// The same way, with every request made in the caller's name, which counts as gone `grace` after the last one.
    pub(crate) fn acting_as(&self, caller: &Caller, grace: &str) -> Self {
        let client = self.client.acting_as(&caller.owner, caller.parent.as_deref()).leaving_after(grace);
        Reach { client, ensure: self.ensure.clone() }
    }

    /// The client, for what is asked once.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Starts the daemon if none answers.
    pub(crate) async fn ensure(&self) -> Result<(), Refusal> {
        match &self.ensure {
            Some(Ensure(ensure)) => ensure().await.map_err(Refusal::trouble),
            None => Ok(()),
        }
    }

    /// Asks until a daemon has answered. For requests that do the same when done twice.
    pub(crate) async fn ask<T, F>(&self, request: impl Fn(Client) -> F) -> Result<T, Refusal>
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
