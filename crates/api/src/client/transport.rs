//! The connection pool to the daemon's socket, and retries of requests that are safe to repeat (`Ask::repeatable`,
//! which the client's methods set).
//!
//! hyper's HTTP/1.1 sender handles one request at a time, so a busy connection is taken out of the pool, and a concurrent
//! request opens another one. A connection goes back to the pool only after its response has been read completely.
//! Bounds: [`MAX_IDLE`] pooled connections (more are closed), each for at most [`IDLE_TIMEOUT`]; [`MAX_BODY`] bytes of a
//! response (more is an error).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::ClientError;
use crate::quiet::QuietStream;

/// Maximum size of a response body in bytes.
const MAX_BODY: usize = 64 << 20;
/// Maximum number of idle connections in the pool.
const MAX_IDLE: usize = 4;
/// How long an idle connection is pooled. Shorter than the daemon's own idle timeout: if the daemon closes a connection
/// just as a request is sent, the request may have been carried out, and cannot be retried.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// `sun_path` has 108 bytes, one of them for the terminating NUL.
const MAX_SOCKET_PATH: usize = 107;
/// Attempts to connect while the daemon's backlog is full, and the pause between them.
const MAX_BACKLOG_RETRIES: u32 = 100;
const BACKLOG_RETRY_DELAY: Duration = Duration::from_millis(5);

/// Headers with the owner that a request acts as.
pub(super) type OwnerHeaders = [(HeaderName, HeaderValue)];

/// One request; kept until it is answered, so that it can be retried.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    /// Path and query.
    pub(super) target: String,
    pub(super) body: Option<Bytes>,
    /// Whether it is idempotent, so that a retry is safe.
    pub(super) repeatable: bool,
}

/// One complete response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The connection pool to one socket.
#[derive(Debug)]
pub(super) struct Transport {
    socket: PathBuf,
    /// Idle connections. Never locked across an await.
    idle: Mutex<Vec<Connection>>,
    idle_timeout: Duration,
}

/// One connection and the task that drives it; dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// When it last completed a response.
    last_used: Instant,
    _driver: Driver,
}

#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The result of sending a request on one connection.
enum Attempt {
    Answered(Box<Response<Incoming>>, Connection),
    /// The connection closed before the first byte of the response.
    Closed {
        sent: bool,
        error: hyper::Error,
    },
}

impl Transport {
    pub(super) fn new(socket: PathBuf) -> Self {
        Transport { socket, idle: Mutex::default(), idle_timeout: IDLE_TIMEOUT }
    }

    #[cfg(test)]
    pub(super) fn with_idle_timeout(idle_timeout: Duration, socket: PathBuf) -> Self {
        Transport { idle_timeout, ..Transport::new(socket) }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Opens a connection and puts it into the pool.
    pub(super) async fn connect(&self) -> Result<(), ClientError> {
        let connection = self.open().await?;
        self.put_back(connection);
        Ok(())
    }

    /// Sends a request and reads the complete response.
    pub(super) async fn exchange(&self, ask: &Ask, owner_headers: &OwnerHeaders) -> Result<Answer, ClientError> {
        let (response, connection) = self.send(ask, owner_headers, "application/json").await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(|error| self.broken_body(&*error))?;
        self.put_back(connection);
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    /// Sends a request and returns the response with its unread body, and the connection it arrives on.
    pub(super) async fn send(
        &self,
        ask: &Ask,
        owner_headers: &OwnerHeaders,
        accept: &'static str,
    ) -> Result<(Response<Incoming>, Connection), ClientError> {
        if let Some(pooled) = self.take_idle() {
            match self.attempt(pooled, ask, owner_headers, accept).await? {
                Attempt::Answered(response, connection) => return Ok((*response, connection)),
                // The other pooled connections are most likely closed too.
                Attempt::Closed { sent, .. } if ask.repeatable || !sent => self.drop_idle(),
                Attempt::Closed { error, .. } => return Err(self.disconnected(&error)),
            }
        }
        let connection = self.open().await?;
        match self.attempt(connection, ask, owner_headers, accept).await? {
            Attempt::Answered(response, connection) => Ok((*response, connection)),
            Attempt::Closed { error, .. } => Err(self.disconnected(&error)),
        }
    }

    async fn attempt(
        &self,
        mut connection: Connection,
        ask: &Ask,
        owner_headers: &OwnerHeaders,
        accept: &'static str,
    ) -> Result<Attempt, ClientError> {
        if let Err(error) = connection.sender.ready().await {
            return Ok(Attempt::Closed { sent: false, error });
        }
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(&ask.target)
            .header(HOST, "localhost")
            .header(ACCEPT, accept)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(ask.body.clone().unwrap_or_default()))
            .map_err(|error| ClientError::Protocol(error.to_string()))?;
        request.headers_mut().extend(owner_headers.iter().cloned());
        match connection.sender.send_request(request).await {
            Ok(response) => Ok(Attempt::Answered(Box::new(response), connection)),
            Err(error) if error.is_parse() => Err(ClientError::Protocol(error.to_string())),
            Err(error) => Ok(Attempt::Closed { sent: !error.is_canceled(), error }),
        }
    }

    async fn open(&self) -> Result<Connection, ClientError> {
        let stream = self.dial().await.map_err(|source| self.unreachable(source))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.disconnected(&error))?;
        // An error of the connection is also returned by `send_request` or by the body, so it is ignored here.
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Connection { sender, last_used: Instant::now(), _driver: Driver(driver) })
    }

    pub(super) async fn dial(&self) -> io::Result<QuietStream> {
        // The directory must stay open until connect returns: its descriptor is part of the short path.
        let (path, _directory) = short_path(&self.socket)?;
        let mut retries = 0;
        loop {
            match UnixStream::connect(&path).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && retries < MAX_BACKLOG_RETRIES => {
                    retries += 1;
                    tokio::time::sleep(BACKLOG_RETRY_DELAY).await;
                }
                result => return result?.into_std().and_then(QuietStream::new),
            }
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| !connection.sender.is_closed() && connection.last_used.elapsed() < self.idle_timeout);
        idle.pop()
    }

    fn put_back(&self, mut connection: Connection) {
        connection.last_used = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && !connection.sender.is_closed() {
            idle.push(connection);
        }
    }

    fn drop_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn unreachable(&self, source: io::Error) -> ClientError {
        ClientError::Unreachable { socket: self.socket.clone(), source }
    }

    pub(super) fn disconnected(&self, error: &hyper::Error) -> ClientError {
        self.unreachable(io::Error::new(
            io::ErrorKind::ConnectionReset,
            format!("the daemon closed the connection: {error}"),
        ))
    }

    fn broken_body(&self, error: &(dyn std::error::Error + Send + Sync + 'static)) -> ClientError {
        match error.downcast_ref::<hyper::Error>() {
            Some(error) => self.disconnected(error),
            None => ClientError::Protocol(format!("the response is larger than {MAX_BODY} bytes")),
        }
    }
}

/// A path to the socket that fits into a socket address: the path itself, or one through `/proc/self/fd/N` of its
/// directory.
fn short_path(socket: &Path) -> io::Result<(PathBuf, Option<File>)> {
    if socket.as_os_str().as_bytes().len() <= MAX_SOCKET_PATH {
        return Ok((socket.to_owned(), None));
    }
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket path has no file name"));
    };
    let directory = File::open(directory)?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok((short, Some(directory)))
}
