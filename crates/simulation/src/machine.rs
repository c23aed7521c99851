//! The machine in memory: clock, process table, files, sockets, cgroups. What is below keepers and daemon, and nothing of
//! what they decide.
//!
//! A program that dies in the middle of its work is marked dead here: from then on nothing that it does has an effect,
//! and its object is dropped when its turn ends. So a death can be put before or after any single effect.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;
use pinfold_os::wait::Status;

use crate::random::Random;

/// The parent of orphans that no keeper adopts; it reaps at once.
pub const INIT: u32 = 1;
/// No errno of the kernel's is needed but these.
const NO_SPACE: i32 = 28;
/// What a clock of the wall shows at the beginning.
const EPOCH: u64 = 1_700_000_000_000_000;

/// How often the machine fails, in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A write to a record is refused as on a full disk.
    pub refused_write: u32,
    /// A write to a record is cut short.
    pub torn_write: u32,
    /// A write of output is refused.
    pub refused_output: u32,
    /// A directory cannot be made.
    pub refused_directory: u32,
    /// A look at /proc or at a lock fails for want of descriptors.
    pub blind: u32,
    /// A cgroup cannot be thawed.
    pub stuck_frozen: u32,
    /// A leader cannot be started: it is missing, fails or hangs.
    pub failed_launch: u32,
    /// A new process ignores TERM.
    pub deaf: u32,
    /// Some connections hold less than a message.
    pub slow_sockets: bool,
}

/// What becomes of the next start.
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
    /// A descendant of a keeper, in the tree of what it keeps.
    Member {
        leader: bool,
    },
    /// Somebody else who was given a pipe.
    Outsider,
}

#[derive(Clone, Debug)]
pub struct Process {
    pub parent: u32,
    pub start_time: u64,
    pub role: Role,
    /// Whose tree it is in, as the mark in its environment says.
    pub of: Option<ProcessId>,
    /// What it will end with as soon as it runs.
    pub doomed: Option<Status>,
    pub ended: Option<Status>,
    /// Stopped by SIGSTOP.
    pub stopped: bool,
    pub ignores_term: bool,
    /// It waits inside the kernel: a KILL works when that returns.
    pub stuck: bool,
    /// Whose cgroup it is in, by the keeper's start time.
    pub cgroup: Option<u64>,
    pub holds_output: bool,
    /// Whether a child ended since it last looked.
    pub child_signal: bool,
    /// Dies after so many more effects.
    pub dies_after: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct CgroupState {
    pub frozen: bool,
    /// Linux kills what is born into it from now on.
    pub killed: bool,
}

/// The content of a record, whether or not it has a name.
#[derive(Debug, Default)]
pub struct Inode {
    pub bytes: Vec<u8>,
    /// Which program holds the lock.
    pub lock: Option<u32>,
    /// Grows with every change.
    pub version: u64,
}

/// The pipe that a tree writes its output to.
#[derive(Clone, Debug, Default)]
pub struct PipeState {
    /// Bytes that wait in it.
    pub waiting: usize,
    /// Bytes that were ever written to it.
    pub written: u64,
}

/// A stream in both directions; `0` is the end that connected, `1` the one that was connected to.
#[derive(Debug, Default)]
pub struct Connection {
    pub buffers: [Vec<u8>; 2],
    pub closed: [bool; 2],
    /// Bytes that one direction holds before a sender has to wait.
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
    /// The directories that have a name.
    pub records: BTreeMap<ProcessId, Rc<RefCell<Inode>>>,
    pub pipes: BTreeMap<ProcessId, PipeState>,
    pub connections: Vec<Connection>,
    /// Sockets by which a next daemon finds keepers, with the start time of the one that listens there.
    pub keeper_sockets: BTreeMap<u32, u64>,
    /// Connections that a keeper has not accepted yet, each with the pid that made it.
    pub backlog: BTreeMap<u32, Vec<(usize, u32)>>,
    /// Who holds the lock of the home.
    pub home_lock: Option<u32>,
    /// How leaders ended in truth, and those that were never started.
    pub truth: BTreeMap<ProcessId, Status>,
    pub random: Random,
    pub faults: Faults,
    /// What becomes of the next start, if that is not left to chance.
    pub next_launch: Option<LaunchKind>,
    /// What broke a rule of the machine or an invariant.
    pub broken: Option<String>,
    pub trace: Option<Vec<String>>,
}

/// A handle on the one machine of a history.
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
            truth: BTreeMap::new(),
            random: Random::new(seed),
            faults: Faults::default(),
            next_launch: None,
            broken: None,
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

    /// Lets time pass on both clocks.
    pub fn pass(&self, time: Duration) {
        let mut state = self.state();
        state.elapsed += time;
        state.wall += time.as_micros() as u64;
    }

    /// Writes a line of the trace, if one is wanted.
    pub fn note(&self, line: impl FnOnce() -> String) {
        let mut state = self.state();
        let (elapsed, wanted) = (state.elapsed, state.trace.is_some());
        if wanted {
            let line = format!("{:>11.3}ms  {}", elapsed.as_secs_f64() * 1e3 - 1e6, line());
            state.trace.get_or_insert_default().push(line);
        }
    }

    /// A rule is broken: the history ends here.
    pub fn broken(&self, what: impl Into<String>) {
        self.state().broken.get_or_insert(what.into());
    }

    /// Whether this program lives.
    pub fn is_alive(&self, pid: u32) -> bool {
        self.0.borrow().is_alive(pid)
    }

    /// One effect of a program.
    pub fn effect(&self, pid: u32) -> Effect {
        let mut state = self.state();
        let Some(process) = state.processes.get_mut(&pid).filter(|process| process.ended.is_none()) else {
            return Effect::OfTheDead;
        };
        match process.dies_after {
            None => Effect::Done,
            Some(0) => {
                state.end(pid, Status::Signaled { signal: SIGKILL, core_dumped: false });
                Effect::Interrupted
            }
            Some(left) => {
                process.dies_after = Some(left - 1);
                Effect::Done
            }
        }
    }

    /// Whether an effect that is whole or nothing takes place.
    pub fn acts(&self, pid: u32) -> bool {
        self.effect(pid) == Effect::Done
    }
}

/// What becomes of something that a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Done,
    /// The program is killed while it does it.
    Interrupted,
    OfTheDead,
}

impl State {
    /// A new process, with a pid that may have been another's before.
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
            of: None,
            doomed: None,
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

    /// Whether this process can run now: it is not stopped, frozen or stuck.
    pub fn can_run(&self, pid: u32) -> bool {
        let Some(process) = self.processes.get(&pid) else { return false };
        let frozen = process.cgroup.is_some_and(|cgroup| self.is_frozen(cgroup));
        // A KILL that is on its way lets nobody do anything more.
        let killed = matches!(process.doomed, Some(Status::Signaled { signal: SIGKILL, .. }));
        process.ended.is_none() && !process.stopped && !frozen && !process.stuck && !killed
    }

    pub fn is_frozen(&self, cgroup: u64) -> bool {
        self.cgroups.get(&cgroup).is_some_and(|cgroup| cgroup.frozen)
    }

    pub fn children(&self, pid: u32) -> Vec<u32> {
        self.processes.iter().filter(|(_, process)| process.parent == pid).map(|(child, _)| *child).collect()
    }

    /// Every living descendant.
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

    /// Ends a process: its children go to the nearest keeper above it, or to init, which reaps at once.
    pub fn end(&mut self, pid: u32, status: Status) {
        let Some(process) = self.processes.get_mut(&pid).filter(|process| process.ended.is_none()) else { return };
        process.ended = Some(status);
        if let (Role::Member { leader: true }, Some(id)) = (process.role, process.of.clone()) {
            self.truth.insert(id, status);
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

    /// An ended process is told to its parent. Only keepers and members wait for their children.
    fn notify_or_reap(&mut self, ended: u32, parent: u32) {
        let waits = self.processes.get(&parent).is_some_and(|parent| parent.ended.is_none());
        match self.processes.get_mut(&parent).filter(|parent| waits && parent.role == Role::Keeper) {
            Some(parent) => parent.child_signal = true,
            // Members of a tree and init reap at once.
            None => {
                self.processes.remove(&ended);
            }
        }
    }

    /// Delivers a signal to one process. What ends it, ends it when it runs next.
    pub fn signal(&mut self, pid: u32, signal: i32) {
        let Some(process) = self.processes.get_mut(&pid).filter(|process| process.ended.is_none()) else { return };
        match signal {
            SIGKILL => process.doomed = Some(Status::Signaled { signal, core_dumped: false }),
            SIGSTOP => process.stopped = true,
            SIGCONT => process.stopped = false,
            _ if process.ignores_term => {}
            _ => {
                process.doomed.get_or_insert(Status::Signaled { signal, core_dumped: false });
            }
        }
    }

    /// Those that were hit and can die now.
    pub fn dying(&self) -> Vec<u32> {
        let killed = |process: &Process| matches!(process.doomed, Some(Status::Signaled { signal: SIGKILL, .. }));
        let can_die = |pid: &u32, process: &Process| {
            let halted = process.stopped || process.cgroup.is_some_and(|cgroup| self.is_frozen(cgroup));
            process.ended.is_none()
                && process.doomed.is_some()
                && !process.stuck
                && (killed(process) || !halted)
                && *pid > INIT
        };
        self.processes.iter().filter(|(pid, process)| can_die(pid, process)).map(|(pid, _)| *pid).collect()
    }

    /// Whether anybody can still write to the output of this process.
    pub fn output_is_open(&self, id: &ProcessId) -> bool {
        let holds =
            |process: &Process| process.holds_output && process.ended.is_none() && process.of.as_ref() == Some(id);
        self.processes.values().any(holds)
    }

    /// The living processes of a tree, whoever their parent is.
    pub fn tree_of(&self, id: &ProcessId) -> Vec<u32> {
        let is_member = |process: &Process| {
            process.of.as_ref() == Some(id) && process.ended.is_none() && matches!(process.role, Role::Member { .. })
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
