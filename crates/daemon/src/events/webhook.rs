//! Webhooks: one signed POST, following the Standard Webhooks scheme.
//!
//! Bounds: [`POST_TIMEOUT`] in all, [`MAX_RESPONSE_HEAD`] bytes of the response's head, none of its body. No redirect
//! is followed. Logs and errors name only scheme and host of an address: the rest may be a secret.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use pinfold_store::secret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OnceCell};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::config::{SECRET_MARK, Secret};
use crate::core::{Core, blocking};

/// Timeout of a POST, from the DNS lookup to the response.
const POST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RESPONSE_HEAD: usize = 64 * 1024;
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

impl PostError {
    /// Whether a retry cannot succeed.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, PostError::BadAddress | PostError::Gone)
    }
}

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) secure: bool,
    /// The `Host` header: host, and the port if the address has one.
    pub(crate) authority: String,
    host: String,
    port: u16,
    /// Path and query.
    target: String,
}

impl Destination {
    pub(crate) fn parse(address: &str) -> Result<Self, PostError> {
        let uri: Uri = address.parse().map_err(|_| PostError::BadAddress)?;
        let secure = uri.scheme_str() == Some("https");
        Ok(Self {
            secure,
            authority: uri.authority().ok_or(PostError::BadAddress)?.as_str().to_owned(),
            host: uri.host().ok_or(PostError::BadAddress)?.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            target: uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
        })
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
    ) -> Result<StatusCode, PostError> {
        let addresses = self.resolve(&destination.host, destination.port).await?;
        let stream = TcpStream::connect(&addresses[..]).await.map_err(unreachable)?;
        if !destination.secure {
            return exchange(stream, request).await;
        }
        let config =
            self.webhooks.tls.get_or_try_init(async || blocking(tls).await.map_err(unreachable_request)?).await?;
        let name = ServerName::try_from(destination.host).map_err(|_| PostError::BadAddress)?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await.map_err(unreachable)?;
        exchange(stream, request).await
    }
}

impl Core {
    /// One DNS lookup at a time, on a thread that holds the lock: a name server that does not answer blocks only one of
    /// the daemon's threads.
    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, PostError> {
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

fn unreachable(error: impl std::fmt::Display) -> PostError {
    PostError::Unreachable(error.to_string())
}

fn unreachable_request(error: crate::request_error::RequestError) -> PostError {
    PostError::Unreachable(error.0.message)
}

/// Trusts the system's certificate authorities (or `SSL_CERT_FILE`, `SSL_CERT_DIR`).
fn tls() -> Result<Arc<ClientConfig>, PostError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let none = "no certificate authorities are installed: install ca-certificates, or set SSL_CERT_FILE";
        return Err(unreachable(none));
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(Arc::new(config.map_err(unreachable)?.with_root_certificates(roots).with_no_client_auth()))
}

/// Sends a request and returns the status of the response; the rest is not read.
pub(crate) async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<StatusCode, PostError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_RESPONSE_HEAD);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(sender.send_request(request));
    let answer = tokio::select! {
        answer = answer.as_mut() => answer,
        // The connection may have received the response before it closed.
        _ = connection.as_mut() => answer.await,
    };
    Ok(answer.map_err(unreachable)?.status())
}

impl From<io::Error> for PostError {
    fn from(error: io::Error) -> Self {
        unreachable(error)
    }
}
