//! What lives, and what ended a moment ago.
//!
//! An entry is registered before its process may start, so that nothing runs unlisted. Ended entries stay
//! here for a while, so that the usual "start, wait, read" never asks the index; older ones are found there. One that the
//! index has not committed yet stays until it has, however long that takes: a full disk hides nothing.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use pinfold_model::facts::{Fact, History, Status};
use pinfold_model::id::ProcessId;
use pinfold_model::link::Waiting;
use pinfold_model::spec::PtySize;
use pinfold_model::units::Moment;
use tokio::sync::watch;

use crate::emulator::Terminal;
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::keeper_link::Link;
use crate::registry::shared_reads::Shelf;

/// Ended entries kept in memory; beyond, the oldest go.
const RECENT_MOST: usize = 256;

/// What is known of one process now.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) history: History,
    pub(crate) paused: bool,
    /// Output as last told by the keeper; there may be more.
    pub(crate) output_bytes: u64,
    /// The size of its terminal, where it has one.
    pub(crate) size: Option<PtySize>,
    /// Whether it waits for input, as last told by the keeper.
    pub(crate) waiting: Waiting,
    /// Set when nothing was started and nothing is left: the store refused it, or its keeper died too early.
    pub(crate) refused: Option<Refusal>,
    /// Something unusual that a reader should know.
    pub(crate) note: Option<String>,
    /// What stands in the way of its readiness.
    pub(crate) ready_note: Option<String>,
}

/// One process, live or recently ended.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: ProcessId,
    /// Written by the link's task alone; everybody else watches.
    pub(crate) state: watch::Sender<State>,
    /// The keeper, while it is connected.
    link: Mutex<Option<Arc<Link>>>,
    /// How far its owner has been given its output, from the beginning on and without a hole. Not durable: after a
    /// crash of the daemon a match may be announced in output that was read before.
    shown: AtomicU64,
    /// Whether it was asked to stop, after which nothing of it is news but its end.
    stop_asked: AtomicBool,
    /// Whether its keeper has told that it keeps another process.
    disowned: AtomicBool,
    /// Whether its watch and heartbeat have begun.
    attended: AtomicBool,
    /// Whether the look for its readiness has begun.
    looked_for: AtomicBool,
    /// Whether its keeper is gone, and its end is not known yet.
    settling: AtomicBool,
    /// Whether its directory was removed while it ran.
    homeless: AtomicBool,
    /// What its terminal shows, where it has one; locked from blocking threads only.
    terminal: Mutex<Option<Terminal>>,
    /// Whether somebody follows its terminal.
    followed: AtomicBool,
    /// What its observers share, while there are any.
    shelf: Mutex<Weak<Shelf>>,
}

impl Entry {
    pub(crate) fn new(history: History) -> Arc<Self> {
        let id = history.intent.id.clone();
        let size = history.intent.spec.pty;
        let waiting = Waiting::default();
        let (refused, note, ready_note) = (None, None, None);
        let state = State { history, paused: false, output_bytes: 0, size, waiting, refused, note, ready_note };
        Arc::new(Self {
            id,
            state: watch::Sender::new(state),
            link: Mutex::new(None),
            shown: AtomicU64::new(0),
            stop_asked: AtomicBool::new(false),
            disowned: AtomicBool::new(false),
            attended: AtomicBool::new(false),
            looked_for: AtomicBool::new(false),
            settling: AtomicBool::new(false),
            homeless: AtomicBool::new(false),
            terminal: Mutex::new(None),
            followed: AtomicBool::new(false),
            shelf: Mutex::default(),
        })
    }

    pub(crate) fn shown(&self) -> u64 {
        self.shown.load(Ordering::Relaxed)
    }

    /// Its owner has been given this range of its output.
    pub(crate) fn note_shown(&self, from: u64, to: u64) {
        if from <= self.shown() {
            self.shown.fetch_max(to, Ordering::Relaxed);
        }
    }

    pub(crate) fn note_stop(&self) {
        self.stop_asked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stop_asked(&self) -> bool {
        self.stop_asked.load(Ordering::Relaxed)
    }

    /// Whether nobody has begun to attend it before.
    pub(crate) fn attend_first(&self) -> bool {
        !self.attended.swap(true, Ordering::Relaxed)
    }

    /// Whether nobody has begun to look for its readiness before.
    pub(crate) fn look_first(&self) -> bool {
        !self.looked_for.swap(true, Ordering::Relaxed)
    }

    /// Its directory is gone: no later daemon can find it, and its keeper is not used again.
    pub(crate) fn set_homeless(&self) {
        self.homeless.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_homeless(&self) -> bool {
        self.homeless.load(Ordering::Relaxed)
    }

    pub(super) fn is_settling(&self) -> bool {
        self.settling.load(Ordering::Relaxed)
    }

    /// Its keeper lives and has told what it keeps: another process.
    pub(crate) fn set_disowned(&self) {
        self.disowned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_disowned(&self) -> bool {
        self.disowned.load(Ordering::Relaxed)
    }

    pub(crate) fn set_settling(&self, settling: bool) {
        self.settling.store(settling, Ordering::Relaxed);
    }

    pub(crate) fn has_terminal(&self) -> bool {
        self.state.borrow().size.is_some()
    }

    /// Does something with the emulator of a process with a terminal. May wait for whoever else does: not for the event
    /// loop.
    pub(crate) fn with_terminal<T>(&self, act: impl FnOnce(&mut Terminal) -> T) -> Option<T> {
        let size = self.state.borrow().size?;
        Some(act(lock(&self.terminal).get_or_insert_with(|| Terminal::new(size))))
    }

    /// Lets go of the emulator: it can be made anew from the output.
    pub(crate) fn drop_terminal(&self) {
        *lock(&self.terminal) = None;
    }

    /// What its observers share. Held by each of them, and gone with the last.
    pub(crate) fn shelf(&self) -> Arc<Shelf> {
        let mut held = lock(&self.shelf);
        held.upgrade().unwrap_or_else(|| {
            let shelf = Arc::new(Shelf::default());
            *held = Arc::downgrade(&shelf);
            shelf
        })
    }

    /// Whether nobody follows its terminal yet.
    pub(crate) fn follow_first(&self) -> bool {
        !self.followed.swap(true, Ordering::Relaxed)
    }

    /// Its terminal has this size now. May wait for whoever feeds the emulator: not for the event loop.
    pub(crate) fn note_size(&self, size: PtySize) {
        self.state.send_modify(|state| state.size = Some(size));
        self.with_terminal(|terminal| terminal.resize(size));
    }

    pub(crate) fn snapshot(&self) -> State {
        self.state.borrow().clone()
    }

    pub(crate) fn status(&self) -> Status {
        self.state.borrow().history.status()
    }

    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        lock(&self.link).clone()
    }

    pub(super) fn set_link(&self, link: Arc<Link>) {
        *lock(&self.link) = Some(link);
    }

    /// Forgets this link, unless there is a newer one.
    pub(super) fn forget_link(&self, link: &Link) {
        lock(&self.link).take_if(|known| std::ptr::eq(&**known, link));
    }

    /// Adds a fact and wakes whoever waits.
    pub(crate) fn add(&self, fact: Fact) {
        self.state.send_modify(|state| state.history.add(fact));
    }
}

/// Shared with the writer of the index, which says what it has committed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    by_id: HashMap<ProcessId, Arc<Entry>>,
    /// Live entries by creation.
    live: BTreeMap<(Moment, ProcessId), Arc<Entry>>,
    /// Ended ones, oldest first.
    recent: VecDeque<ProcessId>,
    /// Ended ones that the index does not have yet.
    unindexed: HashMap<ProcessId, Arc<Entry>>,
    /// Idempotency keys of all entries here, by owner and key (D2).
    keys: HashMap<(String, String), ProcessId>,
    /// Which other keys the index may hold: most are fresh, and then it need not be asked.
    known: KnownKeys,
}

/// Hashes of keys, by owner and key: those that the index had when it was last read, and those that came since.
#[derive(Debug, Default)]
struct KnownKeys {
    hasher: RandomState,
    /// None before it was read for the first time: it may hold any key.
    old: Option<HashSet<u64>>,
    young: HashSet<u64>,
}

/// What came of registering an entry.
#[derive(Debug)]
pub(crate) enum Registered {
    New,
    /// Another entry has its idempotency key.
    KeyTaken(Arc<Entry>),
}

impl Registry {
    /// Registers a process that is about to start, or that was found alive.
    pub(crate) fn insert(&self, entry: &Arc<Entry>) -> Registered {
        let mut inner = lock(&self.inner);
        let intent = entry.state.borrow().history.intent.clone();
        if let Some(key) = &intent.spec.idempotency_key {
            let key = (intent.spec.owner.clone(), key.clone());
            if let Some(holder) = inner.keys.get(&key).and_then(|id| inner.by_id.get(id)) {
                return Registered::KeyTaken(Arc::clone(holder));
            }
            inner.known.add(&key);
            inner.keys.insert(key, entry.id.clone());
        }
        inner.by_id.insert(entry.id.clone(), Arc::clone(entry));
        inner.live.insert((intent.at, entry.id.clone()), Arc::clone(entry));
        Registered::New
    }

    /// Whoever holds this key.
    pub(crate) fn by_key(&self, owner: &str, key: &str) -> Option<Arc<Entry>> {
        let inner = lock(&self.inner);
        inner.keys.get(&(owner.to_owned(), key.to_owned())).and_then(|id| inner.by_id.get(id)).cloned()
    }

    /// Whether the index may know this key, if none of the entries here has it.
    pub(crate) fn may_know_key(&self, owner: &str, key: &str) -> bool {
        lock(&self.inner).known.may_hold(&(owner.to_owned(), key.to_owned()))
    }

    /// The keys of the index are about to be read: what is here now, and what comes meanwhile, is kept beside them.
    pub(crate) fn begin_to_know_keys(&self) {
        let mut inner = lock(&self.inner);
        let here = inner.keys.keys().map(|key| inner.known.hasher.hash_one(key)).collect();
        let before = std::mem::replace(&mut inner.known.young, here);
        // Should the reading fail, nothing is forgotten.
        if let Some(old) = &mut inner.known.old {
            old.extend(before);
        }
    }

    /// These are the keys of the index.
    pub(crate) fn know_keys(&self, keys: &[(String, String)]) {
        let mut inner = lock(&self.inner);
        let old = keys.iter().map(|key| inner.known.hasher.hash_one(key)).collect();
        inner.known.old = Some(old);
    }

    /// A process that is over is no longer live, but stays at hand.
    pub(crate) fn retire(&self, entry: &Arc<Entry>) {
        let mut inner = lock(&self.inner);
        let at = entry.state.borrow().history.intent.at;
        if inner.live.remove(&(at, entry.id.clone())).is_some() {
            inner.recent.push_back(entry.id.clone());
            inner.unindexed.insert(entry.id.clone(), Arc::clone(entry));
        }
        while inner.recent.len() > RECENT_MOST {
            if let Some(oldest) = inner.recent.pop_front()
                && !inner.unindexed.contains_key(&oldest)
            {
                inner.forget(&oldest);
            }
        }
    }

    /// The index has committed the ends of these.
    pub(crate) fn note_indexed<'a>(&self, ids: impl Iterator<Item = &'a ProcessId>) {
        let mut inner = lock(&self.inner);
        for id in ids {
            if inner.unindexed.remove(id).is_some() && !inner.recent.contains(id) {
                inner.forget(id);
            }
        }
    }

    /// Ended ones that the index does not have yet.
    pub(crate) fn unindexed(&self) -> Vec<Arc<Entry>> {
        lock(&self.inner).unindexed.values().cloned().collect()
    }

    /// All ended ones that are in memory.
    pub(crate) fn ended(&self) -> Vec<Arc<Entry>> {
        let inner = lock(&self.inner);
        inner.by_id.values().filter(|entry| entry.status().is_over()).cloned().collect()
    }

    /// A start that left nothing.
    pub(crate) fn remove(&self, entry: &Entry) {
        let mut inner = lock(&self.inner);
        let at = entry.state.borrow().history.intent.at;
        inner.live.remove(&(at, entry.id.clone()));
        inner.recent.retain(|id| *id != entry.id);
        inner.unindexed.remove(&entry.id);
        inner.forget(&entry.id);
    }

    pub(crate) fn get(&self, id: &ProcessId) -> Option<Arc<Entry>> {
        lock(&self.inner).by_id.get(id).cloned()
    }

    /// All entries here: what lives, and what ended a moment ago.
    pub(super) fn known(&self) -> Vec<Arc<Entry>> {
        lock(&self.inner).by_id.values().cloned().collect()
    }

    pub(crate) fn live_count(&self) -> usize {
        lock(&self.inner).live.len()
    }

    /// Live entries, newest first.
    pub(crate) fn live(&self) -> Vec<Arc<Entry>> {
        lock(&self.inner).live.values().rev().cloned().collect()
    }

    /// Live entries created before this one, newest first, as long as `take` wants more.
    pub(crate) fn live_before(&self, before: Option<(Moment, ProcessId)>, mut take: impl FnMut(&Arc<Entry>) -> bool) {
        let inner = lock(&self.inner);
        let range = match before {
            Some(before) => inner.live.range(..before),
            None => inner.live.range(..),
        };
        for entry in range.rev().map(|(_, entry)| entry) {
            if !take(entry) {
                return;
            }
        }
    }

    /// Entries here whose ids begin with this text.
    pub(super) fn prefix(&self, prefix: &str) -> Vec<Arc<Entry>> {
        let inner = lock(&self.inner);
        inner.by_id.values().filter(|entry| entry.id.as_str().starts_with(prefix)).cloned().collect()
    }

    /// Live entries of this name.
    pub(crate) fn named(&self, name: &str) -> Vec<Arc<Entry>> {
        let is_named = |entry: &&Arc<Entry>| entry.state.borrow().history.intent.spec.name.as_deref() == Some(name);
        lock(&self.inner).live.values().filter(is_named).cloned().collect()
    }
}

impl Inner {
    fn forget(&mut self, id: &ProcessId) {
        let Some(entry) = self.by_id.remove(id) else { return };
        let intent = Arc::clone(&entry.state.borrow().history.intent);
        if let Some(key) = &intent.spec.idempotency_key {
            self.keys.remove(&(intent.spec.owner.clone(), key.clone()));
        }
    }
}

impl KnownKeys {
    fn add(&mut self, key: &(String, String)) {
        self.young.insert(self.hasher.hash_one(key));
    }

    fn may_hold(&self, key: &(String, String)) -> bool {
        let hash = self.hasher.hash_one(key);
        self.old.as_ref().is_none_or(|old| old.contains(&hash)) || self.young.contains(&hash)
    }
}

/// An entry for tests: of `true`, with whatever else is asked for.
#[cfg(test)]
pub(crate) fn entry_of(asked: pinfold_model::spec::Draft) -> Arc<Entry> {
    numbered_of(1, asked)
}

#[cfg(test)]
fn numbered(number: u64) -> Arc<Entry> {
    numbered_of(number, pinfold_model::spec::Draft::default())
}

#[cfg(test)]
fn numbered_of(number: u64, asked: pinfold_model::spec::Draft) -> Arc<Entry> {
    use pinfold_model::facts::Intent;
    use pinfold_model::link::KeeperIdentity;
    use pinfold_model::spec::{Defaults, Draft};

    let draft = Draft { command: Some("true".into()), ..asked };
    let defaults = Defaults { cwd: "/".into(), home: "/".into(), output_limit: 64 << 20, ..Defaults::default() };
    let spec = draft.try_into_spec(&defaults).expect("a spec");
    let keeper = KeeperIdentity { pid: 1, start_time: 1, cgroup: None };
    let (id, at) = (ProcessId::from_number(number, 1), Moment(0));
    let (mark, boot_id) = (String::new(), String::new());
    Entry::new(History::new(Intent { format: 1, id, spec, mark, at, boot_id, keeper }))
}

#[cfg(test)]
mod tests {
    use pinfold_model::spec::Draft;

    use super::*;

    #[test]
    fn an_end_that_the_index_does_not_have_is_kept_however_many_follow() {
        let registry = Registry::default();
        let ended = |number| {
            let entry = numbered(number);
            registry.insert(&entry);
            registry.retire(&entry);
            entry
        };
        let all: Vec<_> = (0..RECENT_MOST as u64 + 10).map(ended).collect();
        assert!(all.iter().all(|entry| registry.get(&entry.id).is_some()));
        assert_eq!(registry.unindexed().len(), all.len());
        registry.note_indexed(all.iter().map(|entry| &entry.id));
        assert_eq!(registry.unindexed().len(), 0);
        let here = all.iter().filter(|entry| registry.get(&entry.id).is_some()).count();
        assert_eq!(here, RECENT_MOST, "the others are found in the index");
        assert!(registry.get(&all[0].id).is_none() && registry.get(&all[10].id).is_some());
    }

    /// Whoever may have used a key is asked for it (D2): the index before it was read, what it had then, and all since.
    #[test]
    fn a_key_is_fresh_only_if_nobody_can_have_it() {
        let registry = Registry::default();
        assert!(registry.may_know_key("o", "any"), "the index was not read yet");
        registry.begin_to_know_keys();
        let (owner, key) = (Some("o".into()), Some("meanwhile".into()));
        let meanwhile = entry_of(Draft { owner, idempotency_key: key, ..Draft::default() });
        registry.insert(&meanwhile);
        registry.know_keys(&[("o".into(), "old".into())]);
        let known = |registry: &Registry| ["old", "meanwhile", "fresh"].map(|key| registry.may_know_key("o", key));
        assert_eq!(known(&registry), [true, true, false]);
        assert!(!registry.may_know_key("another", "old"));

        registry.remove(&meanwhile);
        assert_eq!(known(&registry), [true, true, false], "it went to the index");
        registry.begin_to_know_keys();
        assert_eq!(known(&registry), [true, true, false], "the index is not read yet");
        registry.know_keys(&[("o".into(), "meanwhile".into())]);
        assert_eq!(known(&registry), [false, true, false], "the index has forgotten the other");
    }
}
