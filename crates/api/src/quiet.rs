//! A Unix stream that registers for writability only after a write would block.
//!
//! tokio's `UnixStream` always registers for both directions, so its task is also woken each time the peer has read what
//! was written: several useless wake-ups per command.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, send, sendmsg, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

/// A connected Unix stream without spurious wake-ups.
#[derive(Debug)]
pub struct QuietStream {
    /// The stream. It is wrapped as a pipe end because tokio registers pipe ends for one direction only, and accepts any
    /// descriptor as one.
    incoming: pipe::Receiver,
    /// A duplicate of the descriptor, registered for writability while a write is blocked.
    writable: Option<pipe::Sender>,
}

impl QuietStream {
    /// Takes over a connected stream. Call it within a tokio runtime.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { incoming: pipe::Receiver::from_owned_fd_unchecked(stream.into())?, writable: None })
    }

    /// Calls `write`; while it would block, waits until the stream is writable.
    fn poll_with(
        &mut self,
        context: &mut Context<'_>,
        mut write: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(writable) = &self.writable {
                ready!(writable.poll_write_ready(context))?;
                self.writable = None;
            }
            let stream = self.incoming.as_fd();
            match write(stream) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.writable = Some(pipe::Sender::from_owned_fd_unchecked(stream.try_clone_to_owned()?)?);
                }
                written => return Poll::Ready(Ok(written?)),
            }
        }
    }
}

impl AsyncRead for QuietStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.incoming).poll_read(context, buffer)
    }
}

impl AsyncWrite for QuietStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(context, |stream| send(stream, bytes, SendFlags::NOSIGNAL))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let no_ancillary = &mut SendAncillaryBuffer::default();
        self.poll_with(context, |stream| sendmsg(stream, pieces, no_ancillary, SendFlags::NOSIGNAL))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(&self.incoming, Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (QuietStream, QuietStream) {
        let (one, other) = UnixStream::pair().expect("a pair");
        (QuietStream::new(one).expect("watched"), QuietStream::new(other).expect("watched"))
    }

    #[tokio::test]
    async fn more_than_the_socket_holds_arrives_whole() {
        let (mut ours, mut theirs) = pair();
        let sent: Vec<u8> = (0..8 << 20).map(|place: u32| (place % 251) as u8).collect();
        let read = tokio::spawn(async move {
            let mut received = Vec::new();
            theirs.read_to_end(&mut received).await.map(|_| received)
        });
        ours.write_all(&sent).await.expect("written");
        ours.shutdown().await.expect("closed");
        assert!(read.await.expect("a task").expect("read") == sent);
        assert!(ours.writable.is_none(), "it is no longer registered for writability");
    }

    #[tokio::test]
    async fn both_directions_work_at_the_same_time() {
        let (ours, mut theirs) = pair();
        let (mut reader, mut writer) = tokio::io::split(ours);
        for round in 0..100_u8 {
            writer.write_all(&[round; 100]).await.expect("written");
            let mut received = [0; 100];
            theirs.read_exact(&mut received).await.expect("read");
            theirs.write_all(&received).await.expect("written back");
            reader.read_exact(&mut received).await.expect("read back");
            assert_eq!(received, [round; 100]);
        }
        drop(theirs);
        assert_eq!(reader.read(&mut [0; 1]).await.expect("the end"), 0);
        assert!(writer.write_all(&[0; 1]).await.is_err(), "the peer is gone");
    }
}
