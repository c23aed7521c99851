//! The output pump: pipe to segment files, offsets exact. Its memory does not grow with the output.
//!
//! No file is made before the first byte. A disk in trouble never stops the command: the pipe is emptied all the same, and
//! the writer counts what it cannot keep.

use pinfold_model::units::Moment;
use pinfold_os::fsio::Moved;
use pinfold_store::marks::Stream;

use crate::system::{Output, Pipe};

/// The most bytes moved before others get their turn; also more than any pipe holds.
const TURN: usize = 2 << 20;
/// What is read and written at once.
const PIECE: usize = 16 * 1024;
/// The same for a writer in bulk: a file is written faster in large pieces, and these stay in a core's own cache.
const BULK_PIECE: usize = 256 * 1024;
/// A turn that moves this much tells of a writer in bulk, who gets a wider pipe and larger pieces.
const BULK: usize = 48 * 1024;

/// One stream of the process.
#[derive(Debug)]
pub struct Source<P> {
    pipe: P,
    stream: Stream,
    open: bool,
    /// Whether it holds as much as it can.
    wide: bool,
}

impl<P> Source<P> {
    pub fn stdout(pipe: P) -> Self {
        Self { pipe, stream: Stream::Stdout, open: true, wide: false }
    }

    pub fn stderr(pipe: P) -> Self {
        Self { pipe, stream: Stream::Stderr, open: true, wide: false }
    }

    /// Our end of a terminal; it is closed when nobody has the other open.
    pub(crate) fn terminal(master: P) -> Self {
        Self { wide: true, ..Self::stdout(master) }
    }
}

#[derive(Debug)]
pub(crate) struct Pump<P, W> {
    sources: Vec<Source<P>>,
    writer: W,
    /// What is read passes through here.
    buffer: Vec<u8>,
}

impl<P: Pipe, W: Output> Pump<P, W> {
    pub(crate) fn new(sources: Vec<Source<P>>, writer: W) -> Self {
        Self { sources, writer, buffer: Vec::with_capacity(PIECE) }
    }

    /// The pipes that are still open, with their places.
    pub(crate) fn open_pipes(&self) -> impl Iterator<Item = (usize, &P)> {
        let open = self.sources.iter().enumerate().filter(|(_, source)| source.open);
        open.map(|(place, source)| (place, &source.pipe))
    }

    /// Whether all writers are gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sources.iter().all(|source| !source.open)
    }

    /// Bytes since the start, kept or not.
    pub(crate) fn total(&self) -> u64 {
        self.writer.total()
    }

    /// Bytes that the disk refused.
    pub(crate) fn lost(&self) -> u64 {
        self.writer.lost()
    }

    /// Moves what is in all pipes now. A descendant that writes without end does not keep us here.
    pub(crate) fn drain(&mut self, now: Moment) {
        for place in 0..self.sources.len() {
            self.take_turn(place, now);
        }
    }

    /// Moves what is in one pipe, for one turn.
    pub(crate) fn take_turn(&mut self, place: usize, now: Moment) {
        let Some(source) = self.sources.get_mut(place).filter(|source| source.open) else { return };
        let mut moved = 0;
        while moved < TURN {
            self.buffer.clear();
            match source.pipe.read_some(&mut self.buffer) {
                Ok(Moved::Bytes(count)) => {
                    self.writer.append(source.stream, &self.buffer, now);
                    moved += count;
                }
                Ok(Moved::Empty) => break,
                // A pipe that cannot be read is as good as closed.
                Ok(Moved::Closed) | Err(_) => {
                    source.open = false;
                    break;
                }
            }
        }
        if moved >= BULK && !source.wide {
            source.pipe.widen();
            source.wide = true;
            self.buffer.clear();
            self.buffer.reserve(BULK_PIECE);
        }
    }
}
