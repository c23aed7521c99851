//! `daemon`: run, start, stop and query the daemon.

pub(crate) mod config;
pub(crate) mod dashboard;
pub(crate) mod doctor;
mod install;
pub(crate) mod upgrade;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use pinfold_api::client::Client;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Health, ShutdownAnswer, ShutdownRequest};
use pinfold_daemon::config::Paths;
use pinfold_daemon::{Mount, Options, RunError};

use crate::args::Global;
use crate::commands::block_on;
use crate::console::Console;
use crate::failure::Failure;
use crate::render::health::render_health;
use crate::render::quantity::render_count;
use crate::session::Session;
use crate::version::VERSION;
use crate::{daemon_on_demand, exit, paths};

/// Time for a daemon to exit after it confirmed the shutdown.
const MAX_SHUTDOWN: Duration = Duration::from_secs(10);
/// How often the socket is checked meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Run, start or stop the daemon, or show its status
///
/// Commands that need the daemon start it by themselves. Under a service manager use `pinfold daemon run`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold daemon status --json")]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do with the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Verb {
    /// Run the daemon in the foreground
    Run {
        /// Start the daemon with `--orphan` and exit when it is ready, so that it is not a child of the client
        #[arg(long, hide = true)]
        background: bool,
        /// Used by `--background` for the daemon itself
        #[arg(long, hide = true)]
        orphan: bool,
    },
    /// Start the daemon in the background, unless one is running
    Start,
    /// Stop the daemon; processes keep running
    Stop {
        /// Stop every process first
        #[arg(long)]
        all: bool,
    },
    /// Install units of the user's systemd that start the daemon with the first connection
    Install {
        /// Print the units, and install nothing
        #[arg(long)]
        print: bool,
    },
    /// Remove the units that `install` wrote; processes keep running
    Uninstall,
    /// Show the status of the daemon; exits with 3 if none is running, and does not start one
    Status,
}

/// Runs the command.
pub(crate) fn run(args: &DaemonArgs, global: &Global, console: &mut Console) -> Result<u8, Failure> {
    let paths = paths::resolve(global)?;
    match args.verb {
        Verb::Run { background, orphan } => {
            check_outside(&paths)?;
            if background { start_detached(&paths) } else { serve(paths, orphan) }
        }
        Verb::Start => block_on(start(paths, global, console)),
        Verb::Stop { all } => block_on(stop(&paths, all, console)),
        Verb::Install { print: true } => install::print(&paths, console),
        Verb::Install { print: false } => block_on(install::install(&paths, console)),
        Verb::Uninstall => install::uninstall(console),
        Verb::Status => block_on(status(&paths, console)),
    }
}

/// Refuses to run inside a process of this home: the daemon would be stopped with that process.
fn check_outside(paths: &Paths) -> Result<(), Failure> {
    match daemon_on_demand::find_ancestor_keeper(paths)? {
        None => Ok(()),
        Some(keeper) => Err(Failure::invalid(format!(
            "this shell runs inside a pinfold process of {} (keeper pid {}), and a daemon started here would be stopped with it: \
             use `pinfold daemon start`",
            paths.home.display(),
            keeper.pid()
        ))),
    }
}

/// Starts the daemon as a child and exits when it is ready, which makes it an orphan: a client that kills all its descendants
/// (opencode does) then does not find it. If the daemon fails, exits with its code.
fn start_detached(paths: &Paths) -> Result<u8, Failure> {
    let mut daemon = daemon_on_demand::daemon_command(paths, "--orphan")?.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let ready = daemon.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    if matches!(ready, Some(Ok(1..))) {
        return Ok(0);
    }
    let code = daemon.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(exit::FAILED))
}

fn serve(paths: Paths, orphan: bool) -> Result<u8, Failure> {
    let config = paths::load_config(&paths)?;
    let program = daemon_on_demand::own_executable()?;
    let options = pinfold_mcp::Options {
        allowed_hosts: config.tcp.hosts.clone(),
        allowed_origins: config.tcp.origins.clone(),
        longest_call: config.mcp.longest_call,
        ..pinfold_mcp::Options::default()
    };
    let mount: Mount = Box::new(move |socket| pinfold_mcp::http_service(Client::new(socket), &options));
    match pinfold_daemon::run(Options {
        paths,
        config,
        version: VERSION,
        program,
        on_ready: print_ready,
        mount: Some(mount),
    }) {
        Ok(()) => Ok(0),
        // Another daemon was first: the client that started this one connects to that.
        Err(RunError::AlreadyRunning { .. }) if orphan => Ok(exit::OTHER_DAEMON),
        Err(error) => Err(Failure::internal(error.to_string())),
    }
}

fn print_ready(socket: &Path) {
    println!("pinfold daemon {} on {}", std::process::id(), socket.display());
}

async fn start(paths: Paths, global: &Global, console: &mut Console) -> Result<u8, Failure> {
    let session = Session::open(paths, global).await?;
    // Repeated until one answers: the connection may have been accepted by the socket of a daemon that was just killed.
    let health = session.ask(async |client| client.health().await).await?;
    print(&health, console)?;
    Ok(0)
}

async fn status(paths: &Paths, console: &mut Console) -> Result<u8, Failure> {
    let client = Client::new(paths.socket());
    match client.health().await {
        Ok(health) => print(&health, console).map(|()| 0),
        Err(error) if daemon_on_demand::is_not_running(&error) => {
            Err(Failure::new(ErrorCode::NotFound, not_running_message(paths), exit::NO_DAEMON))
        }
        Err(error) => Err(error.into()),
    }
}

async fn stop(paths: &Paths, all: bool, console: &mut Console) -> Result<u8, Failure> {
    let Some(answer) = shut_down(paths, all).await? else {
        console.note(&not_running_message(paths));
        return Ok(0);
    };
    if console.json {
        console.document(&answer)?;
    } else {
        console.text(&render_stopped(&answer))?;
    }
    Ok(if answer.survivors.is_empty() { 0 } else { exit::FAILED })
}

/// Stops the daemon and waits until it has exited; `None` if none runs.
async fn shut_down(paths: &Paths, all: bool) -> Result<Option<ShutdownAnswer>, Failure> {
    let client = Client::new(paths.socket());
    let health = match client.health().await {
        Ok(health) => health,
        Err(error) if daemon_on_demand::is_not_running(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    shut_down_this(&client, paths, &health, all).await
}

/// Stops this daemon and waits until it has exited; `None` if it has exited before.
///
/// It is waited for by its pid, because a connection to the socket of a unit would start it again; by the socket if its pid is not
/// visible here.
async fn shut_down_this(
    client: &Client,
    paths: &Paths,
    health: &Health,
    all: bool,
) -> Result<Option<ShutdownAnswer>, Failure> {
    let is_visible = runs(health.pid);
    let answer = match client.shutdown(&ShutdownRequest { stop_processes: all }).await {
        Ok(answer) => answer,
        Err(error) if daemon_on_demand::is_not_running(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let deadline = Instant::now() + MAX_SHUTDOWN;
    let socket = paths.socket();
    let listens = async || Client::new(&socket).connect().await.is_ok();
    while if is_visible { runs(health.pid) } else { listens().await } {
        if Instant::now() > deadline {
            let seconds = MAX_SHUTDOWN.as_secs();
            return Err(Failure::internal(format!(
                "the daemon confirmed the shutdown but still listens after {seconds}s: see `pinfold daemon status`"
            )));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(Some(answer))
}

/// Stops a daemon that runs; its processes run on.
async fn stop_if_running(paths: &Paths) -> Result<(), Failure> {
    shut_down(paths, false).await.map(drop)
}

/// Whether this process runs. One that nobody has reaped does not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X') | None))
}

fn print(health: &Health, console: &mut Console) -> Result<(), Failure> {
    if console.json {
        return console.document(health);
    }
    console.text(&render_health(health, console.paint()))
}

fn not_running_message(paths: &Paths) -> String {
    format!("no daemon is running for {}", paths.home.display())
}

fn render_stopped(answer: &ShutdownAnswer) -> String {
    let mut text = "daemon stopped".to_owned();
    if answer.stopped > 0 {
        text.push_str(&format!("; {} stopped", render_count(answer.stopped, "process", "processes")));
    }
    if answer.left_running > 0 {
        let left = render_count(answer.left_running, "process keeps", "processes keep");
        text.push_str(&format!("; {left} running"));
    }
    text.push('\n');
    for survivor in &answer.survivors {
        text.push_str(&format!("  pid {} {} still runs: {}\n", survivor.pid, survivor.command, survivor.reason));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn every_verb_is_taken() {
        let cases = [
            ("pinfold daemon run", Verb::Run { background: false, orphan: false }),
            ("pinfold daemon run --background", Verb::Run { background: true, orphan: false }),
            ("pinfold daemon start", Verb::Start),
            ("pinfold daemon stop --all", Verb::Stop { all: true }),
            ("pinfold daemon status --json", Verb::Status),
            ("pinfold daemon install --print", Verb::Install { print: true }),
            ("pinfold daemon uninstall", Verb::Uninstall),
        ];
        for (line, verb) in cases {
            let Command::Daemon(args) = Args::try_parse_from(line.split(' ')).expect(line).command else {
                panic!("not daemon")
            };
            assert_eq!(args.verb, verb);
        }
    }

    #[test]
    fn a_stop_says_what_keeps_running() {
        let answer = ShutdownAnswer { left_running: 2, ..Default::default() };
        assert_eq!(render_stopped(&answer), "daemon stopped; 2 processes keep running\n");
        let answer = ShutdownAnswer { left_running: 1, ..answer };
        assert_eq!(render_stopped(&answer), "daemon stopped; 1 process keeps running\n");
    }
}
