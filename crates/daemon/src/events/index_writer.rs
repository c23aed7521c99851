//! The one writer of the index: a thread behind a bounded queue that commits bursts together.
//!
//! Nothing on the way from a request to its answer waits for it; the process directories are the truth, and
//! recovery writes what a crash kept from being written here. Events are shown when they are committed (D3).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_os::crash_point;
use pinfold_store::index::{Change, Index, IndexError};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::Registry;

/// Changes that may wait. A full queue slows the links' tasks, and nobody else.
const QUEUE: usize = 4096;
/// How long the first change of a burst waits for others, unless somebody waits for it. Meanwhile the writer
/// sleeps: it would compete with the commands for the cores.
const BURST: Duration = Duration::from_millis(10);
/// Changes committed together at most.
const TOGETHER: usize = 1024;
/// How often a refused commit is tried again before its changes wait for better times.
const TRIES: u32 = 5;
/// How often changes that wait are tried again when nothing else happens.
const AGAIN: Duration = Duration::from_secs(1);
/// Changes that wait for an index that refuses them, say on a full disk; beyond, they are left to the next recovery.
const WAITING_MOST: usize = 100_000;
/// Changes that may wait before starts are refused.
const WAITING_FOR_STARTS: usize = WAITING_MOST / 2;
/// How long a reader waits for changes to be committed before it answers without them.
const FLUSH_WAIT: Duration = Duration::from_millis(500);
/// Events are pruned after so many commits.
const PRUNE_EVERY: u32 = 1000;

#[derive(Debug)]
enum Message {
    Apply(Making),
    Flush(oneshot::Sender<()>),
    /// Something that reads and writes in one step, after all that was handed over before it.
    Do(Task),
}

/// How changes are made. That takes a while, so the writer's thread does it, and nobody waits for it.
struct Making(Box<dyn FnOnce() -> Vec<Change> + Send>);

impl std::fmt::Debug for Making {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Making")
    }
}

/// What is done with the index on the writer's thread.
struct Task(Box<dyn FnOnce(&mut Index) + Send>);

impl std::fmt::Debug for Task {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Task")
    }
}

/// The way to the writer.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    queue: mpsc::Sender<Message>,
    /// Ends a burst early.
    hurry: Arc<Notify>,
    /// Batches handed over and not yet committed: with none, a flush has nothing to wait for.
    pending: Arc<AtomicU64>,
    /// The number of the latest committed event.
    pub(crate) last_event: watch::Receiver<u64>,
    /// Deliveries of events beyond the log were committed.
    pub(super) deliveries: Arc<Notify>,
    trouble: Arc<Mutex<Option<Trouble>>>,
}

/// Why the index takes nothing, and how many changes wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trouble {
    why: String,
    waiting: usize,
}

impl Ledger {
    /// Starts the writer, which tells the registry what it has committed.
    pub(crate) fn start(index: Index, keep_events: u64, registry: Registry) -> Result<Self, IndexError> {
        let (queue, messages) = mpsc::channel(QUEUE);
        let (announce, last_event) = watch::channel(index.last_seq()?);
        let (pending, hurry) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let deliveries = Arc::new(Notify::new());
        let trouble = Arc::new(Mutex::new(None));
        let writer = Writer {
            index,
            registry,
            trouble: Arc::clone(&trouble),
            announce,
            deliveries: Arc::clone(&deliveries),
            keep_events,
            commits: 0,
            pending: Arc::clone(&pending),
            hurry: Arc::clone(&hurry),
            waiting: vec![],
        };
        let failed = |source| IndexError::Io { path: "ledger".into(), source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
        let work = move || runtime.block_on(writer.run(messages));
        std::thread::Builder::new().name("ledger".into()).spawn(work).map_err(failed)?;
        Ok(Self { queue, hurry, pending, last_event, deliveries, trouble })
    }

    /// Hands over changes; they are committed soon.
    pub(crate) async fn apply(&self, changes: Vec<Change>) {
        self.make(move || changes).await;
    }

    /// Hands over what changes are made of; they are made and committed soon.
    pub(crate) async fn make(&self, changes: impl FnOnce() -> Vec<Change> + Send + 'static) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        let _ = self.queue.send(Message::Apply(Making(Box::new(changes)))).await;
    }

    /// Does something with the index in one step, after all that was handed over is committed.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Index) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (done, wait) = oneshot::channel();
        let task = Task(Box::new(move |index| drop(done.send(work(index)))));
        let sent = self.queue.send(Message::Do(task)).await;
        self.hurry.notify_one();
        sent.map_err(Refusal::internal)?;
        wait.await.map_err(Refusal::internal)
    }

    /// Why the index takes nothing now, for people; `None` while it does.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = lock(&self.trouble).clone()?;
        let Trouble { why, waiting } = trouble;
        Some(format!("the index cannot be written ({why}): {waiting} changes wait in memory and are tried again"))
    }

    /// Refuses a start while too much waits for the index to be kept in memory.
    pub(crate) fn try_admit(&self) -> Result<(), Refusal> {
        match lock(&self.trouble).clone() {
            Some(Trouble { why, waiting }) if waiting > WAITING_FOR_STARTS => {
                let message = format!("the index cannot be written ({why}), and {waiting} changes wait for it already");
                Err(Refusal::new(ErrorCode::StoreUnwritable, message))
            }
            _ => Ok(()),
        }
    }

    /// Returns when all that was handed over is committed, or when it cannot be: readers then answer from memory.
    pub(crate) async fn flush(&self) {
        if lock(&self.trouble).is_none() {
            let _ = tokio::time::timeout(FLUSH_WAIT, self.drain()).await;
        }
    }

    /// Returns when all that was handed over is committed, or was refused and waits.
    pub(crate) async fn drain(&self) {
        if self.pending.load(Ordering::Acquire) == 0 {
            return;
        }
        let (done, wait) = oneshot::channel();
        if self.queue.send(Message::Flush(done)).await.is_ok() {
            self.hurry.notify_one();
            let _ = wait.await;
        }
    }
}

struct Writer {
    index: Index,
    registry: Registry,
    trouble: Arc<Mutex<Option<Trouble>>>,
    announce: watch::Sender<u64>,
    deliveries: Arc<Notify>,
    keep_events: u64,
    commits: u32,
    pending: Arc<AtomicU64>,
    hurry: Arc<Notify>,
    /// What the index refused, in order; it goes before all that comes later.
    waiting: Vec<Change>,
}

impl Writer {
    async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        loop {
            let first = match self.waiting.is_empty() {
                true => messages.recv().await,
                false => match tokio::time::timeout(AGAIN, messages.recv()).await {
                    Ok(message) => message,
                    Err(_) => {
                        self.commit(vec![]);
                        continue;
                    }
                },
            };
            let Some(first) = first else { return };
            if matches!(first, Message::Apply(_)) {
                let _ = tokio::time::timeout(BURST, self.hurry.notified()).await;
            }
            let (mut changes, mut flushes, mut task, mut batches) = (Vec::new(), Vec::new(), None, 0);
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Apply(Making(make)) => {
                        changes.extend(make());
                        batches += 1;
                    }
                    Message::Flush(done) => flushes.push(done),
                    Message::Do(work) => task = Some(work),
                }
                let go_on = changes.len() < TOGETHER && task.is_none();
                next = if go_on { messages.try_recv().ok() } else { None };
            }
            self.commit(changes);
            self.pending.fetch_sub(batches, Ordering::AcqRel);
            for done in flushes {
                let _ = done.send(());
            }
            if let Some(Task(work)) = task {
                work(&mut self.index);
            }
        }
    }

    fn commit(&mut self, changes: Vec<Change>) {
        // Whoever waits for this is not made to wait for a disk that has been full for a while.
        let tries = if self.waiting.is_empty() { TRIES } else { 1 };
        let mut all = std::mem::take(&mut self.waiting);
        all.extend(changes);
        if all.is_empty() {
            return;
        }
        crash_point!("daemon.ledger_commit");
        for attempt in 1..=tries {
            match self.index.apply(&all) {
                Ok(events) => {
                    *lock(&self.trouble) = None;
                    self.note_indexed(&all);
                    self.committed(events.last().map(|event| event.seq));
                    return self.wake_deliveries(&all);
                }
                // A key taken twice spoils the batch, not its neighbours.
                Err(IndexError::KeyTaken { .. }) => {
                    *lock(&self.trouble) = None;
                    self.commit_apart(&all);
                    return self.wake_deliveries(&all);
                }
                Err(error) => {
                    tracing::error!(%error, attempt, "the index refused a commit");
                    *lock(&self.trouble) = Some(Trouble { why: error.to_string(), waiting: all.len() });
                    if attempt < tries {
                        std::thread::sleep(Duration::from_millis(100) * attempt);
                    }
                }
            }
        }
        match all.len() > WAITING_MOST {
            true => tracing::error!(changes = all.len(), "left to the next start, which reads the process directories"),
            false => self.waiting = all,
        }
    }

    fn note_indexed(&self, committed: &[Change]) {
        let put =
            |change: &Change| if let Change::Put(history, _) = change { Some(history.intent.id.clone()) } else { None };
        let ids: Vec<_> = committed.iter().filter_map(put).collect();
        self.registry.note_indexed(ids.iter());
    }

    fn wake_deliveries(&self, committed: &[Change]) {
        if committed.iter().any(has_targets) {
            self.deliveries.notify_one();
        }
    }

    fn commit_apart(&mut self, changes: &[Change]) {
        for change in changes {
            match self.index.apply(std::slice::from_ref(change)) {
                Ok(events) => {
                    self.note_indexed(std::slice::from_ref(change));
                    self.committed(events.last().map(|event| event.seq));
                }
                Err(error) => tracing::error!(%error, "the index refused a change"),
            }
        }
    }

    fn committed(&mut self, last: Option<u64>) {
        if let Some(seq) = last {
            self.announce.send_if_modified(|known| std::mem::replace(known, seq.max(*known)) != seq);
        }
        crash_point!("daemon.event_announced");
        self.commits += 1;
        if self.commits.is_multiple_of(PRUNE_EVERY)
            && let Err(error) = self.index.prune_events(self.keep_events)
        {
            tracing::warn!(%error, "cannot prune the event log");
        }
    }
}

fn has_targets(change: &Change) -> bool {
    matches!(change, Change::Event(event) if !event.targets.is_empty())
}
