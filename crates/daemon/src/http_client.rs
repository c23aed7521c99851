//! Requests that the daemon sends: addresses, TLS, one request on one connection.
//!
//! Bounds: [`MAX_RESPONSE_HEAD`] bytes of the response's head, none of its body. No redirect is followed. The caller sets the
//! timeout and resolves the name.

use std::io;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

const MAX_RESPONSE_HEAD: usize = 64 * 1024;

/// Why no response was received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    #[error("the address is not a valid URL")]
    BadAddress,
    #[error("{0}")]
    Unreachable(String),
}

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) secure: bool,
    /// The `Host` header: host, and the port if the address has one.
    pub(crate) authority: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) target: String,
}

impl Destination {
    pub(crate) fn parse(address: &str) -> Result<Self, SendError> {
        let uri: Uri = address.parse().map_err(|_| SendError::BadAddress)?;
        let secure = uri.scheme_str() == Some("https");
        Ok(Self {
            secure,
            authority: uri.authority().ok_or(SendError::BadAddress)?.as_str().to_owned(),
            host: uri.host().ok_or(SendError::BadAddress)?.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            target: uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
        })
    }
}

/// Sends a request over TLS and returns the status of the response.
pub(crate) async fn exchange_secure(
    stream: TcpStream,
    config: &Arc<ClientConfig>,
    host: String,
    request: Request<Full<Bytes>>,
) -> Result<StatusCode, SendError> {
    let name = ServerName::try_from(host).map_err(|_| SendError::BadAddress)?;
    exchange(TlsConnector::from(Arc::clone(config)).connect(name, stream).await.map_err(unreachable)?, request).await
}

/// Trusts the system's certificate authorities (or `SSL_CERT_FILE`, `SSL_CERT_DIR`).
pub(crate) fn tls() -> Result<Arc<ClientConfig>, SendError> {
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
pub(crate) async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<StatusCode, SendError>
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

pub(crate) fn unreachable(error: impl std::fmt::Display) -> SendError {
    SendError::Unreachable(error.to_string())
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> Self {
        unreachable(error)
    }
}
