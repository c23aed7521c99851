//! What the daemon knows of owners: who is whose parent, when each was last heard of, and which of their waits are open.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Owner, OwnerList};
use pinfold_model::facts::History;
use pinfold_model::owner::{BadParent, Owners};
use pinfold_model::units::Moment;
use tokio::sync::{Notify, watch};

use crate::clock::{now, rfc3339};
use crate::core::Core;
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::view::Scope;

/// Owners that are heard of at once, beside the operator. A request of one more is refused until others fall silent and
/// own nothing.
const HEARD_MOST: usize = 100_000;
/// What the daemon knows of owners.
#[derive(Debug)]
pub(crate) struct OwnerBook {
    inner: Arc<Mutex<Inner>>,
    /// Nobody was heard of before; silence counts from here.
    begun: Instant,
    /// A process or an agent has begun whose owner may not be silent for long.
    graced: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    tree: Owners,
    heard: HashMap<String, LastHeard>,
    gates: HashMap<String, Gate>,
}

#[derive(Debug)]
struct LastHeard {
    /// Requests under way.
    open: u32,
    last: Instant,
    at: Moment,
    /// How long after its last contact it counts as gone, if those who act for it said so.
    grace: Option<Duration>,
    /// Whether it was heard of from outside its own processes.
    outside: bool,
}

#[derive(Debug)]
struct Gate {
    /// Waits under way.
    open: u64,
    /// Goes up with each release.
    released: watch::Sender<u64>,
}

/// Where an owner is heard from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Outside,
    /// From inside one of its own processes. That is a sign of life only of an owner that never speaks from outside, such
    /// as an agent that pinfold keeps: what a chat left running does not keep the chat alive.
    Inside,
}

/// A request under way: its owner is in contact until it is dropped.
#[derive(Debug)]
pub(crate) struct Contact {
    inner: Arc<Mutex<Inner>>,
    owner: String,
}

impl Drop for Contact {
    fn drop(&mut self) {
        if let Some(heard) = lock(&self.inner).heard.get_mut(&self.owner) {
            heard.open = heard.open.saturating_sub(1);
            (heard.last, heard.at) = (Instant::now(), now());
        }
    }
}

/// A wait under way, which a release ends.
#[derive(Debug)]
pub(crate) struct Releasable {
    inner: Arc<Mutex<Inner>>,
    owner: String,
    released: watch::Receiver<u64>,
}

impl Releasable {
    /// Returns when somebody releases the owner's waits.
    pub(crate) async fn released(&mut self) {
        if self.released.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Releasable {
    fn drop(&mut self) {
        let mut inner = lock(&self.inner);
        if let Some(gate) = inner.gates.get_mut(&self.owner) {
            gate.open = gate.open.saturating_sub(1);
            if gate.open == 0 {
                inner.gates.remove(&self.owner);
            }
        }
    }
}

impl OwnerBook {
    pub(crate) fn new(parents: Vec<(String, String)>) -> Self {
        let mut inner = Inner::default();
        for (owner, parent) in parents {
            inner.tree.learn(&owner, &[parent]);
        }
        Self { inner: Arc::new(Mutex::new(inner)), begun: Instant::now(), graced: Notify::new() }
    }

    pub(crate) fn sees(&self, viewer: &str, owner: &str) -> bool {
        viewer == owner || lock(&self.inner).tree.sees(viewer, owner)
    }

    pub(crate) fn view_of(&self, viewer: &str) -> Vec<String> {
        lock(&self.inner).tree.view_of(viewer)
    }

    pub(crate) fn parent(&self, owner: &str) -> Option<String> {
        lock(&self.inner).tree.parent(owner).map(str::to_owned)
    }

    pub(crate) fn ancestors(&self, owner: &str) -> Vec<String> {
        lock(&self.inner).tree.ancestors(owner)
    }

    /// Takes up what is known of a live process.
    pub(crate) fn learn(&self, history: &History) {
        let ancestors = history.ancestors();
        if !ancestors.is_empty() {
            lock(&self.inner).tree.learn(history.owner(), ancestors);
        }
        if history.intent.spec.lifetime.grace().is_some() {
            self.note_grace();
        }
    }

    /// Something has begun whose owner may not be silent for long.
    pub(crate) fn note_grace(&self) {
        self.graced.notify_one();
    }

    /// Returns when something has begun whose owner may not be silent for long.
    pub(crate) async fn grace_noted(&self) {
        self.graced.notified().await;
    }

    /// Says who the parent of an owner is.
    pub(crate) fn add_parent(&self, owner: &str, parent: &str) -> Result<(), BadParent> {
        lock(&self.inner).tree.try_add(owner, parent)
    }

    /// Makes a new owner a child of `parent`. False if somebody acted as that owner before, or if it has a place in
    /// the tree already. One step under the lock, so that of two requests at once the second sees the first.
    pub(crate) fn add_new_child(&self, owner: &str, parent: &str) -> Result<bool, BadParent> {
        let mut inner = lock(&self.inner);
        if inner.tree.parent(owner) == Some(parent) {
            return Ok(true);
        }
        if inner.heard.contains_key(owner) || inner.tree.names().any(|known| known == owner) {
            return Ok(false);
        }
        inner.tree.try_add(owner, parent).map(|()| true)
    }

    /// Notes that an owner is heard of, until the answer is dropped.
    pub(crate) fn contact(&self, owner: &str) -> Result<Contact, Refusal> {
        let mut inner = lock(&self.inner);
        if inner.heard.len() >= HEARD_MOST && !inner.heard.contains_key(owner) {
            let message =
                format!("{HEARD_MOST} owners are in contact, which is the most: use fewer names, or try later");
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        }
        let new = || LastHeard { open: 0, last: Instant::now(), at: now(), grace: None, outside: false };
        let heard = inner.heard.entry(owner.to_owned()).or_insert_with(new);
        heard.open += 1;
        (heard.last, heard.at) = (Instant::now(), now());
        Ok(Contact { inner: Arc::clone(&self.inner), owner: owner.to_owned() })
    }

    /// As [`OwnerBook::contact`], unless this is no sign of life; notes the grace that the request declares.
    pub(crate) fn contact_from(
        &self,
        owner: &str,
        from: Heard,
        grace: Option<Duration>,
    ) -> Result<Option<Contact>, Refusal> {
        let speaks_outside = lock(&self.inner).heard.get(owner).is_some_and(|heard| heard.outside);
        if from == Heard::Inside && speaks_outside {
            return Ok(None);
        }
        let contact = self.contact(owner)?;
        if let Some(heard) = lock(&self.inner).heard.get_mut(owner) {
            heard.outside |= from == Heard::Outside;
            heard.grace = grace.or(heard.grace);
        }
        Ok(Some(contact))
    }

    /// How long after its last contact an owner counts as gone, if those who act for it said so.
    pub(crate) fn grace(&self, owner: &str) -> Option<Duration> {
        lock(&self.inner).heard.get(owner).and_then(|heard| heard.grace)
    }

    /// How long nothing was heard of an owner; nothing while a request is under way.
    pub(crate) fn silence(&self, owner: &str) -> Duration {
        match lock(&self.inner).heard.get(owner) {
            Some(heard) if heard.open > 0 => Duration::ZERO,
            Some(heard) => heard.last.elapsed(),
            None => self.begun.elapsed(),
        }
    }

    /// Whether a request of this owner is under way.
    pub(crate) fn is_in_contact(&self, owner: &str) -> bool {
        lock(&self.inner).heard.get(owner).is_some_and(|heard| heard.open > 0)
    }

    /// Forgets when owners were heard of that own nothing and ask for nothing.
    pub(crate) fn forget_silent(&self, is_needed: impl Fn(&str) -> bool) {
        lock(&self.inner).heard.retain(|owner, heard| heard.open > 0 || is_needed(owner));
    }

    /// A wait that a release of this owner's waits ends.
    pub(crate) fn releasable(&self, owner: &str) -> Releasable {
        let mut inner = lock(&self.inner);
        let new = || Gate { open: 0, released: watch::Sender::new(0) };
        let gate = inner.gates.entry(owner.to_owned()).or_insert_with(new);
        gate.open += 1;
        let released = gate.released.subscribe();
        Releasable { inner: Arc::clone(&self.inner), owner: owner.to_owned(), released }
    }

    pub(crate) fn release(&self, owner: &str) -> u64 {
        let inner = lock(&self.inner);
        let Some(gate) = inner.gates.get(owner) else { return 0 };
        gate.released.send_modify(|count| *count += 1);
        gate.open
    }
}

impl Core {
    /// The owners in view.
    pub(crate) fn list_owners(&self, scope: &Scope) -> OwnerList {
        let mut live: BTreeMap<String, u64> = BTreeMap::new();
        for entry in self.registry.live() {
            *live.entry(entry.state.borrow().history.owner().to_owned()).or_default() += 1;
        }
        let inner = lock(&self.owners.inner);
        let known = inner.tree.names().chain(inner.heard.keys().map(String::as_str));
        let mut names: Vec<String> = known.map(str::to_owned).chain(live.keys().cloned()).collect();
        names.sort();
        names.dedup();
        if let Scope::Owner(viewer) = scope {
            names.retain(|owner| inner.tree.sees(viewer, owner));
        }
        let show = |owner: String| Owner {
            parent: inner.tree.parent(&owner).map(str::to_owned),
            live: live.get(&owner).copied().unwrap_or(0),
            last_contact: inner.heard.get(&owner).map(|heard| rfc3339(heard.at)),
            owner,
        };
        OwnerList { owners: names.into_iter().map(show).collect() }
    }
}

pub(crate) fn no_owner(owner: &str) -> Refusal {
    Refusal::new(ErrorCode::NotFound, format!("no owner `{owner}`: `pinfold owner ls` lists those in view"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_owners_are_heard_of_as_there_may_be_and_no_more() {
        let book = OwnerBook::new(vec![]);
        for number in 0..HEARD_MOST {
            drop(book.contact(&number.to_string()).expect("there is room"));
        }
        let refusal = book.contact("another").expect_err("there is none");
        assert_eq!(refusal.0.code, ErrorCode::LimitReached);
        assert!(book.contact("7").is_ok(), "it is known");
        book.forget_silent(|owner| owner != "7");
        assert!(book.contact("another").is_ok());
    }

    #[test]
    fn what_a_chat_left_running_does_not_keep_the_chat_alive() {
        let book = OwnerBook::new(vec![]);
        let minute = Some(Duration::from_secs(60));
        assert!(book.contact_from("kept-agent", Heard::Inside, None).expect("heard").is_some());
        assert!(book.contact_from("kept-agent", Heard::Inside, None).expect("heard").is_some());
        drop(book.contact_from("chat", Heard::Outside, minute).expect("heard"));
        assert!(book.contact_from("chat", Heard::Inside, None).expect("not heard").is_none());
        assert_eq!((book.grace("chat"), book.grace("kept-agent")), (minute, None));
    }
}
