//! The keeper's interface to the operating system: clock, store, children, sockets. `linux` is the real one; tests
//! and the simulation use one in memory, so that the keeper's own code runs there unchanged.
//!
//! Generic, so resolved at compile time: the real keeper pays nothing for it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::time::Instant;

use pinfold_model::facts::Intent;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{LimitPlace, Survivor};
use pinfold_model::units::Moment;
use pinfold_os::cgroup::Cgroup;
use pinfold_os::fsio::ReadResult;
use pinfold_os::tree::Reach;
use pinfold_os::wait::EndedChild;
use pinfold_store::marks::Stream;
use pinfold_store::record::{RecordFile, RecordWriter};

pub use crate::driver::StartedParts;
pub use crate::launch::LaunchError;
pub use crate::limit_watch::LimitWatch;
pub use crate::pump::OutputStream;

/// The operating system below one keeper.
pub trait System: Sized + Debug {
    type Leader: Leader;
    type Pipe: Pipe;
    type Output: Output;
    type File: RecordFile + Debug;
    type Directory: Debug;
    type Socket: Socket;

    /// The monotonic clock, for timers.
    fn now(&self) -> Instant;
    /// The wall clock, for records; it may be set back or forward.
    fn moment(&self) -> Moment;

    /// Creates the directory of a process, with an empty record locked by this keeper.
    fn prepare(&mut self, id: &ProcessId) -> io::Result<Self::Directory>;
    fn record(&self, directory: &Self::Directory) -> RecordWriter<Self::File>;
    /// Removes a prepared directory that was not used.
    fn discard(&mut self, directory: Self::Directory);
    /// Removes the directory of a failed start that leaves no record.
    fn remove(&mut self, directory: Self::Directory) -> io::Result<()>;

    /// Starts the leader with its limits applied.
    fn launch(
        &mut self,
        what: Launch<'_>,
        directory: &Self::Directory,
        record: &RecordWriter<Self::File>,
    ) -> Result<StartedParts<Self>, LaunchError>;
    /// Starts a daemon that is not a descendant of this keeper.
    fn start_daemon(&mut self) -> Result<(), String>;

    /// Clears the pending SIGCHLD. Call it before looking at children, so that none is missed.
    fn clear_child_signal(&mut self);
    /// While idle: raises the OOM score that the next leader will inherit.
    fn raise_child_oom_score(&mut self);
    /// After a start: restores the keeper's own OOM score, so that the process is killed before its keeper.
    fn restore_oom_score(&mut self);

    /// Child pids, including ended children that are not reaped yet.
    fn children(&self) -> io::Result<Vec<u32>>;
    /// The leader's exit status if it ended. Does not reap it.
    fn observe_exit(&self, leader: &Self::Leader) -> Option<EndedChild>;
    fn reap(&mut self, leader: &Self::Leader);
    fn reap_if_ended(&mut self, pid: u32) -> io::Result<Option<EndedChild>>;
    /// Whether the leader has a pending KILL or is exiting.
    fn is_dying(&self, leader: &Self::Leader) -> bool;

    fn count_descendants(&self) -> u32;
    /// Descendants that are alive after a KILL, with the reason.
    fn survivors(&self) -> Vec<Survivor>;
    fn command_line(&self, pid: u32) -> String;
    /// Sends these signals to every descendant.
    fn signal_tree(&mut self, signals: &[i32]) -> Reach;
    /// Kills the whole cgroup; false if there is none or the kernel refuses.
    fn kill_cgroup(&mut self, limits: Option<&LimitWatch>) -> bool;
    /// Kills the leader's process group, then each descendant found by walking /proc.
    fn kill_walk(&mut self, leader: Option<&Self::Leader>);
    /// Freezes the cgroup, and sends STOP to descendants outside of it.
    fn pause_tree(&mut self, limits: Option<&LimitWatch>) -> Reach;
    fn thaw_tree(&mut self, limits: Option<&LimitWatch>);

    /// The cgroup of this keeper.
    fn cgroup(&self) -> Option<&Cgroup>;
    /// Whether the keeper's cgroup is empty and not frozen; `None` if it has no cgroup.
    fn is_cgroup_vacant(&self) -> Option<bool>;
}

/// What to start.
#[derive(Debug)]
pub struct Launch<'a> {
    pub intent: &'a Intent,
    pub env: BTreeMap<String, Option<String>>,
    pub limit_places: &'a [LimitPlace],
}

/// The leader of a tree: an unreaped child.
pub trait Leader: Debug {
    fn pid(&self) -> u32;
    fn start_time(&self) -> u64;
}

/// The read end of one output stream.
pub trait Pipe: Debug {
    fn read_some(&self, buffer: &mut Vec<u8>) -> io::Result<ReadResult>;
    /// Enlarges the pipe's buffer.
    fn widen(&self);
}

/// The output of one process on disk.
pub trait Output: Debug {
    fn append(&mut self, stream: Stream, bytes: &[u8], at: Moment);
    /// Bytes since the start, including those that could not be written.
    fn total(&self) -> u64;
    /// Bytes that could not be written.
    fn lost(&self) -> u64;
    /// At most `max` bytes from its end, as far as they can be read.
    fn tail(&self, max: usize) -> Vec<u8>;
}

/// One end of a non-blocking connection.
pub trait Socket: Debug {
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;
    fn read_some(&self, buffer: &mut Vec<u8>) -> io::Result<ReadResult>;
}
