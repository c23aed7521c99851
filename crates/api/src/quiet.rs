//! A Unix stream whose task is woken when there is something to read, and for room to write only when it lacked some.
//!
//! tokio's own asks the kernel for both at once, and so is woken each time the other side has read what was written to it:
//! several times for each command, for nothing, while others have better use for the cores.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, send, sendmsg, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

#[derive(Debug)]
pub struct QuietStream {
    /// The stream. An end of a pipe, for tokio: such are watched for one direction alone, and any descriptor can be one.
    incoming: pipe::Receiver,
    /// A second descriptor of it, while room is waited for.
    room: Option<pipe::Sender>,
}

impl QuietStream {
    /// Takes over a connected stream; within a runtime.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { incoming: pipe::Receiver::from_owned_fd_unchecked(stream.into())?, room: None })
    }

    /// Writes, if need be when there is room.
    fn poll_with(
        &mut self,
        context: &mut Context<'_>,
        mut write: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(room) = &self.room {
                ready!(room.poll_write_ready(context))?;
                self.room = None;
            }
            let stream = self.incoming.as_fd();
            match write(stream) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.room = Some(pipe::Sender::from_owned_fd_unchecked(stream.try_clone_to_owned()?)?);
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
        let nothing_more = &mut SendAncillaryBuffer::default();
        self.poll_with(context, |stream| sendmsg(stream, pieces, nothing_more, SendFlags::NOSIGNAL))
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
        assert!(ours.room.is_none(), "nobody waits for room any more");
    }

    #[tokio::test]
    async fn both_directions_at_once() {
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
        assert!(writer.write_all(&[0; 1]).await.is_err(), "nobody is there");
    }
}
