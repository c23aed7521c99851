//! What a keeper asks of the operating system: clock, store, children, sockets. `linux` is the real one; tests and the
//! simulation have one in memory, so that the keeper's own code runs there unchanged.
//!
//! All of it is resolved at compile time: the real keeper pays nothing for it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::time::Instant;

use pinfold_model::facts::Intent;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{LimitPlace, Survivor};
use pinfold_model::units::Moment;
use pinfold_os::cgroup::Cgroup;
use pinfold_os::fsio::Moved;
use pinfold_os::tree::Reach;
use pinfold_os::wait::Ended;
use pinfold_store::marks::Stream;
use pinfold_store::record::{RecordFile, RecordWriter};

pub use crate::driver::Begun;
pub use crate::launch::Failure;
pub use crate::pump::Source;
pub use crate::watch::Watch;

/// The operating system below one keeper.
pub trait System: Sized + Debug {
    type Leader: Leader;
    type Pipe: Pipe;
    type Output: Output;
    type File: RecordFile + Debug;
    type Directory: Debug;
    type Socket: Socket;

    /// The clock of timers, which never steps.
    fn now(&self) -> Instant;
    /// The clock of records, which may step.
    fn moment(&self) -> Moment;

    /// Makes the directory of a process, with an empty record that this keeper holds locked.
    fn prepare(&mut self, id: &ProcessId) -> io::Result<Self::Directory>;
    fn record(&self, directory: &Self::Directory) -> RecordWriter<Self::File>;
    /// Removes a directory that was prepared and not used.
    fn discard(&mut self, directory: Self::Directory);
    /// Removes the directory of a start that is not kept.
    fn remove(&mut self, directory: Self::Directory) -> io::Result<()>;

    /// Starts the leader, with the limits of its tree in place.
    fn launch(
        &mut self,
        what: Launch<'_>,
        directory: &Self::Directory,
        record: &RecordWriter<Self::File>,
    ) -> Result<Begun<Self>, Failure>;
    /// Starts a daemon, as no descendant of this keeper.
    fn start_daemon(&mut self) -> Result<(), String>;

    /// Forgets that children ended: what they are is looked up after this.
    fn clear_child_signal(&mut self);
    /// Nothing is kept: prepares for the next start.
    fn prepare_spawner(&mut self);
    /// Something is kept: it goes before the keeper when memory runs out.
    fn settle_spawner(&mut self);

    /// Our children, ended ones that are not reaped included.
    fn children(&self) -> io::Result<Vec<u32>>;
    /// The leader's end, if it ended; it is not reaped.
    fn observe_exit(&self, leader: &Self::Leader) -> Option<Ended>;
    fn reap(&mut self, leader: &Self::Leader);
    fn reap_if_ended(&mut self, pid: u32) -> io::Result<Option<Ended>>;
    /// Whether the kernel is ending this process.
    fn is_dying(&self, leader: &Self::Leader) -> bool;

    fn count_descendants(&self) -> u32;
    /// Descendants that live after a KILL, and why.
    fn survivors(&self) -> Vec<Survivor>;
    fn command_line(&self, pid: u32) -> String;
    /// Sends these signals to every living descendant.
    fn signal_tree(&mut self, signals: &[i32]) -> Reach;
    /// Kills by cgroup; whether that was possible.
    fn kill_cgroup(&mut self, limits: Option<&Watch>) -> bool;
    /// Kills the leader's group, then descendant by descendant.
    fn kill_walk(&mut self, leader: Option<&Self::Leader>);
    /// Freezes the cgroup, and stops the other descendants by signal.
    fn pause_tree(&mut self, limits: Option<&Watch>) -> Reach;
    fn thaw_tree(&mut self, limits: Option<&Watch>);

    /// The cgroup of this keeper.
    fn cgroup(&self) -> Option<&Cgroup>;
    /// Whether the keeper's cgroup is empty and not frozen; `None` without one.
    fn is_cgroup_vacant(&self) -> Option<bool>;
}

/// What to start.
#[derive(Debug)]
pub struct Launch<'a> {
    pub intent: &'a Intent,
    pub env: BTreeMap<String, Option<String>>,
    pub limit_places: &'a [LimitPlace],
}

/// The leader of a tree: a child that is not reaped.
pub trait Leader: Debug {
    fn pid(&self) -> u32;
    fn start_time(&self) -> u64;
}

/// The read end of one output stream.
pub trait Pipe: Debug {
    fn read_some(&self, buffer: &mut Vec<u8>) -> io::Result<Moved>;
    /// Lets it hold more.
    fn widen(&self);
}

/// Where output is kept.
pub trait Output: Debug {
    fn append(&mut self, stream: Stream, bytes: &[u8], at: Moment);
    /// Bytes since the start, kept or not.
    fn total(&self) -> u64;
    /// Bytes that could not be kept.
    fn lost(&self) -> u64;
}

/// One end of a connection; nothing here blocks.
pub trait Socket: Debug {
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;
    fn read_some(&self, buffer: &mut Vec<u8>) -> io::Result<Moved>;
}
