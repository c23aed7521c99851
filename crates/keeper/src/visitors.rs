//! Connections to a keeper's socket that are not the daemon's: any program of the same user may make them.
//!
//! They are told who answers, may ask for a daemon, and are refused everything else. Bounded in number and in what they
//! may leave unread; nothing here waits for them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use pinfold_model::link::{FromKeeper, ToKeeper};
use pinfold_os::poll::Interest;

use crate::link::Link;
use crate::system::Socket;

/// More than this at once: the oldest is hung up on.
const VISITORS_MOST: usize = 8;

/// What is said to a visitor who asks for what only the daemon may.
const REFUSED: &str = "not the daemon of this home: use its API";

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
    pub(crate) fn welcome(&mut self, socket: K, hello: &FromKeeper) {
        let mut link = Link::to_visitor(socket);
        if self.0.len() == VISITORS_MOST {
            self.0.pop_front();
        }
        link.say(hello);
        link.flush();
        self.0.push_back(link);
    }

    /// Serves one; gives the number of its request if it asks for a daemon.
    pub(crate) fn serve(&mut self, place: usize) -> Vec<u64> {
        let Some(link) = self.0.get_mut(place) else { return vec![] };
        let mut wanted = Vec::new();
        for message in link.receive() {
            match message {
                ToKeeper::StartDaemon { request } => wanted.push(request),
                _ => link.say(&FromKeeper::Unknown { request: None, error: REFUSED.to_owned() }),
            }
        }
        wanted
    }

    pub(crate) fn answer(&mut self, place: usize, message: &FromKeeper) {
        if let Some(link) = self.0.get_mut(place) {
            link.say(message);
        }
    }

    /// Sends what was said, and forgets who left.
    pub(crate) fn flush(&mut self) {
        self.0.iter_mut().for_each(Link::flush);
        self.0.retain(Link::is_open);
    }
}
