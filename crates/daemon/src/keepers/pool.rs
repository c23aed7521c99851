//! Keepers: the nursery that forks them, the idle ones that wait for work, and what their messages mean.
//!
//! A keeper whose process is over takes the next one (K4), so a busy daemon forks nobody. The one that was busy last goes
//! first, since the caches still know it; it made the next process's directory as soon as its last was over. When the
//! last idle one is taken, another is forked a moment later, not at once: it would compete with the command that is
//! starting.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pinfold_model::environment::EnvironmentFilter;
use pinfold_model::facts::Fact;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{FromKeeper, KeeperIdentity, NurserySetup, ToKeeper, VERSION, encode};
use pinfold_model::reach::{self, Sighting};
use pinfold_os::cgroup::Cgroup;
use pinfold_os::{crash_point, proc, socket};

use super::taken::TakenKeeper;
use crate::core::Core;
use crate::keepers::limit_cgroups::maker;
use crate::lock::lock;
use crate::output::screen;
use crate::refusal::Refusal;
use crate::registry::keeper_link::{ANSWER, Incoming, Link, NoAnswer};

/// Idle keepers beyond this are sent home.
const IDLE_MOST: usize = 16;
/// Idle keepers that stay when nothing happens.
const IDLE_LEAST: usize = 2;
/// How often a keeper is asked for before a start is given up.
const FORK_TRIES: u32 = 5;
/// How long after the last idle keeper was taken another is forked.
const REFILL_AFTER: Duration = Duration::from_millis(200);
/// How long the daemon's end waits for keepers to remove what limited their trees.
const LAST_LEAVES: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Keepers {
    program: PathBuf,
    setup: NurserySetup,
    /// What passes from the daemon's environment to the nursery, to keepers, to processes.
    environment: EnvironmentFilter,
    nursery: Mutex<Option<Nursery>>,
    /// The last one was busy last.
    idle: Mutex<Vec<Arc<Link>>>,
}

/// The running nursery and our end of its socket.
#[derive(Debug)]
struct Nursery {
    child: Child,
    socket: StdUnixStream,
}

impl Drop for Nursery {
    fn drop(&mut self) {
        // It has nothing to lose, and one that is stopped would never end by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Keepers {
    pub(crate) fn new(program: PathBuf, setup: NurserySetup, environment: EnvironmentFilter) -> Self {
        Self { program, setup, environment, nursery: Mutex::new(None), idle: Mutex::default() }
    }

    pub(crate) fn idle_count(&self) -> usize {
        lock(&self.idle).len()
    }

    /// Asks the nursery for a keeper; starts the nursery if there is none.
    fn fork(&self) -> std::io::Result<OwnedFd> {
        let mut nursery = lock(&self.nursery);
        for _ in 0..2 {
            if nursery.is_none() {
                *nursery = Some(self.start_nursery()?);
            }
            let (ours, theirs) = socket::pair()?;
            let sent = nursery.as_ref().map(|nursery| socket::send_fd(nursery.socket.as_fd(), theirs.as_fd()));
            match sent {
                Some(Ok(())) => return Ok(ours),
                // It was killed: the next round starts another.
                _ => *nursery = None,
            }
        }
        Err(std::io::Error::other("the nursery does not stay alive"))
    }

    fn start_nursery(&self) -> std::io::Result<Nursery> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let passes = |(name, _): &(OsString, OsString)| self.environment.passes(&name.to_string_lossy());
        let child = Command::new(&self.program)
            .arg("nursery")
            .env_clear()
            .envs(std::env::vars_os().filter(passes))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()?;
        let nursery = Nursery { child, socket: ours };
        (&nursery.socket).write_all(&encode(&self.setup))?;
        Ok(nursery)
    }
}

/// A keeper with nothing to keep: an idle one, or a new one.
pub(crate) async fn take(core: &Arc<Core>) -> Result<TakenKeeper, Refusal> {
    loop {
        let idle = lock(&core.keepers.idle).pop();
        match idle {
            Some(link) if link.is_gone() => {}
            Some(link) => {
                if core.keepers.idle_count() == 0 {
                    refill_later(core);
                }
                return Ok(TakenKeeper::new(core, link));
            }
            None => break,
        }
    }
    refill_later(core);
    fork_one(core).await
}

async fn fork_one(core: &Arc<Core>) -> Result<TakenKeeper, Refusal> {
    let mut tries = 1;
    loop {
        let failed = |error: std::io::Error| Refusal::shortage("cannot fork a keeper", &error);
        let socket = core.keepers.fork().map_err(failed)?;
        let (link, incoming) = Link::new(socket).map_err(failed)?;
        tokio::spawn(serve(Arc::clone(core), Arc::clone(&link), incoming));
        let keeper = TakenKeeper::new(core, Arc::clone(&link));
        match link.greeted(ANSWER).await {
            Ok(_) => return Ok(keeper),
            Err(error) => match link.birth_error() {
                Some(reason) => return Err(failed(reason)),
                // The nursery was killed before it could fork: the next one will.
                None if error == NoAnswer::Gone && tries < FORK_TRIES => tries += 1,
                None => return Err(Refusal::internal(format!("a new keeper failed: {error}"))),
            },
        }
    }
}

fn refill_later(core: &Arc<Core>) {
    let core = Arc::clone(core);
    tokio::spawn(async move {
        tokio::time::sleep(REFILL_AFTER).await;
        refill(&core).await;
    });
}

/// Forks idle keepers up to the least number.
pub(crate) async fn refill(core: &Arc<Core>) {
    while core.keepers.idle_count() < IDLE_LEAST && !core.is_shutting_down() {
        match fork_one(core).await {
            Ok(keeper) => keeper.give_back().await,
            Err(refusal) => return tracing::warn!(error = %refusal.0, "no keeper in reserve"),
        }
    }
}

/// Sends surplus idle keepers home.
pub(crate) async fn shrink(core: &Arc<Core>) {
    loop {
        let surplus = {
            let mut idle = lock(&core.keepers.idle);
            idle.retain(|link| !link.is_gone());
            if idle.len() <= IDLE_LEAST { None } else { Some(idle.remove(0)) }
        };
        match surplus {
            Some(link) => drop(link.tell(&ToKeeper::Retire).await),
            None => return,
        }
    }
}

/// Sends all idle keepers home: the directories that they made ahead, and their sockets, are gone.
pub(crate) async fn retire_idle(core: &Arc<Core>) {
    let idle = std::mem::take(&mut *lock(&core.keepers.idle));
    for link in idle {
        let _ = link.tell(&ToKeeper::Retire).await;
    }
    refill_later(core);
}

/// A keeper has nothing to keep: it waits for the next process, whose directory it has made or now makes.
pub(super) async fn give_back(core: &Arc<Core>, link: Arc<Link>) {
    if core.keepers.idle_count() >= IDLE_MOST || core.is_shutting_down() {
        let _ = link.tell(&ToKeeper::Retire).await;
        return;
    }
    if !link.is_prepared()
        && let Some(id) = next_for(core, &link)
    {
        let _ = link.tell(&ToKeeper::Prepare { id }).await;
    }
    lock(&core.keepers.idle).push(link);
}

/// The id of what a keeper will keep next. If none can be had, the next start will say why.
pub(crate) fn next_for(core: &Core, link: &Link) -> Option<ProcessId> {
    let id = lock(&core.ids).next().ok()?;
    link.set_prepared(id.clone());
    Some(id)
}

/// Removes the cgroups of keepers and nurseries that were killed; the living ones remove their own.
pub(crate) fn remove_dead_cgroups(core: &Core) {
    core.remove_dead_limits();
    let Ok(base) = &core.cgroups else { return };
    base.remove_unused(|leaf| maker(leaf).is_some_and(|pid| proc::stat(pid).is_ok_and(|stat| stat.is_living())));
    base.remove_if_empty();
}

/// The same, before the daemon ends. A keeper takes its limits away a moment after it told an end, and only then can the
/// places be removed that held them: it is given that moment, but no more than [`LAST_LEAVES`].
pub(crate) async fn remove_last_cgroups(core: &Core) {
    let deadline = Instant::now() + LAST_LEAVES;
    while core.has_ended_limits() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    remove_dead_cgroups(core);
}

/// A link's task: every message in order, until the link is closed. Only the kernel says whether the keeper is dead then.
pub(crate) async fn serve(core: Arc<Core>, link: Arc<Link>, mut incoming: Incoming) {
    let mut is_older = false;
    while let Some(message) = incoming.next().await {
        match message {
            FromKeeper::Hello { version, keeper, kept } => {
                if version > VERSION {
                    tracing::error!(version, "a keeper of a newer pinfold is left alone: upgrade this one");
                    link.said_newer();
                    incoming.closed().await;
                    break;
                }
                // A process that was bound to it while it was silent, and is not its.
                let mistaken = link.entry().filter(|entry| {
                    let bound = Arc::clone(&entry.state.borrow().history.intent);
                    let keeps = kept.as_ref().map(|kept| &kept.history.intent.id);
                    reach::is_mistaken((&entry.id, &bound.keeper), &keeper, keeps)
                });
                let mistaken = mistaken.and_then(|_| link.release());
                if let Some(kept) = kept {
                    core.adopt(&link, *kept).await;
                }
                is_older = version < VERSION;
                link.said_hello(keeper, version);
                if let Some(entry) = mistaken {
                    core.link_closed(entry).await;
                }
            }
            FromKeeper::Unborn { errno } => link.was_not_born(errno),
            FromKeeper::Fact { id, fact } => match link.entry().filter(|entry| entry.id == id) {
                Some(entry) => {
                    let ends = matches!(fact, Fact::Finished(_));
                    core.note_fact(&entry, fact).await;
                    screen::follow(&core, &entry);
                    if ends {
                        // Whoever waits for it is answered before its keeper is seen to.
                        tokio::task::yield_now().await;
                    }
                }
                None => tracing::warn!(%id, "a fact of a process that is not this keeper's"),
            },
            FromKeeper::Refused { id, error, step } => core.note_refused(&link, &id, error, step),
            FromKeeper::Output { id, bytes } => {
                if let Some(entry) = link.entry().filter(|entry| entry.id == id) {
                    entry.state.send_modify(|state| state.output_bytes = state.output_bytes.max(bytes));
                }
            }
            FromKeeper::Waiting { id, waiting } => {
                if let Some(entry) = link.entry().filter(|entry| entry.id == id) {
                    core.note_waiting(&entry, waiting);
                }
            }
            FromKeeper::Stopped { request, .. }
            | FromKeeper::Signaled { request, .. }
            | FromKeeper::HandedOver { request, .. }
            | FromKeeper::Input { request, .. }
            | FromKeeper::Resized { request, .. }
            | FromKeeper::DaemonStarted { request, .. }
            | FromKeeper::Unknown { request: Some(request), .. } => {
                link.answer(request, message);
            }
            FromKeeper::Unknown { request: None, error } => {
                tracing::warn!(%error, "a keeper did not know a message");
            }
            FromKeeper::Idle => {
                crash_point!("daemon.keeper_idle");
                let was_homeless = link.release().is_some_and(|entry| entry.is_homeless());
                match is_older || was_homeless {
                    // An older one may not know what the next process asks for; one whose socket was removed could not be
                    // found by a later daemon.
                    true => drop(link.tell(&ToKeeper::Retire).await),
                    false => give_back(&core, Arc::clone(&link)).await,
                }
            }
        }
    }
    link.went();
    if let Some(entry) = link.release() {
        return core.link_closed(entry).await;
    }
    // One that was killed with nothing to keep leaves a cgroup of which no record tells.
    let dead = link.identity.get().filter(|keeper| !lives(keeper));
    if let Some(cgroup) = dead.and_then(|keeper| keeper.cgroup.as_deref()) {
        let _ = Cgroup::open(cgroup).and_then(|cgroup| cgroup.remove());
    }
}

/// Whether this very keeper lives: its pid may be another's by now.
pub(crate) fn lives(keeper: &KeeperIdentity) -> bool {
    let sighting = match proc::stat(keeper.pid) {
        Ok(stat) => Sighting::Process { start_time: stat.start_time, living: stat.is_living() },
        Err(error) if proc::is_gone(&error) => Sighting::Gone,
        Err(_) => Sighting::Unknown,
    };
    reach::lives(keeper, sighting)
}
