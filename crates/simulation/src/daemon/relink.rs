//! Reaching a living keeper again, as `daemon::relink` does: a pause, a look, a connection, a hello or a silence.

use std::time::Duration;

use pinfold_model::id::ProcessId;
use pinfold_model::link::{KeeperIdentity, ToKeeper};
use pinfold_model::reach::{AfterTry, BeforeTry, Heard, Reached, reached};

use super::links::DaemonLink;
use super::{Daemon, ReachState};
use crate::scene::record_of;
use crate::sockets::MemorySocket;

/// How long a keeper that took a connection may be silent.
const HELLO: Duration = Duration::from_secs(2);

impl Daemon {
    /// The pause is over, or the wait for a hello: the next step of a try. A hello that comes earlier is found here, too,
    /// since the wait for it is looked at often.
    pub(crate) fn reach_again(&mut self, id: &ProcessId) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let Some(mut state) = entry.reaching.take() else { return };
        let keeper = entry.history.intent.keeper.clone();
        let outcome = match state.link.take() {
            None => {
                let is_over = self.note_recorded_end(id);
                let (lives, is_linked) = (self.lives(&keeper), self.entries[id].link.is_some());
                match state.reaching.before_try(is_over, || lives, || is_linked) {
                    BeforeTry::Done => return,
                    BeforeTry::Settle => return self.keeper_went(id),
                    BeforeTry::Try => {}
                }
                match self.connect_again(id, &keeper) {
                    Ok(link) => {
                        let at = self.machine.now() + HELLO;
                        self.put_reaching(id, ReachState { at, link: Some(link), ..state });
                        return;
                    }
                    Err(reached) => reached,
                }
            }
            Some(link) => self.judge(id, &keeper, link),
        };
        match state.reaching.after_try(outcome) {
            AfterTry::Done => {}
            AfterTry::Again | AfterTry::AgainUnreachable => {
                state.at = self.machine.now() + state.reaching.pause();
                self.put_reaching(id, state);
            }
            AfterTry::SettleDisowned => {
                if let Some(entry) = self.entries.get_mut(id) {
                    entry.disowned = true;
                }
                self.keeper_went(id);
            }
        }
    }

    fn put_reaching(&mut self, id: &ProcessId, state: ReachState) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.reaching = Some(state);
        }
    }

    /// A hello, a close or the end of the wait ends a try: whether it may be judged now.
    pub fn heed_hellos(&mut self) {
        let now = self.machine.now();
        let links = &self.links;
        for entry in self.entries.values_mut() {
            let Some(reach) = entry.reaching.as_mut() else { continue };
            let heard = reach.link.is_some_and(|link| links.get(&link).is_none_or(|link| link.identity.is_some()));
            if heard {
                reach.at = now;
            }
        }
    }

    fn connect_again(&mut self, id: &ProcessId, keeper: &KeeperIdentity) -> Result<usize, Reached> {
        if self.keeps_another(id, keeper) {
            return Err(Reached::Disowned);
        }
        let socket = MemorySocket::connect(&self.machine, self.pid, keeper.pid).map_err(|_| Reached::Not)?;
        let number = socket.number;
        self.machine.note(|| format!("daemon connects to keeper {} again", keeper.pid));
        self.links.insert(number, DaemonLink::new(socket));
        Ok(number)
    }

    fn judge(&mut self, id: &ProcessId, keeper: &KeeperIdentity, number: usize) -> Reached {
        let told = self.links.get(&number).map(|link| (link.identity.clone(), link.bound.clone()));
        let heard = match &told {
            None => Heard::Closed,
            Some((Some(told), bound)) => Heard::Hello { keeper: told, keeps: bound.as_ref() },
            Some((None, _)) => Heard::Silent,
        };
        let reached = reached(keeper, id, heard);
        self.machine.note(|| format!("daemon tried to reach keeper {} of {id}: {reached:?}", keeper.pid));
        match reached {
            Reached::Bound(_) => self.keep(number, id),
            Reached::WithoutIt => self.tell(number, &ToKeeper::Retire),
            _ => {}
        }
        reached
    }

    /// Whether this very keeper is linked, and has told that it keeps another process.
    pub(crate) fn keeps_another(&self, id: &ProcessId, keeper: &KeeperIdentity) -> bool {
        self.entries.iter().any(|(other, entry)| {
            let linked = entry.link.and_then(|link| self.links.get(&link)).and_then(|link| link.identity.as_ref());
            other != id && !entry.history.status().is_over() && linked == Some(keeper)
        })
    }

    /// Notes what the record tells of a process whose keeper could not; whether that is its end.
    fn note_recorded_end(&mut self, id: &ProcessId) -> bool {
        if let Some(record) = record_of(&self.machine, id)
            && record.is_over()
        {
            let (news, _) = self.entries[id].history.news(record.facts);
            news.into_iter().for_each(|fact| self.note_fact(id, fact));
        }
        self.entries[id].history.status().is_over()
    }
}
