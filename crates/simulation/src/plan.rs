//! Which faults one history has. Each is on in some histories only, so that some are deep in one kind of trouble.

use std::time::Duration;

use pinfold_keeper::system::Socket;
use pinfold_os::wait::Status;

use crate::daemon::Daemon;
use crate::machine::{Faults, INIT, SIGKILL};
use crate::random::Random;
use crate::sockets::MemorySocket;
use crate::world::World;

const KILLED: Status = Status::Signaled { signal: SIGKILL, core_dumped: false };

/// A kind of fault that the history itself brings about; the machine's own are [`Faults`].
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
    Stranger,
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
    Kind::Stranger,
    Kind::StickMember,
];

#[derive(Debug)]
pub struct Plan {
    pub faults: Faults,
    kinds: Vec<Kind>,
    pub with_cgroups: bool,
    /// Whether somebody outside of a tree may hold its output.
    pub outsiders: bool,
}

impl Plan {
    pub fn new(random: &mut Random) -> Self {
        let kinds = KINDS.into_iter().filter(|_| random.permille(400)).collect();
        let mut rate = |most: u32| if random.permille(350) { random.below(u64::from(most)) as u32 } else { 0 };
        let faults = Faults {
            refused_write: rate(400),
            torn_write: rate(300),
            refused_output: rate(300),
            refused_directory: rate(200),
            blind: rate(300),
            stuck_frozen: rate(500),
            failed_launch: rate(300),
            deaf: rate(800),
            slow_sockets: rate(2) > 0,
        };
        Self { faults, kinds, with_cgroups: random.permille(600), outsiders: random.permille(300) }
    }
}

impl World {
    pub(crate) fn fault(&mut self) {
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
                    self.machine.note(|| format!("program {pid} is killed"));
                    self.machine.state().end(pid, KILLED);
                }
            }
            Some(Kind::Disconnect) => {
                let links: Vec<usize> = self.daemon.as_ref().map_or(vec![], |daemon| daemon.links());
                if let Some(link) = self.random.pick(&links).copied() {
                    self.machine.note(|| format!("connection {link} is cut"));
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
                self.machine.note(|| format!("the clock steps by {} s", step / 1_000_000));
                let wall = self.machine.state().wall;
                self.machine.state().wall = wall.saturating_add_signed(step);
            }
            Some(Kind::Stranger) => self.stranger(),
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
        // What was killed is gone before anybody else can have its pid.
        self.after_step();
        // Without a daemon there is soon another one.
        if self.daemon.is_none() && self.random.permille(500) {
            self.daemon = Daemon::start(&self.machine);
        }
    }

    fn members(&self) -> Vec<u32> {
        let state = self.machine.state();
        let members = state.processes.iter().filter(|(_, process)| process.of.is_some() && process.ended.is_none());
        members.map(|(pid, _)| *pid).collect()
    }

    /// Kills a program of ours: now, or in the middle of what it does next.
    fn kill(&mut self, pid: u32, who: &str) {
        if self.random.permille(500) {
            self.machine.note(|| format!("{who} {pid} is killed"));
            self.machine.state().end(pid, KILLED);
            return;
        }
        let after = self.random.below(10) as u32;
        self.machine.note(|| format!("{who} {pid} will be killed after {after} more effects"));
        if let Some(process) = self.machine.state().processes.get_mut(&pid) {
            process.dies_after = Some(after);
        }
    }

    fn freeze_or_resume(&mut self, pid: u32, who: &str) {
        if let Some(process) = self.machine.state().processes.get_mut(&pid) {
            process.stopped = !process.stopped;
        }
        self.machine.note(|| format!("{who} {pid} is stopped or goes on"));
    }

    /// A second daemon is refused while the first lives, stopped or not.
    fn second_daemon(&mut self) {
        match (Daemon::start(&self.machine), &self.daemon) {
            (None, _) => {}
            (Some(_), Some(_)) => self.machine.broken("two daemons in one home"),
            (Some(second), None) => self.daemon = Some(second),
        }
    }

    /// A program that is not the daemon connects to a keeper, says something or nothing, and leaves.
    fn stranger(&mut self) {
        if self.strangers.len() > 1 || self.random.permille(300) {
            self.strangers.clear();
            return;
        }
        let pids: Vec<u32> = self.keepers.keys().copied().collect();
        let Some(keeper) = self.random.pick(&pids).copied() else { return };
        if let Ok(socket) = MemorySocket::connect(&self.machine, INIT, keeper) {
            self.machine.note(|| format!("a stranger connects to keeper {keeper}"));
            let _ = socket.send(b"{\"do\":\"retire\"}");
            self.strangers.push(socket);
        }
    }

    /// All faults end, whoever is stopped goes on, and there is a daemon.
    pub(crate) fn heal(&mut self) {
        self.machine.note(|| "all faults end".to_owned());
        {
            let mut state = self.machine.state();
            state.faults = Faults::default();
            for process in state.processes.values_mut() {
                process.dies_after = None;
                process.stuck = false;
                if process.of.is_none() {
                    process.stopped = false;
                }
            }
            for connection in &mut state.connections {
                connection.capacity = 1 << 20;
            }
        }
        self.strangers.clear();
        if self.daemon.is_none() {
            self.daemon = Daemon::start(&self.machine);
        }
        self.machine.pass(Duration::from_millis(1));
    }
}
