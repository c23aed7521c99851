//! The output pump: pipe to segment files, offsets exact. Its memory does not grow with the output.
//!
//! A little output is read and given to the writer; no file is made before the first byte. Output in bulk goes
//! from the pipe into the file by splice(2), without passing through this process. Where that cannot be done
//! (a full disk, a filesystem that refuses), it is read as well, and the writer counts what it cannot keep.
//! Either way the pipe is emptied: a disk in trouble never stops the command.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pinfold_model::units::Moment;
use pinfold_os::crash_point;
use pinfold_os::fsio::{self, Moved};
use pinfold_store::marks::Stream;
use pinfold_store::output::OutputWriter;

/// The most bytes moved before others get their turn; also more than any pipe holds.
const TURN: usize = 2 << 20;
/// Pieces for the copying way.
const COPY: usize = 16 * 1024;
/// A turn that moves this much tells of a writer in bulk, who gets a wider pipe.
const BULK: usize = 48 * 1024;

/// One stream of the process.
#[derive(Debug)]
pub(crate) struct Source {
    pipe: OwnedFd,
    stream: Stream,
    open: bool,
    wide: bool,
    /// Whether its bytes can be moved without being read.
    splices: bool,
}

impl Source {
    pub(crate) fn stdout(pipe: OwnedFd) -> Self {
        Self { pipe, stream: Stream::Stdout, open: true, wide: false, splices: true }
    }

    pub(crate) fn stderr(pipe: OwnedFd) -> Self {
        Self { pipe, stream: Stream::Stderr, open: true, wide: false, splices: true }
    }

    /// Our end of a terminal; it is closed when nobody has the other open.
    pub(crate) fn terminal(master: OwnedFd) -> Self {
        Self { splices: false, ..Self::stdout(master) }
    }
}

#[derive(Debug)]
pub(crate) struct Pump {
    sources: Vec<Source>,
    writer: OutputWriter,
    /// What is read passes through here.
    buffer: Vec<u8>,
}

impl Pump {
    pub(crate) fn new(sources: Vec<Source>, writer: OutputWriter) -> Self {
        Self { sources, writer, buffer: Vec::with_capacity(COPY) }
    }

    /// The pipes that are still open, with their places.
    pub(crate) fn open_pipes(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let open = self.sources.iter().enumerate().filter(|(_, source)| source.open);
        open.map(|(place, source)| (place, source.pipe.as_fd()))
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
        let (mut moved, mut last) = (0, 0);
        while moved < TURN {
            let step = if last < COPY || !source.splices { copy_some } else { splice_some };
            match step(&mut self.writer, source, &mut self.buffer, now) {
                Moved::Bytes(count) => (moved, last) = (moved + count, count),
                Moved::Empty => break,
                Moved::Closed => {
                    source.open = false;
                    break;
                }
            }
        }
        if moved >= BULK && !source.wide && source.splices {
            fsio::widen(source.pipe.as_fd());
            source.wide = true;
        }
    }
}

fn splice_some(writer: &mut OutputWriter, source: &Source, buffer: &mut Vec<u8>, now: Moment) -> Moved {
    let spliced = writer
        .room(source.stream, now)
        .and_then(|(file, offset, room)| fsio::splice_some(source.pipe.as_fd(), file, offset, room).ok());
    match spliced {
        Some(Moved::Bytes(count)) => {
            crash_point!("keeper.output_spliced");
            writer.advance(count as u64);
            Moved::Bytes(count)
        }
        Some(other) => other,
        None => copy_some(writer, source, buffer, now),
    }
}

fn copy_some(writer: &mut OutputWriter, source: &Source, buffer: &mut Vec<u8>, now: Moment) -> Moved {
    buffer.clear();
    match fsio::read_some(source.pipe.as_fd(), buffer) {
        Ok(Moved::Bytes(count)) => {
            writer.append(source.stream, buffer, now);
            Moved::Bytes(count)
        }
        Ok(other) => other,
        // A pipe that cannot be read is as good as closed.
        Err(_) => Moved::Closed,
    }
}
