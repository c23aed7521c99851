//! Chooses the faults of a history. Each is enabled in some histories only, so that some get many faults of one kind.

use std::time::Duration;

use pinfold_keeper::system::Socket;
use pinfold_os::wait::ExitStatus;

use crate::daemon::Daemon;
use crate::machine::{Faults, INIT, SIGKILL};
use crate::random::Random;
use crate::sockets::MemorySocket;
use crate::world::World;

const KILLED: ExitStatus = ExitStatus::Signaled { signal: SIGKILL, core_dumped: false };

/// A fault that affects programs; [`Faults`] are those of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    KillDaemon,
    KillKeeper,
    KillMember,
    Disconnect,
    FreezeDaemon,
    FreezeKeeper,
    SecondDaemon,
    ClockStep,
    Visitor,
    StickMember,
}

const KINDS: [Kind; 10] = [
    Kind::KillDaemon,
    Kind::KillKeeper,
    Kind::KillMember,
    Kind::Disconnect,
    Kind::FreezeDaemon,
    Kind::FreezeKeeper,
    Kind::SecondDaemon,
    Kind::ClockStep,
    Kind::Visitor,
    Kind::StickMember,
];

#[derive(Debug)]
pub struct Plan {
    pub faults: Faults,
    kinds: Vec<Kind>,
    pub with_cgroups: bool,
    /// Whether processes outside of a tree may hold its output open.
    pub outsiders: bool,
}

impl Plan {
    pub fn new(random: &mut Random) -> Self {
        let kinds = KINDS.into_iter().filter(|_| random.permille(400)).collect();
        let mut rate = |max: u32| if random.permille(350) { random.below(u64::from(max)) as u32 } else { 0 };
        let faults = Faults {
            refused_write: rate(400),
            torn_write: rate(300),
            refused_output: rate(300),
            refused_directory: rate(200),
            failed_lookup: rate(300),
            stuck_frozen: rate(500),
            failed_launch: rate(300),
            ignores_term: rate(800),
            slow_sockets: rate(2) > 0,
        };
        Self { faults, kinds, with_cgroups: random.permille(600), outsiders: random.permille(300) }
    }
}

impl World {
    pub(crate) fn inject_fault(&mut self) {
        let kinds = self.plan.kinds.clone();
        match self.random.pick(&kinds) {
            None => {}
            Some(Kind::KillDaemon) => {
                if let Some(pid) = self.daemon.as_ref().map(Daemon::pid) {
                    self.kill(pid, "daemon");
                }
            }
            Some(Kind::KillKeeper) => {
                let pids: Vec<u32> = self.keepers.keys().copied().collect();
                if let Some(pid) = self.random.pick(&pids).copied() {
                    self.kill(pid, "keeper");
                }
            }
            Some(Kind::KillMember) => {
                let pids = self.members();
                if let Some(pid) = self.random.pick(&pids).copied() {
                    self.machine.trace(|| format!("program {pid} is killed"));
                    self.machine.state().end(pid, KILLED);
                }
            }
            Some(Kind::Disconnect) => {
                let links: Vec<usize> = self.daemon.as_ref().map_or(vec![], |daemon| daemon.links());
                if let Some(link) = self.random.pick(&links).copied() {
                    self.machine.trace(|| format!("connection {link} is cut"));
                    self.machine.state().connections[link].closed = [true, true];
                }
            }
            Some(Kind::FreezeDaemon) => {
                if let Some(pid) = self.daemon.as_ref().map(Daemon::pid) {
                    self.freeze_or_resume(pid, "daemon");
                }
            }
            Some(Kind::FreezeKeeper) => {
                let pids: Vec<u32> = self.keepers.keys().copied().collect();
                if let Some(pid) = self.random.pick(&pids).copied() {
                    self.freeze_or_resume(pid, "keeper");
                }
            }
            Some(Kind::SecondDaemon) => self.second_daemon(),
            Some(Kind::ClockStep) => {
                let hour = 3_600_000_000_i64;
                let step = self.random.below(2 * hour as u64) as i64 - hour;
                self.machine.trace(|| format!("the clock steps by {} s", step / 1_000_000));
                let wall = self.machine.state().wall;
                self.machine.state().wall = wall.saturating_add_signed(step);
            }
            Some(Kind::Visitor) => self.connect_visitor(),
            Some(Kind::StickMember) => {
                let pids = self.members();
                let stuck = self.random.permille(500);
                if let Some(pid) = self.random.pick(&pids)
                    && let Some(process) = self.machine.state().processes.get_mut(pid)
                {
                    process.stuck = stuck;
                }
            }
        }
        // Remove killed programs before their pids are reused.
        self.after_step();
        // A dead daemon is soon replaced.
        if self.daemon.is_none() && self.random.permille(500) {
            self.daemon = Daemon::start(&self.machine);
        }
    }

    fn members(&self) -> Vec<u32> {
        let state = self.machine.state();
        let members =
            state.processes.iter().filter(|(_, process)| process.member_of.is_some() && process.ended.is_none());
        members.map(|(pid, _)| *pid).collect()
    }

    /// Kills a daemon or keeper: now, or after some more effects.
    fn kill(&mut self, pid: u32, who: &str) {
        if self.random.permille(500) {
            self.machine.trace(|| format!("{who} {pid} is killed"));
            self.machine.state().end(pid, KILLED);
            return;
        }
        let after = self.random.below(10) as u32;
        self.machine.trace(|| format!("{who} {pid} will be killed after {after} more effects"));
        if let Some(process) = self.machine.state().processes.get_mut(&pid) {
            process.dies_after = Some(after);
        }
    }

    fn freeze_or_resume(&mut self, pid: u32, who: &str) {
        if let Some(process) = self.machine.state().processes.get_mut(&pid) {
            process.stopped = !process.stopped;
        }
        self.machine.trace(|| format!("{who} {pid} is stopped or continued"));
    }

    /// A second daemon is refused while the first is alive, even if it is stopped.
    fn second_daemon(&mut self) {
        match (Daemon::start(&self.machine), &self.daemon) {
            (None, _) => {}
            (Some(_), Some(_)) => self.machine.violation("two daemons in one home"),
            (Some(second), None) => self.daemon = Some(second),
        }
    }

    /// A program other than the daemon connects to a keeper, sends an order, and later disconnects.
    fn connect_visitor(&mut self) {
        if self.visitors.len() > 1 || self.random.permille(300) {
            self.visitors.clear();
            return;
        }
        let pids: Vec<u32> = self.keepers.keys().copied().collect();
        let Some(keeper) = self.random.pick(&pids).copied() else { return };
        if let Ok(socket) = MemorySocket::connect(&self.machine, INIT, keeper) {
            self.machine.trace(|| format!("a visitor connects to keeper {keeper}"));
            let _ = socket.send(b"{\"do\":\"retire\"}");
            self.visitors.push(socket);
        }
    }

    /// Ends all faults, continues stopped programs, and starts a daemon if there is none.
    pub(crate) fn heal(&mut self) {
        self.machine.trace(|| "all faults end".to_owned());
        {
            let mut state = self.machine.state();
            state.faults = Faults::default();
            for process in state.processes.values_mut() {
                process.dies_after = None;
                process.stuck = false;
                if process.member_of.is_none() {
                    process.stopped = false;
                }
            }
            for connection in &mut state.connections {
                connection.capacity = 1 << 20;
            }
        }
        self.visitors.clear();
        if self.daemon.is_none() {
            self.daemon = Daemon::start(&self.machine);
        }
        self.machine.advance(Duration::from_millis(1));
    }
}
