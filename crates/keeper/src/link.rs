//! The daemon's end of a keeper: messages in, messages out, never a block (K3).
//!
//! What is said goes out together at the end of a turn of the keeper's loop: the daemon wakes once for it. What cannot
//! be sent then waits in `unsent`. It is bounded by what a keeper has to say: at most five facts
//! a process, one `Output` for each `WatchOutput`, one answer for each request; a daemon that asks without
//! reading is dropped at [`UNSENT_MOST`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use pinfold_model::id::ProcessId;
use pinfold_model::link::{BadFrame, Decoder, FromKeeper, ToKeeper, encode, encode_fact};
use pinfold_os::crash_point;
use pinfold_os::fsio::Moved;
use pinfold_os::poll::Interest;

use crate::system::Socket;

/// A daemon that leaves more than this unread is taken for gone.
const UNSENT_MOST: usize = 4 << 20;
/// The same of a visitor, and its longest message.
const VISITOR_MOST: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Link<K> {
    socket: K,
    decoder: Decoder,
    unsent: Vec<u8>,
    unsent_most: usize,
    open: bool,
}

impl<K: Socket + AsFd> Link<K> {
    pub(crate) fn interest(&self) -> (BorrowedFd<'_>, Interest) {
        let interest = if self.unsent.is_empty() { Interest::Read } else { Interest::ReadWrite };
        (self.socket.as_fd(), interest)
    }
}

impl<K: Socket> Link<K> {
    /// A link over a socket that does not block.
    pub(crate) fn new(socket: K) -> Self {
        let unsent_most = UNSENT_MOST;
        Self { socket, decoder: Decoder::default(), unsent: Vec::new(), unsent_most, open: true }
    }

    /// To somebody who is not the daemon.
    pub(crate) fn to_visitor(socket: K) -> Self {
        let decoder = Decoder::bounded(VISITOR_MOST);
        Self { decoder, unsent_most: VISITOR_MOST, ..Self::new(socket) }
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

    /// Says something at the end of this turn.
    pub(crate) fn say(&mut self, message: &FromKeeper) {
        self.unsent.extend(encode(message));
    }

    /// Likewise a fact, as it is written in the record.
    pub(crate) fn say_fact(&mut self, id: &ProcessId, json: &str) {
        self.unsent.extend(encode_fact(id, json));
    }

    /// Sends what was said, or as much of it as the daemon takes now.
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
        if self.unsent.len() > self.unsent_most {
            self.open = false;
        }
        crash_point!("keeper.told");
    }

    /// Every whole message that has arrived. One that is not known is answered; bytes that are no message close the link.
    pub(crate) fn receive(&mut self) -> Vec<ToKeeper> {
        while self.open && !self.decoder.is_full() {
            let space = self.decoder.space();
            match self.socket.read_some(space) {
                // There was room for more: that was all.
                Ok(Moved::Bytes(_)) if space.len() < space.capacity() => break,
                Ok(Moved::Bytes(_)) => {}
                Ok(Moved::Empty) => break,
                Ok(Moved::Closed) | Err(_) => self.open = false,
            }
        }
        let mut messages = Vec::new();
        loop {
            match self.decoder.try_next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => return messages,
                Err(BadFrame::Unknown { request, error }) => self.say(&FromKeeper::Unknown { request, error }),
                Err(_) => {
                    self.open = false;
                    return messages;
                }
            }
        }
    }
}
