//! The state of one history, and its random steps, among them how far time advances.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pinfold_model::id::ProcessId;
use pinfold_model::link::ToKeeper;
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::spec::{Spec, StopManner, Strays};
use pinfold_os::wait::ExitStatus;

use crate::check::Records;
use crate::daemon::Daemon;
use crate::harness::{self, IMMEDIATE};
use crate::index::Index;
use crate::keeper::RunningKeeper;
use crate::machine::{INIT, Machine, Role};
use crate::plan::Plan;
use crate::random::Random;
use crate::sockets::MemorySocket;

/// The most processes in one history.
const MAX_STARTS: u64 = 4;

#[derive(Debug)]
pub struct World {
    pub machine: Machine,
    pub(crate) random: Random,
    pub(crate) plan: Plan,
    pub daemon: Option<Daemon>,
    pub keepers: BTreeMap<u32, RunningKeeper>,
    pub index: Index,
    records: Records,
    pub(crate) started: u64,
    /// Rounds run at the end, in which everything is stopped.
    pub(crate) rounds: u64,
    /// Starts that were acknowledged to a client.
    pub(crate) acknowledged: BTreeSet<ProcessId>,
    /// Connections of programs other than the daemon.
    pub(crate) visitors: Vec<MemorySocket>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let machine = Machine::new(random.number());
        let plan = Plan::new(&mut random);
        machine.state().with_cgroups = plan.with_cgroups;
        machine.state().faults = plan.faults;
        let daemon = Daemon::start(&machine);
        let (keepers, index, records) = (BTreeMap::new(), Index::default(), Records::default());
        let (acknowledged, visitors) = (BTreeSet::new(), vec![]);
        Self { machine, random, plan, daemon, keepers, index, records, started: 0, rounds: 0, acknowledged, visitors }
    }

    /// The first violated invariant, if any.
    pub fn violation(&self) -> Option<String> {
        self.machine.state().violation.clone()
    }

    /// One random step.
    pub fn step(&mut self) {
        match self.random.below(100) {
            0..32 => self.keeper_step(),
            32..60 => self.daemon_step(),
            60..76 => self.member_step(),
            76..84 => self.client_step(),
            84..93 => self.advance_time(),
            _ => self.inject_fault(),
        }
        self.after_step();
    }

    /// Drops dead programs, and checks the records that changed.
    pub(crate) fn after_step(&mut self) {
        let machine = self.machine.clone();
        self.keepers.retain(|pid, _| machine.is_alive(*pid));
        if let Some(daemon) = self.daemon.take_if(|daemon| !machine.is_alive(daemon.pid())) {
            machine.trace(|| format!("daemon {} is dead", daemon.pid()));
        }
        if let Some(daemon) = &self.daemon {
            let new = daemon.entries.iter().filter(|(_, entry)| entry.acknowledged).map(|(id, _)| id.clone());
            self.acknowledged.extend(new);
        }
        self.records.check(&machine);
    }

    fn keeper_step(&mut self) {
        let pids: Vec<u32> = self.keepers.keys().copied().collect();
        let Some(pid) = self.random.pick(&pids).copied() else { return };
        let Some(keeper) = self.keepers.get_mut(&pid) else { return };
        if !self.machine.state().can_run(pid) {
            return;
        }
        let mut woken = keeper.ready();
        woken.retain(|_| self.random.permille(750));
        if woken.is_empty() && !keeper.is_due() && !keeper.has_unsent() {
            return;
        }
        self.machine.trace(|| format!("keeper {pid} wakes for {woken:?}"));
        if !keeper.turn(&woken) {
            self.machine.trace(|| format!("keeper {pid} ends"));
            self.keepers.remove(&pid);
        }
    }

    fn daemon_step(&mut self) {
        let Some(daemon) = &mut self.daemon else { return };
        if !self.machine.state().can_run(daemon.pid()) {
            return;
        }
        daemon.check_hellos();
        daemon.finish_recovery_early();
        match self.random.below(10) {
            0..6 => {
                let ready = daemon.ready_links();
                if let Some(link) = self.random.pick(&ready) {
                    daemon.receive(*link);
                }
            }
            6..8 => daemon.timers(&mut self.index, &self.keepers),
            _ => daemon.commit(&mut self.index),
        }
    }

    /// A process of a tree does something at random, or dies of a signal sent earlier.
    fn member_step(&mut self) {
        let dying = self.machine.state().dying();
        if let Some(pid) = self.random.pick(&dying).copied()
            && self.random.permille(600)
        {
            return self.die(pid);
        }
        let members: Vec<u32> = {
            let state = self.machine.state();
            let members = state.processes.iter().filter(|(_, process)| process.member_of.is_some());
            members.map(|(pid, _)| *pid).filter(|pid| state.can_run(*pid)).collect()
        };
        let Some(pid) = self.random.pick(&members).copied() else { return };
        let Some(id) = self.machine.state().processes[&pid].member_of.clone() else { return };
        let is_outsider = self.machine.state().processes[&pid].role == Role::Outsider;
        match self.random.below(10) {
            0..3 => {
                let code = self.random.below(4) as u8;
                self.machine.trace(|| format!("program {pid} of {id} exits with {code}"));
                self.machine.state().end(pid, ExitStatus::Exited { code });
            }
            3..5 if members.len() < 6 && !is_outsider => {
                let child = harness::fork(&self.machine, pid);
                self.machine.trace(|| format!("program {pid} of {id} forks {child}"));
            }
            5 => {
                self.machine.trace(|| format!("program {pid} of {id} closes its output"));
                if let Some(process) = self.machine.state().processes.get_mut(&pid) {
                    process.holds_output = false;
                }
            }
            6 if self.plan.outsiders => {
                let outsider = self.machine.state().fork(INIT, Role::Outsider);
                if let Some(process) = self.machine.state().processes.get_mut(&outsider) {
                    (process.member_of, process.holds_output) = (Some(id), true);
                }
            }
            _ => {
                let holds = self.machine.state().processes[&pid].holds_output;
                let bytes = if self.random.permille(20) { 60_000 } else { 1 + self.random.below(50) as usize };
                if holds {
                    harness::write(&self.machine, &id, bytes);
                }
            }
        }
    }

    /// A process dies of a signal sent earlier.
    pub(crate) fn die(&mut self, pid: u32) {
        let status = self.machine.state().processes.get(&pid).and_then(|process| process.pending_exit);
        if let Some(status) = status {
            self.machine.trace(|| format!("program {pid} dies: {status:?}"));
            self.machine.state().end(pid, status);
        }
    }

    fn client_step(&mut self) {
        let can_run = |daemon: &&mut Daemon| self.machine.state().can_run(daemon.pid()) && !daemon.is_recovering();
        let Some(daemon) = self.daemon.as_mut().filter(can_run) else { return };
        let live = daemon.live();
        let Some(id) = self.random.pick(&live).cloned() else { return self.start_one() };
        if self.random.permille(300) {
            return self.start_one();
        }
        let Some(daemon) = &mut self.daemon else { return };
        let machine = &self.machine;
        match self.random.below(8) {
            0..4 => {
                let grace = Duration::from_millis([0, 200, 2000][self.random.below(3) as usize]);
                machine.trace(|| format!("a client stops {id} with a grace of {grace:?}"));
                daemon.stop(&id, StopManner { signal: Signal::TERM, grace });
            }
            4 => {
                machine.trace(|| format!("a client pauses {id}"));
                daemon.request(&id, |request, id| ToKeeper::Pause { request, id });
            }
            5 => {
                machine.trace(|| format!("a client resumes {id}"));
                daemon.request(&id, |request, id| ToKeeper::Resume { request, id });
            }
            6 => {
                let purpose = "to go on".to_owned();
                daemon.request(&id, |request, id| {
                    let (to, ancestors) = ("another".to_owned(), vec![]);
                    ToKeeper::HandOver { request, id, to, ancestors, purpose }
                });
            }
            _ => {
                let signals = [Signal::TERM, Signal::HUP, Signal::KILL, Signal::STOP, Signal::CONT];
                let signal = *self.random.pick(&signals).unwrap_or(&Signal::TERM);
                machine.trace(|| format!("a client sends {} to {id}", signal.name()));
                daemon.request(&id, |request, id| ToKeeper::Signal { request, id, signal, by: "a client".to_owned() });
            }
        }
    }

    fn start_one(&mut self) {
        let Some(daemon) = self.daemon.as_mut().filter(|_| self.started < MAX_STARTS) else { return };
        self.started += 1;
        let strays = if self.random.permille(500) { Strays::Keep } else { Strays::Stop };
        let limit = self.random.permille(150).then(|| Duration::from_millis(1 + self.random.below(5000)));
        let change = |spec: &mut Spec| (spec.strays, spec.time_limit) = (strays, limit);
        if let Some(keeper) = daemon.start_process(self.started, &change) {
            self.keepers.insert(keeper.pid(), keeper);
        }
    }

    fn advance_time(&mut self) {
        let small = Duration::from_micros(1 + self.random.below(20_000));
        let until_next = self.next_timer().filter(|_| self.random.permille(600));
        self.machine.advance(until_next.unwrap_or(small));
    }

    /// Time until the next timer; `None` if there is none.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        let now = self.machine.now();
        let keepers = self.keepers.values().filter_map(RunningKeeper::next_timer);
        let daemon = self.daemon.as_ref().and_then(Daemon::next_timer);
        let next = keepers.chain(daemon).map(|at| at.saturating_duration_since(now)).min()?;
        Some(next + Duration::from_micros(50))
    }

    /// Stops every running process.
    pub(crate) fn stop_all(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            for id in daemon.live() {
                let cause = Cause::OwnerEnded;
                daemon.request(&id, |request, id| ToKeeper::Stop { request, id, cause, manner: IMMEDIATE });
            }
        }
    }
}
