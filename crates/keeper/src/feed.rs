//! Input on its way into the process: what the daemon sent is held here and written as the process takes it.
//!
//! Only a process with an open stdin has a feed; without one nothing here costs anything. It lives in the keeper, so
//! that what was acknowledged is written whatever becomes of the daemon.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pinfold_model::input::{Ending, Input, Queue, Standing, Taken};
use pinfold_model::link::FromKeeper;
use pinfold_os::fsio::{self, Wrote};

use crate::driver::{Driver, Means, say};

#[derive(Debug)]
pub(crate) struct Feed {
    queue: Queue,
    /// Our end, until the end of input is written.
    to: Option<OwnedFd>,
}

impl Feed {
    /// A feed into a pipe.
    pub(crate) fn pipe(to: OwnedFd) -> Self {
        Self { queue: Queue::new(Ending::Close), to: Some(to) }
    }

    /// What to wait for: room to write, while something waits for it.
    pub(crate) fn wants_room(&self) -> Option<BorrowedFd<'_>> {
        self.to.as_ref().filter(|_| !self.queue.is_empty()).map(AsFd::as_fd)
    }

    fn offer(&mut self, input: &Input) -> Taken {
        let taken = self.queue.offer(input);
        self.flush();
        Taken { queued: self.queue.len() as u64, stdin: standing(taken.stdin, self.queue.standing()), ..taken }
    }

    /// Writes as much as there is room for, and the end when it is due.
    pub(crate) fn flush(&mut self) {
        let Some(to) = &self.to else { return };
        while !self.queue.is_empty() {
            match fsio::write_some(to.as_fd(), self.queue.front()) {
                Wrote::Bytes(count) => self.queue.wrote(count),
                Wrote::Full => return,
                Wrote::Broken => {
                    self.queue.broke();
                    self.to = None;
                    return;
                }
            }
        }
        if self.queue.must_end() {
            self.queue.ended();
            self.to = None;
        }
    }
}

/// A key that is taken says nothing of the stdin itself, and stands.
fn standing(answered: Standing, now: Standing) -> Standing {
    if answered == Standing::KeyTaken { answered } else { now }
}

impl Driver {
    /// Takes what the daemon sent, and answers at once.
    pub(crate) fn input(&mut self, request: u64, input: &Input, means: &mut Means<'_>) {
        let taken = match &mut self.feed {
            Some(feed) => feed.offer(input),
            None => Taken::nothing(Standing::Absent),
        };
        say(means.link, FromKeeper::Input { request, taken });
    }

    /// There is room to write.
    pub(crate) fn input_ready(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.flush();
        }
    }
}
