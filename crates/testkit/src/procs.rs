//! Looking at processes from outside, and waiting for facts with a deadline.

use std::time::{Duration, Instant};

use pinfold_os::tree::{self, Member, Target};
use pinfold_os::{proc, tree::signal};

/// How long a test waits for something that must happen: only a failure takes so long, and a busy machine may be slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the fact is there; fails the test with `what` when it never comes.
#[track_caller]
pub fn until(what: &str, mut fact: impl FnMut() -> bool) {
    until_some(what, || fact().then_some(()));
}

/// Waits until there is a value.
#[track_caller]
pub fn until_some<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "never came: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process with this pid lives; a zombie does not.
pub fn alive(pid: u32) -> bool {
    proc::stat(pid).is_ok_and(|stat| stat.is_living())
}

/// Processor time that a living process has used, in milliseconds.
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

/// The command line, or nothing if it is gone.
pub fn command_line(pid: u32) -> String {
    proc::command_line(pid).unwrap_or_default()
}

/// A process held by a descriptor: a signal through it can hit nobody else.
#[derive(Debug)]
pub struct Pidfd(Target);

impl Pidfd {
    /// Holds the process that has this pid now.
    pub fn open(pid: u32) -> Option<Self> {
        let stat = proc::stat(pid).ok()?;
        tree::target(&Member { pid, stat }).map(Self)
    }

    /// Sends a signal.
    pub fn signal(&self, number: i32) {
        let _ = signal(&self.0, number);
    }

    /// Sends KILL and waits until it is gone.
    pub fn kill(&self) {
        self.signal(9);
        let pid = self.0.pid;
        until("a killed process is gone", || !alive(pid));
    }
}
