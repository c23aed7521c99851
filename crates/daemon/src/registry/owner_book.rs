//! Owners: their parents, their last contacts, and their open waits.

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
use crate::mutex::lock;
use crate::registry::view::Viewer;
use crate::request_error::RequestError;

/// Maximum number of owners with a known contact, besides the operator. A request of one more is refused until others
/// are forgotten: those without requests, processes and agents.
const MAX_OWNERS: usize = 100_000;
/// The known owners.
#[derive(Debug)]
pub(crate) struct OwnerBook {
    inner: Arc<Mutex<Inner>>,
    /// When the daemon started: for owners without a contact, absence counts from here.
    started: Instant,
    /// Notified when a process or an agent starts that ends some time after its owner's last contact.
    grace_added: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    tree: Owners,
    contacts: HashMap<String, LastContact>,
    waits: HashMap<String, OpenWaits>,
}

#[derive(Debug)]
struct LastContact {
    /// Open requests.
    open: u32,
    last: Instant,
    at: Moment,
    /// The grace period that its requests declared.
    grace: Option<Duration>,
    /// Whether a request came from outside its own processes.
    outside: bool,
}

#[derive(Debug)]
struct OpenWaits {
    /// Open waits.
    open: u64,
    /// Incremented by each release.
    released: watch::Sender<u64>,
}

/// Where a request of an owner comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContactFrom {
    Outside,
    /// From inside one of its own processes. Counts as contact only for an owner that never connects from outside, such
    /// as a kept agent: processes that a chat left running must not keep the chat in contact.
    Inside,
}

/// An open request: its owner is in contact until this is dropped.
#[derive(Debug)]
pub(crate) struct Contact {
    inner: Arc<Mutex<Inner>>,
    owner: String,
}

impl Drop for Contact {
    fn drop(&mut self) {
        if let Some(contact) = lock(&self.inner).contacts.get_mut(&self.owner) {
            contact.open = contact.open.saturating_sub(1);
            (contact.last, contact.at) = (Instant::now(), now());
        }
    }
}

/// An open wait, which a release of the owner's waits ends.
#[derive(Debug)]
pub(crate) struct ReleasableWait {
    inner: Arc<Mutex<Inner>>,
    owner: String,
    released: watch::Receiver<u64>,
}

impl ReleasableWait {
    /// Waits until the owner's waits are released.
    pub(crate) async fn released(&mut self) {
        if self.released.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for ReleasableWait {
    fn drop(&mut self) {
        let mut inner = lock(&self.inner);
        if let Some(waits_of) = inner.waits.get_mut(&self.owner) {
            waits_of.open = waits_of.open.saturating_sub(1);
            if waits_of.open == 0 {
                inner.waits.remove(&self.owner);
            }
        }
    }
}

impl OwnerBook {
    pub(crate) fn new(parents: Vec<(String, String)>) -> Self {
        let mut inner = Inner::default();
        for (owner, parent) in parents {
            inner.tree.add_ancestors(&owner, &[parent]);
        }
        Self { inner: Arc::new(Mutex::new(inner)), started: Instant::now(), grace_added: Notify::new() }
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

    /// Learns the ancestors of a live process's owner.
    pub(crate) fn note_owner(&self, history: &History) {
        let ancestors = history.ancestors();
        if !ancestors.is_empty() {
            lock(&self.inner).tree.add_ancestors(history.owner(), ancestors);
        }
        if history.intent.spec.lifetime.grace().is_some() {
            self.note_grace();
        }
    }

    /// Notes that something started which ends some time after its owner's last contact.
    pub(crate) fn note_grace(&self) {
        self.grace_added.notify_one();
    }

    /// Waits until something started which ends some time after its owner's last contact.
    pub(crate) async fn grace_added(&self) {
        self.grace_added.notified().await;
    }

    /// Sets the parent of an owner.
    pub(crate) fn add_parent(&self, owner: &str, parent: &str) -> Result<(), BadParent> {
        lock(&self.inner).tree.try_add(owner, parent)
    }

    /// Creates an owner as a child of `parent`. False if requests acted as that owner before, or if it already has a
    /// place in the tree. One step under the lock, so that the second of two concurrent requests sees the first.
    pub(crate) fn add_new_child(&self, owner: &str, parent: &str) -> Result<bool, BadParent> {
        let mut inner = lock(&self.inner);
        if inner.tree.parent(owner) == Some(parent) {
            return Ok(true);
        }
        if inner.contacts.contains_key(owner) || inner.tree.names().any(|known| known == owner) {
            return Ok(false);
        }
        inner.tree.try_add(owner, parent).map(|()| true)
    }

    /// Notes a contact of an owner, until it is dropped.
    pub(crate) fn contact(&self, owner: &str) -> Result<Contact, RequestError> {
        let mut inner = lock(&self.inner);
        if inner.contacts.len() >= MAX_OWNERS && !inner.contacts.contains_key(owner) {
            let message =
                format!("{MAX_OWNERS} owners are in contact, which is the maximum: use fewer names, or try later");
            return Err(RequestError::new(ErrorCode::LimitReached, message));
        }
        let new = || LastContact { open: 0, last: Instant::now(), at: now(), grace: None, outside: false };
        let contact = inner.contacts.entry(owner.to_owned()).or_insert_with(new);
        contact.open += 1;
        (contact.last, contact.at) = (Instant::now(), now());
        Ok(Contact { inner: Arc::clone(&self.inner), owner: owner.to_owned() })
    }

    /// As [`OwnerBook::contact`], unless a request from there does not count as contact. Notes the grace that the
    /// request declares.
    pub(crate) fn contact_from(
        &self,
        owner: &str,
        from: ContactFrom,
        grace: Option<Duration>,
    ) -> Result<Option<Contact>, RequestError> {
        let speaks_outside = lock(&self.inner).contacts.get(owner).is_some_and(|contact| contact.outside);
        if from == ContactFrom::Inside && speaks_outside {
            return Ok(None);
        }
        let contact = self.contact(owner)?;
        if let Some(contact) = lock(&self.inner).contacts.get_mut(owner) {
            contact.outside |= from == ContactFrom::Outside;
            contact.grace = grace.or(contact.grace);
        }
        Ok(Some(contact))
    }

    /// The grace period that an owner's requests declared.
    pub(crate) fn grace(&self, owner: &str) -> Option<Duration> {
        lock(&self.inner).contacts.get(owner).and_then(|contact| contact.grace)
    }

    /// The time since an owner's last contact; zero while a request is open.
    pub(crate) fn silence(&self, owner: &str) -> Duration {
        match lock(&self.inner).contacts.get(owner) {
            Some(contact) if contact.open > 0 => Duration::ZERO,
            Some(contact) => contact.last.elapsed(),
            None => self.started.elapsed(),
        }
    }

    /// Whether a request of this owner is open.
    pub(crate) fn is_in_contact(&self, owner: &str) -> bool {
        lock(&self.inner).contacts.get(owner).is_some_and(|contact| contact.open > 0)
    }

    /// Forgets the contacts of owners that are not needed and have no open request.
    pub(crate) fn forget_absent(&self, is_needed: impl Fn(&str) -> bool) {
        lock(&self.inner).contacts.retain(|owner, contact| contact.open > 0 || is_needed(owner));
    }

    /// Registers a wait that a release of this owner's waits ends.
    pub(crate) fn releasable_wait(&self, owner: &str) -> ReleasableWait {
        let mut inner = lock(&self.inner);
        let new = || OpenWaits { open: 0, released: watch::Sender::new(0) };
        let waits_of = inner.waits.entry(owner.to_owned()).or_insert_with(new);
        waits_of.open += 1;
        let released = waits_of.released.subscribe();
        ReleasableWait { inner: Arc::clone(&self.inner), owner: owner.to_owned(), released }
    }

    pub(crate) fn release(&self, owner: &str) -> u64 {
        let inner = lock(&self.inner);
        let Some(waits_of) = inner.waits.get(owner) else { return 0 };
        waits_of.released.send_modify(|count| *count += 1);
        waits_of.open
    }
}

impl Core {
    /// The owners in view.
    pub(crate) fn list_owners(&self, viewer: &Viewer) -> OwnerList {
        let mut live: BTreeMap<String, u64> = BTreeMap::new();
        for entry in self.registry.live() {
            *live.entry(entry.state.borrow().history.owner().to_owned()).or_default() += 1;
        }
        let inner = lock(&self.owners.inner);
        let known = inner.tree.names().chain(inner.contacts.keys().map(String::as_str));
        let mut names: Vec<String> = known.map(str::to_owned).chain(live.keys().cloned()).collect();
        names.sort();
        names.dedup();
        if let Viewer::Owner(own) = viewer {
            names.retain(|owner| inner.tree.sees(own, owner));
        }
        let show = |owner: String| Owner {
            parent: inner.tree.parent(&owner).map(str::to_owned),
            live: live.get(&owner).copied().unwrap_or(0),
            last_contact: inner.contacts.get(&owner).map(|contact| rfc3339(contact.at)),
            owner,
        };
        OwnerList { owners: names.into_iter().map(show).collect() }
    }
}

pub(crate) fn no_owner(owner: &str) -> RequestError {
    RequestError::new(ErrorCode::NotFound, format!("no owner `{owner}`: `pinfold owner ls` lists those in view"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_are_bounded_and_absent_owners_make_room() {
        let book = OwnerBook::new(vec![]);
        for number in 0..MAX_OWNERS {
            drop(book.contact(&number.to_string()).expect("there is room"));
        }
        let error = book.contact("another").expect_err("there is none");
        assert_eq!(error.0.code, ErrorCode::LimitReached);
        assert!(book.contact("7").is_ok(), "it is known");
        book.forget_absent(|owner| owner != "7");
        assert!(book.contact("another").is_ok());
    }

    #[test]
    fn processes_that_a_chat_left_running_do_not_keep_it_in_contact() {
        let book = OwnerBook::new(vec![]);
        let minute = Some(Duration::from_secs(60));
        assert!(book.contact_from("kept-agent", ContactFrom::Inside, None).expect("counted").is_some());
        assert!(book.contact_from("kept-agent", ContactFrom::Inside, None).expect("counted").is_some());
        drop(book.contact_from("chat", ContactFrom::Outside, minute).expect("counted"));
        assert!(book.contact_from("chat", ContactFrom::Inside, None).expect("not counted").is_none());
        assert_eq!((book.grace("chat"), book.grace("kept-agent")), (minute, None));
    }
}
