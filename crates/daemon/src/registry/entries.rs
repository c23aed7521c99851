//! Live and recently ended processes.
//!
//! An entry is registered before its process may start, so that every process is listed. Ended entries stay for a
//! while, so that the usual "start, wait, read" needs no query; older ones are read from the index. An entry that the
//! index has not committed stays until it has, however long that takes: a full disk hides nothing.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pinfold_model::facts::{Fact, History, Status};
use pinfold_model::id::ProcessId;
use pinfold_model::link::Waiting;
use pinfold_model::spec::PtySize;
use pinfold_model::units::Moment;
use tokio::sync::watch;

use crate::emulator::Terminal;
use crate::mutex::lock;
use crate::registry::keeper_link::Link;
use crate::request_error::RequestError;

/// Ended entries in memory; beyond, the oldest are removed.
const MAX_RECENT: usize = 256;

/// The current state of one process.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) history: History,
    pub(crate) paused: bool,
    /// Bytes of output, as the keeper last reported; there may be more.
    pub(crate) output_bytes: u64,
    /// The size of its terminal, where it has one.
    pub(crate) size: Option<PtySize>,
    /// Whether it waits for input, as the keeper last reported.
    pub(crate) waiting: Waiting,
    /// Set if the process was not started and nothing of it remains: its record could not be written, or its keeper
    /// died first.
    pub(crate) refused: Option<RequestError>,
    /// Something unusual that a reader should know.
    pub(crate) note: Option<String>,
    /// Why it is not ready yet.
    pub(crate) ready_note: Option<String>,
}

/// One process, live or recently ended.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: ProcessId,
    /// Written by the link's task only; others watch it.
    pub(crate) state: watch::Sender<State>,
    /// The keeper, while it is connected.
    link: Mutex<Option<Arc<Link>>>,
    /// How much of the output its owner has been shown, without gaps from the beginning. Not durable: after a crash of
    /// the daemon a match may be announced in output that was already shown.
    shown: AtomicU64,
    /// Whether a stop was requested: after that only its end is announced.
    stop_requested: AtomicBool,
    /// Whether its keeper has said that it keeps another process.
    disowned: AtomicBool,
    /// Whether its watch and heartbeat were started.
    watch_started: AtomicBool,
    /// Whether its readiness probe was started.
    probe_started: AtomicBool,
    /// Whether its keeper died and its end is not known yet.
    resolving: AtomicBool,
    /// Whether its directory was removed while it ran.
    directory_lost: AtomicBool,
    /// What its terminal shows, where it has one; locked from blocking threads only.
    terminal: Mutex<Option<Terminal>>,
    /// Whether the task that feeds its emulator was started.
    screen_task_started: AtomicBool,
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
            stop_requested: AtomicBool::new(false),
            disowned: AtomicBool::new(false),
            watch_started: AtomicBool::new(false),
            probe_started: AtomicBool::new(false),
            resolving: AtomicBool::new(false),
            directory_lost: AtomicBool::new(false),
            terminal: Mutex::new(None),
            screen_task_started: AtomicBool::new(false),
        })
    }

    pub(crate) fn shown(&self) -> u64 {
        self.shown.load(Ordering::Relaxed)
    }

    /// Notes that its owner was shown this range of its output.
    pub(crate) fn note_shown(&self, from: u64, to: u64) {
        if from <= self.shown() {
            self.shown.fetch_max(to, Ordering::Relaxed);
        }
    }

    pub(crate) fn note_stop(&self) {
        self.stop_requested.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stop_requested(&self) -> bool {
        self.stop_requested.load(Ordering::Relaxed)
    }

    /// Whether the caller is the one to start its watch and heartbeats: true once.
    pub(crate) fn claim_watch(&self) -> bool {
        !self.watch_started.swap(true, Ordering::Relaxed)
    }

    /// Whether the caller is the one to start its readiness probe: true once.
    pub(crate) fn claim_readiness_probe(&self) -> bool {
        !self.probe_started.swap(true, Ordering::Relaxed)
    }

    /// Its directory was removed: no later daemon can find it, and its keeper is not reused.
    pub(crate) fn set_directory_lost(&self) {
        self.directory_lost.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_directory_lost(&self) -> bool {
        self.directory_lost.load(Ordering::Relaxed)
    }

    pub(super) fn is_resolving(&self) -> bool {
        self.resolving.load(Ordering::Relaxed)
    }

    /// Its keeper is alive and has said that it keeps another process.
    pub(crate) fn set_disowned(&self) {
        self.disowned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_disowned(&self) -> bool {
        self.disowned.load(Ordering::Relaxed)
    }

    pub(crate) fn set_resolving(&self, resolving: bool) {
        self.resolving.store(resolving, Ordering::Relaxed);
    }

    pub(crate) fn has_terminal(&self) -> bool {
        self.state.borrow().size.is_some()
    }

    /// Runs a function on the terminal emulator, if the process has a terminal. May block on the lock: not for the
    /// event loop.
    pub(crate) fn with_terminal<T>(&self, act: impl FnOnce(&mut Terminal) -> T) -> Option<T> {
        let size = self.state.borrow().size?;
        Some(act(lock(&self.terminal).get_or_insert_with(|| Terminal::new(size))))
    }

    /// Drops the emulator: it can be rebuilt from the output.
    pub(crate) fn drop_terminal(&self) {
        *lock(&self.terminal) = None;
    }

    /// Whether the caller is the one to start the task that feeds its emulator: true once.
    pub(crate) fn claim_screen_task(&self) -> bool {
        !self.screen_task_started.swap(true, Ordering::Relaxed)
    }

    /// Notes a new terminal size. May block on the emulator's lock: not for the event loop.
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

    /// Adds a fact and wakes waiters.
    pub(crate) fn add(&self, fact: Fact) {
        self.state.send_modify(|state| state.history.add(fact));
    }
}

/// The entries. Shared with the index writer, which notes what it has committed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    by_id: HashMap<ProcessId, Arc<Entry>>,
    /// Live entries by creation.
    live: BTreeMap<(Moment, ProcessId), Arc<Entry>>,
    /// Ended entries, oldest first.
    recent: VecDeque<ProcessId>,
    /// Ended entries that the index does not have yet.
    unindexed: HashMap<ProcessId, Arc<Entry>>,
    /// Idempotency keys of all entries here, by owner and key (D2).
    keys: HashMap<(String, String), ProcessId>,
    /// Which other keys the index may have: most keys are new, and then no query is needed.
    known: KnownKeys,
}

/// Hashes of owner and key: those that the index had when it was last read, and those added since.
#[derive(Debug, Default)]
struct KnownKeys {
    hasher: RandomState,
    /// `None` until the index was read: it may have any key.
    indexed: Option<HashSet<u64>>,
    since: HashSet<u64>,
}

/// The result of registering an entry.
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

    /// The entry with this idempotency key.
    pub(crate) fn by_key(&self, owner: &str, key: &str) -> Option<Arc<Entry>> {
        let inner = lock(&self.inner);
        inner.keys.get(&(owner.to_owned(), key.to_owned())).and_then(|id| inner.by_id.get(id)).cloned()
    }

    /// Whether the index may have this key, if no entry here does.
    pub(crate) fn may_have_key(&self, owner: &str, key: &str) -> bool {
        lock(&self.inner).known.may_contain(&(owner.to_owned(), key.to_owned()))
    }

    /// To be called before the keys of the index are read: keys of entries here, and of those added meanwhile, are kept
    /// beside them.
    pub(crate) fn begin_key_reload(&self) {
        let mut inner = lock(&self.inner);
        let here = inner.keys.keys().map(|key| inner.known.hasher.hash_one(key)).collect();
        let before = std::mem::replace(&mut inner.known.since, here);
        // If reading the index fails, no key is forgotten.
        if let Some(indexed) = &mut inner.known.indexed {
            indexed.extend(before);
        }
    }

    /// These are all idempotency keys in the index now; replaces what was known of it.
    pub(crate) fn finish_key_reload(&self, keys: &[(String, String)]) {
        let mut inner = lock(&self.inner);
        let indexed = keys.iter().map(|key| inner.known.hasher.hash_one(key)).collect();
        inner.known.indexed = Some(indexed);
    }

    /// Moves an ended process from the live entries to the recent ones.
    pub(crate) fn retire(&self, entry: &Arc<Entry>) {
        let mut inner = lock(&self.inner);
        let at = entry.state.borrow().history.intent.at;
        if inner.live.remove(&(at, entry.id.clone())).is_some() {
            inner.recent.push_back(entry.id.clone());
            inner.unindexed.insert(entry.id.clone(), Arc::clone(entry));
        }
        while inner.recent.len() > MAX_RECENT {
            if let Some(oldest) = inner.recent.pop_front()
                && !inner.unindexed.contains_key(&oldest)
            {
                inner.forget(&oldest);
            }
        }
    }

    /// Notes that the index has committed the ends of these.
    pub(crate) fn note_indexed<'a>(&self, ids: impl Iterator<Item = &'a ProcessId>) {
        let mut inner = lock(&self.inner);
        for id in ids {
            if inner.unindexed.remove(id).is_some() && !inner.recent.contains(id) {
                inner.forget(id);
            }
        }
    }

    /// Ended entries that the index does not have yet.
    pub(crate) fn unindexed(&self) -> Vec<Arc<Entry>> {
        lock(&self.inner).unindexed.values().cloned().collect()
    }

    /// All ended entries in memory.
    pub(crate) fn ended(&self) -> Vec<Arc<Entry>> {
        let inner = lock(&self.inner);
        inner.by_id.values().filter(|entry| entry.status().is_over()).cloned().collect()
    }

    /// Removes the entry of a start that left nothing, or of a removed process.
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

    /// All entries: live and recently ended.
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

    /// Live entries created before this one, newest first, until `take` returns false.
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
        self.since.insert(self.hasher.hash_one(key));
    }

    fn may_contain(&self, key: &(String, String)) -> bool {
        let hash = self.hasher.hash_one(key);
        self.indexed.as_ref().is_none_or(|indexed| indexed.contains(&hash)) || self.since.contains(&hash)
    }
}

/// An entry for tests, running `true`, with the options that `change` sets.
#[cfg(test)]
pub(crate) fn entry_of(change: impl FnOnce(&mut pinfold_model::spec::Spec)) -> Arc<Entry> {
    numbered_of(1, change)
}

#[cfg(test)]
fn numbered(number: u64) -> Arc<Entry> {
    numbered_of(number, |_| {})
}

#[cfg(test)]
fn numbered_of(number: u64, change: impl FnOnce(&mut pinfold_model::spec::Spec)) -> Arc<Entry> {
    use pinfold_model::facts::Intent;
    use pinfold_model::link::KeeperIdentity;
    use pinfold_model::spec::{Defaults, Program, Spec};

    let program = Program::Argv { argv: vec!["true".to_owned()] };
    let defaults = Defaults { output_limit: 64 << 20, ..Defaults::default() };
    let mut spec = Spec::new(program, "/".into(), &defaults);
    change(&mut spec);
    let spec = spec.check().expect("valid");
    let keeper = KeeperIdentity { pid: 1, start_time: 1, cgroup: None };
    let (id, at) = (ProcessId::from_number(number, 1), Moment(0));
    let (mark, boot_id) = (String::new(), String::new());
    Entry::new(History::new(Intent { format: 1, id, spec, mark, at, boot_id, keeper }))
}

#[cfg(test)]
mod tests {
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
        let all: Vec<_> = (0..MAX_RECENT as u64 + 10).map(ended).collect();
        assert!(all.iter().all(|entry| registry.get(&entry.id).is_some()));
        assert_eq!(registry.unindexed().len(), all.len());
        registry.note_indexed(all.iter().map(|entry| &entry.id));
        assert_eq!(registry.unindexed().len(), 0);
        let here = all.iter().filter(|entry| registry.get(&entry.id).is_some()).count();
        assert_eq!(here, MAX_RECENT, "the others are found in the index");
        assert!(registry.get(&all[0].id).is_none() && registry.get(&all[10].id).is_some());
    }

    /// The index must be asked for a key (D2) before it was read, for keys it had then, and for keys added since.
    #[test]
    fn a_key_is_new_only_if_neither_index_nor_registry_can_have_it() {
        let registry = Registry::default();
        assert!(registry.may_have_key("o", "any"), "the index was not read yet");
        registry.begin_key_reload();
        let meanwhile = entry_of(|spec| (spec.owner, spec.idempotency_key) = ("o".into(), Some("meanwhile".into())));
        registry.insert(&meanwhile);
        registry.finish_key_reload(&[("o".into(), "indexed".into())]);
        let known = |registry: &Registry| ["indexed", "meanwhile", "fresh"].map(|key| registry.may_have_key("o", key));
        assert_eq!(known(&registry), [true, true, false]);
        assert!(!registry.may_have_key("another", "indexed"));

        registry.remove(&meanwhile);
        assert_eq!(known(&registry), [true, true, false], "the index may have it by now");
        registry.begin_key_reload();
        assert_eq!(known(&registry), [true, true, false], "the index is not read yet");
        registry.finish_key_reload(&[("o".into(), "meanwhile".into())]);
        assert_eq!(known(&registry), [false, true, false], "the index no longer has the other");
    }
}
