//! Connections to the keeper's socket from programs other than the daemon; any program of the same user can connect.
//!
//! They get a hello, may ask for a daemon to be started, and get an error for anything else. Their number and their
//! unread bytes are bounded, and the keeper never waits for them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use pinfold_model::link::{FromKeeper, ToKeeper};
use pinfold_os::poll::Interest;

use crate::daemon_link::Link;
use crate::system::Socket;

/// Above this, the oldest connection is closed.
const MAX_VISITORS: usize = 8;

/// The reply to an order that only the daemon may give.
const VISITOR_ERROR: &str = "only the daemon of this home may send this: use its API";

#[derive(Debug)]
pub(crate) struct Visitors<K>(VecDeque<Link<K>>);

impl<K> Default for Visitors<K> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: Socket + AsFd> Visitors<K> {
    pub(crate) fn interests(&self) -> impl Iterator<Item = (usize, (BorrowedFd<'_>, Interest))> {
        self.0.iter().map(Link::interest).enumerate()
    }
}

impl<K: Socket> Visitors<K> {
    pub(crate) fn add(&mut self, socket: K, hello: &FromKeeper) {
        let mut link = Link::to_visitor(socket);
        if self.0.len() == MAX_VISITORS {
            self.0.pop_front();
        }
        link.send(hello);
        link.flush();
        self.0.push_back(link);
    }

    /// Reads one connection; returns the request numbers of its `StartDaemon` messages.
    pub(crate) fn serve(&mut self, index: usize) -> Vec<u64> {
        let Some(link) = self.0.get_mut(index) else { return vec![] };
        let mut wanted = Vec::new();
        for message in link.receive() {
            match message {
                ToKeeper::StartDaemon { request } => wanted.push(request),
                _ => link.send(&FromKeeper::Unknown { request: None, error: VISITOR_ERROR.to_owned() }),
            }
        }
        wanted
    }

    pub(crate) fn answer(&mut self, index: usize, message: &FromKeeper) {
        if let Some(link) = self.0.get_mut(index) {
            link.send(message);
        }
    }

    /// Sends what is queued, and drops closed connections.
    pub(crate) fn flush(&mut self) {
        self.0.iter_mut().for_each(Link::flush);
        self.0.retain(Link::is_open);
    }
}
