//! Connections that can be closed by others: because their token was revoked or expired, because their process was
//! handed over, or to make room for another.
//!
//! Once closed, the stream itself fails every read and write. So no request that was already buffered is acted on, and
//! a WebSocket that took over the connection from HTTP ends too.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use pinfold_model::units::Moment;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use crate::mutex::lock;

/// One connection, shared by its stream and by those who may close it.
#[derive(Debug, Default)]
pub(crate) struct ConnectionHandle {
    is_closed: AtomicBool,
    /// The tasks that wait to read and to write.
    wakers: Mutex<[Option<Waker>; 2]>,
    token_use: Mutex<TokenUse>,
}

/// The token in use on a connection.
#[derive(Debug, Default)]
struct TokenUse {
    /// The token of the latest accepted request.
    token: Option<String>,
    expires: Option<Moment>,
    /// Its slot among the authenticated connections.
    permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionHandle {
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        lock(&self.wakers).iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }

    /// Sets the token of the current request.
    pub(super) fn set_token(&self, token: &str, expires: Option<Moment>) {
        let mut token_use = lock(&self.token_use);
        (token_use.token, token_use.expires) = (Some(token.to_owned()), expires);
    }

    pub(super) fn uses_token(&self, token: &str) -> bool {
        lock(&self.token_use).token.as_deref() == Some(token)
    }

    /// When the token of the current request expires.
    pub(super) fn expires(&self) -> Option<Moment> {
        lock(&self.token_use).expires
    }

    /// Whether a request on it was authenticated.
    pub(crate) fn has_permit(&self) -> bool {
        lock(&self.token_use).permit.is_some()
    }

    pub(crate) fn set_permit(&self, permit: OwnedSemaphorePermit) {
        lock(&self.token_use).permit = Some(permit);
    }

    /// Fails if the connection is closed; else registers the task to be woken when it is.
    fn check(&self, direction: usize, context: &Context<'_>) -> io::Result<()> {
        {
            let mut wakers = lock(&self.wakers);
            if let Some(slot) = wakers.get_mut(direction)
                && !slot.as_ref().is_some_and(|known| known.will_wake(context.waker()))
            {
                *slot = Some(context.waker().clone());
            }
        }
        // Checked after the waker is stored: a later `close` wakes it.
        match self.is_closed.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

const READ: usize = 0;
const WRITE: usize = 1;

/// A stream that fails once its handle is closed.
#[derive(Debug)]
pub(crate) struct ClosableStream<S> {
    pub(crate) stream: S,
    pub(crate) handle: Arc<ConnectionHandle>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ClosableStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.handle.check(READ, context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClosableStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.handle.check(WRITE, context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.handle.check(WRITE, context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.check(WRITE, context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_cut_ends_a_read_that_waits_and_refuses_what_came_before() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let handle = Arc::<ConnectionHandle>::default();
        let mut stream = ClosableStream { stream: ours, handle: Arc::clone(&handle) };
        let reading = tokio::spawn(async move {
            let mut byte = [0];
            let first = stream.read_exact(&mut byte).await.map(|_| ());
            let second = stream.read_exact(&mut byte).await.map(|_| ());
            let third = stream.write_all(b"x").await;
            (first.is_ok(), second.is_ok(), third.is_ok())
        });
        theirs.write_all(b"a").await.expect("sent");
        tokio::task::yield_now().await;
        handle.close();
        theirs.write_all(b"b").await.expect("sent");
        assert_eq!(reading.await.expect("it ran"), (true, false, false));
    }
}
