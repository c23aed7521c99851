//! `doctor`: what this machine gives pinfold, and what it lacks.

use clap::Args;
use pinfold_daemon::config::Config;
use pinfold_daemon::doctor::{Finding, Level, examine};

use crate::args::Global;
use crate::exit;
use crate::failure::Failure;
use crate::paths;
use crate::render::finding::render_findings;
use crate::screen::Screen;

/// Examine this machine and configuration, and say what to do about what is wrong
///
/// Needs no daemon and starts none. Exits with 1 if something is bad.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold doctor")]
pub(crate) struct DoctorArgs {}

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
    findings.extend(examine(&paths, &config).into_iter().filter(|finding| !said || finding.topic != "configuration"));
    if screen.json {
        screen.document(&findings)?;
    } else {
        screen.text(&render_findings(&findings, screen.paint()))?;
    }
    Ok(if findings.iter().any(|finding| finding.level == Level::Bad) { exit::TROUBLE } else { 0 })
}
