//! The connection to the daemon. Nothing here blocks (K3).
//!
//! Messages are sent together at the end of a turn of the event loop, so that the daemon wakes once. What cannot be
//! sent stays in `unsent`, which is bounded: at most five facts a process, one `Output` for each `WatchOutput`, one
//! reply for each request. A daemon that sends requests without reading replies is disconnected at [`MAX_UNSENT`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use pinfold_model::id::ProcessId;
use pinfold_model::link::{BadFrame, Decoder, FromKeeper, ToKeeper, encode, encode_fact};
use pinfold_os::crash_point;
use pinfold_os::fsio::ReadResult;
use pinfold_os::poll::Interest;

use crate::system::Socket;

/// A daemon with more unread bytes than this is disconnected.
const MAX_UNSENT: usize = 4 << 20;
/// The same for a visitor; also its longest message.
const MAX_VISITOR_UNSENT: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Link<K> {
    socket: K,
    decoder: Decoder,
    unsent: Vec<u8>,
    max_unsent: usize,
    open: bool,
}

impl<K: Socket + AsFd> Link<K> {
    pub(crate) fn interest(&self) -> (BorrowedFd<'_>, Interest) {
        let interest = if self.unsent.is_empty() { Interest::Read } else { Interest::ReadWrite };
        (self.socket.as_fd(), interest)
    }
}

impl<K: Socket> Link<K> {
    /// A link over a non-blocking socket.
    pub(crate) fn new(socket: K) -> Self {
        let max_unsent = MAX_UNSENT;
        Self { socket, decoder: Decoder::default(), unsent: Vec::new(), max_unsent, open: true }
    }

    /// A link to a program other than the daemon.
    pub(crate) fn to_visitor(socket: K) -> Self {
        let decoder = Decoder::bounded(MAX_VISITOR_UNSENT);
        Self { decoder, max_unsent: MAX_VISITOR_UNSENT, ..Self::new(socket) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn socket(&self) -> &K {
        &self.socket
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Queues a message; it is sent at the end of this turn.
    pub(crate) fn send(&mut self, message: &FromKeeper) {
        self.unsent.extend(encode(message));
    }

    /// Queues a fact, as it is written in the record.
    pub(crate) fn send_fact(&mut self, id: &ProcessId, json: &str) {
        self.unsent.extend(encode_fact(id, json));
    }

    /// Sends queued bytes, as many as the socket accepts now.
    pub(crate) fn flush(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        while self.open && !self.unsent.is_empty() {
            match self.socket.send(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.open = false,
            }
        }
        if self.unsent.len() > self.max_unsent {
            self.open = false;
        }
        crash_point!("keeper.messages_sent");
    }

    /// All complete messages that have arrived. Unknown ones are answered with an error; malformed bytes close the
    /// link.
    pub(crate) fn receive(&mut self) -> Vec<ToKeeper> {
        while self.open && !self.decoder.is_full() {
            let space = self.decoder.space();
            match self.socket.read_some(space) {
                // A short read: nothing is left.
                Ok(ReadResult::Bytes(_)) if space.len() < space.capacity() => break,
                Ok(ReadResult::Bytes(_)) => {}
                Ok(ReadResult::Empty) => break,
                Ok(ReadResult::Closed) | Err(_) => self.open = false,
            }
        }
        let mut messages = Vec::new();
        loop {
            match self.decoder.try_next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => return messages,
                Err(BadFrame::Unknown { request, error }) => self.send(&FromKeeper::Unknown { request, error }),
                Err(_) => {
                    self.open = false;
                    return messages;
                }
            }
        }
    }
}
