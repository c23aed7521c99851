//! Input on its way into the process: what the daemon sent is held here and written as the process takes it; and
//! whether the process waits for more.
//!
//! Only a process with an open stdin or a terminal has a feed; without one nothing here costs anything. It lives in the
//! keeper, so that what was acknowledged is written whatever becomes of the daemon.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use pinfold_model::input::{Ending, Input, Queue, Standing, Taken};
use pinfold_model::link::{FromKeeper, Terminal, Waiting};
use pinfold_model::spec::PtySize;
use pinfold_os::awaiting::{self, Awaiting, Source};
use pinfold_os::fsio::{self, Wrote};
use pinfold_os::pty::{self, Size};
use pinfold_os::{daemonize, tree};

use crate::driver::{Driver, KeeperContext, say};
use crate::system::System;

/// After so long without input or output it is looked at whether the process waits.
const QUIET: Duration = Duration::from_millis(250);
/// While nothing changes it is looked at ever less often, but at least this often.
const LOOK_LEAST: Duration = Duration::from_secs(10);
/// A larger tree is not looked at.
const TREE_MOST: usize = 64;

#[derive(Debug)]
pub(crate) struct Feed {
    queue: Queue,
    /// Our end, until the end of input is written.
    to: Option<OwnedFd>,
    /// The file that the process reads.
    source: Option<Source>,
    terminal: Option<Terminal>,
    waiting: Waiting,
    look_at: Instant,
    rest: Duration,
}

impl Feed {
    /// A feed into a pipe.
    pub(crate) fn pipe(to: OwnedFd) -> Self {
        let source = Source::of(to.as_fd()).ok();
        Self::new(to, source, Ending::Close, None)
    }

    /// A feed into a terminal, by our end of it.
    pub(crate) fn terminal(master: OwnedFd, slave: BorrowedFd<'_>, size: PtySize) -> Self {
        let ending = Ending::Key(pty::eof_key(slave));
        Self::new(master, Source::of(slave).ok(), ending, Some(Terminal { size, answered: 0 }))
    }

    fn new(to: OwnedFd, source: Option<Source>, ending: Ending, terminal: Option<Terminal>) -> Self {
        let (waiting, look_at) = (Waiting::default(), Instant::now() + QUIET);
        Self { queue: Queue::new(ending), to: Some(to), source, terminal, waiting, look_at, rest: QUIET }
    }

    /// What to wait for: room to write, while something waits for it.
    pub(crate) fn wants_room(&self) -> Option<BorrowedFd<'_>> {
        self.to.as_ref().filter(|_| !self.queue.is_empty()).map(AsFd::as_fd)
    }

    pub(crate) fn facts(&self) -> (Option<Terminal>, Waiting) {
        (self.terminal, self.waiting)
    }

    /// Something came or went: whether it waits is asked anew when that is over.
    pub(crate) fn stirred(&mut self) {
        self.rest = QUIET;
        self.look_at = Instant::now() + QUIET;
    }

    pub(crate) fn look_at(&self) -> Instant {
        self.look_at
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

    fn resize(&mut self, size: PtySize) -> bool {
        let (Some(terminal), Some(to)) = (&mut self.terminal, &self.to) else { return false };
        let done = pty::resize(to.as_fd(), Size { rows: size.rows, cols: size.cols }).is_ok();
        if done {
            terminal.size = size;
        }
        done
    }

    fn reply(&mut self, through: u64, bytes: &[u8]) {
        let Some(terminal) = self.terminal.as_mut().filter(|terminal| terminal.answered < through) else { return };
        terminal.answered = through;
        self.queue.push(bytes);
        self.flush();
    }

    /// Looks whether some process of the tree sleeps until there is input; whether that is news.
    fn look(&mut self) -> bool {
        let before = self.waiting.now;
        self.waiting.now = self.observe();
        let changed = self.waiting.now != before;
        if changed && self.waiting.now == Some(true) {
            self.waiting.count += 1;
        }
        self.rest = if changed { QUIET } else { (self.rest * 2).min(LOOK_LEAST) };
        self.look_at = Instant::now() + self.rest;
        changed
    }

    fn observe(&self) -> Option<bool> {
        if self.to.is_none() || !self.queue.is_empty() {
            return Some(false);
        }
        let source = self.source?;
        let members = tree::descendants(daemonize::own_pid());
        if members.len() > TREE_MOST {
            return None;
        }
        match members.iter().map(|member| awaiting::observe(member.pid, source)).max() {
            Some(Awaiting::Input) => Some(true),
            Some(Awaiting::Unknown) => None,
            Some(Awaiting::Else) | None => Some(false),
        }
    }
}

/// A key that is taken says nothing of the stdin itself, and stands.
fn standing(answered: Standing, now: Standing) -> Standing {
    if answered == Standing::KeyTaken { answered } else { now }
}

impl<S: System> Driver<S> {
    /// Takes what the daemon sent, and answers at once.
    pub(crate) fn input(&mut self, request: u64, input: &Input, context: &mut KeeperContext<'_, S>) {
        let Some(feed) = &mut self.feed else {
            return say(context.link, FromKeeper::Input { request, taken: Taken::nothing(Standing::Absent) });
        };
        let taken = feed.offer(input);
        feed.stirred();
        // Whoever got an answer must not hear that it waits, when that was before the input.
        if feed.waiting.now == Some(true) {
            feed.waiting.now = Some(false);
            self.tell_waiting(context);
        }
        say(context.link, FromKeeper::Input { request, taken });
    }

    /// There is room to write.
    pub(crate) fn input_ready(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.flush();
            feed.stirred();
        }
    }

    pub(crate) fn resize(&mut self, request: u64, size: PtySize, context: &mut KeeperContext<'_, S>) {
        let done = self.feed.as_mut().is_some_and(|feed| feed.resize(size));
        say(context.link, FromKeeper::Resized { request, done });
    }

    /// What a terminal answers by itself.
    pub(crate) fn reply(&mut self, through: u64, bytes: &[u8]) {
        if let Some(feed) = &mut self.feed {
            feed.reply(through, bytes);
        }
    }

    /// It has been quiet: whether it waits for input is looked at, and told if that has changed.
    pub(crate) fn look_for_waiting(&mut self, context: &mut KeeperContext<'_, S>) {
        if self.feed.as_mut().is_some_and(Feed::look) {
            self.tell_waiting(context);
        }
    }

    fn tell_waiting(&self, context: &mut KeeperContext<'_, S>) {
        if let Some(feed) = &self.feed {
            say(context.link, FromKeeper::Waiting { id: self.id().clone(), waiting: feed.waiting });
        }
    }
}
