//! Connections that can be closed from outside: because the token that opened them was revoked or has expired, because the
//! process they come from was handed over, or because others need their place.
//!
//! The stream itself refuses to read and write once it is cut. So nothing that came before is acted on later, and the same
//! holds for a WebSocket that took the connection over from HTTP.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use pinfold_model::units::Moment;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use crate::lock::lock;

/// What is known of one connection, shared by its stream and by those who may cut it.
#[derive(Debug, Default)]
pub(crate) struct Line {
    is_cut: AtomicBool,
    /// Who waits to read and who to write.
    wakers: Mutex<[Option<Waker>; 2]>,
    holder: Mutex<Holder>,
}

/// Whose a connection is.
#[derive(Debug, Default)]
struct Holder {
    /// The token of the latest request that was let in.
    token: Option<String>,
    expires: Option<Moment>,
    /// Its place among the connections that were let in.
    place: Option<OwnedSemaphorePermit>,
}

impl Line {
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        lock(&self.wakers).iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }

    /// Notes which token the current request showed.
    pub(super) fn hold(&self, token: &str, expires: Option<Moment>) {
        let mut holder = lock(&self.holder);
        (holder.token, holder.expires) = (Some(token.to_owned()), expires);
    }

    pub(super) fn is_held_by(&self, token: &str) -> bool {
        lock(&self.holder).token.as_deref() == Some(token)
    }

    /// When the token of the current request expires.
    pub(super) fn expires(&self) -> Option<Moment> {
        lock(&self.holder).expires
    }

    /// Whether a request of it was let in.
    pub(crate) fn has_place(&self) -> bool {
        lock(&self.holder).place.is_some()
    }

    pub(crate) fn take_place(&self, place: OwnedSemaphorePermit) {
        lock(&self.holder).place = Some(place);
    }

    /// Fails if the line is cut; else whoever asks is woken when it is.
    fn check(&self, direction: usize, context: &Context<'_>) -> io::Result<()> {
        {
            let mut wakers = lock(&self.wakers);
            if let Some(slot) = wakers.get_mut(direction)
                && !slot.as_ref().is_some_and(|known| known.will_wake(context.waker()))
            {
                *slot = Some(context.waker().clone());
            }
        }
        // After the waker is there: whoever cuts later finds it.
        match self.is_cut.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

const READ: usize = 0;
const WRITE: usize = 1;

/// A stream that ends when its line is cut.
#[derive(Debug)]
pub(crate) struct Cuttable<S> {
    pub(crate) stream: S,
    pub(crate) line: Arc<Line>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Cuttable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.line.check(READ, context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cuttable<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.line.check(WRITE, context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.line.check(WRITE, context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.line.check(WRITE, context)?;
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
        let line = Arc::<Line>::default();
        let mut stream = Cuttable { stream: ours, line: Arc::clone(&line) };
        let reading = tokio::spawn(async move {
            let mut byte = [0];
            let first = stream.read_exact(&mut byte).await.map(|_| ());
            let second = stream.read_exact(&mut byte).await.map(|_| ());
            let third = stream.write_all(b"x").await;
            (first.is_ok(), second.is_ok(), third.is_ok())
        });
        theirs.write_all(b"a").await.expect("sent");
        tokio::task::yield_now().await;
        line.cut();
        theirs.write_all(b"b").await.expect("sent");
        assert_eq!(reading.await.expect("it ran"), (true, false, false));
    }
}
