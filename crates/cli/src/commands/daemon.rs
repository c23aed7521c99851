//! `daemon`: run it, start it, stop it, ask how it is.

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

use super::block_on;
use crate::args::Global;
use crate::console::Screen;
use crate::failure::Failure;
use crate::render::health::render_health;
use crate::render::quantity::render_count;
use crate::session::Session;
use crate::{daemon_on_demand, exit, paths};

/// How long a daemon may take to leave after it said that it will.
const LEAVING: Duration = Duration::from_secs(10);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// Run, start, stop or ask the daemon
///
/// Commands that need the daemon start it; a service manager runs `pinfold daemon run`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold daemon status --json")]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Verb {
    /// Run the daemon here, in the foreground
    Run {
        /// Started on demand: start the daemon as nobody's child, and end when it is ready
        #[arg(long, hide = true)]
        background: bool,
        /// The daemon that `--background` starts
        #[arg(long, hide = true)]
        orphan: bool,
    },
    /// Start the daemon in the background, if none runs
    Start,
    /// Stop the daemon; processes live on with their keepers
    Stop {
        /// Stop every process first
        #[arg(long)]
        all: bool,
    },
    /// Say how the daemon is; starts none, and exits with 3 if none runs
    Status,
}

/// Does it.
pub(crate) fn run(args: &DaemonArgs, global: &Global, screen: &mut Screen) -> Result<u8, Failure> {
    let paths = paths::resolve(global)?;
    match args.verb {
        Verb::Run { background, orphan } => {
            check_outside(&paths)?;
            if background { stand_between(&paths) } else { serve(paths, orphan) }
        }
        Verb::Start => block_on(start(paths, global, screen)),
        Verb::Stop { all } => block_on(stop(&paths, all, screen)),
        Verb::Status => block_on(status(&paths, screen)),
    }
}

/// A daemon inside a process that it keeps would be stopped with it, and all others left without.
fn check_outside(paths: &Paths) -> Result<(), Failure> {
    match daemon_on_demand::keeper_above(paths)? {
        None => Ok(()),
        Some(keeper) => Err(Failure::refused(format!(
            "this runs inside a process of {} (kept by pid {}), and a daemon here would end with it: use `pinfold daemon start`",
            paths.home.display(),
            keeper.pid()
        ))),
    }
}

/// Stands between whoever wants a daemon and the daemon, until that is ready: then it is nobody's child, and a client
/// that ends its servers with all their descendants (opencode does) does not find it. Ends as the daemon did if that
/// failed.
fn stand_between(paths: &Paths) -> Result<u8, Failure> {
    let mut daemon = daemon_on_demand::daemon_command(paths, "--orphan")?.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let ready = daemon.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    if matches!(ready, Some(Ok(1..))) {
        return Ok(0);
    }
    let code = daemon.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(exit::TROUBLE))
}

fn serve(paths: Paths, orphan: bool) -> Result<u8, Failure> {
    let config = paths::load_config(&paths)?;
    let program = std::env::current_exe().map_err(|error| Failure::trouble(format!("own executable: {error}")))?;
    let options = pinfold_mcp::Options {
        allowed_hosts: config.tcp.hosts.clone(),
        allowed_origins: config.tcp.origins.clone(),
        longest_call: config.mcp.longest_call,
        ..pinfold_mcp::Options::default()
    };
    let mount: Mount = Box::new(move |socket| pinfold_mcp::http_service(Client::new(socket), &options));
    match pinfold_daemon::run(Options { paths, config, program, on_ready: say_ready, mount: Some(mount) }) {
        Ok(()) => Ok(0),
        // The client that started this one connects to the other.
        Err(RunError::AlreadyRunning { .. }) if orphan => Ok(exit::OTHER_DAEMON),
        Err(error) => Err(Failure::trouble(error.to_string())),
    }
}

fn say_ready(socket: &Path) {
    println!("pinfold daemon {} on {}", std::process::id(), socket.display());
}

async fn start(paths: Paths, global: &Global, screen: &mut Screen) -> Result<u8, Failure> {
    let session = Session::open(paths, global).await?;
    // Asked until one answers: the first may be one that was just killed, whose socket still took the connection.
    let health = session.ask(async |client| client.health().await).await?;
    print(&health, screen)?;
    Ok(0)
}

async fn status(paths: &Paths, screen: &mut Screen) -> Result<u8, Failure> {
    let client = Client::new(paths.socket());
    match client.health().await {
        Ok(health) => print(&health, screen).map(|()| 0),
        Err(error) if daemon_on_demand::nobody_listens(&error) => {
            Err(Failure::new(ErrorCode::NotFound, none_runs(paths), exit::NO_DAEMON))
        }
        Err(error) => Err(error.into()),
    }
}

async fn stop(paths: &Paths, all: bool, screen: &mut Screen) -> Result<u8, Failure> {
    let client = Client::new(paths.socket());
    let answer = match client.shutdown(&ShutdownRequest { stop_processes: all }).await {
        Ok(answer) => answer,
        Err(error) if daemon_on_demand::nobody_listens(&error) => {
            screen.note(&none_runs(paths));
            return Ok(0);
        }
        Err(error) => return Err(error.into()),
    };
    gone(paths).await?;
    if screen.json {
        screen.document(&answer)?;
    } else {
        screen.text(&render_stopped(&answer))?;
    }
    Ok(if answer.survivors.is_empty() { 0 } else { exit::TROUBLE })
}

/// Returns when nobody listens any more, so that what follows meets no daemon that is about to leave.
async fn gone(paths: &Paths) -> Result<(), Failure> {
    let deadline = Instant::now() + LEAVING;
    while Client::new(paths.socket()).connect().await.is_ok() {
        if Instant::now() > deadline {
            let seconds = LEAVING.as_secs();
            return Err(Failure::trouble(format!("the daemon still listens {seconds}s after it said that it ends")));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

fn print(health: &Health, screen: &mut Screen) -> Result<(), Failure> {
    if screen.json {
        return screen.document(health);
    }
    screen.text(&render_health(health, screen.paint()))
}

fn none_runs(paths: &Paths) -> String {
    format!("no daemon runs for {}", paths.home.display())
}

fn render_stopped(answer: &ShutdownAnswer) -> String {
    let mut text = "daemon stopped".to_owned();
    if answer.stopped > 0 {
        text.push_str(&format!("; {} stopped", render_count(answer.stopped, "process", "processes")));
    }
    if answer.left_running > 0 {
        let one = "process lives on with its keeper";
        let left = render_count(answer.left_running, one, "processes live on with their keepers");
        text.push_str(&format!("; {left}"));
    }
    text.push('\n');
    for survivor in &answer.survivors {
        text.push_str(&format!("  pid {} {} lives on: {}\n", survivor.pid, survivor.command, survivor.reason));
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
        ];
        for (line, verb) in cases {
            let Command::Daemon(args) = Args::try_parse_from(line.split(' ')).expect(line).command else {
                panic!("not daemon")
            };
            assert_eq!(args.verb, verb);
        }
    }

    #[test]
    fn a_stop_says_what_lives_on() {
        let answer = ShutdownAnswer { left_running: 2, ..Default::default() };
        assert_eq!(render_stopped(&answer), "daemon stopped; 2 processes live on with their keepers\n");
        let answer = ShutdownAnswer { left_running: 1, ..answer };
        assert_eq!(render_stopped(&answer), "daemon stopped; 1 process lives on with its keeper\n");
    }
}
