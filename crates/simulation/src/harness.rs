//! One keeper, with a test in the place of its daemon: for scripted and for random histories.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pinfold_keeper::system::Socket;
use pinfold_model::facts::{Fact, Intent};
use pinfold_model::id::ProcessId;
use pinfold_model::link::{Decoder, FromKeeper, KeeperIdentity, Order, ToKeeper, encode};
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::spec::{DEFAULT_SHELL, Defaults, Program, Spec, StopManner};
use pinfold_os::wait::ExitStatus;
use pinfold_store::record::{RECORD_FORMAT, Record, parse_record};

use crate::keeper::RunningKeeper;
use crate::machine::{INIT, Machine, Role, SIGKILL};
use crate::sockets::MemorySocket;

/// A stop without a grace period.
pub const IMMEDIATE: StopManner = StopManner { signal: Signal::KILL, grace: Duration::ZERO };
/// A stop with a grace period of five seconds.
pub const WITH_GRACE: StopManner = StopManner { signal: Signal::TERM, grace: Duration::from_secs(5) };

/// A keeper, and the daemon's end of its link.
#[derive(Debug)]
pub struct Harness {
    pub machine: Machine,
    /// `None` after it ended.
    pub keeper: Option<RunningKeeper>,
    pub daemon: Option<MemorySocket>,
    decoder: Decoder,
    /// Every message from the keeper, on any link.
    pub messages: Vec<FromKeeper>,
    /// The pid of the daemon that the test stands for.
    daemon_pid: u32,
    identity: KeeperIdentity,
    started: u64,
}

impl Harness {
    pub fn new(seed: u64) -> Self {
        let machine = Machine::new(seed);
        let daemon_pid = machine.state().fork(INIT, Role::Daemon);
        let (keeper, daemon) = RunningKeeper::fork(&machine, daemon_pid);
        let identity = keeper.identity.clone();
        let (keeper, daemon) = (Some(keeper), Some(daemon));
        let decoder = Decoder::default();
        let mut harness = Self { machine, keeper, daemon, decoder, messages: vec![], daemon_pid, identity, started: 0 };
        harness.receive();
        harness
    }

    /// An intent; `change` modifies its spec.
    pub fn intent(&mut self, change: impl FnOnce(&mut Spec)) -> Intent {
        self.started += 1;
        intent(self.started, &self.identity, self.machine.moment().0, change)
    }

    /// Starts a process; returns its id.
    pub fn start(&mut self, change: impl FnOnce(&mut Spec)) -> ProcessId {
        let intent = self.intent(change);
        let id = intent.id.clone();
        self.send_message(&order(intent));
        id
    }

    /// Sends a message, and runs the keeper until it is idle.
    pub fn send_message(&mut self, message: &ToKeeper) {
        self.send(&encode(message));
        self.run_until_idle();
    }

    /// Sends bytes without running the keeper.
    pub fn send(&mut self, bytes: &[u8]) {
        if let Some(daemon) = &self.daemon {
            let _ = daemon.send(bytes);
        }
    }

    pub fn stop(&mut self, id: &ProcessId, manner: StopManner) {
        let cause = Cause::StopRequested { by: "test".to_owned() };
        self.send_message(&ToKeeper::Stop { request: 1, id: id.clone(), cause, manner });
    }

    /// Runs the keeper until it has no work.
    pub fn run_until_idle(&mut self) {
        for _ in 0..100 {
            let Some(keeper) = &mut self.keeper else { break };
            let ready = keeper.ready();
            let must = !ready.is_empty() || keeper.is_due();
            if must && !keeper.turn(&ready) {
                self.keeper = None;
            }
            self.receive();
            if !must {
                return;
            }
        }
    }

    /// Reads the keeper's messages.
    pub fn receive(&mut self) {
        let Some(daemon) = &self.daemon else { return };
        let mut bytes = Vec::with_capacity(1 << 16);
        while matches!(daemon.read_some(&mut bytes), Ok(pinfold_os::fsio::ReadResult::Bytes(_))) {}
        self.decoder.extend(&bytes);
        while let Ok(Some(message)) = self.decoder.try_next() {
            self.messages.push(message);
        }
    }

    /// Advances time, and runs the keeper until it is idle.
    pub fn advance(&mut self, time: Duration) {
        self.machine.advance(time);
        self.run_until_idle();
    }

    /// Closes the daemon's end of the link.
    pub fn disconnect(&mut self) {
        self.daemon = None;
        self.decoder = Decoder::default();
    }

    /// Connects a new daemon.
    pub fn connect(&mut self) {
        self.disconnect();
        if let Some(keeper) = &mut self.keeper {
            self.daemon = Some(keeper.connect(self.daemon_pid));
        }
        self.receive();
    }

    pub fn kill_keeper(&mut self) {
        let status = ExitStatus::Signaled { signal: SIGKILL, core_dumped: false };
        self.machine.state().end(self.identity.pid, status);
        self.keeper = None;
    }

    /// The running leader of a process.
    pub fn leader(&self, id: &ProcessId) -> u32 {
        let state = self.machine.state();
        let is_leader = |pid: &u32| state.processes[pid].role == Role::Member { leader: true };
        state.tree_of(id).into_iter().find(is_leader).expect("a running leader")
    }

    /// Forks a child of a tree's member.
    pub fn fork(&self, parent: u32) -> u32 {
        fork(&self.machine, parent)
    }

    pub fn write(&self, id: &ProcessId, bytes: usize) {
        write(&self.machine, id, bytes);
    }

    /// A process exits by itself.
    pub fn exit(&mut self, pid: u32, code: u8) {
        self.machine.state().end(pid, ExitStatus::Exited { code });
        self.run_until_idle();
    }

    /// Every process with a pending fatal signal dies.
    pub fn deliver_deaths(&mut self) {
        loop {
            let dying = self.machine.state().dying();
            let Some(pid) = dying.first().copied() else { break };
            let status = self.machine.state().processes[&pid].pending_exit;
            self.machine.state().end(pid, status.unwrap_or(ExitStatus::Exited { code: 0 }));
        }
        self.run_until_idle();
    }

    /// The record of a process.
    pub fn record(&self, id: &ProcessId) -> Option<Record> {
        record_of(&self.machine, id).map(|record| (*record).clone())
    }

    /// The kinds of a record's lines.
    pub fn record_kinds(&self, id: &ProcessId) -> Vec<&'static str> {
        self.record(id).map_or(vec![], |record| record.facts.iter().map(kind).collect())
    }

    /// The kinds of the facts sent, in order.
    pub fn facts_sent(&self) -> Vec<&'static str> {
        let kinds = self.messages.iter().filter_map(|message| match message {
            FromKeeper::Fact { fact, .. } => Some(kind(fact)),
            _ => None,
        });
        kinds.collect()
    }

    pub fn is_idle(&self) -> bool {
        self.messages.last() == Some(&FromKeeper::Idle)
    }
}

/// Modifies the spec of a start.
pub type Change<'a> = &'a dyn Fn(&mut Spec);

/// The intent of a start.
pub fn intent(number: u64, keeper: &KeeperIdentity, at: u64, change: impl FnOnce(&mut Spec)) -> Intent {
    let program = Program::Shell { shell: DEFAULT_SHELL.to_owned(), script: "work".to_owned() };
    let defaults = Defaults { grace: Duration::from_secs(5), output_limit: 1 << 20, ..Defaults::default() };
    let mut spec = Spec { inherit_env: false, ..Spec::new(program, "/".into(), &defaults) };
    change(&mut spec);
    Intent {
        format: RECORD_FORMAT,
        id: ProcessId::from_number(number, 1),
        spec: spec.check().expect("valid"),
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

/// Forks a child in the same tree, holding the same output.
pub fn fork(machine: &Machine, parent: u32) -> u32 {
    let mut state = machine.state();
    let pid = state.fork(parent, Role::Member { leader: false });
    let of_parent = state.processes[&parent].clone();
    let child = state.processes.get_mut(&pid).expect("just forked");
    (child.member_of, child.cgroup, child.holds_output) =
        (of_parent.member_of, of_parent.cgroup, of_parent.holds_output);
    child.ignores_term = of_parent.ignores_term;
    pid
}

/// A member of a tree writes output.
pub fn write(machine: &Machine, id: &ProcessId, bytes: usize) {
    if let Some(pipe) = machine.state().pipes.get_mut(id) {
        pipe.waiting += bytes;
        pipe.written += bytes as u64;
    }
}

/// The record of a process; `None` if it does not exist or its first line is not complete.
pub fn record_of(machine: &Machine, id: &ProcessId) -> Option<Rc<Record>> {
    let inode = machine.state().records.get(id).cloned()?;
    let mut inode = inode.borrow_mut();
    let version = inode.version;
    if let Some((_, read)) = inode.read.as_ref().filter(|(at, _)| *at == version) {
        return read.clone();
    }
    let read = parse_record(PathBuf::from("record"), &inode.bytes).ok().map(|(record, _)| Rc::new(record));
    inode.read = Some((version, read.clone()));
    read
}

/// The name of a fact's kind.
pub fn kind(fact: &Fact) -> &'static str {
    match fact {
        Fact::Intended(_) => "intended",
        Fact::Noted { .. } => "noted",
        Fact::Refused { .. } => "refused",
        fact => fact.event().map_or("", |event| event.name()),
    }
}
