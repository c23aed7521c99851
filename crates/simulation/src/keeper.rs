//! The product's keeper on the simulated machine; stands in for its `poll` loop.

use pinfold_keeper::keeper::{Keeper, Wakeup};
use pinfold_model::id::ProcessId;
use pinfold_model::link::KeeperIdentity;
use pinfold_os::wait::ExitStatus;

use crate::machine::{INIT, Machine, Role};
use crate::sockets::MemorySocket;
use crate::system::MemorySystem;

#[derive(Debug)]
pub struct RunningKeeper {
    machine: Machine,
    pub identity: KeeperIdentity,
    keeper: Keeper<MemorySystem>,
}

impl RunningKeeper {
    /// Forks a keeper for a daemon; returns the daemon's end of the link.
    pub fn fork(machine: &Machine, daemon: u32) -> (Self, MemorySocket) {
        let pid = machine.state().fork(INIT, Role::Keeper);
        let start_time = machine.state().processes[&pid].start_time;
        machine.state().keeper_sockets.insert(pid, start_time);
        let (daemons, own) = MemorySocket::pair(machine, daemon, pid);
        let identity = KeeperIdentity { pid, start_time, cgroup: None };
        let system = MemorySystem { machine: machine.clone(), pid, start_time };
        let keeper = Keeper::new(system, identity.clone(), own);
        (Self { machine: machine.clone(), identity, keeper }, daemons)
    }

    pub fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// What `poll` would return now; nothing while the keeper is stopped.
    pub fn ready(&self) -> Vec<Wakeup> {
        let mut ready = vec![];
        if !self.machine.state().can_run(self.pid()) {
            return ready;
        }
        if let Some(driver) = self.keeper.driver() {
            let readable = driver.open_pipes().filter(|(_, pipe)| pipe.is_readable());
            ready.extend(readable.map(|(place, _)| Wakeup::Output(place)));
            let state = self.machine.state();
            let leader = driver.awaited_leader().map(pinfold_keeper::system::Leader::pid);
            if leader.is_some_and(|leader| state.processes.get(&leader).is_some_and(|leader| leader.ended.is_some())) {
                ready.push(Wakeup::Leader);
            }
            if state.processes.get(&self.pid()).is_some_and(|own| own.child_signal) {
                ready.push(Wakeup::Children);
            }
        }
        if let Some((socket, _)) = self.keeper.link()
            && socket.is_readable()
        {
            ready.push(Wakeup::Link);
        }
        if self.machine.state().backlog.get(&self.pid()).is_some_and(|backlog| !backlog.is_empty()) {
            ready.push(Wakeup::Listener);
        }
        ready
    }

    pub fn is_due(&self) -> bool {
        self.next_timer().is_some_and(|at| at <= self.machine.now())
    }

    pub fn next_timer(&self) -> Option<std::time::Instant> {
        self.keeper.driver().and_then(|driver| driver.next_timer())
    }

    pub fn has_unsent(&self) -> bool {
        self.keeper.link().is_some_and(|(_, unsent)| unsent)
    }

    /// One turn of the event loop; false if the keeper ended.
    pub fn turn(&mut self, woken: &[Wakeup]) -> bool {
        for wakeup in woken {
            match wakeup {
                Wakeup::Listener => self.accept(),
                wakeup => self.keeper.handle(*wakeup),
            }
        }
        self.keeper.end_turn();
        self.keeps_running()
    }

    /// Connects a daemon to the keeper.
    pub fn connect(&mut self, daemon: u32) -> MemorySocket {
        let (daemons, own) = MemorySocket::pair(&self.machine, daemon, self.pid());
        self.keeper.daemon_connected(own);
        self.keeper.end_turn();
        daemons
    }

    /// Accepts the next connection. The daemon is the program that holds the home's lock.
    fn accept(&mut self) {
        let Some((socket, peer)) = MemorySocket::accept(&self.machine, self.pid()) else { return };
        let is_daemon = self.machine.state().home_lock == Some(peer);
        match is_daemon {
            true => self.keeper.daemon_connected(socket),
            false => self.keeper.visitor_connected(socket),
        }
    }

    /// The running process, until its end is written.
    pub fn keeps(&self) -> Option<&ProcessId> {
        self.keeper.driver().filter(|driver| !driver.is_over()).map(|driver| driver.id())
    }

    pub fn keeps_running(&mut self) -> bool {
        let pid = self.pid();
        if !self.machine.is_alive(pid) {
            return false;
        }
        if !self.keeper.is_done() {
            return true;
        }
        self.machine.state().keeper_sockets.remove(&pid);
        self.keeper.discard_prepared();
        self.machine.state().end(pid, ExitStatus::Exited { code: 0 });
        false
    }
}
