//! A reserved descriptor for when none are left: with it a client gets an error instead of waiting.

use std::fs::File;
use std::io;
use std::time::Duration;

use pinfold_api::error::{ApiError, ErrorCode};
use pinfold_os::proc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// How long a refused client may take to send the head of its request and to read the answer.
const REFUSAL_TIME: Duration = Duration::from_millis(500);
/// How long the listener pauses after an error that the reserved descriptor does not help against.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Maximum bytes read of a request that is refused.
const MAX_HEAD: usize = 64 << 10;

/// The reserved descriptor, and whether the shortage was logged.
#[derive(Debug)]
pub(super) struct SpareDescriptor {
    held: Option<File>,
    logged: bool,
}

impl SpareDescriptor {
    pub(super) fn new() -> Self {
        Self { held: File::open("/dev/null").ok(), logged: false }
    }

    /// The next connection to serve; `None` if one was refused, or none could be accepted.
    pub(super) async fn accept(&mut self, listener: &UnixListener) -> Option<UnixStream> {
        match listener.accept().await {
            Ok((stream, _)) => {
                self.note_accepted();
                Some(stream)
            }
            Err(error) => self.note_failed(&error, listener).await,
        }
    }

    /// A connection was accepted, so there are descriptors again.
    fn note_accepted(&mut self) {
        self.logged = false;
        if self.held.is_none() {
            self.held = File::open("/dev/null").ok();
        }
    }

    /// A connection could not be accepted. If descriptors are short, accepts with the reserved one and refuses the
    /// client; returns the stream if it can be served after all.
    async fn note_failed(&mut self, error: &io::Error, listener: &UnixListener) -> Option<UnixStream> {
        if !std::mem::replace(&mut self.logged, true) {
            tracing::error!(%error, "cannot accept connections");
        }
        if !proc::is_shortage(error) || self.held.take().is_none() {
            tokio::time::sleep(RETRY_DELAY).await;
        }
        // accept(2) reserves a descriptor before it checks for a client, so the error may come without one.
        let accepted = tokio::time::timeout(RETRY_DELAY, listener.accept()).await;
        self.held = File::open("/dev/null").ok();
        let (stream, _) = accepted.ok()?.ok()?;
        if self.held.is_some() {
            return Some(stream);
        }
        let _ = tokio::time::timeout(REFUSAL_TIME, refuse(stream, error)).await;
        self.held = File::open("/dev/null").ok();
        None
    }
}

/// Reads the head of one request, so that the client is not disconnected while it writes, and answers it.
async fn refuse(mut stream: UnixStream, error: &io::Error) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_HEAD {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let message = format!("the daemon cannot take another connection: {}", proc::explain_shortage(error));
    let error = ApiError { code: ErrorCode::ResourceShortage, message, id: None };
    let body = serde_json::to_string(&error).unwrap_or_default();
    let head =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length:";
    stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    stream.shutdown().await
}
