//! Writes input to the process's stdin or terminal, and detects whether the process is waiting for more.
//!
//! Only a process with a stdin pipe or a terminal has a [`StdinWriter`]. It is part of the keeper, so acknowledged
//! input is written even if the daemon dies.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use pinfold_model::input::{EndOfInput, Input, InputQueue, InputResult, StdinState};
use pinfold_model::link::{FromKeeper, Terminal, Waiting};
use pinfold_model::spec::PtySize;
use pinfold_os::awaiting::{self, Awaiting, InputSource};
use pinfold_os::fsio::{self, WriteResult};
use pinfold_os::pty;
use pinfold_os::{daemonize, tree};

use crate::driver::{Driver, KeeperContext, send};
use crate::system::System;

/// The first check whether the process waits for input comes after this much time without input or output.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// While nothing changes, the interval between checks doubles up to this.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// A tree with more processes is not checked.
const MAX_TREE: usize = 64;

#[derive(Debug)]
pub(crate) struct StdinWriter {
    queue: InputQueue,
    /// The write end; `None` after the end of input was written or the reader is gone.
    to: Option<OwnedFd>,
    /// The file the process reads from.
    source: Option<InputSource>,
    terminal: Option<Terminal>,
    waiting: Waiting,
    check_at: Instant,
    check_interval: Duration,
}

impl StdinWriter {
    pub(crate) fn pipe(to: OwnedFd) -> Self {
        let source = InputSource::of(to.as_fd()).ok();
        Self::new(to, source, EndOfInput::Close, None)
    }

    pub(crate) fn terminal(master: OwnedFd, slave: BorrowedFd<'_>, size: PtySize) -> Self {
        let ending = EndOfInput::Key(pty::eof_key(slave));
        Self::new(master, InputSource::of(slave).ok(), ending, Some(Terminal { size, answered: 0 }))
    }

    fn new(to: OwnedFd, source: Option<InputSource>, ending: EndOfInput, terminal: Option<Terminal>) -> Self {
        let (waiting, check_at) = (Waiting::default(), Instant::now() + MIN_CHECK_INTERVAL);
        Self {
            queue: InputQueue::new(ending),
            to: Some(to),
            source,
            terminal,
            waiting,
            check_at,
            check_interval: MIN_CHECK_INTERVAL,
        }
    }

    /// The descriptor to poll for writability, while input is queued.
    pub(crate) fn awaiting_room(&self) -> Option<BorrowedFd<'_>> {
        self.to.as_ref().filter(|_| !self.queue.is_empty()).map(AsFd::as_fd)
    }

    pub(crate) fn facts(&self) -> (Option<Terminal>, Waiting) {
        (self.terminal, self.waiting)
    }

    /// Input or output happened: restarts the check interval.
    pub(crate) fn note_activity(&mut self) {
        self.check_interval = MIN_CHECK_INTERVAL;
        self.check_at = Instant::now() + MIN_CHECK_INTERVAL;
    }

    pub(crate) fn check_at(&self) -> Instant {
        self.check_at
    }

    fn accept(&mut self, input: &Input) -> InputResult {
        let taken = self.queue.accept(input);
        self.flush();
        InputResult { queued: self.queue.len() as u64, stdin: stdin_state(taken.stdin, self.queue.state()), ..taken }
    }

    /// Writes as much as fits, then closes the pipe if the end of input was sent.
    pub(crate) fn flush(&mut self) {
        let Some(to) = &self.to else { return };
        while !self.queue.is_empty() {
            match fsio::write_some(to.as_fd(), self.queue.front()) {
                WriteResult::Bytes(count) => self.queue.advance(count),
                WriteResult::Full => return,
                WriteResult::Broken => {
                    self.queue.mark_broken();
                    self.to = None;
                    return;
                }
            }
        }
        if self.queue.should_end() {
            self.queue.mark_ended();
            self.to = None;
        }
    }

    fn resize(&mut self, size: PtySize) -> bool {
        let (Some(terminal), Some(to)) = (&mut self.terminal, &self.to) else { return false };
        let done = pty::resize(to.as_fd(), size.rows, size.cols).is_ok();
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

    /// Checks whether a process of the tree sleeps in a read of this stdin; true if the answer changed.
    fn check(&mut self) -> bool {
        let before = self.waiting.now;
        self.waiting.now = self.observe();
        let changed = self.waiting.now != before;
        if changed && self.waiting.now == Some(true) {
            self.waiting.count += 1;
        }
        self.check_interval =
            if changed { MIN_CHECK_INTERVAL } else { (self.check_interval * 2).min(MAX_CHECK_INTERVAL) };
        self.check_at = Instant::now() + self.check_interval;
        changed
    }

    fn observe(&self) -> Option<bool> {
        if self.to.is_none() || !self.queue.is_empty() {
            return Some(false);
        }
        let source = self.source?;
        let members = tree::descendants(daemonize::own_pid());
        if members.len() > MAX_TREE {
            return None;
        }
        match members.iter().map(|member| awaiting::observe(member.pid, source)).max() {
            Some(Awaiting::Input) => Some(true),
            Some(Awaiting::Unknown) => None,
            Some(Awaiting::Else) | None => Some(false),
        }
    }
}

/// `KeyTaken` is about the request; any other state is replaced by the one after the write.
fn stdin_state(answered: StdinState, now: StdinState) -> StdinState {
    if answered == StdinState::KeyTaken { answered } else { now }
}

impl<S: System> Driver<S> {
    /// Queues input and replies with how much was accepted.
    pub(crate) fn input(&mut self, request: u64, input: &Input, context: &mut KeeperContext<'_, S>) {
        let Some(stdin) = &mut self.stdin else {
            return send(context.link, FromKeeper::Input { request, taken: InputResult::rejected(StdinState::Absent) });
        };
        let taken = stdin.accept(input);
        stdin.note_activity();
        // The reply must not be followed by a `Waiting` from before this input.
        if stdin.waiting.now == Some(true) {
            stdin.waiting.now = Some(false);
            self.send_waiting(context);
        }
        send(context.link, FromKeeper::Input { request, taken });
    }

    /// The descriptor is writable.
    pub(crate) fn input_ready(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            stdin.flush();
            stdin.note_activity();
        }
    }

    pub(crate) fn resize(&mut self, request: u64, size: PtySize, context: &mut KeeperContext<'_, S>) {
        let done = self.stdin.as_mut().is_some_and(|stdin| stdin.resize(size));
        send(context.link, FromKeeper::Resized { request, done });
    }

    /// Writes a terminal's own reply, such as its cursor position.
    pub(crate) fn reply(&mut self, through: u64, bytes: &[u8]) {
        if let Some(stdin) = &mut self.stdin {
            stdin.reply(through, bytes);
        }
    }

    /// Checks whether the process waits for input, and reports a change to the daemon.
    pub(crate) fn check_waiting(&mut self, context: &mut KeeperContext<'_, S>) {
        if self.stdin.as_mut().is_some_and(StdinWriter::check) {
            self.send_waiting(context);
        }
    }

    fn send_waiting(&self, context: &mut KeeperContext<'_, S>) {
        if let Some(stdin) = &self.stdin {
            send(context.link, FromKeeper::Waiting { id: self.id().clone(), waiting: stdin.waiting });
        }
    }
}
