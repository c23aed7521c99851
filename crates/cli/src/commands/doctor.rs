//! `doctor`: what this machine gives pinfold, and what it lacks.

use std::time::Duration;

use clap::Args;
use pinfold_api::client::Client;
use pinfold_daemon::config::{Config, Paths};
use pinfold_daemon::doctor::{DaemonSeen, Finding, Level, examine};

use super::block_on;
use crate::args::Global;
use crate::console::Screen;
use crate::daemon_on_demand::nobody_listens;
use crate::exit;
use crate::failure::Failure;
use crate::paths;
use crate::render::finding::render_findings;

/// Examine this machine and configuration, and say what to do about what is wrong
///
/// Needs no daemon and starts none. Exits with 1 if something is bad.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold doctor")]
pub(crate) struct DoctorArgs {}

/// How long the daemon may take to say how it is.
const ANSWER: Duration = Duration::from_secs(3);

/// Examines and prints.
pub(crate) fn run(global: &Global, screen: &mut Screen) -> Result<u8, Failure> {
    let paths = paths::resolve(global)?;
    let mut findings = Vec::new();
    let config = Config::load(&paths).unwrap_or_else(|error| {
        findings.push(Finding {
            level: Level::Bad,
            topic: "configuration".into(),
            text: error.to_string(),
            remedy: Some(format!("correct {}; `pinfold config default` shows every setting", paths.config.display())),
        });
        Config::default()
    });
    // What was said of a configuration that cannot be read stands alone.
    let said = !findings.is_empty();
    let seen = block_on(ask_daemon(&paths))?;
    let examined = examine(&paths, &config, &seen).into_iter();
    findings.extend(examined.filter(|finding| !said || finding.topic != "configuration"));
    if screen.json {
        screen.document(&findings)?;
    } else {
        screen.text(&render_findings(&findings, screen.paint()))?;
    }
    Ok(if findings.iter().any(|finding| finding.level == Level::Bad) { exit::TROUBLE } else { 0 })
}

/// Asks the daemon how it is; starts none.
async fn ask_daemon(paths: &Paths) -> Result<DaemonSeen, Failure> {
    let client = Client::new(paths.socket());
    Ok(match tokio::time::timeout(ANSWER, client.health()).await {
        Ok(Ok(health)) => DaemonSeen::Answers { pid: health.pid, troubles: health.troubles },
        Ok(Err(error)) if nobody_listens(&error) => DaemonSeen::Absent,
        Ok(Err(error)) => DaemonSeen::Unreachable { why: error.to_string() },
        Err(_) => DaemonSeen::Silent { seconds: ANSWER.as_secs() },
    })
}
