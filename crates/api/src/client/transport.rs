//! Connections to the daemon's socket: opening, keeping alive, repeating.
//!
//! hyper's HTTP/1.1 sender carries one request at a time, so a busy connection is out of the pool and a second
//! request opens another. A connection goes back only after its answer was read whole.
//! Bounds: [`IDLE_MOST`] kept connections (more are closed), none for longer than [`KEPT_FOR`], [`BODY_MOST`] bytes of an
//! answer (more is an error).

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

/// The most bytes of one answer.
const BODY_MOST: usize = 64 << 20;
/// The most connections kept open while idle.
const IDLE_MOST: usize = 4;
/// How long an idle one is kept. Less than the daemon waits for its next request: a request that went into a connection
/// as that was closed may have been done, and could not be sent again.
const KEPT_FOR: Duration = Duration::from_secs(15);
/// `sun_path` has 108 bytes, one of them for the end.
const SOCKET_PATH_MOST: usize = 107;
/// How often a connect is repeated while the daemon's backlog is full, and the pause between.
const BACKLOG_TRIES: u32 = 100;
const BACKLOG_PAUSE: Duration = Duration::from_millis(5);

/// Headers of the owner that a request acts as.
pub(super) type Scope = [(HeaderName, HeaderValue)];

/// One request, ready to be sent and, if need be, sent again.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    /// Path and query.
    pub(super) target: String,
    pub(super) body: Option<Bytes>,
    /// Whether doing it twice does the same as once.
    pub(super) repeatable: bool,
}

/// One answer, read whole.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The way to one socket.
#[derive(Debug)]
pub(super) struct Transport {
    socket: PathBuf,
    /// Connections that carry no request now. Never locked across an await.
    idle: Mutex<Vec<Connection>>,
    kept_for: Duration,
}

/// One connection and the task that drives it; dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// When it was last known to be of use.
    used: Instant,
    _driver: Driver,
}

#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What became of a request on one connection.
enum Attempt {
    Answered(Box<Response<Incoming>>, Connection),
    /// The connection ended before a byte of the answer came.
    Closed {
        sent: bool,
        error: hyper::Error,
    },
}

impl Transport {
    pub(super) fn new(socket: PathBuf) -> Self {
        Transport { socket, idle: Mutex::default(), kept_for: KEPT_FOR }
    }

    #[cfg(test)]
    pub(super) fn keeping_for(kept_for: Duration, socket: PathBuf) -> Self {
        Transport { kept_for, ..Transport::new(socket) }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Opens a connection and keeps it for the next request.
    pub(super) async fn connect(&self) -> Result<(), ClientError> {
        let connection = self.open().await?;
        self.put_back(connection);
        Ok(())
    }

    /// Sends a request and reads its whole answer.
    pub(super) async fn exchange(&self, ask: &Ask, scope: &Scope) -> Result<Answer, ClientError> {
        let (response, connection) = self.send(ask, scope, "application/json").await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, BODY_MOST).collect().await.map_err(|error| self.broken_body(&*error))?;
        self.put_back(connection);
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    /// Sends a request and gives the answer with its body still to come, on a connection of its own.
    pub(super) async fn send(
        &self,
        ask: &Ask,
        scope: &Scope,
        accept: &'static str,
    ) -> Result<(Response<Incoming>, Connection), ClientError> {
        if let Some(kept) = self.take_idle() {
            match self.attempt(kept, ask, scope, accept).await? {
                Attempt::Answered(response, connection) => return Ok((*response, connection)),
                // Whatever ended this one most likely ended the others as well.
                Attempt::Closed { sent, .. } if ask.repeatable || !sent => self.forget_idle(),
                Attempt::Closed { error, .. } => return Err(self.gone(&error)),
            }
        }
        let fresh = self.open().await?;
        match self.attempt(fresh, ask, scope, accept).await? {
            Attempt::Answered(response, connection) => Ok((*response, connection)),
            Attempt::Closed { error, .. } => Err(self.gone(&error)),
        }
    }

    async fn attempt(
        &self,
        mut connection: Connection,
        ask: &Ask,
        scope: &Scope,
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
        request.headers_mut().extend(scope.iter().cloned());
        match connection.sender.send_request(request).await {
            Ok(response) => Ok(Attempt::Answered(Box::new(response), connection)),
            Err(error) if error.is_parse() => Err(ClientError::Protocol(error.to_string())),
            Err(error) => Ok(Attempt::Closed { sent: !error.is_canceled(), error }),
        }
    }

    async fn open(&self) -> Result<Connection, ClientError> {
        let stream = self.dial().await.map_err(|source| self.unreachable(source))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.gone(&error))?;
        // An error of the connection reaches whoever waits for an answer on it.
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Connection { sender, used: Instant::now(), _driver: Driver(driver) })
    }

    pub(super) async fn dial(&self) -> io::Result<QuietStream> {
        // The directory stays open until the connect is done: its descriptor is part of the short path.
        let (path, _directory) = reachable(&self.socket)?;
        let mut tries = 0;
        loop {
            match UnixStream::connect(&path).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < BACKLOG_TRIES => {
                    tries += 1;
                    tokio::time::sleep(BACKLOG_PAUSE).await;
                }
                done => return done?.into_std().and_then(QuietStream::new),
            }
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| !connection.sender.is_closed() && connection.used.elapsed() < self.kept_for);
        idle.pop()
    }

    fn put_back(&self, mut connection: Connection) {
        connection.used = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MOST && !connection.sender.is_closed() {
            idle.push(connection);
        }
    }

    fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn unreachable(&self, source: io::Error) -> ClientError {
        ClientError::Unreachable { socket: self.socket.clone(), source }
    }

    pub(super) fn gone(&self, error: &hyper::Error) -> ClientError {
        self.unreachable(io::Error::new(
            io::ErrorKind::ConnectionReset,
            format!("the daemon closed the connection: {error}"),
        ))
    }

    fn broken_body(&self, error: &(dyn std::error::Error + Send + Sync + 'static)) -> ClientError {
        match error.downcast_ref::<hyper::Error>() {
            Some(error) => self.gone(error),
            None => ClientError::Protocol(format!("an answer larger than {BODY_MOST} bytes")),
        }
    }
}

/// A path to the socket that fits an address: itself, or one through the descriptor of its directory.
fn reachable(socket: &Path) -> io::Result<(PathBuf, Option<File>)> {
    if socket.as_os_str().as_bytes().len() <= SOCKET_PATH_MOST {
        return Ok((socket.to_owned(), None));
    }
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket's path names no file"));
    };
    let directory = File::open(directory)?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok((short, Some(directory)))
}
