//! Reconnects to a running keeper, as `daemon::keepers::reconnect` does: wait, check, connect, await a hello.

use std::time::Duration;

use pinfold_model::id::ProcessId;
use pinfold_model::link::{KeeperIdentity, ToKeeper};
use pinfold_model::reach::{AfterTry, BeforeTry, KeeperReply, Reconnected, reconnected};

use super::links::DaemonLink;
use super::{Daemon, ReconnectState};
use crate::harness::record_of;
use crate::sockets::MemorySocket;

/// How long a keeper may take to send a hello after it was connected to.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

impl Daemon {
    /// The next step of an attempt, after its delay or its wait for a hello.
    pub(crate) fn continue_reconnect(&mut self, id: &ProcessId) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let Some(mut state) = entry.reconnect.take() else { return };
        let keeper = entry.history.intent.keeper.clone();
        let outcome = match state.link.take() {
            None => {
                let is_over = self.note_recorded_end(id);
                let (alive, is_linked) = (self.is_keeper_alive(&keeper), self.entries[id].link.is_some());
                match state.backoff.before_try(is_over, || alive, || is_linked) {
                    BeforeTry::Done => return,
                    BeforeTry::KeeperDied => return self.keeper_died(id),
                    BeforeTry::Try => {}
                }
                match self.connect_again(id, &keeper) {
                    Ok(link) => {
                        let at = self.machine.now() + HELLO_TIMEOUT;
                        self.set_reconnect(id, ReconnectState { at, link: Some(link), ..state });
                        return;
                    }
                    Err(failed) => failed,
                }
            }
            Some(link) => self.evaluate_hello(id, &keeper, link),
        };
        match state.backoff.after_try(outcome) {
            AfterTry::Done => {}
            AfterTry::Retry | AfterTry::RetryUnreachable => {
                state.at = self.machine.now() + state.backoff.next_delay();
                self.set_reconnect(id, state);
            }
            AfterTry::KeepsAnother => {
                if let Some(entry) = self.entries.get_mut(id) {
                    entry.disowned = true;
                }
                self.keeper_died(id);
            }
        }
    }

    fn set_reconnect(&mut self, id: &ProcessId, state: ReconnectState) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.reconnect = Some(state);
        }
    }

    /// Ends the wait of attempts whose hello has arrived or whose link closed.
    pub fn check_hellos(&mut self) {
        let now = self.machine.now();
        let links = &self.links;
        for entry in self.entries.values_mut() {
            let Some(reach) = entry.reconnect.as_mut() else { continue };
            let has_hello = reach.link.is_some_and(|link| links.get(&link).is_none_or(|link| link.identity.is_some()));
            if has_hello {
                reach.at = now;
            }
        }
    }

    fn connect_again(&mut self, id: &ProcessId, keeper: &KeeperIdentity) -> Result<usize, Reconnected> {
        if self.keeps_another(id, keeper) {
            return Err(Reconnected::KeepsAnother);
        }
        let socket = MemorySocket::connect(&self.machine, self.pid, keeper.pid).map_err(|_| Reconnected::Failed)?;
        let number = socket.number;
        self.machine.trace(|| format!("daemon connects to keeper {} again", keeper.pid));
        self.links.insert(number, DaemonLink::new(socket));
        Ok(number)
    }

    fn evaluate_hello(&mut self, id: &ProcessId, keeper: &KeeperIdentity, number: usize) -> Reconnected {
        let hello = self.links.get(&number).map(|link| (link.identity.clone(), link.bound.clone()));
        let reply = match &hello {
            None => KeeperReply::Closed,
            Some((Some(keeper), bound)) => KeeperReply::Hello { keeper, keeps: bound.as_ref() },
            Some((None, _)) => KeeperReply::Silent,
        };
        let reconnected = reconnected(keeper, id, reply);
        self.machine.trace(|| format!("daemon tried to reach keeper {} of {id}: {reconnected:?}", keeper.pid));
        match reconnected {
            Reconnected::Waiting(_) => self.bind(number, id),
            Reconnected::KeepsNothing => self.send(number, &ToKeeper::Retire),
            _ => {}
        }
        reconnected
    }

    /// Whether this keeper is linked and runs another process.
    pub(crate) fn keeps_another(&self, id: &ProcessId, keeper: &KeeperIdentity) -> bool {
        self.entries.iter().any(|(other, entry)| {
            let linked = entry.link.and_then(|link| self.links.get(&link)).and_then(|link| link.identity.as_ref());
            other != id && !entry.history.status().is_over() && linked == Some(keeper)
        })
    }

    /// Adds the facts of a record that the keeper could not send; true if the process is over.
    fn note_recorded_end(&mut self, id: &ProcessId) -> bool {
        if let Some(record) = record_of(&self.machine, id)
            && record.is_over()
        {
            let (news, _) = self.entries[id].history.news(record.facts.clone());
            news.into_iter().for_each(|fact| self.note_fact(id, fact));
        }
        self.entries[id].history.status().is_over()
    }
}
