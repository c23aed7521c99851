//! Observing processes from outside, and waiting for conditions with a deadline.

use std::time::{Duration, Instant};

use pinfold_os::tree::{self, Member, Target};
use pinfold_os::{proc, tree::signal};

/// How long a test waits for something that must happen. Long, because a busy machine may be slow and only a failing test
/// waits this long.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until the condition is true; fails the test with `what` on a timeout.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(()));
}

/// Waits until `find` returns a value; fails the test with `what` on a timeout.
#[track_caller]
pub fn until_some<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether there is a living process with this pid; a zombie does not count.
pub fn alive(pid: u32) -> bool {
    proc::stat(pid).is_ok_and(|stat| stat.is_living())
}

/// CPU time used by a living process, in milliseconds.
pub fn cpu_ms(pid: u32) -> u64 {
    proc::stat(pid).expect("a living process").cpu_ms()
}

/// The parent's pid.
pub fn parent_of(pid: u32) -> Option<u32> {
    proc::stat(pid).ok().map(|stat| stat.ppid)
}

/// The children's pids.
pub fn children_of(pid: u32) -> Vec<u32> {
    tree::children_of(pid).unwrap_or_default()
}

/// The command line; empty if the process has exited.
pub fn command_line(pid: u32) -> String {
    proc::command_line(pid).unwrap_or_default()
}

/// A pidfd: a signal through it can reach no other process.
#[derive(Debug)]
pub struct Pidfd(Target);

impl Pidfd {
    /// Opens the process that currently has this pid.
    pub fn open(pid: u32) -> Option<Self> {
        let stat = proc::stat(pid).ok()?;
        tree::target(&Member { pid, stat }).map(Self)
    }

    /// Sends a signal.
    pub fn signal(&self, number: i32) {
        let _ = signal(&self.0, number);
    }

    /// Sends KILL and waits until the process has exited.
    pub fn kill(&self) {
        self.signal(9);
        let pid = self.0.pid;
        until("a killed process has exited", || !alive(pid));
    }
}
