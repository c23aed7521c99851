//! Records and output in memory, with disk faults.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use pinfold_keeper::system::Output;
use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;
use pinfold_store::marks::Stream;
use pinfold_store::record::RecordFile;

use crate::machine::{Effect, Inode, Machine, State};

/// A record file in memory, as one simulated program has it open.
#[derive(Debug)]
pub struct MemoryFile {
    machine: Machine,
    /// The program that opened it.
    pid: u32,
    inode: Rc<RefCell<Inode>>,
    /// Whether dropping this file releases the lock.
    locks: bool,
}

impl MemoryFile {
    /// Creates the record of a process, locked by the given program.
    pub fn create(machine: &Machine, pid: u32, id: &ProcessId) -> io::Result<Self> {
        let inode = Rc::new(RefCell::new(Inode { lock: Some(pid), ..Inode::default() }));
        if machine.state().records.contains_key(id) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        machine.state().records.insert(id.clone(), Rc::clone(&inode));
        Ok(Self { machine: machine.clone(), pid, inode, locks: true })
    }

    /// Opens and locks a record; `None` if it is locked.
    pub fn lock(machine: &Machine, pid: u32, id: &ProcessId) -> io::Result<Option<Self>> {
        let inode = machine.state().records.get(id).cloned().ok_or(io::ErrorKind::NotFound)?;
        if inode.borrow().lock.is_some() {
            return Ok(None);
        }
        inode.borrow_mut().lock = Some(pid);
        Ok(Some(Self { machine: machine.clone(), pid, inode, locks: true }))
    }

    pub fn content(&self) -> Vec<u8> {
        self.inode.borrow().bytes.clone()
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if self.locks {
            self.inode.borrow_mut().lock = None;
        }
    }
}

impl RecordFile for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.inode.borrow().bytes.len() as u64)
    }

    fn read_range(&self, buffer: &mut [u8], from: u64) -> io::Result<()> {
        let inode = self.inode.borrow();
        let range = inode.bytes.get(from as usize..from as usize + buffer.len());
        buffer.copy_from_slice(range.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_once(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let effect = self.machine.effect(self.pid);
        if effect == Effect::AlreadyDead {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut state = self.machine.state();
        let (refused, torn) = (state.faults.refused_write, state.faults.torn_write);
        if effect == Effect::Done && state.random.permille(refused) {
            return Err(State::no_space());
        }
        let cut = effect == Effect::Interrupted || state.random.permille(torn);
        let count = if cut { state.random.below(bytes.len() as u64 + 1) as usize } else { bytes.len() };
        let mut inode = self.inode.borrow_mut();
        inode.version += 1;
        let at = at as usize;
        if inode.bytes.len() < at + count {
            inode.bytes.resize(at + count, 0);
        }
        inode.bytes[at..at + count].copy_from_slice(&bytes[..count]);
        // A program killed during the write does not see its result.
        if effect == Effect::Done { Ok(count) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        if self.machine.try_act(self.pid) {
            let mut inode = self.inode.borrow_mut();
            inode.version += 1;
            inode.bytes.resize(length as usize, 0);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The output of one process; checks that each byte is at its offset.
#[derive(Debug)]
pub struct MemoryOutput {
    machine: Machine,
    pid: u32,
    total: u64,
    lost: u64,
}

impl MemoryOutput {
    pub fn new(machine: &Machine, pid: u32) -> Self {
        Self { machine: machine.clone(), pid, total: 0, lost: 0 }
    }

    /// The byte that processes write at this offset.
    pub fn byte_at(offset: u64) -> u8 {
        (offset % 251) as u8
    }
}

impl Output for MemoryOutput {
    fn append(&mut self, _stream: Stream, bytes: &[u8], _at: Moment) {
        if !self.machine.try_act(self.pid) {
            return;
        }
        let expected = |(place, byte): (usize, &u8)| *byte == Self::byte_at(self.total + place as u64);
        if !bytes.iter().enumerate().all(expected) {
            self.machine.violation("S2: output bytes are at wrong offsets");
        }
        self.total += bytes.len() as u64;
        let mut state = self.machine.state();
        let rate = state.faults.refused_output;
        if state.random.permille(rate) {
            self.lost += bytes.len() as u64;
        }
    }

    fn total(&self) -> u64 {
        self.total
    }

    fn lost(&self) -> u64 {
        self.lost
    }

    fn tail(&self, _max: usize) -> Vec<u8> {
        vec![]
    }
}
