//! Taking up what an earlier daemon left, as `daemon::recovery` does: connect, greet, read.

use std::io;
use std::time::{Duration, Instant};

use pinfold_model::facts::History;
use pinfold_model::id::ProcessId;
use pinfold_model::reach::{KnownLink, Reaching, TakeUp, Unconnected, take_up, unconnected};

use super::links::DaemonLink;
use super::{Daemon, Entry};
use crate::check;
use crate::index::Index;
use crate::machine::Machine;
use crate::scene::record_of;
use crate::sockets::MemorySocket;

/// How long all keepers together may take to say hello.
const HELLO: Duration = Duration::from_secs(2);

/// How far it is.
#[derive(Debug)]
pub(crate) enum Recovery {
    Connecting,
    /// Connections by the pid of their keeper, and until when hellos are waited for.
    Greeting {
        links: Vec<(u32, usize)>,
        until: Instant,
    },
}

impl Recovery {
    /// When it goes on at the latest.
    pub(crate) fn due(&self, machine: &Machine) -> Instant {
        match self {
            Recovery::Connecting => machine.now(),
            Recovery::Greeting { until, .. } => *until,
        }
    }
}

impl Daemon {
    pub(crate) fn recover(&mut self, index: &Index) {
        match self.recovery.take() {
            None => {}
            Some(Recovery::Connecting) => {
                let links = self.connect_all();
                let until = self.machine.now() + HELLO;
                self.recovery = Some(Recovery::Greeting { links, until });
                self.hasten_recovery();
            }
            Some(Recovery::Greeting { links, .. }) => {
                self.read_all(&links, index);
            }
        }
    }

    /// If every keeper has said hello, or is gone, nothing is waited for.
    pub fn hasten_recovery(&mut self) {
        let now = self.machine.now();
        if let Some(Recovery::Greeting { links, until }) = &mut self.recovery
            && links.iter().all(|(_, link)| self.links.get(link).is_none_or(|link| link.identity.is_some()))
        {
            *until = (*until).min(now);
        }
    }

    fn connect_all(&mut self) -> Vec<(u32, usize)> {
        let pids: Vec<u32> = self.machine.state().keeper_sockets.keys().copied().collect();
        let mut links = vec![];
        for pid in pids {
            match MemorySocket::connect(&self.machine, self.pid, pid) {
                Ok(socket) => {
                    links.push((pid, socket.number));
                    self.links.insert(socket.number, DaemonLink { greet: Some(pid), ..DaemonLink::new(socket) });
                }
                Err(error) => drop(self.note_unconnected(pid, error.kind(), Reaching::default())),
            }
        }
        links
    }

    /// Whether there is no keeper to connect to any more.
    fn note_unconnected(&mut self, pid: u32, failure: io::ErrorKind, mut reaching: Reaching) -> bool {
        match unconnected(failure) {
            Unconnected::Remove => {
                if self.machine.acts(self.pid) {
                    check::socket_removed(&self.machine, pid);
                    self.machine.state().keeper_sockets.remove(&pid);
                }
                true
            }
            Unconnected::Forget => true,
            Unconnected::Again => {
                let at = self.machine.now() + reaching.pause();
                self.unconnected.push((pid, reaching, at));
                false
            }
        }
    }

    /// A link closed before its keeper said hello: it is connected to again.
    pub(crate) fn not_greeted(&mut self, pid: u32) {
        let mut reaching = Reaching::default();
        let at = self.machine.now() + reaching.pause();
        self.unconnected.push((pid, reaching, at));
    }

    /// Keepers that have not said hello yet, and to which there is no connection.
    pub(crate) fn greet_at_last(&mut self) {
        let now = self.machine.now();
        for (pid, reaching, at) in std::mem::take(&mut self.unconnected) {
            if at > now {
                self.unconnected.push((pid, reaching, at));
                continue;
            }
            let is_its =
                |link: &DaemonLink| link.bound.is_some() && link.identity.as_ref().is_some_and(|it| it.pid == pid);
            if self.links.values().any(is_its) {
                continue;
            }
            match MemorySocket::connect(&self.machine, self.pid, pid) {
                Ok(socket) => {
                    self.machine.note(|| format!("daemon connects to keeper {pid} after all"));
                    self.links.insert(socket.number, DaemonLink { greet: Some(pid), ..DaemonLink::new(socket) });
                }
                Err(error) => {
                    if self.note_unconnected(pid, error.kind(), reaching) {
                        self.take_up_left(pid);
                    }
                }
            }
        }
    }

    /// Takes up what a keeper left that ended before it said hello.
    pub(crate) fn take_up_left(&mut self, pid: u32) {
        let ids: Vec<ProcessId> = self.machine.state().records.keys().cloned().collect();
        for id in ids.into_iter().filter(|id| !self.entries.contains_key(id)).collect::<Vec<_>>() {
            let history = record_of(&self.machine, &id).and_then(|record| record.history());
            if let Some(history) = history.filter(|history| history.intent.keeper.pid == pid) {
                self.take_up(&[], history);
            }
        }
    }

    fn read_all(&mut self, links: &[(u32, usize)], index: &Index) {
        let ids: Vec<ProcessId> = self.machine.state().records.keys().cloned().collect();
        for id in ids {
            if index.is_over(&id) || self.entries.contains_key(&id) {
                continue;
            }
            match record_of(&self.machine, &id).and_then(|record| record.history()) {
                Some(history) => self.take_up(links, history),
                None => self.remove_unused(links, &id),
            }
        }
    }

    /// A directory that was made ahead and never used. A keeper that is alive may have made it a moment ago for a start
    /// that is under way.
    fn remove_unused(&mut self, links: &[(u32, usize)], id: &ProcessId) {
        let settled = |number: &usize| self.links.get(number).is_none_or(|link| link.gone || link.bound.is_some());
        if links.iter().all(|(_, number)| settled(number)) && self.machine.acts(self.pid) {
            self.machine.note(|| format!("daemon removes the unused directory {id}"));
            self.machine.state().records.remove(id);
        }
    }

    fn take_up(&mut self, links: &[(u32, usize)], history: History) {
        let id = history.intent.id.clone();
        let keeper = history.intent.keeper.clone();
        let is_over = history.status().is_over();
        self.entries.insert(id.clone(), Entry::new(history.clone()));
        self.apply_events(&history);
        if is_over {
            return;
        }
        let link = links.iter().find(|(pid, _)| *pid == keeper.pid).map(|(_, link)| *link);
        let known = match link {
            None => KnownLink::Absent,
            Some(link) if self.links.get(&link).is_some_and(|link| link.identity.is_none()) => KnownLink::Silent,
            Some(_) => KnownLink::Other,
        };
        let (lives, another) = (self.lives(&keeper), self.keeps_another(&id, &keeper));
        let taken = take_up(known, lives, || another);
        self.machine.note(|| format!("daemon takes up {id}: {known:?}, {taken:?}"));
        match (taken, link) {
            (TakeUp::Bind(_), Some(link)) => self.keep(link, &id),
            (TakeUp::Reach | TakeUp::Bind(_), _) => self.begin_to_reach(&id),
            (TakeUp::Settle { disowned }, _) => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.disowned |= disowned;
                }
                self.keeper_went(&id);
            }
        }
    }
}
