//! One command's talk with the daemon: the api client, and a daemon started where none is.
//!
//! If the daemon goes away in the middle, what may be asked again is asked again of its successor.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pinfold_api::client::{Client, ClientError};
use pinfold_api::error::ErrorCode;
use pinfold_daemon::config::Paths;

use crate::connect;
use crate::failure::Failure;

/// How often one request is asked of new daemons before the command gives up.
const TRIES: u32 = 5;
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
}

impl Session {
    /// Connects, starting a daemon if there is none; as the operator, or as the owner that is named.
    pub(crate) async fn open(paths: Paths, acting_as: Option<&str>) -> Result<Self, Failure> {
        let operator = Client::new(paths.socket());
        let client = acting_as.map_or_else(|| operator.clone(), |owner| operator.acting_as(owner, None));
        connect::ensure(&client, &paths).await?;
        Ok(Session { client, paths })
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
            let error = match request(&self.client).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let leaving = matches!(&error, ClientError::Api { error, .. } if error.code == ErrorCode::ShuttingDown);
            if tries == TRIES || !(leaving || matches!(error, ClientError::Unreachable { .. })) {
                return Err(error.into());
            }
            tries += 1;
            if leaving {
                tokio::time::sleep(SHUTDOWN_PAUSE).await;
            }
            connect::ensure(&self.client, &self.paths).await?;
        }
    }
}
