//! Guards the home: if it is moved, removed or replaced while processes run, they stay reachable or are stopped, and
//! the log says so. No process continues to run without a daemon that can reach it.
//!
//! - Nothing runs: the daemon exits.
//! - It was moved, and its place is empty: a symbolic link there points to it.
//! - Only its lock or its socket is gone: they are created again.
//! - It is gone: directory, lock, socket, ids, tokens and index are recreated. Live processes are known from memory and
//!   their keepers' links; their records and output are gone, which their `note` and `/healthz` say. No later daemon
//!   could find them, so they are stopped when this daemon shuts down.
//! - Another daemon has taken the place: this one stops its processes, says so in the log that is there now, and exits.

use std::io::{self, Write};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use pinfold_os::file_watch;
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
use crate::log;
use crate::mutex::lock;
use crate::registry::Entry;
use crate::server::socket;

/// How often the home is checked without a notification: its parent directory may have been moved.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// How soon to retry after the home could not be recreated.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The delay between a notification and the check: a directory is removed file by file.
const CHECK_DELAY: Duration = Duration::from_millis(100);

/// The home as this daemon holds it.
pub(crate) struct Guard {
    pub(crate) lock: HomeLock,
    /// Other daemons that want this home connect here.
    pub(crate) claim: Option<StdUnixListener>,
    /// The socket that clients connect to.
    pub(crate) socket: Option<FileId>,
}

/// The state of the home, after it was restored where possible.
#[derive(Debug, PartialEq, Eq)]
enum HomeState {
    InPlace,
    /// Only the socket was gone.
    WithoutSocket,
    /// Only the lock file was gone; the home is locked again.
    WithoutLock,
    MovedTo(PathBuf),
    Gone,
    Taken,
}

/// Why the task checks the home.
enum WakeReason {
    Watch,
    Daemon(UnixStream),
    Timer,
    Shutdown,
}

/// Guards the home until shutdown; returns the guard.
pub(crate) async fn run(core: Arc<Core>, router: Router, mut guard: Guard) -> Guard {
    core.recovery.read_or_shutdown(&core.shutdown).await;
    let claim = guard.claim.take().and_then(|claim| {
        claim.set_nonblocking(true).ok()?;
        UnixListener::from_std(claim).ok()
    });
    let mut shutdown = core.shutdown.subscribe();
    let mut watch = watch(&core.home);
    loop {
        let woken = tokio::select! {
            () = reported(watch.as_ref()) => WakeReason::Watch,
            stream = accepted(claim.as_ref()) => WakeReason::Daemon(stream),
            () = tokio::time::sleep(if watch.is_some() { CHECK_INTERVAL } else { RETRY_INTERVAL }) => WakeReason::Timer,
            _ = shutdown.wait_for(|shutdown| *shutdown) => WakeReason::Shutdown,
        };
        let asking = match woken {
            WakeReason::Shutdown => return guard,
            WakeReason::Watch => {
                tokio::time::sleep(CHECK_DELAY).await;
                None
            }
            WakeReason::Daemon(stream) => Some(stream),
            WakeReason::Timer => None,
        };
        let found = core.check_home(&router, &mut guard).await;
        if found != HomeState::InPlace || watch.is_none() {
            watch = self::watch(&core.home);
            // Changes before the watch was set up again are not reported.
            core.check_home(&router, &mut guard).await;
        }
        if let Some(mut stream) = asking
            && !core.is_shutting_down()
        {
            let _ = stream.write_all(&[IN_PLACE]).await;
        }
    }
}

fn watch(home: &Home) -> Option<Receiver> {
    let watch = file_watch::watch(home.root(), &[&home.lock_path(), &home.socket()]).ok()?;
    // An inotify descriptor, which is read like a pipe.
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
            Err(_) => tokio::time::sleep(CHECK_DELAY).await,
        }
    }
}

impl Core {
    async fn check_home(self: &Arc<Self>, router: &Router, guard: &mut Guard) -> HomeState {
        if guard.lock.is_in_place(&self.home)
            && guard.socket.is_some()
            && FileId::at(&self.home.socket()) == guard.socket
        {
            return HomeState::InPlace;
        }
        if !self.has_work() {
            tracing::warn!("the home was moved or removed, and nothing runs: shutting down");
            self.shutdown.send_replace(true);
            return HomeState::Gone;
        }
        match self.restore_home(router, guard).await {
            Ok(found) => found,
            Err(error) => {
                let live = self.live_processes();
                let problem = format!(
                    "{} was moved or removed while {live} ran, and cannot be restored: {error}",
                    self.home.root().display()
                );
                tracing::error!("{problem}");
                *lock(&self.home_problem) = Some(problem);
                HomeState::Gone
            }
        }
    }

    /// The number of live processes, as text.
    fn live_processes(&self) -> String {
        match self.registry.live_count() {
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        }
    }

    /// Whether anything must stay reachable.
    fn has_work(&self) -> bool {
        self.registry.live_count() > 0 || self.chains.has_waiting() || self.agents.any_living()
    }

    async fn restore_home(self: &Arc<Self>, router: &Router, guard: &mut Guard) -> io::Result<HomeState> {
        let mut found = find_home(&self.home, &mut guard.lock)?;
        let root = self.home.root().display().to_string();
        let live = self.live_processes();
        let report = match &found {
            HomeState::InPlace | HomeState::WithoutSocket | HomeState::WithoutLock => None,
            // Every live process still has its record: only the lock file was removed.
            HomeState::Gone if self.registry.live().iter().all(|entry| self.has_record(entry)) => {
                tracing::warn!("the lock file was removed: locked the home again");
                found = HomeState::WithoutLock;
                None
            }
            HomeState::MovedTo(place) => Some(format!(
                "{root} was moved to {} while {live} ran: a symbolic link points there; stop them before you move it",
                place.display()
            )),
            HomeState::Gone => {
                self.recreate_home().await?;
                Some(format!(
                    "{root} was removed while {live} ran and was recreated: their records and output are gone, and they are stopped when this daemon shuts down"
                ))
            }
            HomeState::Taken => {
                self.yield_home(&root).await;
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
        if let Some(report) = report {
            log::reopen();
            tracing::error!("{report}");
            *lock(&self.home_problem) = Some(report);
        }
        Ok(found)
    }

    /// Fills a recreated home from memory.
    async fn recreate_home(self: &Arc<Self>) -> io::Result<()> {
        lock(&self.ids).rewrite()?;
        self.tokens.rewrite()?;
        let (home, durability) = (self.home.clone(), self.durability());
        let opened = self.index_writer.run(move |index| {
            // The ids file exists, so event numbers continue from the clock and never go back.
            let (Opened::Ready(new) | Opened::Rebuild { index: new, .. }) = Index::open(&home, durability, now())?;
            *index = new;
            Index::reader(&home.index())
        });
        let queries = opened.await.map_err(|error| io::Error::other(error.0.message))?.map_err(io::Error::other)?;
        *lock(&self.queries) = queries;
        pool::retire_idle(self).await;
        // The events of live processes are not written again: clients have seen them under other numbers.
        for entry in self.registry.live().iter().filter(|entry| !self.has_record(entry)) {
            let note = "its directory was removed while it ran: its record and earlier output are lost";
            entry.set_directory_lost();
            entry.state.send_modify(|state| state.note = Some(note.to_owned()));
        }
        Ok(())
    }

    /// Whether the record of a process exists, so that a later daemon finds the process.
    fn has_record(&self, entry: &Entry) -> bool {
        record::exists(&self.home.process(&entry.id))
    }

    /// Another daemon has taken the home, so the processes of this one can no longer be reached: stops them and shuts
    /// down.
    async fn yield_home(self: &Arc<Self>, root: &str) {
        let live = self.live_processes();
        let report = format!(
            "another daemon has taken {root}: pid {} stops what it started there before ({live}) and exits",
            std::process::id()
        );
        tracing::error!("{report}");
        let log = std::fs::OpenOptions::new().append(true).open(self.home.log());
        let _ = log.and_then(|mut log| writeln!(log, "pinfold: {report}"));
        self.stop_all("the loss of the home").await;
        self.shutdown.send_replace(true);
    }
}

/// Determines the state of the home, and takes its place again if that is free. Blocks briefly.
fn find_home(home: &Home, held: &mut HomeLock) -> io::Result<HomeState> {
    if held.is_in_place(home) {
        return Ok(HomeState::WithoutSocket);
    }
    if let Some(place) = held.found_in()
        && is_free(home)
    {
        if let Some(above) = home.root().parent() {
            std::fs::create_dir_all(above)?;
        }
        std::os::unix::fs::symlink(&place, home.root())?;
        return Ok(HomeState::MovedTo(place));
    }
    if held.found_in().is_none() && held.has_a_name() {
        // Neither in place nor visible elsewhere: its file system was unmounted.
        return Err(io::Error::other("it was not removed, but is not visible: mount its file system again"));
    }
    let home = Home::open(home.root()).map_err(io::Error::other)?;
    match home.try_lock() {
        Ok(lock) => *held = lock,
        Err(LockError::Held { .. }) => return Ok(HomeState::Taken),
        Err(error) => return Err(io::Error::other(error)),
    }
    Ok(HomeState::Gone)
}

/// Whether nothing is in the home's place. A client that found no socket may have created a directory with an empty log
/// for the daemon that it is about to start: removes that.
fn is_free(home: &Home) -> bool {
    let root = home.root();
    if std::fs::read_dir(root).is_ok_and(|entries| entries.flatten().all(|entry| entry.path() == home.log()))
        && std::fs::metadata(home.log()).is_ok_and(|log| log.len() == 0)
    {
        let _ = std::fs::remove_file(home.log()).and_then(|()| std::fs::remove_dir(root));
    }
    std::fs::symlink_metadata(root).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
