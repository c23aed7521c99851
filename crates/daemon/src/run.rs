//! The daemon's main function: takes the lock, opens the index, listens, recovers while serving, and runs until
//! shutdown.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use axum::middleware::from_fn_with_state;
use pinfold_model::link::{DaemonLaunch, NurserySetup, VERSION};
use pinfold_os::{cgroup, crash_point, daemonize, proc};
use pinfold_store::Durability;
use pinfold_store::ids::IdSource;
use pinfold_store::index::{Index, IndexError, Opened};
use pinfold_store::layout::{FileId, Home, HomeError, LockError};
use pinfold_store::tokens::TokenFile;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::access::caller;
use crate::access::origin::Peers;
use crate::access::tokens::Tokens;
use crate::agents::{Agents, Hosting};
use crate::clock::now;
use crate::coder::Coder;
use crate::config::{Config, Containment, Paths};
use crate::core::Core;
use crate::dashboard::sessions::Dashboard;
use crate::events::delivery;
use crate::events::index_writer::IndexWriter;
use crate::events::webhook::Webhooks;
use crate::home::claim;
use crate::home::guard;
use crate::home::guard::Guard;
use crate::inbox::Failures;
use crate::keepers::limit_cgroups;
use crate::keepers::pool::{self, Keepers};
use crate::log;
use crate::metrics::Metrics;
use crate::output::last_line::LastLines;
use crate::owners::sessions::SessionBook;
use crate::owners::silence;
use crate::processes::retention;
use crate::processes::samples::Sampler;
use crate::processes::search::MAX_SEARCHES;
use crate::recovery::recover;
use crate::registry::recovery_progress::RecoveryProgress;
use crate::registry::{OwnerBook, Registry};
use crate::running::{self, RunningDaemon};
use crate::server::routes;
use crate::server::socket;
use crate::server::tcp;
use crate::services::ports::Leases;
use crate::services::restarts::{self, Chains};
use crate::telemetry::Telemetry;
use crate::telemetry::export::Exporter;
use crate::threads;

/// Mounted routes, which use the daemon as a client of its socket.
pub type Mount = Box<dyn FnOnce(PathBuf) -> axum::Router + Send>;

/// What a daemon needs to run.
pub struct Options {
    pub paths: Paths,
    pub config: Config,
    /// The version of the program.
    pub version: &'static str,
    /// The executable that has the `nursery` command.
    pub program: PathBuf,
    /// Called with the socket's path once the daemon listens.
    pub on_ready: fn(&Path),
    /// The routes at `/mcp`; called with the socket's path.
    pub mount: Option<Mount>,
}

/// Why the daemon could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("another daemon owns this home (pid {})", pid.map_or("unknown".to_owned(), |pid| pid.to_string()))]
    AlreadyRunning { pid: Option<u32> },
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("cannot create a thread: {0}")]
    Shortage(String),
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> RunError {
    let what = what.into();
    move |source| RunError::Io { what, source }
}

/// Runs the daemon until shutdown. Leaves the caller's session.
pub fn run(options: Options) -> Result<(), RunError> {
    // If its home was removed, the running daemon has now recreated it, and this one is not needed.
    if let Some(pid) = claim::living_daemon(&options.paths.home) {
        return Err(RunError::AlreadyRunning { pid: Some(pid) });
    }
    let home = Home::open(&options.paths.home)?;
    let lock = match home.try_lock() {
        Ok(lock) => lock,
        Err(LockError::Held { pid, .. }) => return Err(RunError::AlreadyRunning { pid }),
        Err(LockError::Io { path, source }) => return Err(io(format!("cannot lock {}", path.display()))(source)),
    };
    daemonize::share_one_heap();
    daemonize::leave_session();
    daemonize::raise_descriptor_limit();
    let log_path = options.paths.log();
    log::begin(&log_path, &options.config.log).map_err(io(format!("cannot write {}", log_path.display())))?;
    threads::start().map_err(|error| RunError::Shortage(proc::explain_shortage(&error)))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io("cannot create an event loop"))?;
    let guard = Guard { lock, claim: claim::claim(&options.paths.home), socket: None };
    let served = runtime.block_on(serve(options, home, guard));
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    // The lock is released last.
    served.map(drop)
}

async fn serve(mut options: Options, home: Home, mut guard: Guard) -> Result<Guard, RunError> {
    let socket_path = home.socket();
    let core = Arc::new(compose(&options, home)?);
    tracing::info!(home = %options.paths.home.display(), version = options.version, "starting");
    let inherited = socket::inherited(&socket_path);
    let is_inherited = inherited.is_some();
    let listener = match inherited {
        Some(listener) => listener,
        None => socket::listen(&socket_path).map_err(io(format!("cannot listen on {}", socket_path.display())))?,
    };
    let about = RunningDaemon {
        version: options.version.to_owned(),
        program: options.program.clone(),
        is_unit: daemonize::is_unit(),
    };
    if let Err(error) = running::write(core.home.root(), &about) {
        tracing::warn!(%error, "cannot say which version runs: a newer program will not replace this one by itself");
    }
    guard.socket = FileId::at(&socket_path);
    crash_point!("daemon.listening");
    let mut router = routes::routes(Arc::clone(&core));
    if let Some(mount) = options.mount.take() {
        let mounted =
            mount(socket_path.clone()).layer(from_fn_with_state(Arc::clone(&core), caller::set_owner_headers));
        router = router.nest("/mcp", mounted);
    }
    let tcp =
        listen_tcp(&core).await?.map(|listener| tokio::spawn(tcp::serve(Arc::clone(&core), router.clone(), listener)));
    let exporter = Exporter::start(&core).map_err(|error| RunError::Shortage(proc::explain_shortage(&error)))?;
    let recovering = tokio::spawn({
        let core = Arc::clone(&core);
        async move { recover::recover(&core).await }
    });
    let background = [
        spawn_when_read(&core, retention::run),
        spawn_when_read(&core, silence::run),
        spawn_when_read(&core, delivery::run),
        spawn_when_read(&core, async |core| Hosting::of(&core).remove_ended().await),
        spawn_when_read(&core, restarts::tend),
        spawn_when_read(&core, async |core| pool::refill(&core).await),
    ];
    let guarding = tokio::spawn(guard::run(Arc::clone(&core), router.clone(), guard));
    let stopping = tokio::spawn(stop_on_signal(Arc::clone(&core)));
    (options.on_ready)(&socket_path);
    tracing::info!(socket = %socket_path.display(), "ready");
    socket::serve(Arc::clone(&core), router, listener).await;
    crash_point!("daemon.last_served");
    let guard = guarding.await.map_err(|error| io("the guard of the home failed")(std::io::Error::other(error)))?;
    // The service manager goes on listening on a socket of its own.
    if !is_inherited && FileId::at(&socket_path) == guard.socket {
        let _ = std::fs::remove_file(&socket_path);
    }
    core.stop_unrecoverable().await;
    stopping.abort();
    recovering.abort();
    for task in background {
        let _ = task.await;
    }
    if let Some(tcp) = tcp {
        let _ = tcp.await;
    }
    core.index_writer.drain().await;
    if let Some(exporter) = exporter {
        exporter.finish().await;
    }
    crash_point!("daemon.flushed");
    pool::remove_last_cgroups(&core).await;
    tracing::info!("stopped");
    Ok(guard)
}

/// Spawns a task that starts once all processes are known.
fn spawn_when_read<F>(core: &Arc<Core>, task: impl FnOnce(Arc<Core>) -> F) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (waiting, task) = (Arc::clone(core), task(Arc::clone(core)));
    tokio::spawn(async move {
        waiting.recovery.read_or_shutdown(&waiting.shutdown).await;
        if !waiting.is_shutting_down() {
            task.await;
        }
    })
}

fn compose(options: &Options, home: Home) -> Result<Core, RunError> {
    let config = options.config.clone();
    let home = home.with_durability(config.durability);
    let tokens = TokenFile::open(&home);
    let ids = IdSource::open(&home).map_err(io("cannot read the ids file"))?;
    let index = match Index::open(&home, config.durability, now())? {
        Opened::Ready(index) => index,
        Opened::Rebuild { index, reason } => {
            tracing::warn!(%reason, "rebuilding the index from the process directories");
            index
        }
    };
    let queries = Index::reader(&home.index())?;
    let owners = OwnerBook::new(queries.parents()?);
    let registry = Registry::default();
    let index_writer = IndexWriter::start(index, config.events, registry.clone())?;
    let boot_id = proc::boot_id().map_err(io("cannot read the boot id"))?;
    let name = cgroup_name(home.root());
    let limit_name = limit_cgroups::place_name(&name);
    let cgroups = match config.containment {
        Containment::Subreaper => Err("switched off by `containment = \"subreaper\"`".to_owned()),
        Containment::Auto => cgroup::open_base(&name).map_err(|unavailable| unavailable.to_string()),
    };
    let setup = NurserySetup {
        version: VERSION,
        home: home.root().to_owned(),
        durable_over_power_loss: config.durability == Durability::Power,
        cgroup_name: cgroups.is_ok().then(|| name.clone()),
        daemon: Some(launch_of_next(options)),
        descriptor_limit: daemonize::original_descriptor_limit(),
    };
    Ok(Core {
        registry,
        keepers: Keepers::new(options.program.clone(), setup, config.environment.clone()),
        index_writer,
        owners,
        tokens: Tokens::new(tokens),
        peers: Peers::default(),
        cgroup_name: name.clone(),
        webhooks: Webhooks::default(),
        leases: Leases::default(),
        chains: Chains::default(),
        tcp_address: OnceLock::new(),
        ids: Mutex::new(ids),
        queries: Mutex::new(queries),
        unreadable_index: Mutex::default(),
        metrics: Metrics::default(),
        telemetry: Telemetry::new(&config.telemetry),
        last_lines: LastLines::default(),
        sampler: Sampler::default(),
        searches: Semaphore::new(MAX_SEARCHES),
        failures: Failures::default(),
        coder: Coder::open(&home).map_err(io(format!("cannot read {}", home.coder_key().display())))?,
        dashboard: Dashboard::default(),
        agents: Agents::new(tokio::runtime::Handle::current()),
        sessions: SessionBook::open(&home, &boot_id),
        boot_id,
        user_home: std::env::var("HOME").ok().filter(|home| home.starts_with('/')).unwrap_or_else(|| "/".to_owned()),
        started_at: now(),
        version: options.version,
        cgroups,
        limit_name,
        limit_places: OnceLock::new(),
        recovery: RecoveryProgress::default(),
        clock_watch: Mutex::new(retention::ClockWatch::new()),
        home_problem: Mutex::default(),
        unreadable: Mutex::default(),
        shutdown: watch::Sender::new(false),
        config,
        home,
    })
}

/// How a keeper starts the next daemon of this home: like this one, including a home that was set by an option.
fn launch_of_next(options: &Options) -> DaemonLaunch {
    let is_ours = |name: &OsString| name == "PINFOLD_HOME" || daemonize::UNIT_ENV.iter().any(|unit| name == unit);
    let mut env: Vec<(OsString, OsString)> = std::env::vars_os().filter(|(name, _)| !is_ours(name)).collect();
    env.extend(options.paths.moved_home().map(|home| ("PINFOLD_HOME".into(), home.into())));
    DaemonLaunch { program: options.program.clone(), env }
}

/// A name that is unique to this home, so that no other daemon removes its cgroups.
fn cgroup_name(home: &Path) -> String {
    let canonical = std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    // FNV-1a is stable between versions and programs; std's hasher is not.
    let hash = canonical
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("pinfold-{hash:016x}")
}

/// Listens on TCP, if configured.
async fn listen_tcp(core: &Core) -> Result<Option<tokio::net::TcpListener>, RunError> {
    let Some(address) = core.config.tcp.listen else { return Ok(None) };
    let what = format!("cannot listen on {address} (tcp.listen)");
    let listener = tcp::listen(address).await.map_err(io(what.clone()))?;
    let _ = core.tcp_address.set(listener.local_addr().map_err(io(what))?);
    Ok(Some(listener))
}

/// TERM and INT shut the daemon down; the processes stay with their keepers.
async fn stop_on_signal(core: Arc<Core>) {
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return;
    };
    let _hup = signal(SignalKind::hangup());
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    core.shutdown.send_replace(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(paths: Paths) -> Options {
        let program = "/bin/pinfold".into();
        Options { paths, config: Config::default(), version: "0.1.0", program, on_ready: |_| {}, mount: None }
    }

    #[test]
    fn the_next_daemon_is_told_the_home_of_this_one() {
        let home = |launch: DaemonLaunch| {
            launch.env.into_iter().find(|(name, _)| name == "PINFOLD_HOME").map(|(_, home)| home)
        };
        assert_eq!(home(launch_of_next(&options(Paths::in_home("/x".into())))), Some("/x".into()));
        let usual = Paths { home: "/state/pinfold".into(), config: "/config/pinfold/config.toml".into() };
        assert_eq!(home(launch_of_next(&options(usual))), None);
    }
}
