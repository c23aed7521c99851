//! The simulated machine: clock, process table, files, sockets, cgroups. It knows nothing of what keepers and daemon
//! decide.
//!
//! A program killed in the middle of its work is marked dead here: from then on nothing it does has an effect, and
//! its object is dropped at the end of its turn. So a death can come before or after any single effect.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;
use pinfold_os::wait::ExitStatus;
use pinfold_store::record::Record;

use crate::random::Random;

/// Init, the parent of orphans that have no keeper; it reaps them at once.
pub const INIT: u32 = 1;
/// ENOSPC.
const NO_SPACE: i32 = 28;
/// The wall clock at the start of a history.
const EPOCH: u64 = 1_700_000_000_000_000;

/// Fault rates, per thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A write to a record fails with a full disk.
    pub refused_write: u32,
    /// A write to a record is short.
    pub torn_write: u32,
    /// A write of output fails.
    pub refused_output: u32,
    /// A directory cannot be created.
    pub refused_directory: u32,
    /// Reading /proc or checking a lock fails because no descriptors are free.
    pub failed_lookup: u32,
    /// A cgroup cannot be thawed.
    pub stuck_frozen: u32,
    /// A leader cannot be started: it is missing, fails or hangs.
    pub failed_launch: u32,
    /// A new process ignores TERM.
    pub ignores_term: u32,
    /// Some connections have buffers smaller than a message.
    pub slow_sockets: bool,
}

/// The result of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchKind {
    Runs,
    /// The program does not exist: the start is refused.
    Missing,
    /// The kernel refuses it: a failed start.
    Fails,
    /// It hangs before its exec.
    Hangs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Daemon,
    Keeper,
    /// A process in the tree of a keeper's process.
    Member {
        leader: bool,
    },
    /// Another process that holds an output pipe open.
    Outsider,
}

#[derive(Clone, Debug)]
pub struct Process {
    pub parent: u32,
    pub start_time: u64,
    pub role: Role,
    /// The process whose tree it is in, as the mark in its environment says.
    pub member_of: Option<ProcessId>,
    /// A pending fatal signal: the status with which it will end.
    pub pending_exit: Option<ExitStatus>,
    pub ended: Option<ExitStatus>,
    /// Stopped by SIGSTOP.
    pub stopped: bool,
    pub ignores_term: bool,
    /// In an uninterruptible wait: a KILL has no effect until it returns.
    pub stuck: bool,
    /// Its cgroup, by the start time of the keeper that made it.
    pub cgroup: Option<u64>,
    pub holds_output: bool,
    /// Whether a SIGCHLD is pending.
    pub child_signal: bool,
    /// Is killed after this many more effects.
    pub dies_after: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct CgroupState {
    pub frozen: bool,
    /// Whether `cgroup.kill` was used: Linux kills new members.
    pub killed: bool,
}

/// The content of a record, even after it was deleted.
#[derive(Debug, Default)]
pub struct Inode {
    pub bytes: Vec<u8>,
    /// The pid of the program that holds the lock.
    pub lock: Option<u32>,
    /// Incremented with every change.
    pub version: u64,
    /// Cache of the parsed record, with its version.
    pub read: Option<(u64, Option<Rc<Record>>)>,
}

/// The pipe that a tree writes its output to.
#[derive(Clone, Debug, Default)]
pub struct PipeState {
    /// Bytes to be read.
    pub waiting: usize,
    /// Bytes written in total.
    pub written: u64,
}

/// A connection; `0` is the end that connected, `1` the one that accepted.
#[derive(Debug, Default)]
pub struct Connection {
    pub buffers: [Vec<u8>; 2],
    pub closed: [bool; 2],
    /// The size of one direction's buffer.
    pub capacity: usize,
}

#[derive(Debug)]
pub struct State {
    origin: Instant,
    pub elapsed: Duration,
    pub wall: u64,
    ticks: u64,
    pub processes: BTreeMap<u32, Process>,
    pub cgroups: BTreeMap<u64, CgroupState>,
    pub with_cgroups: bool,
    /// The records that exist under a name.
    pub records: BTreeMap<ProcessId, Rc<RefCell<Inode>>>,
    pub pipes: BTreeMap<ProcessId, PipeState>,
    pub connections: Vec<Connection>,
    /// Keepers' sockets, with the start time of the keeper that listens.
    pub keeper_sockets: BTreeMap<u32, u64>,
    /// Connections that a keeper has not accepted yet, each with the peer's pid.
    pub backlog: BTreeMap<u32, Vec<(usize, u32)>>,
    /// The pid of the daemon that holds the home's lock.
    pub home_lock: Option<u32>,
    /// How leaders really ended.
    pub actual_exits: BTreeMap<ProcessId, ExitStatus>,
    pub random: Random,
    pub faults: Faults,
    /// The result of the next start; random if `None`.
    pub next_launch: Option<LaunchKind>,
    /// The first violated invariant.
    pub violation: Option<String>,
    pub trace: Option<Vec<String>>,
}

/// A handle to the machine of one history.
#[derive(Clone, Debug)]
pub struct Machine(Rc<RefCell<State>>);

impl Machine {
    pub fn new(seed: u64) -> Self {
        Self(Rc::new(RefCell::new(State {
            origin: Instant::now(),
            elapsed: Duration::from_secs(1000),
            wall: EPOCH,
            ticks: 100,
            processes: BTreeMap::new(),
            cgroups: BTreeMap::new(),
            with_cgroups: true,
            records: BTreeMap::new(),
            pipes: BTreeMap::new(),
            connections: vec![],
            keeper_sockets: BTreeMap::new(),
            backlog: BTreeMap::new(),
            home_lock: None,
            actual_exits: BTreeMap::new(),
            random: Random::new(seed),
            faults: Faults::default(),
            next_launch: None,
            violation: None,
            trace: None,
        })))
    }

    pub fn state(&self) -> RefMut<'_, State> {
        self.0.borrow_mut()
    }

    pub fn now(&self) -> Instant {
        let state = self.0.borrow();
        state.origin + state.elapsed
    }

    pub fn moment(&self) -> Moment {
        Moment(self.0.borrow().wall)
    }

    /// Advances both clocks.
    pub fn advance(&self, time: Duration) {
        let mut state = self.state();
        state.elapsed += time;
        state.wall += time.as_micros() as u64;
    }

    /// Adds a line to the trace, if tracing is on.
    pub fn trace(&self, line: impl FnOnce() -> String) {
        let mut state = self.state();
        let (elapsed, wanted) = (state.elapsed, state.trace.is_some());
        if wanted {
            let line = format!("{:>11.3}ms  {}", elapsed.as_secs_f64() * 1e3 - 1e6, line());
            state.trace.get_or_insert_default().push(line);
        }
    }

    /// Records a violated invariant; the history ends.
    pub fn violation(&self, what: impl Into<String>) {
        self.state().violation.get_or_insert(what.into());
    }

    pub fn is_alive(&self, pid: u32) -> bool {
        self.0.borrow().is_alive(pid)
    }

    /// Counts one effect of a program, and kills it if it is due.
    pub fn effect(&self, pid: u32) -> Effect {
        let mut state = self.state();
        let Some(process) = state.processes.get_mut(&pid).filter(|process| process.ended.is_none()) else {
            return Effect::AlreadyDead;
        };
        match process.dies_after {
            None => Effect::Done,
            Some(0) => {
                state.end(pid, ExitStatus::Signaled { signal: SIGKILL, core_dumped: false });
                Effect::Interrupted
            }
            Some(left) => {
                process.dies_after = Some(left - 1);
                Effect::Done
            }
        }
    }

    /// Counts one atomic effect; false if the program is dead or dies now, so that the effect must not happen.
    pub fn try_act(&self, pid: u32) -> bool {
        self.effect(pid) == Effect::Done
    }
}

/// The result of [`Machine::effect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Done,
    /// The program is killed during this effect.
    Interrupted,
    AlreadyDead,
}

impl State {
    /// A new process; its pid may have been used before.
    pub fn fork(&mut self, parent: u32, role: Role) -> u32 {
        let mut pid = 10 + self.random.below(30) as u32;
        while self.processes.contains_key(&pid) {
            pid += 1;
        }
        self.ticks += 1;
        let start_time = self.ticks;
        let process = Process {
            parent,
            start_time,
            role,
            member_of: None,
            pending_exit: None,
            ended: None,
            stopped: false,
            ignores_term: false,
            stuck: false,
            cgroup: None,
            holds_output: false,
            child_signal: false,
            dies_after: None,
        };
        self.processes.insert(pid, process);
        pid
    }

    pub fn is_alive(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.ended.is_none())
    }

    /// Whether this process can run: not stopped, frozen, stuck or being killed.
    pub fn can_run(&self, pid: u32) -> bool {
        let Some(process) = self.processes.get(&pid) else { return false };
        let frozen = process.cgroup.is_some_and(|cgroup| self.is_frozen(cgroup));
        // A process with a pending KILL does nothing more.
        let killed = matches!(process.pending_exit, Some(ExitStatus::Signaled { signal: SIGKILL, .. }));
        process.ended.is_none() && !process.stopped && !frozen && !process.stuck && !killed
    }

    pub fn is_frozen(&self, cgroup: u64) -> bool {
        self.cgroups.get(&cgroup).is_some_and(|cgroup| cgroup.frozen)
    }

    pub fn children(&self, pid: u32) -> Vec<u32> {
        self.processes.iter().filter(|(_, process)| process.parent == pid).map(|(child, _)| *child).collect()
    }

    /// All running descendants.
    pub fn descendants(&self, pid: u32) -> Vec<u32> {
        let mut found = vec![];
        let mut parents = vec![pid];
        while let Some(parent) = parents.pop() {
            for child in self.children(parent) {
                if self.is_alive(child) {
                    found.push(child);
                }
                parents.push(child);
            }
        }
        found
    }

    /// Ends a process. Its children are reparented to the nearest keeper above, or to init, which reaps at once.
    pub fn end(&mut self, pid: u32, status: ExitStatus) {
        let Some(process) = self.processes.get_mut(&pid).filter(|process| process.ended.is_none()) else { return };
        process.ended = Some(status);
        if let (Role::Member { leader: true }, Some(id)) = (process.role, process.member_of.clone()) {
            self.actual_exits.insert(id, status);
        }
        let process = &self.processes[&pid];
        let (parent, was_reaper) = (process.parent, process.role == Role::Keeper);
        if self.home_lock == Some(pid) {
            self.home_lock = None;
        }
        for (number, _) in self.backlog.remove(&pid).unwrap_or_default() {
            self.connections[number].closed[1] = true;
        }
        let heir = if was_reaper { INIT } else { self.reaper_above(parent) };
        for child in self.children(pid) {
            if let Some(child) = self.processes.get_mut(&child) {
                child.parent = heir;
            }
            if !self.is_alive(child) {
                self.notify_or_reap(child, heir);
            }
        }
        self.notify_or_reap(pid, parent);
    }

    fn reaper_above(&self, from: u32) -> u32 {
        let mut at = from;
        while let Some(process) = self.processes.get(&at) {
            if process.role == Role::Keeper && process.ended.is_none() {
                return at;
            }
            at = process.parent;
        }
        INIT
    }

    /// Notifies the parent of an ended process if it is a keeper; otherwise reaps it at once.
    fn notify_or_reap(&mut self, ended: u32, parent: u32) {
        let waits = self.processes.get(&parent).is_some_and(|parent| parent.ended.is_none());
        match self.processes.get_mut(&parent).filter(|parent| waits && parent.role == Role::Keeper) {
            Some(parent) => parent.child_signal = true,
            None => {
                self.processes.remove(&ended);
            }
        }
    }

    /// Sends a signal to a process. A fatal signal takes effect when the process runs next.
    pub fn signal(&mut self, pid: u32, signal: i32) {
        let Some(process) = self.processes.get_mut(&pid).filter(|process| process.ended.is_none()) else { return };
        match signal {
            SIGKILL => process.pending_exit = Some(ExitStatus::Signaled { signal, core_dumped: false }),
            SIGSTOP => process.stopped = true,
            SIGCONT => process.stopped = false,
            _ if process.ignores_term => {}
            _ => {
                process.pending_exit.get_or_insert(ExitStatus::Signaled { signal, core_dumped: false });
            }
        }
    }

    /// Processes with a pending fatal signal that can die now.
    pub fn dying(&self) -> Vec<u32> {
        let killed =
            |process: &Process| matches!(process.pending_exit, Some(ExitStatus::Signaled { signal: SIGKILL, .. }));
        let can_die = |pid: &u32, process: &Process| {
            let halted = process.stopped || process.cgroup.is_some_and(|cgroup| self.is_frozen(cgroup));
            process.ended.is_none()
                && process.pending_exit.is_some()
                && !process.stuck
                && (killed(process) || !halted)
                && *pid > INIT
        };
        self.processes.iter().filter(|(pid, process)| can_die(pid, process)).map(|(pid, _)| *pid).collect()
    }

    /// Whether a running process holds the output open.
    pub fn output_is_open(&self, id: &ProcessId) -> bool {
        let holds = |process: &Process| {
            process.holds_output && process.ended.is_none() && process.member_of.as_ref() == Some(id)
        };
        self.processes.values().any(holds)
    }

    /// The running processes of a tree, under any parent.
    pub fn tree_of(&self, id: &ProcessId) -> Vec<u32> {
        let is_member = |process: &Process| {
            process.member_of.as_ref() == Some(id)
                && process.ended.is_none()
                && matches!(process.role, Role::Member { .. })
        };
        self.processes.iter().filter(|(_, process)| is_member(process)).map(|(pid, _)| *pid).collect()
    }

    /// The error of a full disk.
    pub fn no_space() -> io::Error {
        io::Error::from_raw_os_error(NO_SPACE)
    }
}

pub const SIGKILL: i32 = 9;
pub const SIGSTOP: i32 = 19;
pub const SIGCONT: i32 = 18;
