//! Connections in memory, with bounded buffers; an end closes when its program drops it.

use std::io;

use pinfold_keeper::system::Socket;
use pinfold_os::fsio::ReadResult;

use crate::check;
use crate::machine::{Connection, Machine, State};

/// The errno for no free descriptors (EMFILE).
const NO_DESCRIPTORS: i32 = 24;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Daemon,
    Keeper,
}

impl Side {
    fn place(self) -> usize {
        self as usize
    }

    fn other(self) -> Self {
        match self {
            Side::Daemon => Side::Keeper,
            Side::Keeper => Side::Daemon,
        }
    }
}

/// One end of a connection; closes when dropped.
#[derive(Debug)]
pub struct MemorySocket {
    machine: Machine,
    pub number: usize,
    side: Side,
    pid: u32,
}

impl MemorySocket {
    /// A connection between a daemon and a keeper, by their pids.
    pub fn pair(machine: &Machine, daemon: u32, keeper: u32) -> (Self, Self) {
        let number = open(&mut machine.state());
        let end = |side, pid| Self { machine: machine.clone(), number, side, pid };
        (end(Side::Daemon, daemon), end(Side::Keeper, keeper))
    }

    /// Connects to a keeper's socket; the keeper accepts it later.
    pub fn connect(machine: &Machine, pid: u32, keeper: u32) -> io::Result<Self> {
        let mut state = machine.state();
        let (failed_lookup, known) = (state.faults.failed_lookup, state.keeper_sockets.get(&keeper).copied());
        if state.random.permille(failed_lookup) {
            return Err(io::Error::from_raw_os_error(NO_DESCRIPTORS));
        }
        let start_time = known.ok_or(io::ErrorKind::NotFound)?;
        let listens = state.is_alive(keeper) && state.processes[&keeper].start_time == start_time;
        if !listens {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let number = open(&mut state);
        state.backlog.entry(keeper).or_default().push((number, pid));
        Ok(Self { machine: machine.clone(), number, side: Side::Daemon, pid })
    }

    /// The keeper's end of a pending connection, and the pid of its peer.
    pub fn accept(machine: &Machine, keeper: u32) -> Option<(Self, u32)> {
        let (number, peer) = {
            let mut state = machine.state();
            let backlog = state.backlog.get_mut(&keeper).filter(|backlog| !backlog.is_empty())?;
            backlog.remove(0)
        };
        Some((Self { machine: machine.clone(), number, side: Side::Keeper, pid: keeper }, peer))
    }

    /// Whether there is something to read, or the other end is closed.
    pub fn is_readable(&self) -> bool {
        let state = self.machine.state();
        let connection = &state.connections[self.number];
        !connection.buffers[self.side.place()].is_empty() || connection.closed[self.side.other().place()]
    }
}

/// A new connection; some have buffers smaller than a message.
fn open(state: &mut State) -> usize {
    let small = state.faults.slow_sockets && state.random.permille(150);
    let capacity = if small { 64 + state.random.below(600) as usize } else { 1 << 20 };
    state.connections.push(Connection { capacity, ..Connection::default() });
    state.connections.len() - 1
}

impl Drop for MemorySocket {
    fn drop(&mut self) {
        self.machine.state().connections[self.number].closed[self.side.place()] = true;
    }
}

impl Socket for MemorySocket {
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        if !self.machine.try_act(self.pid) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut state = self.machine.state();
        let connection = &mut state.connections[self.number];
        if connection.closed.contains(&true) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let buffer = &mut connection.buffers[self.side.other().place()];
        let room = connection.capacity.saturating_sub(buffer.len()).min(bytes.len());
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        buffer.extend_from_slice(&bytes[..room]);
        if self.side == Side::Keeper {
            check::keeper_sent(&mut state, &bytes[..room]);
        }
        Ok(room)
    }

    fn read_some(&self, buffer: &mut Vec<u8>) -> io::Result<ReadResult> {
        let mut state = self.machine.state();
        let connection = &mut state.connections[self.number];
        let waiting = &mut connection.buffers[self.side.place()];
        if waiting.is_empty() {
            return Ok(if connection.closed[self.side.other().place()] {
                ReadResult::Closed
            } else {
                ReadResult::Empty
            });
        }
        let count = waiting.len().min((buffer.capacity() - buffer.len()).max(1));
        buffer.extend(waiting.drain(..count));
        Ok(ReadResult::Bytes(count))
    }
}
