//! A daemon on the machine. What it concludes about keepers and losses is the product's (`model::reach`, `model::loss`,
//! `History`); what is here carries that out as the product's tasks do, one step at a time.
//!
//! `links` is what comes from keepers, `relink` how one is reached again, `settle` what becomes of a process without a keeper,
//! `recovery` what an earlier daemon left.

mod links;
mod recovery;
mod relink;
mod settle;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pinfold_model::facts::{Fact, History, Status};
use pinfold_model::id::ProcessId;
use pinfold_model::link::{FromKeeper, KeeperIdentity, ToKeeper};
use pinfold_model::loss::Lock;
use pinfold_model::outcome::Cause;
use pinfold_model::reach::{Reaching, Sighting, lives};
use pinfold_model::spec::StopManner;
use pinfold_os::wait::Status::Signaled as Killed;

use self::links::DaemonLink;
use self::recovery::Recovery;
use crate::check;
use crate::index::{Index, NewEvent};
use crate::keeper::RunningKeeper;
use crate::machine::{Effect, INIT, Machine, Role, SIGKILL};
use crate::scene;

/// How long a keeper may take to say what became of a start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// What the daemon knows of one process.
#[derive(Debug)]
pub struct Entry {
    pub history: History,
    /// The connection to its keeper.
    pub link: Option<usize>,
    /// Its keeper lives and has told that it keeps another process.
    pub disowned: bool,
    pub reaching: Option<ReachState>,
    pub settling: Option<Settling>,
    /// Whether a client was told that it started.
    pub acknowledged: bool,
    /// When a start that is not decided is given up, of a start of this daemon.
    give_up_at: Option<Instant>,
}

impl Entry {
    fn new(history: History) -> Self {
        let acknowledged = history.start.is_some();
        Self { history, link: None, disowned: false, reaching: None, settling: None, acknowledged, give_up_at: None }
    }
}

/// How far a try to reach a keeper is.
#[derive(Debug)]
pub struct ReachState {
    reaching: Reaching,
    /// When the pause ends, or the wait for a hello.
    at: Instant,
    /// The connection on which a hello is awaited.
    link: Option<usize>,
}

/// A process whose keeper died.
#[derive(Debug)]
pub struct Settling {
    evidence: Option<String>,
    at: Instant,
}

#[derive(Debug)]
pub struct Daemon {
    pub(crate) machine: Machine,
    pub(crate) pid: u32,
    pub entries: BTreeMap<ProcessId, Entry>,
    pub(crate) links: BTreeMap<usize, DaemonLink>,
    /// Connections of keepers that keep nothing.
    pub(crate) idle: Vec<usize>,
    recovery: Option<Recovery>,
    /// Keepers that could not be reached at first, and when that is tried again.
    unconnected: Vec<(u32, Reaching, Instant)>,
    /// Events that are not committed yet.
    pub(crate) uncommitted: Vec<NewEvent>,
    requests: u64,
}

impl Daemon {
    /// Starts a daemon; `None` while another holds the home.
    pub fn start(machine: &Machine) -> Option<Self> {
        if machine.state().home_lock.is_some() {
            return None;
        }
        let pid = machine.state().fork(INIT, Role::Daemon);
        machine.state().home_lock = Some(pid);
        machine.note(|| format!("daemon {pid} starts"));
        Some(Self {
            machine: machine.clone(),
            pid,
            entries: BTreeMap::new(),
            links: BTreeMap::new(),
            idle: vec![],
            recovery: Some(Recovery::Connecting),
            unconnected: vec![],
            uncommitted: vec![],
            requests: 0,
        })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The connections to keepers.
    pub fn links(&self) -> Vec<usize> {
        self.links.keys().copied().collect()
    }

    /// Whether all events are in the index.
    pub fn is_committed(&self) -> bool {
        self.uncommitted.is_empty()
    }

    pub fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// Whether some keeper is still to be connected to.
    pub fn is_unconnected(&self) -> bool {
        !self.unconnected.is_empty()
    }

    /// The processes that are not over.
    pub fn live(&self) -> Vec<ProcessId> {
        let live = self.entries.iter().filter(|(_, entry)| !entry.history.status().is_over());
        live.map(|(id, _)| id.clone()).collect()
    }

    /// Whether the kernel says that this keeper lives.
    pub(crate) fn lives(&self, keeper: &KeeperIdentity) -> bool {
        let mut state = self.machine.state();
        let blind = state.faults.blind;
        let sighting = match state.random.permille(blind) {
            true => Sighting::Unknown,
            false => state.processes.get(&keeper.pid).map_or(Sighting::Gone, |process| Sighting::Process {
                start_time: process.start_time,
                living: process.ended.is_none(),
            }),
        };
        drop(state);
        lives(keeper, sighting)
    }

    /// How it stands with the lock on a record.
    pub(crate) fn lock_of(&self, id: &ProcessId) -> Lock {
        let mut state = self.machine.state();
        let blind = state.faults.blind;
        if state.random.permille(blind) {
            return Lock::Unknown;
        }
        match state.records.get(id).map(|inode| inode.borrow().lock.is_some()) {
            None => Lock::Absent,
            Some(true) => Lock::Held,
            Some(false) => Lock::Free,
        }
    }

    /// Adds a fact that is written, and hands its event to the writer of the index.
    pub(crate) fn note_fact(&mut self, id: &ProcessId, fact: Fact) {
        let Some(entry) = self.entries.get_mut(id).filter(|entry| !entry.history.status().is_over()) else { return };
        check::noted_by_daemon(&self.machine, id, &fact);
        let (kind, at) = (fact.event(), fact.at());
        entry.history.add(fact);
        entry.acknowledged |= entry.history.start.is_some();
        let history = &entry.history;
        self.machine.note(|| format!("daemon notes {} of {id}", kind.map_or("a note", |kind| kind.name())));
        let event = kind.map(|kind| NewEvent::of(history, kind, at));
        self.uncommitted.extend(event);
    }

    /// Every event of a history goes to the index, which knows which are new.
    pub(crate) fn apply_events(&mut self, history: &History) {
        let events = history.events();
        self.uncommitted.extend(events.into_iter().map(|(kind, at)| NewEvent::of(history, kind, at)));
    }

    /// Commits what waits: all of it or nothing, and what is refused waits for the next time.
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
        if effect == Effect::OfTheDead || refused || effect == Effect::Interrupted && !survives {
            return;
        }
        let events = std::mem::take(&mut self.uncommitted);
        index.apply(&self.machine, events);
        for (id, entry) in self.entries.iter().filter(|(_, entry)| entry.history.status().is_over()) {
            index.put(id, &entry.history);
        }
    }

    /// Starts a process by an idle keeper, or by a new one that is returned.
    pub fn start_process(&mut self, number: u64, change: scene::Change<'_>) -> Option<RunningKeeper> {
        let mut forked = None;
        let link = loop {
            match self.idle.pop() {
                Some(link) if self.links.get(&link).is_some_and(|link| !link.gone) => break link,
                Some(_) => {}
                None => {
                    let (keeper, socket) = RunningKeeper::fork(&self.machine, self.pid);
                    let (link, pid) = (socket.number, keeper.pid());
                    self.machine.note(|| format!("daemon forks keeper {pid}"));
                    self.links.insert(link, DaemonLink::new(socket));
                    forked = Some(keeper);
                    break link;
                }
            }
        };
        // The hello of a new one is here: it is said before the fork returns.
        self.receive(link);
        let Some(identity) = self.links.get(&link).and_then(|link| link.identity.clone()) else { return forked };
        let intent = scene::intent(number, &identity, self.machine.moment().0, change);
        let id = intent.id.clone();
        self.machine.note(|| format!("daemon starts {id} by keeper {}", identity.pid));
        let give_up_at = Some(self.machine.now() + START_TIMEOUT);
        self.entries.insert(id.clone(), Entry { give_up_at, ..Entry::new(History::new(intent.clone())) });
        self.keep(link, &id);
        self.tell(link, &scene::order(intent));
        forked
    }

    /// Asks the keeper of a process for something; nothing happens while there is no link.
    pub fn ask(&mut self, id: &ProcessId, message: impl FnOnce(u64, ProcessId) -> ToKeeper) {
        let Some(link) = self.entries.get(id).and_then(|entry| entry.link) else { return };
        self.requests += 1;
        let message = message(self.requests, id.clone());
        if let (Some(link), ToKeeper::Stop { request, .. }) = (self.links.get_mut(&link), &message) {
            link.stops.insert(*request, id.clone());
        }
        self.tell(link, &message);
    }

    pub fn stop(&mut self, id: &ProcessId, manner: StopManner) {
        let cause = Cause::StopRequested { by: "a client".to_owned() };
        self.ask(id, |request, id| ToKeeper::Stop { request, id, cause, manner });
    }

    /// When something of its own is due next.
    pub fn next_timer(&self) -> Option<Instant> {
        let entries = self.entries.values().filter(|entry| !entry.history.status().is_over());
        let entries = entries.flat_map(|entry| {
            let give_up = entry.give_up_at.filter(|_| entry.history.status() == Status::Starting);
            let reach = entry.reaching.as_ref().map(|reach| reach.at);
            [reach, entry.settling.as_ref().map(|settling| settling.at), give_up]
        });
        let recovery = self.recovery.as_ref().map(|recovery| recovery.due(&self.machine));
        let unconnected = self.unconnected.iter().map(|(_, _, at)| *at);
        entries.flatten().chain(recovery).chain(unconnected).min()
    }

    /// Whatever is due: recovery first, then each process that waits for its keeper or is to be settled.
    pub fn timers(&mut self, index: &mut Index, keepers: &BTreeMap<u32, RunningKeeper>) {
        let now = self.machine.now();
        if self.recovery.as_ref().is_some_and(|recovery| recovery.due(&self.machine) <= now) {
            self.recover(index);
        }
        self.greet_at_last();
        let ids: Vec<ProcessId> = self.live();
        for id in ids {
            self.give_up_start(&id);
            let entry = &self.entries[&id];
            if entry.reaching.as_ref().is_some_and(|reach| reach.at <= now) {
                self.reach_again(&id);
            }
            let Some(entry) = self.entries.get(&id) else { continue };
            if entry.settling.as_ref().is_some_and(|settling| settling.at <= now) {
                self.settle(&id, keepers);
            }
        }
    }

    /// Ends a start that takes too long: its keeper is killed, and settled when it is dead.
    fn give_up_start(&mut self, id: &ProcessId) {
        let now = self.machine.now();
        let Some(entry) = self.entries.get_mut(id) else { return };
        let keeper = entry.history.intent.keeper.clone();
        let undecided = entry.history.status() == Status::Starting;
        if undecided && entry.give_up_at.take_if(|at| *at <= now).is_some() && self.machine.acts(self.pid) {
            self.machine.note(|| format!("daemon gives up the start of {id}: keeper {} is killed", keeper.pid));
            let mut state = self.machine.state();
            if state.processes.get(&keeper.pid).is_some_and(|process| process.start_time == keeper.start_time) {
                state.end(keeper.pid, Killed { signal: SIGKILL, core_dumped: false });
            }
        }
    }

    /// What an answer to a stop says of the tree.
    pub(crate) fn stopped(&self, id: &ProcessId, answer: &FromKeeper) {
        if let FromKeeper::Stopped { survivors, .. } = answer
            && survivors.is_empty()
        {
            check::stopped(&self.machine, id);
        }
    }
}
