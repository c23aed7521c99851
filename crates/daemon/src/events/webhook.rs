//! Webhooks: one signed POST, as the Standard Webhooks scheme has it.
//!
//! Bounds: [`TIME`] for all of it, [`ANSWER_MOST`] bytes of an answer's head, and none of its body. No redirect is
//! followed. Nothing here names more of an address than its scheme and host: the rest may be a secret.

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

/// How long a post may take, from the look-up of the host to the answer.
const TIME: Duration = Duration::from_secs(10);
const ANSWER_MOST: usize = 64 * 1024;
/// What posts have in common, made at the first of them.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    secret: OnceCell<Secret>,
    tls: OnceCell<Arc<ClientConfig>>,
    /// Held while a name is looked up.
    lookup: Arc<Mutex<()>>,
}

/// One message.
#[derive(Debug)]
pub(super) struct Letter {
    /// What its receiver knows it by, the same each time it is tried.
    pub(super) id: String,
    /// Seconds since 1970.
    pub(super) timestamp: u64,
    pub(super) body: String,
}

/// Why a post failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    #[error("the address cannot be used")]
    BadAddress,
    #[error("the secret cannot be had: {0}")]
    NoSecret(String),
    #[error("{0}")]
    Unreachable(String),
    #[error("no answer within 10s")]
    Late,
    #[error("it redirects ({0}), which is not followed: give the address it leads to")]
    Redirects(StatusCode),
    #[error("it answered {0}")]
    Refused(StatusCode),
    #[error("it answered 410: it wants no more of this")]
    Gone,
}

impl PostError {
    /// Whether trying again is of no use.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, PostError::BadAddress | PostError::Gone)
    }
}

/// Where a post goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) secure: bool,
    /// What its `Host` says: host, and the port if the address has one.
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
    /// Posts a message, and returns when it was accepted.
    pub(super) async fn post(self: &Arc<Self>, address: &str, letter: Letter) -> Result<(), PostError> {
        let place = Destination::parse(address)?;
        let secret = self.webhook_secret().await.map_err(PostError::NoSecret)?;
        let signature = secret.sign(&letter.id, letter.timestamp, &letter.body);
        let request = Request::builder()
            .method(Method::POST)
            .uri(&place.target)
            .header(HOST, &place.authority)
            .header(USER_AGENT, concat!("pinfold/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &letter.id)
            .header("webhook-timestamp", letter.timestamp)
            .header("webhook-signature", signature)
            .body(Full::new(Bytes::from(letter.body)))
            .map_err(|_| PostError::BadAddress)?;
        let sent = tokio::time::timeout(TIME, self.send(place, request)).await;
        match sent.map_err(|_| PostError::Late)?? {
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
            let text = read.map_err(|refusal| refusal.0.message)?;
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Secret::parse(&text).map_err(|bad| format!("{}: {bad}", path.display()))
        };
        self.webhooks.secret.get_or_try_init(make).await
    }

    async fn send(
        self: &Arc<Self>,
        place: Destination,
        request: Request<Full<Bytes>>,
    ) -> Result<StatusCode, PostError> {
        let addresses = self.look_up(&place.host, place.port).await?;
        let stream = TcpStream::connect(&addresses[..]).await.map_err(unreachable)?;
        if !place.secure {
            return exchange(stream, request).await;
        }
        let config = self.webhooks.tls.get_or_try_init(async || blocking(tls).await.map_err(unreachable_by)?).await?;
        let name = ServerName::try_from(place.host).map_err(|_| PostError::BadAddress)?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await.map_err(unreachable)?;
        exchange(stream, request).await
    }
}

impl Core {
    /// One name is looked up at a time, by a thread that holds the lock: a name server that does not answer holds up no
    /// more than one of the daemon's threads.
    async fn look_up(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, PostError> {
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let (host, looking) = (host.to_owned(), Arc::clone(&self.webhooks.lookup).lock_owned().await);
        let found = blocking(move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Vec::from_iter);
            drop(looking);
            found
        });
        found.await.map_err(unreachable_by)?.map_err(unreachable)
    }
}

fn unreachable(error: impl std::fmt::Display) -> PostError {
    PostError::Unreachable(error.to_string())
}

fn unreachable_by(refusal: crate::refusal::Refusal) -> PostError {
    PostError::Unreachable(refusal.0.message)
}

/// Trusts whom the machine trusts (or `SSL_CERT_FILE`, `SSL_CERT_DIR`).
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

/// Sends a request and gives the status of its answer; the rest of the answer is left unread.
pub(crate) async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<StatusCode, PostError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(ANSWER_MOST);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(sender.send_request(request));
    let answer = tokio::select! {
        answer = answer.as_mut() => answer,
        // It may have read the answer before it ended.
        _ = connection.as_mut() => answer.await,
    };
    Ok(answer.map_err(unreachable)?.status())
}

impl From<io::Error> for PostError {
    fn from(error: io::Error) -> Self {
        unreachable(error)
    }
}
