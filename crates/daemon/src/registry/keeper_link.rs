//! The daemon's end of one keeper: requests out, facts in.

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

use crate::lock::lock;
use crate::registry::entries::Entry;

/// How long a keeper may take to answer what it answers at once.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);
/// How long an answer may take before the keeper is looked at.
const LOOK_AFTER: Duration = Duration::from_millis(250);

/// Bytes that may wait for a keeper that does not read. Beyond, a request waits for room, and what needs no answer is dropped.
const MAX_UNSENT: usize = 4 << 20;
/// How often a request checks whether there is room again.
const ROOM_INTERVAL: Duration = Duration::from_millis(50);

/// A connected keeper.
#[derive(Debug)]
pub(crate) struct Link {
    writer: tokio::sync::Mutex<WriteHalf<QuietStream>>,
    /// Known from its hello on.
    pub(crate) identity: OnceLock<KeeperIdentity>,
    /// Why the nursery could not fork it.
    unborn: OnceLock<i32>,
    version: OnceLock<u32>,
    /// Whether it has said hello, and whether it is gone.
    presence: watch::Sender<Presence>,
    /// Whoever waits for the answer to a request, by its number.
    requests: Mutex<HashMap<u64, oneshot::Sender<FromKeeper>>>,
    next_request: AtomicU64,
    /// Bytes of frames that wait for the keeper to read.
    unsent: AtomicUsize,
    /// The process it keeps.
    entry: Mutex<Option<Arc<Entry>>>,
    /// The id of the directory it has made ahead.
    prepared: Mutex<Option<ProcessId>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Silent,
    Here,
    /// It speaks a newer protocol: nothing is said to it.
    Newer,
    Gone,
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
    Gone,
    #[error("the keeper does not answer (is it stopped?)")]
    Silent,
}

impl Link {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<(Arc<Self>, Incoming)> {
        let (reader, writer) = tokio::io::split(QuietStream::new(UnixStream::from(socket))?);
        let link = Arc::new(Self {
            writer: tokio::sync::Mutex::new(writer),
            identity: OnceLock::new(),
            unborn: OnceLock::new(),
            version: OnceLock::new(),
            presence: watch::Sender::new(Presence::Silent),
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
    pub(crate) fn keep(self: &Arc<Self>, entry: &Arc<Entry>) {
        *lock(&self.entry) = Some(Arc::clone(entry));
        entry.set_link(Arc::clone(self));
    }

    /// Frees keeper and process from each other.
    pub(crate) fn release(&self) -> Option<Arc<Entry>> {
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

    /// Sends a message. It is sent whole even if the caller is dropped meanwhile: after half a frame the keeper would take
    /// everything that follows for the rest of it.
    pub(crate) async fn tell(self: &Arc<Self>, message: &ToKeeper) -> Result<(), NoAnswer> {
        if self.is_newer() {
            return Err(NoAnswer::Silent);
        }
        let frame = encode(message);
        let size = frame.len();
        if self.is_full() {
            return Err(NoAnswer::Silent);
        }
        self.unsent.fetch_add(size, Ordering::Relaxed);
        let link = Arc::clone(self);
        let mut sending = Box::pin(async move {
            let sent = link.writer.lock().await.write_all(&frame).await;
            link.unsent.fetch_sub(size, Ordering::Relaxed);
            sent
        });
        // The usual frame fits into the socket and is sent by the first poll; only what does not fit needs a task.
        let sent = match poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await {
            Poll::Ready(sent) => sent,
            Poll::Pending => tokio::spawn(sending).await.unwrap_or_else(|error| Err(io::Error::other(error))),
        };
        sent.map_err(|_| NoAnswer::Gone)
    }

    /// Sends a request and waits for its answer, for at most this time in all.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        within: Duration,
        message: impl FnOnce(u64) -> ToKeeper,
    ) -> Result<FromKeeper, NoAnswer> {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (answer, wait) = oneshot::channel();
        lock(&self.requests).insert(request, answer);
        let message = message(request);
        let asking = async {
            while self.is_full() {
                tokio::time::sleep(ROOM_INTERVAL).await;
            }
            self.tell(&message).await?;
            wait.await.map_err(|_| NoAnswer::Gone)
        };
        let asked = tokio::time::timeout(within, self.keep_going(asking)).await.unwrap_or(Err(NoAnswer::Silent));
        if asked.is_err() {
            lock(&self.requests).remove(&request);
        }
        asked
    }

    /// Whether as much waits for the keeper as may.
    fn is_full(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) > MAX_UNSENT
    }

    /// Waits for an exchange with the keeper. Meanwhile a keeper that was stopped is made to go on: its own process may
    /// have stopped it, to outlive what is asked.
    async fn keep_going<T>(&self, exchange: impl Future<Output = T>) -> T {
        let mut exchange = pin!(exchange);
        loop {
            if let Ok(done) = tokio::time::timeout(LOOK_AFTER, exchange.as_mut()).await {
                return done;
            }
            if let Some(keeper) = self.identity.get()
                && tree::continue_if_stopped(keeper.pid, keeper.start_time)
            {
                tracing::warn!(keeper = keeper.pid, "a keeper was stopped by a signal, and is continued");
            }
        }
    }

    /// Gives an answer to whoever asked.
    pub(crate) fn answer(&self, request: u64, answer: FromKeeper) {
        if let Some(waiting) = lock(&self.requests).remove(&request) {
            let _ = waiting.send(answer);
        }
    }

    pub(crate) fn said_hello(&self, identity: KeeperIdentity, version: u32) {
        let _ = (self.identity.set(identity), self.version.set(version));
        self.presence.send_replace(Presence::Here);
    }

    pub(crate) fn was_not_born(&self, errno: i32) {
        let _ = self.unborn.set(errno);
    }

    /// Why there is no keeper at the other end.
    pub(crate) fn birth_error(&self) -> Option<io::Error> {
        self.unborn.get().map(|errno| io::Error::from_raw_os_error(*errno))
    }

    /// The link is closed: whoever waits for an answer learns so.
    pub(crate) fn went(&self) {
        lock(&self.requests).clear();
        self.presence.send_replace(Presence::Gone);
    }

    pub(crate) fn said_newer(&self) {
        self.presence.send_replace(Presence::Newer);
    }

    pub(crate) fn is_newer(&self) -> bool {
        *self.presence.borrow() == Presence::Newer
    }

    /// Whether it is connected and has not said hello.
    pub(crate) fn is_silent(&self) -> bool {
        *self.presence.borrow() == Presence::Silent
    }

    pub(crate) fn is_gone(&self) -> bool {
        *self.presence.borrow() == Presence::Gone
    }

    /// Waits for the hello.
    pub(crate) async fn greeted(&self, within: Duration) -> Result<KeeperIdentity, NoAnswer> {
        let mut presence = self.presence.subscribe();
        let change = presence.wait_for(|presence| *presence != Presence::Silent);
        tokio::time::timeout(within, change).await.map_err(|_| NoAnswer::Silent)?.map_err(|_| NoAnswer::Gone)?;
        self.identity.get().cloned().ok_or(NoAnswer::Gone)
    }
}

impl Incoming {
    /// Waits for the keeper's end, whatever it says until then.
    pub(crate) async fn closed(&mut self) {
        let mut buffer = [0; 8 * 1024];
        while self.reader.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    }

    /// The next message; `None` when the link is closed, or carries what is no message. One that is not known is
    /// answered and passed over.
    pub(crate) async fn next(&mut self) -> Option<FromKeeper> {
        loop {
            match self.decoder.try_next() {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(BadFrame::Unknown { error, .. }) => {
                    tracing::warn!(%error, "a keeper said something unknown");
                    if self.link.version.get().is_some_and(|version| *version >= ANSWERS_UNKNOWN) {
                        let _ = self.link.tell(&ToKeeper::Unknown { error }).await;
                    }
                    continue;
                }
                Err(error) => {
                    tracing::error!(%error, "a keeper sent nonsense");
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
