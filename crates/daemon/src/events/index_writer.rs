//! The only writer of the index: a thread behind a bounded queue that commits changes in batches.
//!
//! No request waits for a commit before it is answered: the process directories are authoritative, and recovery adds
//! what a crash left out of the index. Events are shown once they are committed (D3).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::NewsState;
use pinfold_model::facts::History;
use pinfold_model::id::ProcessId;
use pinfold_os::crash_point;
use pinfold_store::index::{Change, Index, IndexError};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::clock::now;
use crate::events::recent_changes::RecentChanges;
use crate::mutex::lock;
use crate::registry::Registry;
use crate::request_error::RequestError;

/// Queued messages. A full queue blocks only the tasks that read keepers' links.
const MAX_QUEUED: usize = 4096;
/// How long a batch collects changes, unless a caller waits for the commit. The writer sleeps meanwhile, leaving the
/// cores to the commands.
const BATCH_DELAY: Duration = Duration::from_millis(10);
/// Maximum number of changes in one commit.
const MAX_BATCH: usize = 1024;
/// Attempts to commit before the changes are put aside.
const MAX_ATTEMPTS: u32 = 5;
/// How often changes that were put aside are retried when nothing else happens.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of changes held in memory while the index cannot be written, for instance on a full disk. Beyond,
/// they are dropped, and the next recovery adds them.
const MAX_WAITING: usize = 100_000;
/// With more waiting changes than this, starts are refused.
const MAX_WAITING_FOR_START: usize = MAX_WAITING / 2;
/// How long a reader waits for pending changes before it answers without them.
const FLUSH_WAIT: Duration = Duration::from_millis(500);
/// Commits between two prunings of the event log.
const PRUNE_EVERY: u32 = 1000;

#[derive(Debug)]
enum Message {
    Apply(DeferredChanges),
    Flush(oneshot::Sender<()>),
    /// A read and write in one step, after all earlier messages.
    Run(IndexTask),
}

/// Changes that are computed on the writer's thread, so that the caller does not spend the time.
struct DeferredChanges(Box<dyn FnOnce() -> Vec<Change> + Send>);

impl std::fmt::Debug for DeferredChanges {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("DeferredChanges")
    }
}

/// A job for the writer's thread.
struct IndexTask(Box<dyn FnOnce(&mut Index) + Send>);

impl std::fmt::Debug for IndexTask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("IndexTask")
    }
}

/// A handle to the writer.
#[derive(Clone, Debug)]
pub(crate) struct IndexWriter {
    queue: mpsc::Sender<Message>,
    /// Ends the collecting of a batch early.
    flush_now: Arc<Notify>,
    /// Messages sent and not yet committed; if zero, a flush returns at once.
    pending: Arc<AtomicU64>,
    /// The number of the latest committed event.
    pub(crate) last_event: watch::Receiver<u64>,
    /// Notified when new deliveries were committed to the outbox.
    pub(super) deliveries: Arc<Notify>,
    failure: Arc<Mutex<Option<WriteFailure>>>,
    /// Everything sent, committed or not.
    recent: Arc<Mutex<RecentChanges>>,
}

/// Why the last commit failed, and how many changes wait.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WriteFailure {
    error: String,
    waiting: usize,
}

impl IndexWriter {
    /// Starts the writer, which reports committed ends to the registry.
    pub(crate) fn start(index: Index, keep_events: u64, registry: Registry) -> Result<Self, IndexError> {
        let (queue, messages) = mpsc::channel(MAX_QUEUED);
        let (announce, last_event) = watch::channel(index.last_seq()?);
        let (pending, flush_now) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let deliveries = Arc::new(Notify::new());
        let failure = Arc::new(Mutex::new(None));
        let writer = Writer {
            index,
            registry,
            failure: Arc::clone(&failure),
            announce,
            deliveries: Arc::clone(&deliveries),
            keep_events,
            commits: 0,
            pending: Arc::clone(&pending),
            flush_now: Arc::clone(&flush_now),
            waiting: vec![],
        };
        let failed = |source| IndexError::Io { path: "index".into(), source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
        let work = move || runtime.block_on(writer.run(messages));
        std::thread::Builder::new().name("index".into()).spawn(work).map_err(failed)?;
        let recent = Arc::new(Mutex::new(RecentChanges::after(now().0)));
        Ok(Self { queue, flush_now, pending, last_event, deliveries, failure, recent })
    }

    /// Queues changes, to be committed soon.
    pub(crate) async fn apply(&self, changes: Vec<Change>) {
        for change in &changes {
            if let Change::Event(event) = change {
                lock(&self.recent).note(&event.process, &event.owner);
            }
        }
        self.queue_changes(move || changes).await;
    }

    /// Queues changes of one process that are computed on the writer's thread.
    pub(crate) async fn apply_with(&self, history: &History, changes: impl FnOnce() -> Vec<Change> + Send + 'static) {
        lock(&self.recent).note(&history.intent.id, history.owner());
        self.queue_changes(changes).await;
    }

    /// The number of the latest change, for [`Self::news`].
    pub(crate) fn last_change(&self) -> u64 {
        lock(&self.recent).last()
    }

    /// What to say to the owner of this process, whose news up to the change `after` are known, if it has read what the
    /// process did up to the change `last`.
    pub(crate) fn news(&self, after: u64, last: u64, process: &ProcessId, owner: &str) -> NewsState {
        NewsState { last, pending: lock(&self.recent).may_include_others(after, process, owner) }
    }

    async fn queue_changes(&self, changes: impl FnOnce() -> Vec<Change> + Send + 'static) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        let _ = self.queue.send(Message::Apply(DeferredChanges(Box::new(changes)))).await;
    }

    /// Runs a job on the index after all queued changes are committed.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Index) -> T + Send + 'static,
    ) -> Result<T, RequestError> {
        let (done, wait) = oneshot::channel();
        let task = IndexTask(Box::new(move |index| drop(done.send(work(index)))));
        let sent = self.queue.send(Message::Run(task)).await;
        self.flush_now.notify_one();
        sent.map_err(RequestError::internal)?;
        wait.await.map_err(RequestError::internal)
    }

    /// Why the index cannot be written, as text for people; `None` if it can.
    pub(crate) fn problem(&self) -> Option<String> {
        let failure = lock(&self.failure).clone()?;
        let WriteFailure { error, waiting } = failure;
        Some(format!("the index cannot be written ({error}): {waiting} changes wait in memory and are retried"))
    }

    /// Refuses a start while too many changes wait in memory.
    pub(crate) fn try_admit(&self) -> Result<(), RequestError> {
        match lock(&self.failure).clone() {
            Some(WriteFailure { error, waiting }) if waiting > MAX_WAITING_FOR_START => {
                let message = format!(
                    "the index cannot be written ({error}), and {waiting} changes already wait for it: free some space and try again"
                );
                Err(RequestError::new(ErrorCode::StoreUnwritable, message))
            }
            _ => Ok(()),
        }
    }

    /// Waits until queued changes are committed. Returns at once if the index cannot be written: readers then answer
    /// from memory.
    pub(crate) async fn flush(&self) {
        if lock(&self.failure).is_none() {
            let _ = tokio::time::timeout(FLUSH_WAIT, self.drain()).await;
        }
    }

    /// Waits until queued changes are committed or put aside.
    pub(crate) async fn drain(&self) {
        if self.pending.load(Ordering::Acquire) == 0 {
            return;
        }
        let (done, wait) = oneshot::channel();
        if self.queue.send(Message::Flush(done)).await.is_ok() {
            self.flush_now.notify_one();
            let _ = wait.await;
        }
    }
}

struct Writer {
    index: Index,
    registry: Registry,
    failure: Arc<Mutex<Option<WriteFailure>>>,
    announce: watch::Sender<u64>,
    deliveries: Arc<Notify>,
    keep_events: u64,
    commits: u32,
    pending: Arc<AtomicU64>,
    flush_now: Arc<Notify>,
    /// Changes that were put aside, in order; they are committed before later ones.
    waiting: Vec<Change>,
}

impl Writer {
    async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        loop {
            let first = match self.waiting.is_empty() {
                true => messages.recv().await,
                false => match tokio::time::timeout(RETRY_INTERVAL, messages.recv()).await {
                    Ok(message) => message,
                    Err(_) => {
                        self.commit(vec![]);
                        continue;
                    }
                },
            };
            let Some(first) = first else { return };
            if matches!(first, Message::Apply(_)) {
                let _ = tokio::time::timeout(BATCH_DELAY, self.flush_now.notified()).await;
            }
            let (mut changes, mut flushes, mut task, mut batches) = (Vec::new(), Vec::new(), None, 0);
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Apply(DeferredChanges(make)) => {
                        changes.extend(make());
                        batches += 1;
                    }
                    Message::Flush(done) => flushes.push(done),
                    Message::Run(work) => task = Some(work),
                }
                let go_on = changes.len() < MAX_BATCH && task.is_none();
                next = if go_on { messages.try_recv().ok() } else { None };
            }
            self.commit(changes);
            self.pending.fetch_sub(batches, Ordering::AcqRel);
            for done in flushes {
                let _ = done.send(());
            }
            if let Some(IndexTask(work)) = task {
                work(&mut self.index);
            }
        }
    }

    fn commit(&mut self, changes: Vec<Change>) {
        // After an earlier failure one attempt is enough: a caller must not wait for a disk that stays full.
        let attempts = if self.waiting.is_empty() { MAX_ATTEMPTS } else { 1 };
        let mut all = std::mem::take(&mut self.waiting);
        all.extend(changes);
        if all.is_empty() {
            return;
        }
        crash_point!("daemon.ledger_commit");
        for attempt in 1..=attempts {
            match self.index.apply(&all) {
                Ok(events) => {
                    *lock(&self.failure) = None;
                    self.note_indexed(&all);
                    self.after_commit(events.last().map(|event| event.seq));
                    return self.wake_deliveries(&all);
                }
                // A duplicate idempotency key fails the whole batch: commit its changes one by one.
                Err(IndexError::KeyTaken { .. }) => {
                    *lock(&self.failure) = None;
                    self.commit_one_by_one(&all);
                    return self.wake_deliveries(&all);
                }
                Err(error) => {
                    tracing::error!(%error, attempt, "cannot commit to the index");
                    *lock(&self.failure) = Some(WriteFailure { error: error.to_string(), waiting: all.len() });
                    if attempt < attempts {
                        std::thread::sleep(Duration::from_millis(100) * attempt);
                    }
                }
            }
        }
        match all.len() > MAX_WAITING {
            true => tracing::error!(
                changes = all.len(),
                "too many changes wait: dropped; the next daemon reads them from the process directories"
            ),
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

    fn commit_one_by_one(&mut self, changes: &[Change]) {
        for change in changes {
            match self.index.apply(std::slice::from_ref(change)) {
                Ok(events) => {
                    self.note_indexed(std::slice::from_ref(change));
                    self.after_commit(events.last().map(|event| event.seq));
                }
                Err(error) => tracing::error!(%error, "cannot commit a change to the index"),
            }
        }
    }

    fn after_commit(&mut self, last: Option<u64>) {
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
