//! `doctor`: check the machine, the configuration and the daemon.

use std::time::Duration;

use clap::Args;
use pinfold_api::client::Client;
use pinfold_daemon::config::{Config, Paths};
use pinfold_daemon::doctor::{DaemonSeen, Finding, Level, examine};

use crate::args::Global;
use crate::commands::block_on;
use crate::console::Console;
use crate::daemon_on_demand::is_not_running;
use crate::exit;
use crate::failure::Failure;
use crate::paths;
use crate::render::finding::render_findings;

/// Check this machine, the configuration and the daemon, and say how to fix problems
///
/// Works without a daemon and does not start one. Exits with 1 if it finds a problem.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold doctor")]
pub(crate) struct DoctorArgs {}

/// How long to wait for the daemon's answer.
const MAX_ANSWER: Duration = Duration::from_secs(3);

/// Checks and prints the findings.
pub(crate) fn run(global: &Global, console: &mut Console) -> Result<u8, Failure> {
    let paths = paths::resolve(global)?;
    let mut findings = Vec::new();
    let config = Config::load(&paths).unwrap_or_else(|error| {
        findings.push(Finding {
            level: Level::Bad,
            topic: "configuration".into(),
            text: error.to_string(),
            remedy: Some(format!("edit {}; `pinfold config default` shows every setting", paths.config.display())),
        });
        Config::default()
    });
    // A configuration that cannot be read is reported once.
    let config_failed = !findings.is_empty();
    let seen = block_on(ask_daemon(&paths))?;
    let examined = examine(&paths, &config, &seen).into_iter();
    findings.extend(examined.filter(|finding| !config_failed || finding.topic != "configuration"));
    if console.json {
        console.document(&findings)?;
    } else {
        console.text(&render_findings(&findings, console.paint()))?;
    }
    Ok(if findings.iter().any(|finding| finding.level == Level::Bad) { exit::FAILED } else { 0 })
}

/// Asks the daemon for its status; does not start one.
async fn ask_daemon(paths: &Paths) -> Result<DaemonSeen, Failure> {
    let client = Client::new(paths.socket());
    Ok(match tokio::time::timeout(MAX_ANSWER, client.health()).await {
        Ok(Ok(health)) => DaemonSeen::Answers { pid: health.pid, troubles: health.troubles },
        Ok(Err(error)) if is_not_running(&error) => DaemonSeen::Absent,
        Ok(Err(error)) => DaemonSeen::Unreachable { why: error.to_string() },
        Err(_) => DaemonSeen::Silent { seconds: MAX_ANSWER.as_secs() },
    })
}
