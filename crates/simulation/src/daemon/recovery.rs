//! Adopts what an earlier daemon left, as `daemon::recovery` does: connect, await hellos, read records.

use std::io;
use std::time::{Duration, Instant};

use pinfold_model::facts::History;
use pinfold_model::id::ProcessId;
use pinfold_model::reach::{Adoption, AfterConnectError, Backoff, KnownLink, adopt, after_connect_error};

use super::links::DaemonLink;
use super::{Daemon, Entry};
use crate::check;
use crate::harness::record_of;
use crate::index::Index;
use crate::machine::Machine;
use crate::sockets::MemorySocket;

/// How long all keepers together may take to send a hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// The step that recovery is at.
#[derive(Debug)]
pub(crate) enum Recovery {
    Connecting,
    /// Connections by the pid of their keeper, and how long hellos are awaited.
    AwaitingHellos {
        links: Vec<(u32, usize)>,
        until: Instant,
    },
}

impl Recovery {
    /// When the next step is due.
    pub(crate) fn due(&self, machine: &Machine) -> Instant {
        match self {
            Recovery::Connecting => machine.now(),
            Recovery::AwaitingHellos { until, .. } => *until,
        }
    }
}

impl Daemon {
    pub(crate) fn recover(&mut self, index: &Index) {
        match self.recovery.take() {
            None => {}
            Some(Recovery::Connecting) => {
                let links = self.connect_all();
                let until = self.machine.now() + HELLO_TIMEOUT;
                self.recovery = Some(Recovery::AwaitingHellos { links, until });
                self.finish_recovery_early();
            }
            Some(Recovery::AwaitingHellos { links, .. }) => {
                self.adopt_all(&links, index);
            }
        }
    }

    /// Ends the wait when every keeper has sent a hello or is gone.
    pub fn finish_recovery_early(&mut self) {
        let now = self.machine.now();
        if let Some(Recovery::AwaitingHellos { links, until }) = &mut self.recovery
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
                    self.links.insert(socket.number, DaemonLink { hello_from: Some(pid), ..DaemonLink::new(socket) });
                }
                Err(error) => drop(self.handle_connect_error(pid, error.kind(), Backoff::default())),
            }
        }
        links
    }

    /// Whether the keeper is gone.
    fn handle_connect_error(&mut self, pid: u32, failure: io::ErrorKind, mut backoff: Backoff) -> bool {
        match after_connect_error(failure) {
            AfterConnectError::Remove => {
                if self.machine.try_act(self.pid) {
                    check::socket_removed(&self.machine, pid);
                    self.machine.state().keeper_sockets.remove(&pid);
                }
                true
            }
            AfterConnectError::Forget => true,
            AfterConnectError::Retry => {
                let at = self.machine.now() + backoff.next_delay();
                self.pending_connects.push((pid, backoff, at));
                false
            }
        }
    }

    /// A link closed before its keeper sent a hello: retry.
    pub(crate) fn retry_connect_to(&mut self, pid: u32) {
        let mut backoff = Backoff::default();
        let at = self.machine.now() + backoff.next_delay();
        self.pending_connects.push((pid, backoff, at));
    }

    /// Retries connections that failed.
    pub(crate) fn retry_connects(&mut self) {
        let now = self.machine.now();
        for (pid, backoff, at) in std::mem::take(&mut self.pending_connects) {
            if at > now {
                self.pending_connects.push((pid, backoff, at));
                continue;
            }
            let is_its =
                |link: &DaemonLink| link.bound.is_some() && link.identity.as_ref().is_some_and(|it| it.pid == pid);
            if self.links.values().any(is_its) {
                continue;
            }
            match MemorySocket::connect(&self.machine, self.pid, pid) {
                Ok(socket) => {
                    self.machine.trace(|| format!("daemon connects to keeper {pid} at a later attempt"));
                    self.links.insert(socket.number, DaemonLink { hello_from: Some(pid), ..DaemonLink::new(socket) });
                }
                Err(error) => {
                    if self.handle_connect_error(pid, error.kind(), backoff) {
                        self.adopt_left_by(pid);
                    }
                }
            }
        }
    }

    /// Adopts the processes of a keeper that ended before it sent a hello.
    pub(crate) fn adopt_left_by(&mut self, pid: u32) {
        let ids: Vec<ProcessId> = self.machine.state().records.keys().cloned().collect();
        for id in ids.into_iter().filter(|id| !self.entries.contains_key(id)).collect::<Vec<_>>() {
            let history = record_of(&self.machine, &id).and_then(|record| record.history());
            if let Some(history) = history.filter(|history| history.intent.keeper.pid == pid) {
                self.adopt_recorded(&[], history);
            }
        }
    }

    fn adopt_all(&mut self, links: &[(u32, usize)], index: &Index) {
        let ids: Vec<ProcessId> = self.machine.state().records.keys().cloned().collect();
        for id in ids {
            if index.is_over(&id) || self.entries.contains_key(&id) {
                continue;
            }
            match record_of(&self.machine, &id).and_then(|record| record.history()) {
                Some(history) => self.adopt_recorded(links, history),
                None => self.remove_unused(links, &id),
            }
        }
    }

    /// Removes a directory that was created ahead and never used, unless a running keeper may just have created it
    /// for a start.
    fn remove_unused(&mut self, links: &[(u32, usize)], id: &ProcessId) {
        let is_claimed = |number: &usize| self.links.get(number).is_none_or(|link| link.gone || link.bound.is_some());
        if links.iter().all(|(_, number)| is_claimed(number)) && self.machine.try_act(self.pid) {
            self.machine.trace(|| format!("daemon removes the unused directory {id}"));
            self.machine.state().records.remove(id);
        }
    }

    fn adopt_recorded(&mut self, links: &[(u32, usize)], history: History) {
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
        let (alive, another) = (self.is_keeper_alive(&keeper), self.keeps_another(&id, &keeper));
        let adoption = adopt(known, alive, || another);
        self.machine.trace(|| format!("daemon adopts {id}: {known:?}, {adoption:?}"));
        match (adoption, link) {
            (Adoption::Bind(_), Some(link)) => self.bind(link, &id),
            (Adoption::Reconnect | Adoption::Bind(_), _) => self.start_reconnect(&id),
            (Adoption::KeeperDied { disowned }, _) => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.disowned |= disowned;
                }
                self.keeper_died(&id);
            }
        }
    }
}
