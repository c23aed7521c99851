//! Webhooks: one signed POST, following the Standard Webhooks scheme.
//!
//! Bounds: [`POST_TIMEOUT`] in all. No redirect is followed. Logs and errors name only scheme and host of an address: the rest may be a secret.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use pinfold_store::secret;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OnceCell};
use tokio_rustls::rustls::ClientConfig;

use crate::config::{SECRET_MARK, Secret};
use crate::core::{Core, blocking};
use crate::http_client::{Destination, SendError, exchange, exchange_secure, tls, unreachable};

/// Timeout of a POST, from the DNS lookup to the response.
const POST_TIMEOUT: Duration = Duration::from_secs(10);
/// What all POSTs share, created with the first one.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    secret: OnceCell<Secret>,
    tls: OnceCell<Arc<ClientConfig>>,
    /// Locked during a DNS lookup.
    lookup: Arc<Mutex<()>>,
}

/// One message to post.
#[derive(Debug)]
pub(super) struct WebhookMessage {
    /// Identifies the message to its receiver; the same for every attempt.
    pub(super) id: String,
    /// Seconds since 1970.
    pub(super) timestamp: u64,
    pub(super) body: String,
}

/// Why a post failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    #[error("the address is not a valid URL")]
    BadAddress,
    #[error("cannot read the signing secret: {0}")]
    NoSecret(String),
    #[error("{0}")]
    Unreachable(String),
    #[error("no answer within 10s")]
    TimedOut,
    #[error("it redirects ({0}), and redirects are not followed: use the final address")]
    Redirects(StatusCode),
    #[error("it answered {0}")]
    Refused(StatusCode),
    #[error("it answered 410 Gone: the receiver has unsubscribed")]
    Gone,
}

impl From<SendError> for PostError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::BadAddress => PostError::BadAddress,
            SendError::Unreachable(reason) => PostError::Unreachable(reason),
        }
    }
}

impl PostError {
    /// Whether a retry cannot succeed.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, PostError::BadAddress | PostError::Gone)
    }
}

impl Core {
    /// Posts a message; succeeds if the receiver accepted it.
    pub(super) async fn post(self: &Arc<Self>, address: &str, message: WebhookMessage) -> Result<(), PostError> {
        let destination = Destination::parse(address)?;
        let secret = self.webhook_secret().await.map_err(PostError::NoSecret)?;
        let signature = secret.sign(&message.id, message.timestamp, &message.body);
        let request = Request::builder()
            .method(Method::POST)
            .uri(&destination.target)
            .header(HOST, &destination.authority)
            .header(USER_AGENT, concat!("pinfold/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", message.timestamp)
            .header("webhook-signature", signature)
            .body(Full::new(Bytes::from(message.body)))
            .map_err(|_| PostError::BadAddress)?;
        let sent = tokio::time::timeout(POST_TIMEOUT, self.send(destination, request)).await;
        match sent.map_err(|_| PostError::TimedOut)?? {
            status if status.is_success() => Ok(()),
            StatusCode::GONE => Err(PostError::Gone),
            status if status.is_redirection() => Err(PostError::Redirects(status)),
            status => Err(PostError::Refused(status)),
        }
    }

    async fn webhook_secret(self: &Arc<Self>) -> Result<&Secret, String> {
        let make = async || {
            if let Some(secret) = &self.config.webhook_secret {
                return Ok(secret.clone());
            }
            let core = Arc::clone(self);
            let write = |bytes: &[u8; secret::SECRET_BYTES]| format!("{SECRET_MARK}{}", STANDARD.encode(bytes));
            let read = blocking(move || secret::read_or_make(&core.home, write)).await;
            let path = self.home.webhook_key();
            let text = read.map_err(|error| error.0.message)?;
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Secret::parse(&text).map_err(|bad| format!("{}: {bad}", path.display()))
        };
        self.webhooks.secret.get_or_try_init(make).await
    }

    async fn send(
        self: &Arc<Self>,
        destination: Destination,
        request: Request<Full<Bytes>>,
    ) -> Result<StatusCode, SendError> {
        let addresses = self.resolve(&destination.host, destination.port).await?;
        let stream = TcpStream::connect(&addresses[..]).await.map_err(unreachable)?;
        if !destination.secure {
            return exchange(stream, request).await;
        }
        let config =
            self.webhooks.tls.get_or_try_init(async || blocking(tls).await.map_err(unreachable_request)?).await?;
        exchange_secure(stream, config, destination.host, request).await
    }
}

impl Core {
    /// One DNS lookup at a time, on a thread that holds the lock: a name server that does not answer blocks only one of
    /// the daemon's threads.
    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, SendError> {
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let (host, guard) = (host.to_owned(), Arc::clone(&self.webhooks.lookup).lock_owned().await);
        let found = blocking(move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Vec::from_iter);
            drop(guard);
            found
        });
        found.await.map_err(unreachable_request)?.map_err(unreachable)
    }
}

fn unreachable_request(error: crate::request_error::RequestError) -> SendError {
    SendError::Unreachable(error.0.message)
}
