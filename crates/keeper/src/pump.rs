//! Copies output from pipes to segment files, with exact offsets and constant memory.
//!
//! No file is created before the first byte. A full or failing disk never blocks the command: the pipe is read
//! anyway, and the writer counts the lost bytes.

use pinfold_model::units::Moment;
use pinfold_os::fsio::ReadResult;
use pinfold_store::marks::Stream;

use crate::system::{Output, Pipe};

/// The most bytes copied from one pipe before other events are handled; more than any pipe holds.
const MAX_COPY: usize = 2 << 20;
/// Size of one read and write.
const READ_SIZE: usize = 16 * 1024;
/// The same for bulk output: large writes are faster, and this still fits in a core's cache.
const BULK_READ_SIZE: usize = 256 * 1024;
/// After copying this much at once, the pipe's buffer is enlarged and [`BULK_READ_SIZE`] is used.
const BULK_THRESHOLD: usize = 48 * 1024;

/// One output stream of the process.
#[derive(Debug)]
pub struct OutputStream<P> {
    pipe: P,
    kind: Stream,
    open: bool,
    /// Whether the pipe's buffer was enlarged.
    wide: bool,
}

impl<P> OutputStream<P> {
    pub fn stdout(pipe: P) -> Self {
        Self { pipe, kind: Stream::Stdout, open: true, wide: false }
    }

    pub fn stderr(pipe: P) -> Self {
        Self { pipe, kind: Stream::Stderr, open: true, wide: false }
    }

    /// The master side of a terminal; it reads as closed when no process has the slave side open.
    pub(crate) fn terminal(master: P) -> Self {
        Self { wide: true, ..Self::stdout(master) }
    }
}

#[derive(Debug)]
pub(crate) struct Pump<P, W> {
    streams: Vec<OutputStream<P>>,
    writer: W,
    buffer: Vec<u8>,
}

impl<P: Pipe, W: Output> Pump<P, W> {
    pub(crate) fn new(streams: Vec<OutputStream<P>>, writer: W) -> Self {
        Self { streams, writer, buffer: Vec::with_capacity(READ_SIZE) }
    }

    /// The open pipes, with their indexes.
    pub(crate) fn open_pipes(&self) -> impl Iterator<Item = (usize, &P)> {
        let open = self.streams.iter().enumerate().filter(|(_, stream)| stream.open);
        open.map(|(index, stream)| (index, &stream.pipe))
    }

    /// Whether every writer has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.streams.iter().all(|stream| !stream.open)
    }

    /// Bytes since the start, including those that could not be written.
    pub(crate) fn total(&self) -> u64 {
        self.writer.total()
    }

    /// Bytes that could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.writer.lost()
    }

    /// At most `max` bytes from the end of the output.
    pub(crate) fn tail(&self, max: usize) -> Vec<u8> {
        self.writer.tail(max)
    }

    /// Copies what is in all pipes now; bounded even if a descendant writes without end.
    pub(crate) fn drain(&mut self, now: Moment) {
        for index in 0..self.streams.len() {
            self.copy(index, now);
        }
    }

    /// Copies what is in one pipe, at most [`MAX_COPY`].
    pub(crate) fn copy(&mut self, index: usize, now: Moment) {
        let Some(stream) = self.streams.get_mut(index).filter(|stream| stream.open) else { return };
        let mut moved = 0;
        while moved < MAX_COPY {
            self.buffer.clear();
            match stream.pipe.read_some(&mut self.buffer) {
                Ok(ReadResult::Bytes(count)) => {
                    self.writer.append(stream.kind, &self.buffer, now);
                    moved += count;
                }
                Ok(ReadResult::Empty) => break,
                // An unreadable pipe counts as closed.
                Ok(ReadResult::Closed) | Err(_) => {
                    stream.open = false;
                    break;
                }
            }
        }
        if moved >= BULK_THRESHOLD && !stream.wide {
            stream.pipe.widen();
            stream.wide = true;
            self.buffer.clear();
            self.buffer.reserve(BULK_READ_SIZE);
        }
    }
}
