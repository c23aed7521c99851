//! `upgrade`: replaces a daemon that is older than this program. Its processes stay with their keepers and do not notice.

use std::cmp::Ordering;

use clap::Args;
use pinfold_api::client::Client;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::Health;
use pinfold_daemon::config::Paths;
use pinfold_daemon::running::{self, RunningDaemon};
use serde::Serialize;

use super::shut_down_this;
use crate::console::Console;
use crate::daemon_on_demand;
use crate::exit;
use crate::failure::Failure;
use crate::version::{VERSION, compare};

/// Replace a daemon that is older than this program
///
/// Processes keep running. The first command of a newer program does this by itself.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold upgrade --check || pinfold upgrade")]
pub(crate) struct UpgradeArgs {
    /// Only say whether the daemon is older, and exit with 1 if it is
    #[arg(long)]
    pub(crate) check: bool,
}

/// The daemon compared with this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Current,
    Older,
    Newer,
    NotRunning,
    /// One of the two versions cannot be compared.
    Unknown,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    state: State,
    program: &'static str,
    daemon: Option<String>,
    pid: Option<u32>,
    replaced: bool,
}

/// Checks or replaces.
pub(crate) async fn run(args: &UpgradeArgs, paths: &Paths, console: &mut Console) -> Result<u8, Failure> {
    let client = Client::new(paths.socket());
    let health = running_daemon(&client).await?;
    let state = health.as_ref().map_or(State::NotRunning, |health| state_of(&health.version));
    let replaces = state == State::Older && !args.check;
    if let (true, Some(health)) = (replaces, &health) {
        super::check_outside(paths)?;
        replace(&client, paths, health).await?;
    }
    let report = Report {
        state,
        program: VERSION,
        daemon: health.as_ref().map(|health| health.version.clone()),
        pid: health.as_ref().map(|health| health.pid),
        replaced: replaces,
    };
    match console.json {
        true => console.document(&report)?,
        false => console.text(&render(&report))?,
    }
    Ok(if state == State::Older && args.check { exit::FAILED } else { 0 })
}

fn render(report: &Report) -> String {
    let daemon = report.daemon.as_deref().unwrap_or_default();
    match report.state {
        State::NotRunning => format!("no daemon is running; the next command starts {VERSION}\n"),
        State::Current => format!("the daemon is {daemon}, as this program\n"),
        State::Newer => format!("the daemon is {daemon}, newer than this program ({VERSION})\n"),
        State::Unknown => format!("the daemon is {daemon} and this program {VERSION}: they cannot be compared\n"),
        State::Older if report.replaced => format!("replaced the daemon: {daemon} by {VERSION}; processes run on\n"),
        State::Older => {
            format!("the daemon is {daemon}, older than this program ({VERSION}): the next command replaces it\n")
        }
    }
}

fn state_of(daemon: &str) -> State {
    match compare(daemon, VERSION) {
        Some(Ordering::Less) => State::Older,
        Some(Ordering::Equal) => State::Current,
        Some(Ordering::Greater) => State::Newer,
        None => State::Unknown,
    }
}

async fn running_daemon(client: &Client) -> Result<Option<Health>, Failure> {
    match client.health().await {
        Ok(health) => Ok(Some(health)),
        Err(error) if daemon_on_demand::is_not_running(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn replace(client: &Client, paths: &Paths, health: &Health) -> Result<(), Failure> {
    shut_down_this(client, paths, health, false).await?;
    daemon_on_demand::ensure(client, paths).await
}

/// Replaces the daemon if it is older than this program, before a command uses it. Does nothing where this program may not, or
/// where an older one would take its place again: inside a kept process, and for a unit that runs another program.
pub(crate) async fn replace_if_older(paths: &Paths) -> Result<(), Failure> {
    let Some(running) = running::read(&paths.home) else { return Ok(()) };
    if running.version == VERSION || state_of(&running.version) != State::Older || !may_replace(&running, paths)? {
        return Ok(());
    }
    let client = Client::new(paths.socket());
    // The file may be of a daemon that has ended.
    let Some(health) = running_daemon(&client).await? else { return Ok(()) };
    if state_of(&health.version) != State::Older {
        return Ok(());
    }
    match replace(&client, paths, &health).await {
        // Only the operator may stop a daemon: others use the one that runs.
        Err(failure) if failure.error.code == ErrorCode::Forbidden => Ok(()),
        replaced => replaced,
    }
}

fn may_replace(running: &RunningDaemon, paths: &Paths) -> Result<bool, Failure> {
    if running.is_unit && daemon_on_demand::own_executable()? != running.program {
        return Ok(false);
    }
    Ok(daemon_on_demand::find_ancestor_keeper(paths)?.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_comes_next() {
        let report =
            |state, replaced| Report { state, program: VERSION, daemon: Some("0.0.1".into()), pid: Some(1), replaced };
        assert!(render(&report(State::Older, false)).contains("the next command replaces it"));
        assert!(render(&report(State::Older, true)).contains("processes run on"));
        assert!(render(&report(State::NotRunning, false)).contains("starts"));
        assert_eq!(state_of("0.0.1"), State::Older);
        assert_eq!(state_of(VERSION), State::Current);
        assert_eq!(state_of("999.0.0"), State::Newer);
        assert_eq!(state_of("odd"), State::Unknown);
    }
}
