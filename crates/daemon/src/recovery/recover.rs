//! Takes over what an earlier daemon left: adopts live keepers, reads ended processes, and records lost ones with the
//! evidence. The process directories are authoritative.
//!
//! The daemon listens first; [`recovery_progress`](crate::registry::recovery_progress) says how requests are answered
//! meanwhile.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::Unreadable;
use pinfold_model::facts::History;
use pinfold_model::id::ProcessId;
use pinfold_model::link::ToKeeper;
use pinfold_model::reach::{self, Adoption, AfterConnectError, Backoff, KnownLink};
use pinfold_os::{crash_point, socket};
use pinfold_store::index::Change;
use pinfold_store::output::has_output;
use pinfold_store::record::{RecordError, read_record};
use pinfold_store::retention;

use crate::agents::Hosting;
use crate::core::{Core, blocking};
use crate::events::compose::events_of;
use crate::keepers::death::MAX_BATCH;
use crate::keepers::pool::{self, is_alive};
use crate::keepers::reconnect::reconnect;
use crate::mutex::lock;
use crate::registry::Entry;
use crate::registry::keeper_link::Link;
use crate::registry::records;
use crate::services;

/// How long all keepers together may take to say hello. Silent ones stay connected and may say it later.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// How long requests wait for the ends of processes whose keepers died; later ones are determined in the background.
const RESOLVE_FIRST: Duration = Duration::from_secs(1);

/// How soon to retry after the directories could not be read.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The state of a process directory.
enum Directory {
    /// Prepared and never used.
    Unused,
    Readable(Box<History>),
    Unreadable(String),
}

/// Takes over what an earlier daemon left, while the daemon already listens. Returns when every process is known and
/// every end determined.
pub(crate) async fn recover(core: &Arc<Core>) {
    let cleared = Arc::clone(core);
    let _ = blocking(move || services::remove_sockets(&cleared.home)).await;
    core.read_chains();
    let links = connect(core).await;
    crash_point!("daemon.keepers_connected");
    wait_for_hellos(&links).await;
    crash_point!("daemon.keepers_greeted");
    let dead = loop {
        match read_all(core, &links).await {
            Ok(dead) => break dead,
            Err(error) => {
                tracing::error!(%error, "cannot read the process directories: trying again");
                core.recovery.note_error(error);
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    };
    core.take_up_chains().await;
    Hosting::of(core).recover().await;
    tracing::info!(live = core.registry.live_count(), dead = dead.len(), "all processes are known");
    core.recovery.note_dead(dead.len());
    let mut resolving = std::pin::pin!(resolve_dead(core, dead));
    // A small number is done before requests are answered, so that no list shows them as alive.
    let resolved = tokio::time::timeout(RESOLVE_FIRST, resolving.as_mut()).await;
    core.recovery.note_read();
    if resolved.is_err() {
        resolving.await;
    }
    crash_point!("daemon.directories_taken_up");
    let core = Arc::clone(core);
    let _ = blocking(move || {
        pool::remove_dead_cgroups(&core);
        retention::remove_leftovers(&core.home)
    })
    .await;
}

async fn resolve_dead(core: &Arc<Core>, dead: Vec<Arc<Entry>>) {
    for batch in dead.chunks(MAX_BATCH) {
        core.keepers_died(batch.to_vec()).await;
        core.recovery.note_resolved(batch.len());
    }
}

/// Reads every directory whose process is not ended in the index. Returns the processes whose keepers died.
async fn read_all(core: &Arc<Core>, links: &HashMap<u32, Arc<Link>>) -> Result<Vec<Arc<Entry>>, String> {
    let text = |error: crate::request_error::RequestError| error.0.message;
    let ended = core.query(|queries| queries.ended_ids()).await.map_err(text)?;
    let scanned = Arc::clone(core);
    let scanned = blocking(move || scan(&scanned, ended)).await.map_err(text)?;
    let (directories, gone) = scanned.map_err(|error| format!("cannot read the process directories: {error}"))?;
    let mut dead = Vec::new();
    for (id, directory) in directories {
        dead.extend(take_up(core, links, id, directory).await);
    }
    if !gone.is_empty() {
        tracing::warn!(count = gone.len(), "removed ended processes without a directory from the index");
        core.index_writer.apply(gone.into_iter().map(Change::Forget).collect()).await;
    }
    Ok(dead)
}

/// Connects to every keeper's socket; removes the sockets of dead keepers.
async fn connect(core: &Arc<Core>) -> HashMap<u32, Arc<Link>> {
    let mut links = HashMap::new();
    let Ok(entries) = std::fs::read_dir(core.home.keepers()) else { return links };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let path = entry.path();
        // Not on the event loop: connecting blocks while a stopped keeper's backlog is full.
        let connected = match blocking(move || socket::connect(&path)).await {
            Ok(connected) => connected,
            Err(error) => Err(io::Error::other(error.0.message)),
        };
        match connected {
            Ok(stream) => {
                let Some(link) = serve_new(core, stream.into()) else { continue };
                tokio::spawn(wait_for_keeper(Arc::clone(core), pid, entry.path(), Some(Arc::clone(&link))));
                links.insert(pid, link);
            }
            Err(error) => match reach::after_connect_error(error.kind()) {
                AfterConnectError::Remove => drop(std::fs::remove_file(entry.path())),
                AfterConnectError::Forget => {}
                AfterConnectError::Retry => {
                    tracing::warn!(pid, %error, "cannot connect to a keeper yet: trying again");
                    tokio::spawn(wait_for_keeper(Arc::clone(core), pid, entry.path(), None));
                }
            },
        }
    }
    links
}

/// Reconnects to a keeper until it has said hello. Its process may have no record yet, if the earlier daemon died while
/// it was starting: then no other task knows of it.
async fn wait_for_keeper(core: Arc<Core>, pid: u32, path: PathBuf, mut link: Option<Arc<Link>>) {
    let (mut backoff, started) = (Backoff::default(), tokio::time::Instant::now());
    let mut has_greeted = false;
    while !core.is_shutting_down() {
        if let Some(link) = link.take() {
            match link.wait_hello(Duration::MAX).await {
                Ok(_) if link.entry().is_none() => {
                    let _ = link.send(&ToKeeper::Retire).await;
                    has_greeted = true;
                }
                Ok(_) => return,
                Err(_) if link.is_newer() => return,
                Err(_) => {}
            }
        }
        // It is idle. A start that it refused was recorded after the directories were read.
        if has_greeted && (started.elapsed() < HELLO_TIMEOUT || take_up_from(&core, pid).await) {
            return;
        }
        tokio::time::sleep(backoff.next_delay()).await;
        let is_same_keeper = |link: Arc<Link>| link.identity.get().is_some_and(|keeper| keeper.pid == pid);
        if core.registry.live().iter().any(|entry| entry.link().is_some_and(is_same_keeper)) {
            return;
        }
        if has_greeted {
            continue;
        }
        let at = path.clone();
        let failure = match blocking(move || socket::connect(&at)).await {
            Ok(Ok(stream)) => {
                link = serve_new(&core, stream.into());
                continue;
            }
            Ok(Err(error)) => error.kind(),
            Err(_) => io::ErrorKind::Other,
        };
        let left = match reach::after_connect_error(failure) {
            AfterConnectError::Remove => {
                let _ = std::fs::remove_file(&path);
                true
            }
            AfterConnectError::Forget => true,
            AfterConnectError::Retry => false,
        };
        if left && take_up_from(&core, pid).await {
            return;
        }
    }
}

/// A link on a new connection, with its task.
fn serve_new(core: &Arc<Core>, stream: OwnedFd) -> Option<Arc<Link>> {
    let (link, incoming) = Link::new(stream).ok()?;
    tokio::spawn(pool::serve(Arc::clone(core), Arc::clone(&link), incoming));
    Some(link)
}

/// Takes over the process of a keeper that died before it said hello; returns whether the directories could be read.
async fn take_up_from(core: &Arc<Core>, pid: u32) -> bool {
    let Ok(ended) = core.query(|queries| queries.ended_ids()).await else { return false };
    let scanned = Arc::clone(core);
    let Ok(Ok((directories, _))) = blocking(move || scan(&scanned, ended)).await else { return false };
    for (_, directory) in directories {
        if let Directory::Readable(history) = directory
            && history.intent.keeper.pid == pid
            && let Some(dead) = take_up_known(core, &HashMap::new(), *history).await
        {
            core.keeper_died(dead).await;
        }
    }
    true
}

/// Waits for hellos, each of which adopts the keeper's process; `wait_for_keeper` retires idle keepers.
async fn wait_for_hellos(links: &HashMap<u32, Arc<Link>>) {
    let deadline = tokio::time::Instant::now() + HELLO_TIMEOUT;
    for link in links.values() {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        let _ = link.wait_hello(left).await;
    }
}

/// The directories to take over, and the ended processes that have none.
type Scanned = (Vec<(ProcessId, Directory)>, HashSet<ProcessId>);

/// Reads every directory whose process is not ended in the index, and finds ended processes without a directory: the
/// earlier daemon died between removing the directory and the index row.
fn scan(core: &Core, mut ended: HashSet<ProcessId>) -> io::Result<Scanned> {
    let mut found = Vec::new();
    for id in retention::list_process_dirs(&core.home)? {
        let is_over = ended.remove(&id);
        if is_over || core.registry.get(&id).is_some() {
            continue;
        }
        let path = core.home.process(&id);
        let directory = match read_record(&path) {
            Ok(record) => match record.history() {
                Some(history) => Directory::Readable(Box::new(history)),
                None => Directory::Unused,
            },
            Err(error @ (RecordError::Empty { .. } | RecordError::Missing { .. })) => match has_output(&path) {
                true => Directory::Unreadable(format!("{error}, but there is output, so it ran")),
                false => Directory::Unused,
            },
            Err(error) => Directory::Unreadable(error.to_string()),
        };
        found.push((id, directory));
    }
    Ok((found, ended))
}

/// Takes over one directory; returns its process if its keeper died.
async fn take_up(
    core: &Arc<Core>,
    links: &HashMap<u32, Arc<Link>>,
    id: ProcessId,
    directory: Directory,
) -> Option<Arc<Entry>> {
    match directory {
        Directory::Unused => {
            // Not if a live keeper has no entry: it may have just created this directory for a start.
            if links.values().all(|link| link.is_closed() || link.entry().is_some()) {
                let _ = retention::remove_process(&core.home, &id);
            }
            None
        }
        Directory::Unreadable(reason) => {
            tracing::warn!(process = %id, %reason, "cannot read a process directory");
            lock(&core.unreadable).push(Unreadable { id: id.to_string(), reason });
            None
        }
        Directory::Readable(history) => take_up_known(core, links, *history).await,
    }
}

async fn take_up_known(core: &Arc<Core>, links: &HashMap<u32, Arc<Link>>, history: History) -> Option<Arc<Entry>> {
    if history.status().is_over() {
        // Searches the last output for the owner's patterns: the earlier daemon may not have.
        let entry = Entry::new(history.clone());
        core.start_watching(&entry);
        // Listed from memory until the index has it.
        core.registry.insert(&entry);
        core.registry.retire(&entry);
        if let Some(telemetry) = &core.telemetry {
            telemetry.ended(&history);
        }
        let bytes = records::disk_bytes(&history, &core.home);
        let mut changes = events_of(&history);
        changes.push(Change::Put(Box::new(history), bytes));
        core.index_writer.apply(changes).await;
        return None;
    }
    if core.registry.get(&history.intent.id).is_some() {
        // Its keeper said hello after the directories were read.
        return None;
    }
    let entry = Entry::new(history.clone());
    core.registry.insert(&entry);
    core.leases.keep(&history);
    core.owners.note_owner(&history);
    let keeper = &history.intent.keeper;
    let note = |what: &str| {
        let note = format!("its keeper (pid {}) {what}", keeper.pid);
        entry.state.send_modify(|state| state.note = Some(note));
    };
    let link = links.get(&keeper.pid);
    let known = match link {
        None => KnownLink::Absent,
        Some(link) if link.awaits_hello() => KnownLink::Silent,
        Some(link) if link.is_newer() => KnownLink::Newer,
        Some(_) => KnownLink::Other,
    };
    match (reach::adopt(known, is_alive(keeper), || core.keeps_another(&entry, keeper)), link) {
        // Connected, but without a hello: stopped, perhaps. Bind it to its process.
        (Adoption::Bind(what), Some(link)) => {
            link.bind(&entry);
            note(what);
            // If the link's task has already ended, it would not report the close.
            if link.is_closed() && link.unbind().is_some() {
                tokio::spawn(reconnect(Arc::clone(core), Arc::clone(&entry), keeper.clone()));
            }
        }
        (Adoption::Reconnect | Adoption::Bind(_), _) => {
            note("cannot be reached");
            tokio::spawn(reconnect(Arc::clone(core), Arc::clone(&entry), keeper.clone()));
        }
        (Adoption::KeeperDied { disowned }, _) => {
            if disowned {
                entry.set_disowned();
            }
            note("died: remaining processes of its tree are being killed");
            entry.set_resolving(true);
            core.index_writer.apply(events_of(&history)).await;
            return Some(entry);
        }
    }
    core.index_writer.apply(events_of(&history)).await;
    core.start_watching(&entry);
    core.look_for_readiness(&entry, None);
    None
}
