//! Taking up what an earlier daemon left: living keepers are adopted, ended processes are read, lost ones
//! are recorded as lost with their evidence. The process directories are the truth.
//!
//! The daemon listens first; [`recovery_progress`](crate::registry::recovery_progress) says what it answers meanwhile.

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
use pinfold_model::reach::{self, KnownLink, Reaching, TakeUp, Unconnected};
use pinfold_os::{crash_point, socket};
use pinfold_store::index::Change;
use pinfold_store::output::has_output;
use pinfold_store::record::{RecordError, read_record};
use pinfold_store::retention;

use crate::agents;
use crate::core::{Core, blocking};
use crate::events::compose::events_of;
use crate::keepers::death::BATCH;
use crate::keepers::pool::{self, lives};
use crate::keepers::reconnect::reach_again;
use crate::lock::lock;
use crate::registry::Entry;
use crate::registry::keeper_link::Link;
use crate::registry::records;
use crate::services;

/// How long all keepers together may take to say hello. Those that are silent stay connected, and say it later.
const HELLO: Duration = Duration::from_secs(2);

/// How long requests wait for the processes of dead keepers to be settled; the rest is settled while they are answered.
const SETTLE_FIRST: Duration = Duration::from_secs(1);

/// How soon directories that could not be read are read again.
const AGAIN: Duration = Duration::from_secs(1);

/// A directory, as recovery finds it.
enum Directory {
    /// Made ahead and never used.
    Unused,
    Known(Box<History>),
    Unreadable(String),
}

/// Takes up what an earlier daemon left, while the daemon already listens. Returns when all is known and settled.
pub(crate) async fn recover(core: &Arc<Core>) {
    let cleared = Arc::clone(core);
    let _ = blocking(move || services::remove_sockets(&cleared.home)).await;
    core.read_chains();
    let links = connect(core).await;
    crash_point!("daemon.keepers_connected");
    greet(&links).await;
    crash_point!("daemon.keepers_greeted");
    let dead = loop {
        match read_all(core, &links).await {
            Ok(dead) => break dead,
            Err(error) => {
                tracing::error!(%error, "cannot take up what an earlier daemon left: trying again");
                core.recovery.note_trouble(error);
                tokio::time::sleep(AGAIN).await;
            }
        }
    };
    core.take_up_chains().await;
    agents::recover(core).await;
    tracing::info!(live = core.registry.live_count(), dead = dead.len(), "all processes are known");
    core.recovery.note_dead(dead.len());
    let mut settling = std::pin::pin!(settle(core, dead));
    // A few are settled before anything is answered: nobody sees them as alive.
    let settled = tokio::time::timeout(SETTLE_FIRST, settling.as_mut()).await;
    core.recovery.note_read();
    if settled.is_err() {
        settling.await;
    }
    crash_point!("daemon.directories_taken_up");
    let core = Arc::clone(core);
    let _ = blocking(move || {
        pool::remove_dead_cgroups(&core);
        retention::remove_leftovers(&core.home)
    })
    .await;
}

async fn settle(core: &Arc<Core>, dead: Vec<Arc<Entry>>) {
    for batch in dead.chunks(BATCH) {
        core.keepers_went(batch.to_vec()).await;
        core.recovery.note_settled(batch.len());
    }
}

/// Reads every directory that the index does not know to be over. Gives the processes whose keepers died.
async fn read_all(core: &Arc<Core>, links: &HashMap<u32, Arc<Link>>) -> Result<Vec<Arc<Entry>>, String> {
    let text = |refusal: crate::refusal::Refusal| refusal.0.message;
    let ended = core.query(|queries| queries.ended_ids()).await.map_err(text)?;
    let scanned = Arc::clone(core);
    let scanned = blocking(move || scan(&scanned, ended)).await.map_err(text)?;
    let (directories, gone) = scanned.map_err(|error| format!("cannot read the process directories: {error}"))?;
    let mut dead = Vec::new();
    for (id, directory) in directories {
        dead.extend(take_up(core, links, id, directory).await);
    }
    if !gone.is_empty() {
        tracing::warn!(count = gone.len(), "ended processes without a directory are forgotten");
        core.ledger.apply(gone.into_iter().map(Change::Forget).collect()).await;
    }
    Ok(dead)
}

/// Connects to every keeper's socket; sockets of dead keepers are removed.
async fn connect(core: &Arc<Core>) -> HashMap<u32, Arc<Link>> {
    let mut links = HashMap::new();
    let Ok(entries) = std::fs::read_dir(core.home.keepers()) else { return links };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let path = entry.path();
        // Not on the event loop: a keeper that is stopped, with many connections waiting, takes no more.
        let connected = match blocking(move || socket::connect(&path)).await {
            Ok(connected) => connected,
            Err(refusal) => Err(io::Error::other(refusal.0.message)),
        };
        match connected {
            Ok(stream) => {
                let Some(link) = serve_new(core, stream.into()) else { continue };
                tokio::spawn(greet_at_last(Arc::clone(core), pid, entry.path(), Some(Arc::clone(&link))));
                links.insert(pid, link);
            }
            Err(error) => match reach::unconnected(error.kind()) {
                Unconnected::Remove => drop(std::fs::remove_file(entry.path())),
                Unconnected::Forget => {}
                Unconnected::Again => {
                    tracing::warn!(pid, %error, "a keeper cannot be reached yet");
                    tokio::spawn(greet_at_last(Arc::clone(core), pid, entry.path(), None));
                }
            },
        }
    }
    links
}

/// Stays with a keeper until it has said hello, whatever becomes of the link. Its process may be known to no record yet, if
/// the daemon before died while it was starting: then nobody else tries to reach it.
async fn greet_at_last(core: Arc<Core>, pid: u32, path: PathBuf, mut link: Option<Arc<Link>>) {
    let (mut reaching, begun) = (Reaching::default(), tokio::time::Instant::now());
    let mut is_greeted = false;
    while !core.is_shutting_down() {
        if let Some(link) = link.take() {
            match link.greeted(Duration::MAX).await {
                Ok(_) if link.entry().is_none() => {
                    let _ = link.tell(&ToKeeper::Retire).await;
                    is_greeted = true;
                }
                Ok(_) => return,
                Err(_) if link.is_newer() => return,
                Err(_) => {}
            }
        }
        // It keeps nothing now. What it was told to start and could not, it wrote down after the directories were read.
        if is_greeted && (begun.elapsed() < HELLO || take_up_left(&core, pid).await) {
            return;
        }
        tokio::time::sleep(reaching.pause()).await;
        let is_its = |link: Arc<Link>| link.identity.get().is_some_and(|keeper| keeper.pid == pid);
        if core.registry.live().iter().any(|entry| entry.link().is_some_and(is_its)) {
            return;
        }
        if is_greeted {
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
        let left = match reach::unconnected(failure) {
            Unconnected::Remove => {
                let _ = std::fs::remove_file(&path);
                true
            }
            Unconnected::Forget => true,
            Unconnected::Again => false,
        };
        if left && take_up_left(&core, pid).await {
            return;
        }
    }
}

/// The link on a new connection, with its task.
fn serve_new(core: &Arc<Core>, stream: OwnedFd) -> Option<Arc<Link>> {
    let (link, incoming) = Link::new(stream).ok()?;
    tokio::spawn(pool::serve(Arc::clone(core), Arc::clone(&link), incoming));
    Some(link)
}

/// Takes up what a keeper left that ended before it said hello; whether that could be read.
async fn take_up_left(core: &Arc<Core>, pid: u32) -> bool {
    let Ok(ended) = core.query(|queries| queries.ended_ids()).await else { return false };
    let scanned = Arc::clone(core);
    let Ok(Ok((directories, _))) = blocking(move || scan(&scanned, ended)).await else { return false };
    for (_, directory) in directories {
        if let Directory::Known(history) = directory
            && history.intent.keeper.pid == pid
            && let Some(dead) = take_up_known(core, &HashMap::new(), *history).await
        {
            core.keeper_went(dead).await;
        }
    }
    true
}

/// Waits for the hellos, each of which adopts what its keeper keeps; `greet_at_last` sends idle keepers home.
async fn greet(links: &HashMap<u32, Arc<Link>>) {
    let deadline = tokio::time::Instant::now() + HELLO;
    for link in links.values() {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        let _ = link.greeted(left).await;
    }
}

/// Directories to take up, and processes that have none any more.
type Scanned = (Vec<(ProcessId, Directory)>, HashSet<ProcessId>);

/// Reads every directory that the index does not know to be over; and which of those that are over have none: the
/// daemon before died between removing it and forgetting it.
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
                Some(history) => Directory::Known(Box::new(history)),
                None => Directory::Unused,
            },
            Err(error @ (RecordError::Empty { .. } | RecordError::Missing { .. })) => match has_output(&path) {
                true => Directory::Unreadable(format!("{error}, and there is output: it ran")),
                false => Directory::Unused,
            },
            Err(error) => Directory::Unreadable(error.to_string()),
        };
        found.push((id, directory));
    }
    Ok((found, ended))
}

/// Takes up one directory; gives its process if its keeper died.
async fn take_up(
    core: &Arc<Core>,
    links: &HashMap<u32, Arc<Link>>,
    id: ProcessId,
    directory: Directory,
) -> Option<Arc<Entry>> {
    match directory {
        Directory::Unused => {
            // A keeper that is alive may have made it a moment ago for a start that is under way.
            if links.values().all(|link| link.is_gone() || link.entry().is_some()) {
                let _ = retention::remove_process(&core.home, &id);
            }
            None
        }
        Directory::Unreadable(reason) => {
            tracing::warn!(process = %id, %reason, "a directory cannot be read");
            lock(&core.unreadable).push(Unreadable { id: id.to_string(), reason });
            None
        }
        Directory::Known(history) => take_up_known(core, links, *history).await,
    }
}

async fn take_up_known(core: &Arc<Core>, links: &HashMap<u32, Arc<Link>>, history: History) -> Option<Arc<Entry>> {
    if history.status().is_over() {
        // What its owner wanted to know of its last output was found by nobody.
        let entry = Entry::new(history.clone());
        core.attend(&entry);
        // Listed from memory until the index has it.
        core.registry.insert(&entry);
        core.registry.retire(&entry);
        let bytes = records::disk_bytes(&history, &core.home);
        let mut changes = events_of(&history);
        changes.push(Change::Put(Box::new(history), bytes));
        core.ledger.apply(changes).await;
        return None;
    }
    if core.registry.get(&history.intent.id).is_some() {
        // Its keeper said hello after the directories were read.
        return None;
    }
    let entry = Entry::new(history.clone());
    core.registry.insert(&entry);
    core.leases.keep(&history);
    core.owners.learn(&history);
    let keeper = &history.intent.keeper;
    let note = |what: &str| {
        let note = format!("its keeper (pid {}) {what}", keeper.pid);
        entry.state.send_modify(|state| state.note = Some(note));
    };
    let link = links.get(&keeper.pid);
    let known = match link {
        None => KnownLink::Absent,
        Some(link) if link.is_silent() => KnownLink::Silent,
        Some(link) if link.is_newer() => KnownLink::Newer,
        Some(_) => KnownLink::Other,
    };
    match (reach::take_up(known, lives(keeper), || core.keeps_another(&entry, keeper)), link) {
        // Connected, but it has not said what it keeps: stopped, perhaps. It stays bound to its process.
        (TakeUp::Bind(what), Some(link)) => {
            link.keep(&entry);
            note(what);
            // Had its task ended before, nobody would notice that it is closed.
            if link.is_gone() && link.release().is_some() {
                tokio::spawn(reach_again(Arc::clone(core), Arc::clone(&entry), keeper.clone()));
            }
        }
        (TakeUp::Reach | TakeUp::Bind(_), _) => {
            note("cannot be reached");
            tokio::spawn(reach_again(Arc::clone(core), Arc::clone(&entry), keeper.clone()));
        }
        (TakeUp::Settle { disowned }, _) => {
            if disowned {
                entry.set_disowned();
            }
            note("died: what it left is being stopped");
            entry.set_settling(true);
            core.ledger.apply(events_of(&history)).await;
            return Some(entry);
        }
    }
    core.ledger.apply(events_of(&history)).await;
    core.attend(&entry);
    core.look_for_readiness(&entry, None);
    None
}
