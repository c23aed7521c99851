//! The daemon's connection to one keeper: requests out, facts in.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use pinfold_api::quiet::QuietStream;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{ANSWERS_UNKNOWN, BadFrame, Decoder, FromKeeper, KeeperIdentity, ToKeeper, encode};
use pinfold_os::tree;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{oneshot, watch};

use crate::mutex::lock;
use crate::registry::entries::Entry;

/// Timeout of requests that a keeper answers at once.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for an answer before checking whether the keeper is stopped.
const STOPPED_CHECK: Duration = Duration::from_millis(250);

/// Maximum bytes queued for a keeper that does not read. Beyond, a request waits, and a message without an answer is
/// dropped.
const MAX_UNSENT: usize = 4 << 20;
/// How often a request checks whether there is room again.
const ROOM_INTERVAL: Duration = Duration::from_millis(50);

/// A connected keeper.
#[derive(Debug)]
pub(crate) struct Link {
    writer: tokio::sync::Mutex<WriteHalf<QuietStream>>,
    /// Set by its hello.
    pub(crate) identity: OnceLock<KeeperIdentity>,
    /// The error number, if the nursery could not fork it.
    fork_errno: OnceLock<i32>,
    version: OnceLock<u32>,
    /// Whether it has said hello, and whether the link is closed.
    state: watch::Sender<LinkState>,
    /// Requests that wait for an answer, by number.
    requests: Mutex<HashMap<u64, oneshot::Sender<FromKeeper>>>,
    next_request: AtomicU64,
    /// Bytes queued for the keeper.
    unsent: AtomicUsize,
    /// The process it keeps.
    entry: Mutex<Option<Arc<Entry>>>,
    /// The id of the directory that it has prepared.
    prepared: Mutex<Option<ProcessId>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    AwaitingHello,
    Greeted,
    /// It speaks a newer protocol: nothing is sent to it.
    Newer,
    Closed,
}

/// The receiving end of a link, for its task.
#[derive(Debug)]
pub(crate) struct Incoming {
    link: Arc<Link>,
    reader: ReadHalf<QuietStream>,
    decoder: Decoder,
}

/// Why a request to a keeper has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("the link to the keeper is closed")]
    Closed,
    #[error("the keeper does not answer (is it stopped?)")]
    TimedOut,
}

impl Link {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<(Arc<Self>, Incoming)> {
        let (reader, writer) = tokio::io::split(QuietStream::new(UnixStream::from(socket))?);
        let link = Arc::new(Self {
            writer: tokio::sync::Mutex::new(writer),
            identity: OnceLock::new(),
            fork_errno: OnceLock::new(),
            version: OnceLock::new(),
            state: watch::Sender::new(LinkState::AwaitingHello),
            requests: Mutex::default(),
            next_request: AtomicU64::new(1),
            unsent: AtomicUsize::new(0),
            entry: Mutex::new(None),
            prepared: Mutex::new(None),
        });
        let incoming = Incoming { link: Arc::clone(&link), reader, decoder: Decoder::default() };
        Ok((link, incoming))
    }

    pub(crate) fn entry(&self) -> Option<Arc<Entry>> {
        lock(&self.entry).clone()
    }

    /// Binds keeper and process to each other.
    pub(crate) fn bind(self: &Arc<Self>, entry: &Arc<Entry>) {
        *lock(&self.entry) = Some(Arc::clone(entry));
        entry.set_link(Arc::clone(self));
    }

    /// Unbinds keeper and process; returns the process.
    pub(crate) fn unbind(&self) -> Option<Arc<Entry>> {
        let entry = lock(&self.entry).take();
        if let Some(entry) = &entry {
            entry.forget_link(self);
        }
        entry
    }

    pub(crate) fn prepared(&self) -> Option<ProcessId> {
        lock(&self.prepared).clone()
    }

    pub(crate) fn forget_prepared(&self) {
        *lock(&self.prepared) = None;
    }

    pub(crate) fn is_prepared(&self) -> bool {
        lock(&self.prepared).is_some()
    }

    pub(crate) fn set_prepared(&self, id: ProcessId) {
        *lock(&self.prepared) = Some(id);
    }

    /// Sends a message. It is sent completely even if the caller is dropped meanwhile: after half a frame the keeper
    /// would misread everything that follows.
    pub(crate) async fn send(self: &Arc<Self>, message: &ToKeeper) -> Result<(), NoAnswer> {
        if self.is_newer() {
            return Err(NoAnswer::TimedOut);
        }
        let frame = encode(message);
        let size = frame.len();
        if self.is_full() {
            return Err(NoAnswer::TimedOut);
        }
        self.unsent.fetch_add(size, Ordering::Relaxed);
        let link = Arc::clone(self);
        let mut sending = Box::pin(async move {
            let sent = link.writer.lock().await.write_all(&frame).await;
            link.unsent.fetch_sub(size, Ordering::Relaxed);
            sent
        });
        // Usually the frame fits into the socket and the first poll sends it; otherwise a task finishes the write.
        let sent = match poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await {
            Poll::Ready(sent) => sent,
            Poll::Pending => tokio::spawn(sending).await.unwrap_or_else(|error| Err(io::Error::other(error))),
        };
        sent.map_err(|_| NoAnswer::Closed)
    }

    /// Sends a request and waits for its answer, with this timeout in all.
    pub(crate) async fn request(
        self: &Arc<Self>,
        within: Duration,
        message: impl FnOnce(u64) -> ToKeeper,
    ) -> Result<FromKeeper, NoAnswer> {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (answer, wait) = oneshot::channel();
        lock(&self.requests).insert(request, answer);
        let message = message(request);
        let exchange = async {
            while self.is_full() {
                tokio::time::sleep(ROOM_INTERVAL).await;
            }
            self.send(&message).await?;
            wait.await.map_err(|_| NoAnswer::Closed)
        };
        let asked =
            tokio::time::timeout(within, self.resume_if_stopped(exchange)).await.unwrap_or(Err(NoAnswer::TimedOut));
        if asked.is_err() {
            lock(&self.requests).remove(&request);
        }
        asked
    }

    /// Whether too many bytes are queued to add more.
    fn is_full(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) > MAX_UNSENT
    }

    /// Waits for an exchange with the keeper. Meanwhile sends SIGCONT to a stopped keeper: its own process may have
    /// stopped it to avoid the request.
    async fn resume_if_stopped<T>(&self, exchange: impl Future<Output = T>) -> T {
        let mut exchange = pin!(exchange);
        loop {
            if let Ok(done) = tokio::time::timeout(STOPPED_CHECK, exchange.as_mut()).await {
                return done;
            }
            if let Some(keeper) = self.identity.get()
                && tree::continue_if_stopped(keeper.pid, keeper.start_time)
            {
                tracing::warn!(keeper = keeper.pid, "a keeper was stopped by a signal: sent SIGCONT");
            }
        }
    }

    /// Passes an answer to the request that waits for it.
    pub(crate) fn answer(&self, request: u64, answer: FromKeeper) {
        if let Some(waiting) = lock(&self.requests).remove(&request) {
            let _ = waiting.send(answer);
        }
    }

    pub(crate) fn set_greeted(&self, identity: KeeperIdentity, version: u32) {
        let _ = (self.identity.set(identity), self.version.set(version));
        self.state.send_replace(LinkState::Greeted);
    }

    pub(crate) fn set_fork_error(&self, errno: i32) {
        let _ = self.fork_errno.set(errno);
    }

    /// Why the nursery could not fork the keeper.
    pub(crate) fn fork_error(&self) -> Option<io::Error> {
        self.fork_errno.get().map(|errno| io::Error::from_raw_os_error(*errno))
    }

    /// Marks the link as closed and fails the requests that wait for an answer.
    pub(crate) fn set_closed(&self) {
        lock(&self.requests).clear();
        self.state.send_replace(LinkState::Closed);
    }

    pub(crate) fn set_newer(&self) {
        self.state.send_replace(LinkState::Newer);
    }

    pub(crate) fn is_newer(&self) -> bool {
        *self.state.borrow() == LinkState::Newer
    }

    /// Whether it is connected and has not said hello.
    pub(crate) fn awaits_hello(&self) -> bool {
        *self.state.borrow() == LinkState::AwaitingHello
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.state.borrow() == LinkState::Closed
    }

    /// Waits for the hello.
    pub(crate) async fn wait_hello(&self, within: Duration) -> Result<KeeperIdentity, NoAnswer> {
        let mut state = self.state.subscribe();
        let change = state.wait_for(|state| *state != LinkState::AwaitingHello);
        tokio::time::timeout(within, change).await.map_err(|_| NoAnswer::TimedOut)?.map_err(|_| NoAnswer::Closed)?;
        self.identity.get().cloned().ok_or(NoAnswer::Closed)
    }
}

impl Incoming {
    /// Discards everything until the keeper closes the link.
    pub(crate) async fn closed(&mut self) {
        let mut buffer = [0; 8 * 1024];
        while self.reader.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    }

    /// The next message; `None` when the link is closed or carries a malformed frame. A message of an unknown kind is
    /// answered and skipped.
    pub(crate) async fn next(&mut self) -> Option<FromKeeper> {
        loop {
            match self.decoder.try_next() {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(BadFrame::Unknown { error, .. }) => {
                    tracing::warn!(%error, "a keeper sent a message of an unknown kind");
                    if self.link.version.get().is_some_and(|version| *version >= ANSWERS_UNKNOWN) {
                        let _ = self.link.send(&ToKeeper::Unknown { error }).await;
                    }
                    continue;
                }
                Err(error) => {
                    tracing::error!(%error, "a keeper sent a malformed frame: closing its link");
                    return None;
                }
            }
            match self.reader.read_buf(self.decoder.space()).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}
