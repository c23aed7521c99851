//! A descriptor kept for the moment when there are no more: with it a client is told so, instead of being left to wait.

use std::fs::File;
use std::io;
use std::time::Duration;

use pinfold_api::error::{ApiError, ErrorCode};
use pinfold_os::proc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// How long a client that is turned away may take to send the head of its request, and to read the answer.
const TURN_AWAY: Duration = Duration::from_millis(500);
/// How long the listener rests after an error that no spare descriptor helps against.
const REST: Duration = Duration::from_millis(50);
/// Bytes of a request that are read before it is turned away.
const HEAD_MOST: usize = 64 << 10;

/// The spare descriptor, and whether a shortage was logged already.
#[derive(Debug)]
pub(super) struct Spare {
    held: Option<File>,
    logged: bool,
}

impl Spare {
    pub(super) fn new() -> Self {
        Self { held: File::open("/dev/null").ok(), logged: false }
    }

    /// The next connection that can be served; `None` if one was turned away, or none could be accepted for the moment.
    pub(super) async fn accept(&mut self, listener: &UnixListener) -> Option<UnixStream> {
        match listener.accept().await {
            Ok((stream, _)) => {
                self.note_accepted();
                Some(stream)
            }
            Err(error) => self.note_failed(&error, listener).await,
        }
    }

    /// A connection was accepted: there are descriptors again.
    fn note_accepted(&mut self) {
        self.logged = false;
        if self.held.is_none() {
            self.held = File::open("/dev/null").ok();
        }
    }

    /// A connection could not be accepted. If descriptors are short, the spare one is used to accept and turn it away;
    /// one that can be served after all is returned.
    async fn note_failed(&mut self, error: &io::Error, listener: &UnixListener) -> Option<UnixStream> {
        if !std::mem::replace(&mut self.logged, true) {
            tracing::error!(%error, "cannot accept connections");
        }
        if !proc::is_shortage(error) || self.held.take().is_none() {
            tokio::time::sleep(REST).await;
        }
        // The kernel takes a descriptor before it looks whether somebody waits, so the error may come without a client.
        let accepted = tokio::time::timeout(REST, listener.accept()).await;
        self.held = File::open("/dev/null").ok();
        let (stream, _) = accepted.ok()?.ok()?;
        if self.held.is_some() {
            return Some(stream);
        }
        let _ = tokio::time::timeout(TURN_AWAY, turn_away(stream, error)).await;
        self.held = File::open("/dev/null").ok();
        None
    }
}

/// Reads the head of one request, so that its sender is not cut off while it writes, and answers it.
async fn turn_away(mut stream: UnixStream, error: &io::Error) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD_MOST {
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
