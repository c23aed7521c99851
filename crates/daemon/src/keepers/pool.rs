//! The pool of keepers: the nursery that forks them, the idle ones, and the handling of their messages.
//!
//! A keeper whose process is over takes the next one (K4), so a busy daemon forks none. The one that was busy last is
//! taken first, since its memory is still in the caches; it created the directory of its next process as soon as the
//! last was over. When the last idle one is taken, another is forked a little later: at once it would compete with the
//! command that is starting.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pinfold_model::environment::EnvironmentFilter;
use pinfold_model::facts::Fact;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{FromKeeper, KeeperIdentity, NurserySetup, ToKeeper, VERSION, encode};
use pinfold_model::reach::{self, Backoff, PidState};
use pinfold_os::cgroup::{Base, Cgroup};
use pinfold_os::{crash_point, daemonize, proc, socket};

use super::taken::TakenKeeper;
use crate::core::Core;
use crate::keepers::limit_cgroups::is_creator_alive;
use crate::mutex::lock;
use crate::output::screen;
use crate::registry::keeper_link::{ANSWER_TIMEOUT, Incoming, Link, NoAnswer};
use crate::request_error::RequestError;

/// More idle keepers than this are retired.
const MAX_IDLE: usize = 16;
/// Idle keepers that stay when nothing happens.
const MIN_IDLE: usize = 2;
/// Attempts to fork a keeper before a start fails.
const MAX_FORK_ATTEMPTS: u32 = 5;
/// The delay after the last idle keeper was taken before another is forked.
const REFILL_DELAY: Duration = Duration::from_millis(200);
/// How long an idle keeper may take to exit after its link closed. Later its cgroup is removed when the daemon stops or
/// the next one starts.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// At most this many cgroups of earlier daemons are remembered; further ones are left to their keepers.
const MAX_OTHER_BASES: usize = 16;
/// How long the daemon waits at its end for keepers to remove the cgroups of their trees.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Keepers {
    program: PathBuf,
    setup: NurserySetup,
    /// Which variables pass from the daemon's environment to the nursery, and so to keepers and processes.
    environment: EnvironmentFilter,
    nursery: Mutex<Option<Nursery>>,
    /// Ordered by when they became idle; the last one is taken first.
    idle: Mutex<Vec<Arc<Link>>>,
    /// The cgroups in which adopted keepers have theirs, where that is not this daemon's own: an earlier daemon was
    /// started in another cgroup. Grows up to [`MAX_OTHER_BASES`].
    other_bases: Mutex<BTreeSet<PathBuf>>,
}

/// The running nursery and our end of its socket.
#[derive(Debug)]
struct Nursery {
    child: Child,
    socket: StdUnixStream,
}

impl Drop for Nursery {
    fn drop(&mut self) {
        // Killed, because a stopped nursery would never exit by itself; it holds no state.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Keepers {
    pub(crate) fn new(program: PathBuf, setup: NurserySetup, environment: EnvironmentFilter) -> Self {
        Self {
            program,
            setup,
            environment,
            nursery: Mutex::new(None),
            idle: Mutex::default(),
            other_bases: Mutex::default(),
        }
    }

    pub(crate) fn idle_count(&self) -> usize {
        lock(&self.idle).len()
    }

    /// Has the nursery fork a keeper; starts the nursery if there is none.
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
                // The nursery was killed: the next round starts another.
                _ => *nursery = None,
            }
        }
        Err(std::io::Error::other("the nursery exits as soon as it is started"))
    }

    fn start_nursery(&self) -> std::io::Result<Nursery> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let is_unit = |name: &OsString| daemonize::UNIT_ENV.iter().any(|unit| name == unit);
        let passes =
            |(name, _): &(OsString, OsString)| !is_unit(name) && self.environment.passes(&name.to_string_lossy());
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

/// Takes an idle keeper, or forks one.
pub(crate) async fn take(core: &Arc<Core>) -> Result<TakenKeeper, RequestError> {
    loop {
        let idle = lock(&core.keepers.idle).pop();
        match idle {
            Some(link) if link.is_closed() => {}
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

async fn fork_one(core: &Arc<Core>) -> Result<TakenKeeper, RequestError> {
    let mut tries = 1;
    loop {
        let failed = |error: std::io::Error| RequestError::shortage("cannot fork a keeper", &error);
        let socket = core.keepers.fork().map_err(failed)?;
        let (link, incoming) = Link::new(socket).map_err(failed)?;
        tokio::spawn(serve(Arc::clone(core), Arc::clone(&link), incoming));
        let keeper = TakenKeeper::new(core, Arc::clone(&link));
        match link.wait_hello(ANSWER_TIMEOUT).await {
            Ok(_) => return Ok(keeper),
            Err(error) => match link.fork_error() {
                Some(reason) => return Err(failed(reason)),
                // The nursery was killed before it could fork: try with a new one.
                None if error == NoAnswer::Closed && tries < MAX_FORK_ATTEMPTS => tries += 1,
                None => return Err(RequestError::internal(format!("a new keeper failed: {error}"))),
            },
        }
    }
}

fn refill_later(core: &Arc<Core>) {
    let core = Arc::clone(core);
    tokio::spawn(async move {
        tokio::time::sleep(REFILL_DELAY).await;
        refill(&core).await;
    });
}

/// Forks idle keepers up to [`MIN_IDLE`].
pub(crate) async fn refill(core: &Arc<Core>) {
    while core.keepers.idle_count() < MIN_IDLE && !core.is_shutting_down() {
        match fork_one(core).await {
            Ok(keeper) => keeper.give_back().await,
            Err(error) => return tracing::warn!(error = %error.0, "cannot fork an idle keeper"),
        }
    }
}

/// Retires idle keepers beyond [`MIN_IDLE`].
pub(crate) async fn shrink(core: &Arc<Core>) {
    loop {
        let surplus = {
            let mut idle = lock(&core.keepers.idle);
            idle.retain(|link| !link.is_closed());
            if idle.len() <= MIN_IDLE { None } else { Some(idle.remove(0)) }
        };
        match surplus {
            Some(link) => drop(link.send(&ToKeeper::Retire).await),
            None => return,
        }
    }
}

/// Retires all idle keepers: their prepared directories and sockets are gone.
pub(crate) async fn retire_idle(core: &Arc<Core>) {
    let idle = std::mem::take(&mut *lock(&core.keepers.idle));
    for link in idle {
        let _ = link.send(&ToKeeper::Retire).await;
    }
    refill_later(core);
}

/// Makes a keeper idle. It has prepared, or now prepares, the directory of its next process.
pub(super) async fn give_back(core: &Arc<Core>, link: Arc<Link>) {
    if core.keepers.idle_count() >= MAX_IDLE || core.is_shutting_down() {
        let _ = link.send(&ToKeeper::Retire).await;
        return;
    }
    if !link.is_prepared()
        && let Some(id) = assign_next_id(core, &link)
    {
        let _ = link.send(&ToKeeper::Prepare { id }).await;
    }
    lock(&core.keepers.idle).push(link);
}

/// Assigns the id of a keeper's next process. If no id can be assigned, the next start reports why.
pub(crate) fn assign_next_id(core: &Core, link: &Link) -> Option<ProcessId> {
    let id = lock(&core.ids).next().ok()?;
    link.set_prepared(id.clone());
    Some(id)
}

/// Removes the cgroups of killed keepers and nurseries; live ones remove their own.
pub(crate) fn remove_dead_cgroups(core: &Core) {
    core.remove_dead_limits();
    let others: Vec<Base> = lock(&core.keepers.other_bases).iter().map(|path| Base::existing(path)).collect();
    for base in core.cgroups.iter().chain(&others) {
        base.remove_unused(is_creator_alive);
        base.remove_if_empty();
    }
}

/// Remembers where an adopted keeper has its cgroup, so that the cgroups of dead keepers beside it are removed too.
fn note_base(core: &Core, keeper: &KeeperIdentity) {
    let Some(base) = keeper.cgroup.as_deref().and_then(Path::parent) else { return };
    let is_of_this_home = base.file_name().is_some_and(|name| name == &*core.cgroup_name);
    if is_of_this_home && core.cgroups.as_ref().map_or(true, |own| own.path() != base) {
        let mut others = lock(&core.keepers.other_bases);
        if others.len() < MAX_OTHER_BASES {
            others.insert(base.to_owned());
        }
    }
}

/// The same before the daemon exits. A keeper removes its limiting cgroups shortly after it reported an end, and only
/// then can their parents be removed: waits for that, at most [`CLEANUP_TIMEOUT`].
pub(crate) async fn remove_last_cgroups(core: &Core) {
    let deadline = Instant::now() + CLEANUP_TIMEOUT;
    while core.has_ended_limits() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    remove_dead_cgroups(core);
}

/// The task of a link: handles every message in order until the link closes. A closed link does not mean that the
/// keeper is dead: the kernel is asked.
pub(crate) async fn serve(core: Arc<Core>, link: Arc<Link>, mut incoming: Incoming) {
    let mut is_older = false;
    while let Some(message) = incoming.next().await {
        match message {
            FromKeeper::Hello { version, keeper, kept } => {
                if version > VERSION {
                    tracing::error!(version, "a keeper of a newer pinfold is not used: upgrade this one");
                    link.set_newer();
                    incoming.closed().await;
                    break;
                }
                // The link was bound to a process before the hello, and the hello names another.
                let mistaken = link.entry().filter(|entry| {
                    let bound = Arc::clone(&entry.state.borrow().history.intent);
                    let keeps = kept.as_ref().map(|kept| &kept.history.intent.id);
                    reach::is_wrong_keeper((&entry.id, &bound.keeper), &keeper, keeps)
                });
                let mistaken = mistaken.and_then(|_| link.unbind());
                if let Some(kept) = kept {
                    core.adopt(&link, *kept).await;
                }
                is_older = version < VERSION;
                note_base(&core, &keeper);
                link.set_greeted(keeper, version);
                if let Some(entry) = mistaken {
                    core.link_closed(entry).await;
                }
            }
            FromKeeper::Unborn { errno } => link.set_fork_error(errno),
            FromKeeper::Fact { id, fact } => match link.entry().filter(|entry| entry.id == id) {
                Some(entry) => {
                    let ends = matches!(fact, Fact::Finished(_));
                    core.note_fact(&entry, fact).await;
                    screen::follow(&core, &entry);
                    if ends {
                        // Lets tasks that wait for this end answer before the keeper is handled.
                        tokio::task::yield_now().await;
                    }
                }
                None => tracing::warn!(%id, "ignored a fact about a process of another keeper"),
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
                tracing::warn!(%error, "a keeper did not understand a message");
            }
            FromKeeper::Idle => {
                crash_point!("daemon.keeper_idle");
                let directory_was_lost = link.unbind().is_some_and(|entry| entry.is_directory_lost());
                match is_older || directory_was_lost {
                    // An older keeper may not support what the next process needs; one whose socket was removed could
                    // not be found by a later daemon.
                    true => drop(link.send(&ToKeeper::Retire).await),
                    false => give_back(&core, Arc::clone(&link)).await,
                }
            }
        }
    }
    link.set_closed();
    if let Some(entry) = link.unbind() {
        return core.link_closed(entry).await;
    }
    // No record names the cgroup of a keeper that was killed while idle: remove it here. One that ends by itself removes
    // its own. The kernel closes the link of an exiting process before the process counts as dead.
    let Some(keeper) = link.identity.get() else { return };
    let Some(cgroup) = keeper.cgroup.as_deref() else { return };
    let (mut backoff, deadline) = (Backoff::default(), Instant::now() + EXIT_TIMEOUT);
    while is_alive(keeper) && Instant::now() < deadline {
        tokio::time::sleep(backoff.next_delay()).await;
    }
    if !is_alive(keeper) {
        let _ = Cgroup::open(cgroup).and_then(|cgroup| cgroup.remove());
    }
}

/// Whether this keeper is alive: its pid may have been reused.
pub(crate) fn is_alive(keeper: &KeeperIdentity) -> bool {
    let state = match proc::stat(keeper.pid) {
        Ok(stat) => PidState::Process { start_time: stat.start_time, alive: stat.is_living() },
        Err(error) if proc::is_gone(&error) => PidState::Gone,
        Err(_) => PidState::Unknown,
    };
    reach::is_alive(keeper, state)
}
