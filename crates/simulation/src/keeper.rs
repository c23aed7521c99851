//! A keeper on the machine: the product's own, and what stands in the place of its `poll`.

use pinfold_keeper::keeper::{Keeper, Watched};
use pinfold_model::id::ProcessId;
use pinfold_model::link::KeeperIdentity;
use pinfold_os::wait::Status;

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
    /// Forks a keeper for a daemon; gives the daemon's end of the link.
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

    /// What `poll` would return now. Empty while it is stopped; timers may be due all the same.
    pub fn ready(&self) -> Vec<Watched> {
        let mut ready = vec![];
        if !self.machine.state().can_run(self.pid()) {
            return ready;
        }
        if let Some(driver) = self.keeper.kept() {
            let readable = driver.open_pipes().filter(|(_, pipe)| pipe.is_readable());
            ready.extend(readable.map(|(place, _)| Watched::Output(place)));
            let state = self.machine.state();
            let leader = driver.awaited_leader().map(pinfold_keeper::system::Leader::pid);
            if leader.is_some_and(|leader| state.processes.get(&leader).is_some_and(|leader| leader.ended.is_some())) {
                ready.push(Watched::Leader);
            }
            if state.processes.get(&self.pid()).is_some_and(|own| own.child_signal) {
                ready.push(Watched::Children);
            }
        }
        if let Some((socket, _)) = self.keeper.link()
            && socket.is_readable()
        {
            ready.push(Watched::Link);
        }
        if self.machine.state().backlog.get(&self.pid()).is_some_and(|backlog| !backlog.is_empty()) {
            ready.push(Watched::Listener);
        }
        ready
    }

    /// Whether a timer is due.
    pub fn is_due(&self) -> bool {
        self.next_timer().is_some_and(|at| at <= self.machine.now())
    }

    pub fn next_timer(&self) -> Option<std::time::Instant> {
        self.keeper.kept().and_then(|driver| driver.next_timer())
    }

    /// Whether something waits to be sent.
    pub fn has_unsent(&self) -> bool {
        self.keeper.link().is_some_and(|(_, unsent)| unsent)
    }

    /// One turn of its loop; whether it lives on.
    pub fn turn(&mut self, woken: &[Watched]) -> bool {
        for watched in woken {
            match watched {
                Watched::Listener => self.accept(),
                watched => self.keeper.handle(*watched),
            }
        }
        self.keeper.end_turn();
        self.lives_on()
    }

    /// A daemon connected to its socket.
    pub fn connect(&mut self, daemon: u32) -> MemorySocket {
        let (daemons, own) = MemorySocket::pair(&self.machine, daemon, self.pid());
        self.keeper.daemon_connected(own);
        self.keeper.end_turn();
        daemons
    }

    /// Takes the next connection: the daemon is who holds the lock of the home.
    fn accept(&mut self) {
        let Some((socket, peer)) = MemorySocket::accept(&self.machine, self.pid()) else { return };
        let is_daemon = self.machine.state().home_lock == Some(peer);
        match is_daemon {
            true => self.keeper.daemon_connected(socket),
            false => self.keeper.visitor_connected(socket),
        }
    }

    /// The process that it keeps, until its end is written.
    pub fn keeps(&self) -> Option<&ProcessId> {
        self.keeper.kept().filter(|driver| !driver.is_over()).map(|driver| driver.id())
    }

    pub fn lives_on(&mut self) -> bool {
        let pid = self.pid();
        if !self.machine.is_alive(pid) {
            return false;
        }
        if !self.keeper.is_done() {
            return true;
        }
        self.machine.state().keeper_sockets.remove(&pid);
        self.keeper.discard_prepared();
        self.machine.state().end(pid, Status::Exited { code: 0 });
        false
    }
}
