//! What comes from keepers, and what goes to them: as `daemon::keepers::serve`, message by message.

use std::collections::BTreeMap;

use pinfold_keeper::system::Socket;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{Decoder, FromKeeper, KeeperIdentity, Kept, ToKeeper, encode};
use pinfold_model::reach::{AfterClose, after_close, is_adopted, is_mistaken};
use pinfold_os::fsio::Moved;

use super::{Daemon, Entry, ReachState, Settling};
use crate::check;
use crate::sockets::MemorySocket;

#[derive(Debug)]
pub(crate) struct DaemonLink {
    pub(crate) socket: MemorySocket,
    pub(crate) decoder: Decoder,
    pub(crate) unsent: Vec<u8>,
    /// Known from its hello on.
    pub(crate) identity: Option<KeeperIdentity>,
    pub(crate) gone: bool,
    /// The process that it keeps.
    pub(crate) bound: Option<ProcessId>,
    /// The keeper whose hello recovery waits for on it.
    pub(crate) greet: Option<u32>,
    /// Stops that wait for an answer.
    pub(crate) stops: BTreeMap<u64, ProcessId>,
}

impl DaemonLink {
    pub(crate) fn new(socket: MemorySocket) -> Self {
        let (decoder, unsent, identity) = (Decoder::default(), vec![], None);
        Self { socket, decoder, unsent, identity, gone: false, bound: None, greet: None, stops: BTreeMap::new() }
    }

    /// Sends what waits, as far as there is room.
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
    /// Connections with something to read, or to send.
    pub fn ready_links(&self) -> Vec<usize> {
        let ready = |link: &DaemonLink| !link.gone && (link.socket.is_readable() || !link.unsent.is_empty());
        self.links.iter().filter(|(_, link)| ready(link)).map(|(number, _)| *number).collect()
    }

    pub(crate) fn tell(&mut self, link: usize, message: &ToKeeper) {
        if let Some(link) = self.links.get_mut(&link).filter(|link| !link.gone) {
            link.unsent.extend(encode(message));
            link.flush();
        }
    }

    /// Binds a keeper and a process to each other.
    pub(crate) fn keep(&mut self, link: usize, id: &ProcessId) {
        if let (Some(bound), Some(entry)) = (self.links.get_mut(&link), self.entries.get_mut(id)) {
            bound.bound = Some(id.clone());
            entry.link = Some(link);
        }
    }

    /// Frees them from each other; the process may have a newer link.
    pub(crate) fn release(&mut self, link: usize) -> Option<ProcessId> {
        let id = self.links.get_mut(&link)?.bound.take()?;
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.link == Some(link)
        {
            entry.link = None;
        }
        Some(id)
    }

    /// Reads one link, message by message, and sends what waits for it.
    pub fn receive(&mut self, number: usize) {
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.gone) else { return };
        link.flush();
        let mut bytes = Vec::with_capacity(1 << 12);
        let closed = loop {
            match link.socket.read_some(&mut bytes) {
                Ok(Moved::Bytes(_)) => {}
                Ok(Moved::Empty) => break false,
                Ok(Moved::Closed) | Err(_) => break true,
            }
        };
        link.decoder.extend(&bytes);
        loop {
            let Some(link) = self.links.get_mut(&number) else { return };
            match link.decoder.try_next() {
                Ok(Some(message)) => self.serve(number, message),
                Ok(None) => break,
                Err(error) => {
                    self.machine.broken(format!("a keeper sent bytes that are no message: {error}"));
                    return;
                }
            }
        }
        if closed {
            self.link_went(number);
        }
    }

    fn serve(&mut self, number: usize, message: FromKeeper) {
        match message {
            FromKeeper::Hello { keeper, kept, .. } => {
                self.machine.note(|| {
                    let kept = kept.as_ref().map(|kept| kept.history.intent.id.to_string());
                    format!("daemon hears hello of keeper {}, which keeps {kept:?}", keeper.pid)
                });
                let mistaken =
                    self.links[&number].bound.as_ref().and_then(|id| self.entries.get(id)).is_some_and(|entry| {
                        let intent = &entry.history.intent;
                        let keeps = kept.as_ref().map(|kept| &kept.history.intent.id);
                        is_mistaken((&intent.id, &intent.keeper), &keeper, keeps)
                    });
                let mistaken = if mistaken { self.release(number) } else { None };
                if let Some(kept) = kept {
                    self.adopt(number, *kept);
                }
                let link = self.links.get_mut(&number);
                let greeted = link.and_then(|link| {
                    link.identity = Some(keeper);
                    link.greet.take().filter(|_| link.bound.is_none())
                });
                if let Some(id) = mistaken {
                    self.link_closed(&id);
                }
                if let Some(pid) = greeted {
                    self.tell(number, &ToKeeper::Retire);
                    if !self.is_recovering() {
                        self.take_up_left(pid);
                    }
                }
            }
            FromKeeper::Fact { id, fact } if self.is_bound(number, &id) => self.note_fact(&id, fact),
            FromKeeper::Refused { id, .. } if self.is_bound(number, &id) => {
                self.release(number);
                self.machine.note(|| format!("daemon hears that {id} is refused"));
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

    /// A start left nothing: it is forgotten.
    pub(crate) fn undo_start(&mut self, id: &ProcessId) {
        if let Some(entry) = self.entries.remove(id) {
            check::forgotten(&self.machine, id, entry.acknowledged);
        }
    }

    /// A keeper says what it keeps.
    fn adopt(&mut self, number: usize, kept: Kept) {
        let id = kept.history.intent.id.clone();
        check::adopted(&self.machine, &kept.history);
        if !is_adopted(self.entries.get(&id).map(|entry| entry.history.status())) {
            return;
        }
        let entry = self.entries.entry(id.clone()).or_insert_with(|| Entry::new(kept.history.clone()));
        entry.history = kept.history.clone();
        self.keep(number, &id);
        self.apply_events(&kept.history);
    }

    /// A link closed.
    fn link_went(&mut self, number: usize) {
        if let Some(link) = self.links.get_mut(&number) {
            link.gone = true;
        }
        self.idle.retain(|idle| *idle != number);
        let bound = self.release(number);
        let greet = self.links.remove(&number).and_then(|link| link.greet);
        if let Some(pid) = greet {
            self.not_greeted(pid);
        }
        if let Some(id) = bound {
            self.machine.note(|| format!("daemon finds the link of {id} closed"));
            self.link_closed(&id);
        }
    }

    /// What follows for a process when its link closed, or could not be made.
    pub(crate) fn link_closed(&mut self, id: &ProcessId) {
        let Some(entry) = self.entries.get(id) else { return };
        let keeper = entry.history.intent.keeper.clone();
        match after_close(entry.history.status().is_over(), || self.lives(&keeper)) {
            AfterClose::Nothing => {}
            AfterClose::Settle => self.keeper_went(id),
            AfterClose::Reach => self.begin_to_reach(id),
        }
    }

    pub(crate) fn keeper_went(&mut self, id: &ProcessId) {
        let at = self.machine.now();
        if let Some(entry) = self.entries.get_mut(id) {
            entry.reaching = None;
            entry.settling = Some(Settling { evidence: None, at });
        }
    }

    pub(crate) fn begin_to_reach(&mut self, id: &ProcessId) {
        let now = self.machine.now();
        if let Some(entry) = self.entries.get_mut(id) {
            let mut reaching = pinfold_model::reach::Reaching::default();
            let at = now + reaching.pause();
            entry.reaching = Some(ReachState { reaching, at, link: None });
        }
    }
}
