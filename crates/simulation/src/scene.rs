//! One keeper whose daemon is played by a test: for histories that are written down, and for those that a property makes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pinfold_keeper::system::Socket;
use pinfold_model::facts::{Fact, Intent};
use pinfold_model::id::ProcessId;
use pinfold_model::link::{Decoder, FromKeeper, KeeperIdentity, Order, ToKeeper, encode};
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::spec::{Defaults, Draft, StopManner};
use pinfold_os::wait::Status;
use pinfold_store::record::{RECORD_FORMAT, Record, parse_record};

use crate::keeper::RunningKeeper;
use crate::machine::{INIT, Machine, Role, SIGKILL};
use crate::sockets::MemorySocket;

/// A stop that gives no time.
pub const AT_ONCE: StopManner = StopManner { signal: Signal::KILL, grace: Duration::ZERO };
/// A stop with a grace of five seconds.
pub const GENTLE: StopManner = StopManner { signal: Signal::TERM, grace: Duration::from_secs(5) };

/// A keeper, the daemon's end of its link, and what came over it.
#[derive(Debug)]
pub struct Scene {
    pub machine: Machine,
    /// The keeper, until it ends.
    pub keeper: Option<RunningKeeper>,
    pub daemon: Option<MemorySocket>,
    decoder: Decoder,
    /// Everything the keeper has sent, on whatever link.
    pub said: Vec<FromKeeper>,
    /// The pid of the daemon that the test plays.
    daemon_pid: u32,
    identity: KeeperIdentity,
    started: u64,
}

impl Scene {
    pub fn new(seed: u64) -> Self {
        let machine = Machine::new(seed);
        let daemon_pid = machine.state().fork(INIT, Role::Daemon);
        let (keeper, daemon) = RunningKeeper::fork(&machine, daemon_pid);
        let identity = keeper.identity.clone();
        let (keeper, daemon) = (Some(keeper), Some(daemon));
        let decoder = Decoder::default();
        let mut scene = Self { machine, keeper, daemon, decoder, said: vec![], daemon_pid, identity, started: 0 };
        scene.listen();
        scene
    }

    /// What it is asked to start; `change` may ask for more.
    pub fn intent(&mut self, change: impl FnOnce(&mut Draft)) -> Intent {
        self.started += 1;
        intent(self.started, &self.identity, self.machine.moment().0, change)
    }

    /// Starts a process, and gives its id.
    pub fn start(&mut self, change: impl FnOnce(&mut Draft)) -> ProcessId {
        let intent = self.intent(change);
        let id = intent.id.clone();
        self.tell(&order(intent));
        id
    }

    /// Sends a message, and lets the keeper do whatever there is to do.
    pub fn tell(&mut self, message: &ToKeeper) {
        self.send(&encode(message));
        self.settle();
    }

    /// Sends bytes, and nothing more.
    pub fn send(&mut self, bytes: &[u8]) {
        if let Some(daemon) = &self.daemon {
            let _ = daemon.send(bytes);
        }
    }

    pub fn stop(&mut self, id: &ProcessId, manner: StopManner) {
        let cause = Cause::StopRequested { by: "test".to_owned() };
        self.tell(&ToKeeper::Stop { request: 1, id: id.clone(), cause, manner });
    }

    /// Turns of the keeper until there is nothing to do for it.
    pub fn settle(&mut self) {
        for _ in 0..100 {
            let Some(keeper) = &mut self.keeper else { break };
            let ready = keeper.ready();
            let must = !ready.is_empty() || keeper.is_due();
            if must && !keeper.turn(&ready) {
                self.keeper = None;
            }
            self.listen();
            if !must {
                return;
            }
        }
    }

    /// Reads what the keeper sent.
    pub fn listen(&mut self) {
        let Some(daemon) = &self.daemon else { return };
        let mut bytes = Vec::with_capacity(1 << 16);
        while matches!(daemon.read_some(&mut bytes), Ok(pinfold_os::fsio::Moved::Bytes(_))) {}
        self.decoder.extend(&bytes);
        while let Ok(Some(message)) = self.decoder.try_next() {
            self.said.push(message);
        }
    }

    /// Lets time pass, and the keeper see to it.
    pub fn pass(&mut self, time: Duration) {
        self.machine.pass(time);
        self.settle();
    }

    /// The daemon goes, with its end of the link.
    pub fn disconnect(&mut self) {
        self.daemon = None;
        self.decoder = Decoder::default();
    }

    /// A daemon comes.
    pub fn connect(&mut self) {
        self.disconnect();
        if let Some(keeper) = &mut self.keeper {
            self.daemon = Some(keeper.connect(self.daemon_pid));
        }
        self.listen();
    }

    pub fn kill_keeper(&mut self) {
        let status = Status::Signaled { signal: SIGKILL, core_dumped: false };
        self.machine.state().end(self.identity.pid, status);
        self.keeper = None;
    }

    /// The leader of a process, while it lives.
    pub fn leader(&self, id: &ProcessId) -> u32 {
        let state = self.machine.state();
        let is_leader = |pid: &u32| state.processes[pid].role == Role::Member { leader: true };
        state.tree_of(id).into_iter().find(is_leader).expect("the leader lives")
    }

    /// A member of a tree forks.
    pub fn fork(&self, parent: u32) -> u32 {
        fork(&self.machine, parent)
    }

    pub fn write(&self, id: &ProcessId, bytes: usize) {
        write(&self.machine, id, bytes);
    }

    /// A process ends by itself.
    pub fn exit(&mut self, pid: u32, code: u8) {
        self.machine.state().end(pid, Status::Exited { code });
        self.settle();
    }

    /// Whoever was hit by a signal dies.
    pub fn let_die(&mut self) {
        loop {
            let dying = self.machine.state().dying();
            let Some(pid) = dying.first().copied() else { break };
            let status = self.machine.state().processes[&pid].doomed;
            self.machine.state().end(pid, status.unwrap_or(Status::Exited { code: 0 }));
        }
        self.settle();
    }

    /// What the record of a process says.
    pub fn record(&self, id: &ProcessId) -> Option<Record> {
        record_of(&self.machine, id)
    }

    /// The kinds of the lines in a record.
    pub fn lines(&self, id: &ProcessId) -> Vec<&'static str> {
        self.record(id).map_or(vec![], |record| record.facts.iter().map(kind).collect())
    }

    /// The kinds of the facts that were sent, in order.
    pub fn told(&self) -> Vec<&'static str> {
        let told = self.said.iter().filter_map(|message| match message {
            FromKeeper::Fact { fact, .. } => Some(kind(fact)),
            _ => None,
        });
        told.collect()
    }

    pub fn is_idle(&self) -> bool {
        self.said.last() == Some(&FromKeeper::Idle)
    }
}

/// What a start asks for beyond the usual.
pub type Change<'a> = &'a dyn Fn(&mut Draft);

/// An intent, as a daemon writes it.
pub fn intent(number: u64, keeper: &KeeperIdentity, at: u64, change: impl FnOnce(&mut Draft)) -> Intent {
    let mut draft = Draft { command: Some("work".to_owned()), ..Draft::default() };
    change(&mut draft);
    let (cwd, home, grace) = ("/".to_owned(), "/".to_owned(), Duration::from_secs(5));
    let spec = draft.try_into_spec(&Defaults { cwd, home, grace, output_limit: 1 << 20, ..Defaults::default() });
    Intent {
        format: RECORD_FORMAT,
        id: ProcessId::from_number(number, 1),
        spec: spec.expect("a draft of ours is valid"),
        mark: format!("mark-{number}"),
        at: pinfold_model::units::Moment(at),
        boot_id: "boot".to_owned(),
        keeper: keeper.clone(),
    }
}

/// The order to start it.
pub fn order(intent: Intent) -> ToKeeper {
    let (env, limit_places, next) = (BTreeMap::new(), vec![], None);
    ToKeeper::Start(Box::new(Order { intent: Arc::new(intent.into()), env, limit_places, next }))
}

/// A member of a tree forks; its child is in the same tree and holds the same output.
pub fn fork(machine: &Machine, parent: u32) -> u32 {
    let mut state = machine.state();
    let pid = state.fork(parent, Role::Member { leader: false });
    let of_parent = state.processes[&parent].clone();
    let child = state.processes.get_mut(&pid).expect("just forked");
    (child.of, child.cgroup, child.holds_output) = (of_parent.of, of_parent.cgroup, of_parent.holds_output);
    child.ignores_term = of_parent.ignores_term;
    pid
}

/// Some member of a tree writes output.
pub fn write(machine: &Machine, id: &ProcessId, bytes: usize) {
    if let Some(pipe) = machine.state().pipes.get_mut(id) {
        pipe.waiting += bytes;
        pipe.written += bytes as u64;
    }
}

/// What the record of a process says; `None` if there is none, or not even its first line.
pub fn record_of(machine: &Machine, id: &ProcessId) -> Option<Record> {
    let inode = machine.state().records.get(id).cloned()?;
    let bytes = inode.borrow().bytes.clone();
    parse_record(PathBuf::from("record"), &bytes).ok().map(|(record, _)| record)
}

/// The name of a fact's kind.
pub fn kind(fact: &Fact) -> &'static str {
    match fact {
        Fact::Intended(_) => "intended",
        Fact::Noted { .. } => "noted",
        fact => fact.event().map_or("", |event| event.name()),
    }
}
