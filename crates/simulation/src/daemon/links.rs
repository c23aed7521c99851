//! Messages from and to keepers, as in `daemon::keepers::pool`.

use std::collections::BTreeMap;

use pinfold_keeper::system::Socket;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{Decoder, FromKeeper, KeeperIdentity, Kept, ToKeeper, encode};
use pinfold_model::reach::{AfterClose, after_close, is_wrong_keeper, should_adopt};
use pinfold_os::fsio::ReadResult;

use super::{Daemon, Entry, KeeperDeath, ReconnectState};
use crate::check;
use crate::sockets::MemorySocket;

#[derive(Debug)]
pub(crate) struct DaemonLink {
    pub(crate) socket: MemorySocket,
    pub(crate) decoder: Decoder,
    pub(crate) unsent: Vec<u8>,
    /// Known after the hello.
    pub(crate) identity: Option<KeeperIdentity>,
    pub(crate) gone: bool,
    /// The process that it runs.
    pub(crate) bound: Option<ProcessId>,
    /// The keeper whose hello recovery awaits on this link.
    pub(crate) hello_from: Option<u32>,
    /// Stop requests without an answer yet.
    pub(crate) stops: BTreeMap<u64, ProcessId>,
}

impl DaemonLink {
    pub(crate) fn new(socket: MemorySocket) -> Self {
        let (decoder, unsent, identity) = (Decoder::default(), vec![], None);
        Self { socket, decoder, unsent, identity, gone: false, bound: None, hello_from: None, stops: BTreeMap::new() }
    }

    /// Sends queued bytes, as many as fit.
    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.socket.send(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(_) => return,
            }
        }
    }
}

impl Daemon {
    /// Connections with bytes to read or to send.
    pub fn ready_links(&self) -> Vec<usize> {
        let ready = |link: &DaemonLink| !link.gone && (link.socket.is_readable() || !link.unsent.is_empty());
        self.links.iter().filter(|(_, link)| ready(link)).map(|(number, _)| *number).collect()
    }

    pub(crate) fn send(&mut self, link: usize, message: &ToKeeper) {
        if let Some(link) = self.links.get_mut(&link).filter(|link| !link.gone) {
            link.unsent.extend(encode(message));
            link.flush();
        }
    }

    /// Binds a process to the link of its keeper.
    pub(crate) fn bind(&mut self, link: usize, id: &ProcessId) {
        if let (Some(bound), Some(entry)) = (self.links.get_mut(&link), self.entries.get_mut(id)) {
            bound.bound = Some(id.clone());
            entry.link = Some(link);
        }
    }

    /// Unbinds the process of a link; it may have a newer link already.
    pub(crate) fn release(&mut self, link: usize) -> Option<ProcessId> {
        let id = self.links.get_mut(&link)?.bound.take()?;
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.link == Some(link)
        {
            entry.link = None;
        }
        Some(id)
    }

    /// Reads one link, and sends what is queued for it.
    pub fn receive(&mut self, number: usize) {
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.gone) else { return };
        link.flush();
        let mut bytes = Vec::with_capacity(1 << 12);
        let closed = loop {
            match link.socket.read_some(&mut bytes) {
                Ok(ReadResult::Bytes(_)) => {}
                Ok(ReadResult::Empty) => break false,
                Ok(ReadResult::Closed) | Err(_) => break true,
            }
        };
        link.decoder.extend(&bytes);
        loop {
            let Some(link) = self.links.get_mut(&number) else { return };
            match link.decoder.try_next() {
                Ok(Some(message)) => self.serve(number, message),
                Ok(None) => break,
                Err(error) => {
                    self.machine.violation(format!("a keeper sent a malformed message: {error}"));
                    return;
                }
            }
        }
        if closed {
            self.handle_closed_link(number);
        }
    }

    fn serve(&mut self, number: usize, message: FromKeeper) {
        match message {
            FromKeeper::Hello { keeper, kept, .. } => {
                self.machine.trace(|| {
                    let kept = kept.as_ref().map(|kept| kept.history.intent.id.to_string());
                    format!("daemon receives the hello of keeper {}, which runs {kept:?}", keeper.pid)
                });
                let mistaken =
                    self.links[&number].bound.as_ref().and_then(|id| self.entries.get(id)).is_some_and(|entry| {
                        let intent = &entry.history.intent;
                        let keeps = kept.as_ref().map(|kept| &kept.history.intent.id);
                        is_wrong_keeper((&intent.id, &intent.keeper), &keeper, keeps)
                    });
                let mistaken = if mistaken { self.release(number) } else { None };
                if let Some(kept) = kept {
                    self.adopt(number, *kept);
                }
                let link = self.links.get_mut(&number);
                let greeted = link.and_then(|link| {
                    link.identity = Some(keeper);
                    link.hello_from.take().filter(|_| link.bound.is_none())
                });
                if let Some(id) = mistaken {
                    self.link_closed(&id);
                }
                if let Some(pid) = greeted {
                    self.send(number, &ToKeeper::Retire);
                    if !self.is_recovering() {
                        self.adopt_left_by(pid);
                    }
                }
            }
            FromKeeper::Fact { id, fact } if self.is_bound(number, &id) => self.note_fact(&id, fact),
            FromKeeper::Refused { id, .. } if self.is_bound(number, &id) => {
                self.release(number);
                self.machine.trace(|| format!("daemon receives the refusal of {id}"));
                self.undo_start(&id);
            }
            FromKeeper::Idle => {
                self.release(number);
                self.idle.push(number);
            }
            FromKeeper::Stopped { request, .. } => {
                let asked = self.links.get_mut(&number).and_then(|link| link.stops.remove(&request));
                if let Some(id) = asked {
                    self.stopped(&id, &message);
                }
            }
            _ => {}
        }
    }

    fn is_bound(&self, link: usize, id: &ProcessId) -> bool {
        self.links.get(&link).is_some_and(|link| link.bound.as_ref() == Some(id))
    }

    /// Removes an entry whose start left no record.
    pub(crate) fn undo_start(&mut self, id: &ProcessId) {
        if let Some(entry) = self.entries.remove(id) {
            check::start_undone(&self.machine, id, entry.acknowledged);
        }
    }

    /// Accepts what a keeper's hello says about its process.
    fn adopt(&mut self, number: usize, kept: Kept) {
        let id = kept.history.intent.id.clone();
        check::adopted(&self.machine, &kept.history);
        if !should_adopt(self.entries.get(&id).map(|entry| entry.history.status())) {
            return;
        }
        let entry = self.entries.entry(id.clone()).or_insert_with(|| Entry::new(kept.history.clone()));
        entry.history = kept.history.clone();
        self.bind(number, &id);
        self.apply_events(&kept.history);
    }

    fn handle_closed_link(&mut self, number: usize) {
        if let Some(link) = self.links.get_mut(&number) {
            link.gone = true;
        }
        self.idle.retain(|idle| *idle != number);
        let bound = self.release(number);
        let hello_from = self.links.remove(&number).and_then(|link| link.hello_from);
        if let Some(pid) = hello_from {
            self.retry_connect_to(pid);
        }
        if let Some(id) = bound {
            self.machine.trace(|| format!("daemon finds the link of {id} closed"));
            self.link_closed(&id);
        }
    }

    /// Decides what to do after the link of a process closed or could not be made.
    pub(crate) fn link_closed(&mut self, id: &ProcessId) {
        let Some(entry) = self.entries.get(id) else { return };
        let keeper = entry.history.intent.keeper.clone();
        match after_close(entry.history.status().is_over(), || self.is_keeper_alive(&keeper)) {
            AfterClose::Nothing => {}
            AfterClose::KeeperDied => self.keeper_died(id),
            AfterClose::Reconnect => self.start_reconnect(id),
        }
    }

    pub(crate) fn keeper_died(&mut self, id: &ProcessId) {
        let at = self.machine.now();
        if let Some(entry) = self.entries.get_mut(id) {
            entry.reconnect = None;
            entry.keeper_death = Some(KeeperDeath { evidence: None, at });
        }
    }

    pub(crate) fn start_reconnect(&mut self, id: &ProcessId) {
        let now = self.machine.now();
        if let Some(entry) = self.entries.get_mut(id) {
            let mut backoff = pinfold_model::reach::Backoff::default();
            let at = now + backoff.next_delay();
            entry.reconnect = Some(ReconnectState { backoff, at, link: None });
        }
    }
}
