//! The directory of the benchmark: a copy of the binary and one home per daemon, all removed afterwards.
//!
//! The copy has a unique path, so that exactly our daemons and keepers can be found by it. However the run ends (also by an
//! error, INT or TERM), `daemon stop --all` stops every process it started.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use pinfold_api::client::Client;
use pinfold_api::types::{Outcome, OutputPage, OutputQuery, StartRequest, Status};
use pinfold_testkit::carriers;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::peers::marks_of_this_run;
use super::procfs;

/// Time for a daemon to answer.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often a starting daemon is checked.
const LOOK: Duration = Duration::from_millis(1);
/// Time for work that follows an answer, so that it is not part of the next measurement.
const SETTLE: Duration = Duration::from_millis(30);

/// The directory.
#[derive(Debug)]
pub(super) struct TestDir {
    directory: PathBuf,
    binary: PathBuf,
}

/// A daemon in a home of its own, as a child of this program.
#[derive(Debug)]
pub(super) struct Daemon {
    home: PathBuf,
    binary: PathBuf,
    child: Child,
}

impl TestDir {
    pub(super) fn set_up(pinfold: &Path, below: &Path) -> anyhow::Result<Self> {
        let directory = below.join(format!("pinfold-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let directory = directory.canonicalize()?;
        let binary = directory.join("pinfold");
        std::fs::copy(pinfold, &binary).with_context(|| format!("cannot copy {}", pinfold.display()))?;
        let stage = TestDir { directory, binary };
        stage.clear_on_signals();
        Ok(stage)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The copy of the binary: every daemon, nursery and keeper here runs it.
    pub(super) fn binary(&self) -> &Path {
        &self.binary
    }

    /// Starts a daemon in a new home.
    pub(super) fn daemon(&self, name: &str) -> anyhow::Result<Daemon> {
        self.daemon_with(name, "")
    }

    /// Starts a daemon in a new home with this configuration.
    pub(super) fn daemon_with(&self, name: &str, config: &str) -> anyhow::Result<Daemon> {
        let home = self.directory.join(name);
        std::fs::create_dir_all(&home)?;
        std::fs::set_permissions(&home, PermissionsExt::from_mode(0o700))?;
        std::fs::write(home.join("config.toml"), config)?;
        let daemon = Daemon { child: spawn(&self.binary, &home)?, home, binary: self.binary.clone() };
        daemon.until_it_answers()?;
        Ok(daemon)
    }

    fn clear_on_signals(&self) {
        let (directory, binary) = (self.directory.clone(), self.binary.clone());
        std::thread::spawn(move || {
            let Ok(runtime) = runtime() else { return };
            runtime.block_on(async {
                let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
                else {
                    return std::future::pending().await;
                };
                tokio::select! {
                    _ = int.recv() => {}
                    _ = term.recv() => {}
                }
            });
            eprintln!("bench: interrupted; stopping all processes");
            clear(&directory, &binary);
            std::process::exit(130);
        });
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        clear(&self.directory, &self.binary);
    }
}

impl Daemon {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn binary(&self) -> &Path {
        &self.binary
    }

    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// A client with connections of its own.
    pub(super) fn client(&self) -> Client {
        Client::new(self.home.join("socket"))
    }

    pub(super) fn containment(&self) -> anyhow::Result<String> {
        Ok(runtime()?.block_on(self.client().health())?.containment)
    }

    /// `kill -9`; returns when it is reaped.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts a new daemon in the same home without waiting for it.
    pub(super) fn spawn_again(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.binary, &self.home)?;
        Ok(())
    }

    pub(super) fn until_it_answers(&self) -> anyhow::Result<()> {
        let (runtime, client) = (runtime()?, self.client());
        let deadline = Instant::now() + DEADLINE;
        while let Err(error) = runtime.block_on(client.health()) {
            if Instant::now() > deadline {
                let log = std::fs::read_to_string(self.home.join("daemon.log")).unwrap_or_default();
                bail!("the daemon in {} does not answer: {error}\n{log}", self.home.display());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Starts this many processes with several clients at once.
    pub(super) fn start_many(&self, count: usize, request: &StartRequest) -> anyhow::Result<()> {
        const CLIENTS: usize = 8;
        std::thread::scope(|scope| {
            let share = |client: usize| count / CLIENTS + usize::from(client < count % CLIENTS);
            let start = |share: usize| {
                let client = self.client();
                runtime()?.block_on(async {
                    for _ in 0..share {
                        client.start(request).await?;
                    }
                    anyhow::Ok(())
                })
            };
            let threads: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || start(share(client)))).collect();
            threads.into_iter().try_for_each(joined)
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        stop_all(&self.binary, &self.home);
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// A single-threaded runtime, as in a small client.
pub(super) fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// The result of a thread; panics if it panicked.
pub(super) fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Waits for background work of the previous measurement.
pub(super) fn settle() {
    std::thread::sleep(SETTLE);
}

/// A start of `sh -c true`.
pub(super) fn shell_true() -> StartRequest {
    StartRequest { command: Some("true".to_owned()), ..StartRequest::default() }
}

/// Starts a process that does nothing, and that ends by itself if the cleanup fails.
pub(super) fn sleeper() -> StartRequest {
    let argv = vec!["sleep".to_owned(), "1000".to_owned()];
    StartRequest { argv: Some(argv), ..StartRequest::default() }
}

/// Start, exit and output of `sh -c true`: two requests on one connection.
pub(super) async fn start_exit_output(client: &Client) -> anyhow::Result<()> {
    let started = client.start(&shell_true()).await?;
    let query = OutputQuery { wait: Some("30s".to_owned()), until: Some("exit".to_owned()), ..OutputQuery::default() };
    check_true(&client.output(&started.record.id, &query).await?)
}

/// The same in one request.
pub(super) async fn start_and_wait(client: &Client) -> anyhow::Result<()> {
    let started = client.start(&StartRequest { wait: Some("30s".into()), ..shell_true() }).await?;
    check_true(&started.output_page.context("the answer carries no output")?)
}

fn check_true(page: &OutputPage) -> anyhow::Result<()> {
    let well = page.exited && page.outcome == Some(Outcome::Exited { code: 0 }) && page.end == 0;
    ensure!(well && page.status != Status::Lost, "`true` came out wrong: {page:?}");
    Ok(())
}

fn spawn(binary: &Path, home: &Path) -> anyhow::Result<Child> {
    let mut command = Command::new(binary);
    command.args(["daemon", "run"]).env("PINFOLD_HOME", home).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("cannot run {}", binary.display()))
}

/// Stops all processes of a home and its daemon. If the daemon was killed, a new one is started first to find them.
fn stop_all(binary: &Path, home: &Path) {
    for verb in [&["daemon", "start"][..], &["daemon", "stop", "--all"]] {
        let mut command = Command::new(binary);
        command.args(verb).env("PINFOLD_HOME", home).stdin(Stdio::null()).stdout(Stdio::null());
        match command.status() {
            Ok(status) if status.success() => {}
            failed => eprintln!("bench: `pinfold {}` in {}: {failed:?}", verb.join(" "), home.display()),
        }
    }
}

/// Stops all processes of all homes and removes everything; prints what could not be stopped.
fn clear(directory: &Path, binary: &Path) {
    let homes = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    homes.filter(|home| home.join("lock").exists()).for_each(|home| stop_all(binary, &home));
    carriers::kill_carriers(&marks_of_this_run());
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut left = procfs::running(binary);
    while !left.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        left = procfs::running(binary);
    }
    if !left.is_empty() {
        eprintln!("bench: still running: {left:?}");
    }
    if let Err(error) = std::fs::remove_dir_all(directory)
        && directory.exists()
    {
        eprintln!("bench: {} is left behind: {error}", directory.display());
    }
}
