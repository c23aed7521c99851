//! A simulated daemon. Its decisions about keepers and losses are the product's (`model::reach`, `model::loss`,
//! `History`); this code carries them out as the product's tasks do, one step at a time.
//!
//! `links` handles messages of keepers, `reconnect` reconnects to them, `death` handles processes whose keeper died,
//! `recovery` adopts what an earlier daemon left.

mod death;
mod links;
mod reconnect;
mod recovery;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pinfold_model::facts::{Fact, History, Status};
use pinfold_model::id::ProcessId;
use pinfold_model::link::{FromKeeper, KeeperIdentity, ToKeeper};
use pinfold_model::loss::LockState;
use pinfold_model::outcome::Cause;
use pinfold_model::reach::{Backoff, PidState, is_alive};
use pinfold_model::spec::StopManner;
use pinfold_os::wait::ExitStatus::Signaled as Killed;

use self::links::DaemonLink;
use self::recovery::Recovery;
use crate::check;
use crate::harness;
use crate::index::{Index, NewEvent};
use crate::keeper::RunningKeeper;
use crate::machine::{Effect, INIT, Machine, Role, SIGKILL};

/// How long a keeper may take to report the result of a start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// What the daemon knows of one process.
#[derive(Debug)]
pub struct Entry {
    pub history: History,
    /// The connection to its keeper.
    pub link: Option<usize>,
    /// Its keeper is running, but reported that it runs another process.
    pub disowned: bool,
    pub reconnect: Option<ReconnectState>,
    pub keeper_death: Option<KeeperDeath>,
    /// Whether its start was acknowledged to a client.
    pub acknowledged: bool,
    /// When this daemon gives up a start that it has no result of.
    start_deadline: Option<Instant>,
}

impl Entry {
    fn new(history: History) -> Self {
        let acknowledged = history.start.is_some();
        Self {
            history,
            link: None,
            disowned: false,
            reconnect: None,
            keeper_death: None,
            acknowledged,
            start_deadline: None,
        }
    }
}

/// An attempt to reconnect to a keeper.
#[derive(Debug)]
pub struct ReconnectState {
    backoff: Backoff,
    /// When the delay ends, or the wait for a hello.
    at: Instant,
    /// The connection on which a hello is awaited.
    link: Option<usize>,
}

/// A process whose keeper died.
#[derive(Debug)]
pub struct KeeperDeath {
    evidence: Option<String>,
    at: Instant,
}

#[derive(Debug)]
pub struct Daemon {
    pub(crate) machine: Machine,
    pub(crate) pid: u32,
    pub entries: BTreeMap<ProcessId, Entry>,
    pub(crate) links: BTreeMap<usize, DaemonLink>,
    /// Connections to idle keepers.
    pub(crate) idle: Vec<usize>,
    recovery: Option<Recovery>,
    /// Keepers to which a connection failed, and when to retry.
    pending_connects: Vec<(u32, Backoff, Instant)>,
    pub(crate) uncommitted: Vec<NewEvent>,
    requests: u64,
}

impl Daemon {
    /// Starts a daemon; `None` while another holds the home's lock.
    pub fn start(machine: &Machine) -> Option<Self> {
        if machine.state().home_lock.is_some() {
            return None;
        }
        let pid = machine.state().fork(INIT, Role::Daemon);
        machine.state().home_lock = Some(pid);
        machine.trace(|| format!("daemon {pid} starts"));
        Some(Self {
            machine: machine.clone(),
            pid,
            entries: BTreeMap::new(),
            links: BTreeMap::new(),
            idle: vec![],
            recovery: Some(Recovery::Connecting),
            pending_connects: vec![],
            uncommitted: vec![],
            requests: 0,
        })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn links(&self) -> Vec<usize> {
        self.links.keys().copied().collect()
    }

    pub fn is_committed(&self) -> bool {
        self.uncommitted.is_empty()
    }

    pub fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    pub fn has_pending_connects(&self) -> bool {
        !self.pending_connects.is_empty()
    }

    /// The processes that are not over.
    pub fn live(&self) -> Vec<ProcessId> {
        let live = self.entries.iter().filter(|(_, entry)| !entry.history.status().is_over());
        live.map(|(id, _)| id.clone()).collect()
    }

    /// Whether the kernel says that this keeper is running.
    pub(crate) fn is_keeper_alive(&self, keeper: &KeeperIdentity) -> bool {
        let mut state = self.machine.state();
        let failed_lookup = state.faults.failed_lookup;
        let state_of_pid = match state.random.permille(failed_lookup) {
            true => PidState::Unknown,
            false => state.processes.get(&keeper.pid).map_or(PidState::Gone, |process| PidState::Process {
                start_time: process.start_time,
                alive: process.ended.is_none(),
            }),
        };
        drop(state);
        is_alive(keeper, state_of_pid)
    }

    /// The lock on a record.
    pub(crate) fn lock_of(&self, id: &ProcessId) -> LockState {
        let mut state = self.machine.state();
        let failed_lookup = state.faults.failed_lookup;
        if state.random.permille(failed_lookup) {
            return LockState::Unknown;
        }
        match state.records.get(id).map(|inode| inode.borrow().lock.is_some()) {
            None => LockState::Absent,
            Some(true) => LockState::Held,
            Some(false) => LockState::Free,
        }
    }

    /// Adds a fact that is in the record, and queues its event for the index.
    pub(crate) fn note_fact(&mut self, id: &ProcessId, fact: Fact) {
        let Some(entry) = self.entries.get_mut(id).filter(|entry| !entry.history.status().is_over()) else { return };
        check::fact_accepted(&self.machine, id, &fact);
        let (kind, at) = (fact.event(), fact.at());
        entry.history.add(fact);
        entry.acknowledged |= entry.history.start.is_some();
        let history = &entry.history;
        self.machine.trace(|| format!("daemon notes {} of {id}", kind.map_or("a note", |kind| kind.name())));
        let event = kind.map(|kind| NewEvent::of(history, kind, at));
        self.uncommitted.extend(event);
    }

    /// Queues every event of a history; the index stores the new ones.
    pub(crate) fn apply_events(&mut self, history: &History) {
        let events = history.events();
        self.uncommitted.extend(events.into_iter().map(|(kind, at)| NewEvent::of(history, kind, at)));
    }

    /// Commits all queued events, or none; refused ones stay queued.
    pub fn commit(&mut self, index: &mut Index) {
        if self.uncommitted.is_empty() {
            return;
        }
        let effect = self.machine.effect(self.pid);
        let (refused, survives) = {
            let mut state = self.machine.state();
            let rate = state.faults.refused_write;
            (state.random.permille(rate), state.random.permille(500))
        };
        if effect == Effect::AlreadyDead || refused || effect == Effect::Interrupted && !survives {
            return;
        }
        let events = std::mem::take(&mut self.uncommitted);
        index.apply(&self.machine, events);
        for (id, entry) in self.entries.iter().filter(|(_, entry)| entry.history.status().is_over()) {
            index.put(id, &entry.history);
        }
    }

    /// Starts a process with an idle keeper, or with a new one, which is returned.
    pub fn start_process(&mut self, number: u64, change: harness::Change<'_>) -> Option<RunningKeeper> {
        let mut forked = None;
        let link = loop {
            match self.idle.pop() {
                Some(link) if self.links.get(&link).is_some_and(|link| !link.gone) => break link,
                Some(_) => {}
                None => {
                    let (keeper, socket) = RunningKeeper::fork(&self.machine, self.pid);
                    let (link, pid) = (socket.number, keeper.pid());
                    self.machine.trace(|| format!("daemon forks keeper {pid}"));
                    self.links.insert(link, DaemonLink::new(socket));
                    forked = Some(keeper);
                    break link;
                }
            }
        };
        // A new keeper has sent its hello before the fork returns.
        self.receive(link);
        let Some(identity) = self.links.get(&link).and_then(|link| link.identity.clone()) else { return forked };
        let intent = harness::intent(number, &identity, self.machine.moment().0, change);
        let id = intent.id.clone();
        self.machine.trace(|| format!("daemon starts {id} by keeper {}", identity.pid));
        let start_deadline = Some(self.machine.now() + START_TIMEOUT);
        self.entries.insert(id.clone(), Entry { start_deadline, ..Entry::new(History::new(intent.clone())) });
        self.bind(link, &id);
        self.send(link, &harness::order(intent));
        forked
    }

    /// Sends a request to the keeper of a process; does nothing without a link.
    pub fn request(&mut self, id: &ProcessId, message: impl FnOnce(u64, ProcessId) -> ToKeeper) {
        let Some(link) = self.entries.get(id).and_then(|entry| entry.link) else { return };
        self.requests += 1;
        let message = message(self.requests, id.clone());
        if let (Some(link), ToKeeper::Stop { request, .. }) = (self.links.get_mut(&link), &message) {
            link.stops.insert(*request, id.clone());
        }
        self.send(link, &message);
    }

    pub fn stop(&mut self, id: &ProcessId, manner: StopManner) {
        let cause = Cause::StopRequested { by: "a client".to_owned() };
        self.request(id, |request, id| ToKeeper::Stop { request, id, cause, manner });
    }

    pub fn next_timer(&self) -> Option<Instant> {
        let entries = self.entries.values().filter(|entry| !entry.history.status().is_over());
        let entries = entries.flat_map(|entry| {
            let deadline = entry.start_deadline.filter(|_| entry.history.status() == Status::Starting);
            let reach = entry.reconnect.as_ref().map(|reach| reach.at);
            [reach, entry.keeper_death.as_ref().map(|keeper_death| keeper_death.at), deadline]
        });
        let recovery = self.recovery.as_ref().map(|recovery| recovery.due(&self.machine));
        let pending_connects = self.pending_connects.iter().map(|(_, _, at)| *at);
        entries.flatten().chain(recovery).chain(pending_connects).min()
    }

    /// Handles every timer that is due: recovery first, then each process.
    pub fn timers(&mut self, index: &mut Index, keepers: &BTreeMap<u32, RunningKeeper>) {
        let now = self.machine.now();
        if self.recovery.as_ref().is_some_and(|recovery| recovery.due(&self.machine) <= now) {
            self.recover(index);
        }
        self.retry_connects();
        let ids: Vec<ProcessId> = self.live();
        for id in ids {
            self.abort_late_start(&id);
            let entry = &self.entries[&id];
            if entry.reconnect.as_ref().is_some_and(|reach| reach.at <= now) {
                self.continue_reconnect(&id);
            }
            let Some(entry) = self.entries.get(&id) else { continue };
            if entry.keeper_death.as_ref().is_some_and(|keeper_death| keeper_death.at <= now) {
                self.resolve_death(&id, keepers);
            }
        }
    }

    /// Ends a start that takes too long by killing its keeper.
    fn abort_late_start(&mut self, id: &ProcessId) {
        let now = self.machine.now();
        let Some(entry) = self.entries.get_mut(id) else { return };
        let keeper = entry.history.intent.keeper.clone();
        let undecided = entry.history.status() == Status::Starting;
        if undecided && entry.start_deadline.take_if(|at| *at <= now).is_some() && self.machine.try_act(self.pid) {
            self.machine.trace(|| format!("daemon gives up the start of {id}: keeper {} is killed", keeper.pid));
            let mut state = self.machine.state();
            if state.processes.get(&keeper.pid).is_some_and(|process| process.start_time == keeper.start_time) {
                state.end(keeper.pid, Killed { signal: SIGKILL, core_dumped: false });
            }
        }
    }

    /// Checks the answer to a stop.
    pub(crate) fn stopped(&self, id: &ProcessId, answer: &FromKeeper) {
        if let FromKeeper::Stopped { survivors, .. } = answer
            && survivors.is_empty()
        {
            check::stopped(&self.machine, id);
        }
    }
}
