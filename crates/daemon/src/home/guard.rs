//! Looking after the home: if it is moved, removed or replaced while processes live, they stay reachable, or are ended and
//! that is told; they never live on unseen.
//!
//! - Nothing lives: the daemon ends.
//! - It was moved, and nothing is in its place: a link there leads to it.
//! - Only its lock or its socket is gone: they are made again.
//! - It is gone: directory, lock, socket, ids, tokens and index are made anew. What lives is known from memory and its
//!   keepers' links; its record and output are gone, which its `note` and `/healthz` say. No later daemon could find it, so
//!   it is stopped when this daemon ends in order.
//! - Another daemon has the place: this one stops what it keeps, says so in the log that is there now, and ends.

use std::io::{self, Write};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use pinfold_os::vanish;
use pinfold_store::index::{Index, Opened};
use pinfold_store::layout::{FileId, Home, HomeLock, LockError};
use pinfold_store::record;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Receiver;
use tokio::net::{UnixListener, UnixStream};

use crate::clock::now;
use crate::core::Core;
use crate::home::claim::IN_PLACE;
use crate::keepers::pool;
use crate::lock::lock;
use crate::log;
use crate::registry::Entry;
use crate::server::socket;

/// How often the home is looked at when nothing was reported: the directory above it may have been moved.
const EVERY: Duration = Duration::from_secs(30);
/// How soon a home that could not be made again is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long after a report it is looked at: whoever removes a directory removes file after file.
const SETTLE: Duration = Duration::from_millis(100);

/// The home as this daemon holds it.
pub(crate) struct Guard {
    pub(crate) lock: HomeLock,
    /// Daemons that want the same home connect here.
    pub(crate) claim: Option<StdUnixListener>,
    /// The socket that clients connect to.
    pub(crate) socket: Option<FileId>,
}

/// What was found, and done about it.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    InPlace,
    /// Only the socket was gone.
    WithoutSocket,
    /// Only the lock file was gone: the home is locked again.
    WithoutLock,
    MovedTo(PathBuf),
    Gone,
    Taken,
}

/// What wakes the task.
enum Wake {
    Report,
    Daemon(UnixStream),
    Clock,
    Shutdown,
}

/// Looks after the home until shutdown; gives the guard back.
pub(crate) async fn tend(core: Arc<Core>, router: Router, mut guard: Guard) -> Guard {
    core.recovery.read_or_shutdown(&core.shutdown).await;
    let claim = guard.claim.take().and_then(|claim| {
        claim.set_nonblocking(true).ok()?;
        UnixListener::from_std(claim).ok()
    });
    let mut shutdown = core.shutdown.subscribe();
    let mut watch = watch(&core.home);
    loop {
        let woken = tokio::select! {
            () = reported(watch.as_ref()) => Wake::Report,
            stream = accepted(claim.as_ref()) => Wake::Daemon(stream),
            () = tokio::time::sleep(if watch.is_some() { EVERY } else { AGAIN }) => Wake::Clock,
            _ = shutdown.wait_for(|shutdown| *shutdown) => Wake::Shutdown,
        };
        let asking = match woken {
            Wake::Shutdown => return guard,
            Wake::Report => {
                tokio::time::sleep(SETTLE).await;
                None
            }
            Wake::Daemon(stream) => Some(stream),
            Wake::Clock => None,
        };
        let found = core.see_to_home(&router, &mut guard).await;
        if found != Found::InPlace || watch.is_none() {
            watch = self::watch(&core.home);
            // What happened before it was watched again is not reported.
            core.see_to_home(&router, &mut guard).await;
        }
        if let Some(mut stream) = asking
            && !core.is_shutting_down()
        {
            let _ = stream.write_all(&[IN_PLACE]).await;
        }
    }
}

fn watch(home: &Home) -> Option<Receiver> {
    let watch = vanish::watch(home.root(), &[&home.lock_path(), &home.socket()]).ok()?;
    // Not a pipe, but read like one.
    Receiver::from_owned_fd_unchecked(watch).ok()
}

async fn reported(watch: Option<&Receiver>) {
    let Some(watch) = watch else { return std::future::pending().await };
    let mut report = [0; 4096];
    while watch.readable().await.is_ok() {
        match watch.try_read(&mut report) {
            Ok(1..) => return,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => break,
        }
    }
    std::future::pending().await
}

async fn accepted(claim: Option<&UnixListener>) -> UnixStream {
    let Some(claim) = claim else { return std::future::pending().await };
    loop {
        match claim.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => tokio::time::sleep(SETTLE).await,
        }
    }
}

impl Core {
    async fn see_to_home(self: &Arc<Self>, router: &Router, guard: &mut Guard) -> Found {
        if guard.lock.is_in_place(&self.home)
            && guard.socket.is_some()
            && FileId::at(&self.home.socket()) == guard.socket
        {
            return Found::InPlace;
        }
        if !self.has_work() {
            tracing::warn!("the home is gone, and nothing runs: the daemon ends");
            self.shutdown.send_replace(true);
            return Found::Gone;
        }
        match self.put_in_place(router, guard).await {
            Ok(found) => found,
            Err(error) => {
                let live = self.live_processes();
                let trouble = format!(
                    "{} was moved or removed while {live} ran, and cannot be made again: {error}",
                    self.home.root().display()
                );
                tracing::error!("{trouble}");
                *lock(&self.home_trouble) = Some(trouble);
                Found::Gone
            }
        }
    }

    /// How many processes live, for a text.
    fn live_processes(&self) -> String {
        match self.registry.live_count() {
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        }
    }

    /// Whether anything is kept that must stay reachable.
    fn has_work(&self) -> bool {
        self.registry.live_count() > 0
            || self.chains.has_waiting()
            || self.agents.all().iter().any(|seat| !seat.is_over())
    }

    async fn put_in_place(self: &Arc<Self>, router: &Router, guard: &mut Guard) -> io::Result<Found> {
        let mut found = find_place(&self.home, &mut guard.lock)?;
        let root = self.home.root().display().to_string();
        let live = self.live_processes();
        let told = match &found {
            Found::InPlace | Found::WithoutSocket | Found::WithoutLock => None,
            // Everything that runs still has its record.
            Found::Gone if self.registry.live().iter().all(|entry| self.has_record(entry)) => {
                tracing::warn!("the lock file was removed: the home is locked again");
                found = Found::WithoutLock;
                None
            }
            Found::MovedTo(place) => Some(format!(
                "{root} was moved to {} while {live} ran: a link leads there; stop them before you move it",
                place.display()
            )),
            Found::Gone => {
                self.make_anew().await?;
                Some(format!(
                    "{root} was removed while {live} ran and was made anew: their records and output are gone, and they are stopped when this daemon ends"
                ))
            }
            Found::Taken => {
                self.leave_to_another(&root).await;
                return Ok(found);
            }
        };
        if FileId::at(&self.home.socket()) != guard.socket || guard.socket.is_none() {
            let path = self.home.socket();
            let what = |error| io::Error::other(format!("cannot listen on {}: {error}", path.display()));
            let listener = socket::listen(&path).map_err(what)?;
            guard.socket = FileId::at(&self.home.socket());
            tokio::spawn(socket::serve(Arc::clone(self), router.clone(), listener));
        }
        if let Some(told) = told {
            log::reopen();
            tracing::error!("{told}");
            *lock(&self.home_trouble) = Some(told);
        }
        Ok(found)
    }

    /// Fills a home that was made anew with what is known from memory.
    async fn make_anew(self: &Arc<Self>) -> io::Result<()> {
        lock(&self.ids).rewrite()?;
        self.tokens.rewrite()?;
        let (home, durability) = (self.home.clone(), self.durability());
        let opened = self.ledger.with(move |index| {
            // The ids file is there: event numbers go on from the time, and never run backwards.
            let (Opened::Ready(new) | Opened::Rebuild { index: new, .. }) = Index::open(&home, durability, now())?;
            *index = new;
            Index::reader(&home.index())
        });
        let queries = opened.await.map_err(|refusal| io::Error::other(refusal.0.message))?.map_err(io::Error::other)?;
        *lock(&self.queries) = queries;
        pool::retire_idle(self).await;
        // The events of what runs are not written again: they were told, under other numbers.
        for entry in self.registry.live().iter().filter(|entry| !self.has_record(entry)) {
            let note = "its directory was removed while it ran: its record and earlier output are gone";
            entry.set_homeless();
            entry.state.send_modify(|state| state.note = Some(note.to_owned()));
        }
        Ok(())
    }

    /// Whether the record of a process is where it was: then a later daemon finds the process.
    fn has_record(&self, entry: &Entry) -> bool {
        record::exists(&self.home.process(&entry.id))
    }

    /// Another daemon has the place: nothing here can be reached any more.
    async fn leave_to_another(self: &Arc<Self>, root: &str) {
        let live = self.live_processes();
        let told = format!(
            "another daemon has taken {root}: pid {} stops what it started there before ({live}), and ends",
            std::process::id()
        );
        tracing::error!("{told}");
        let log = std::fs::OpenOptions::new().append(true).open(self.home.log());
        let _ = log.and_then(|mut log| writeln!(log, "pinfold: {told}"));
        self.stop_all("the loss of the home").await;
        self.shutdown.send_replace(true);
    }
}

/// Finds out what became of the home, and takes its place again if that is free. Blocks for a moment.
fn find_place(home: &Home, held: &mut HomeLock) -> io::Result<Found> {
    if held.is_in_place(home) {
        return Ok(Found::WithoutSocket);
    }
    if let Some(place) = held.found_in()
        && is_free(home)
    {
        if let Some(above) = home.root().parent() {
            std::fs::create_dir_all(above)?;
        }
        std::os::unix::fs::symlink(&place, home.root())?;
        return Ok(Found::MovedTo(place));
    }
    if held.found_in().is_none() && held.has_a_name() {
        // It is neither in place nor anywhere that can be seen: its file system was unmounted.
        return Err(io::Error::other("it was not removed, but cannot be seen: mount its file system again"));
    }
    let home = Home::open(home.root()).map_err(io::Error::other)?;
    match home.try_lock() {
        Ok(lock) => *held = lock,
        Err(LockError::Held { .. }) => return Ok(Found::Taken),
        Err(error) => return Err(io::Error::other(error)),
    }
    Ok(Found::Gone)
}

/// Whether nothing is in the home's place. A client that found no socket may have made a directory with an empty log for
/// the daemon that it is about to start: that is removed.
fn is_free(home: &Home) -> bool {
    let root = home.root();
    if std::fs::read_dir(root).is_ok_and(|entries| entries.flatten().all(|entry| entry.path() == home.log()))
        && std::fs::metadata(home.log()).is_ok_and(|log| log.len() == 0)
    {
        let _ = std::fs::remove_file(home.log()).and_then(|()| std::fs::remove_dir(root));
    }
    std::fs::symlink_metadata(root).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
