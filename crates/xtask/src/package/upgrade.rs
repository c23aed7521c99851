//! From an installed package to the next: the daemon is replaced, and the processes that it kept do not notice.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::program::Program;
use super::trial::Trial;
use super::{Packaging, Profile, output, wheel};

/// How long the process may take to print the next line.
const PATIENCE: Duration = Duration::from_secs(30);

/// Builds the wheel of the next version, and installs it over this one while a process is kept.
pub(super) fn try_it(packaging: &Packaging<'_>, current: &Path, profile: Profile) -> anyhow::Result<()> {
    let version = next(&packaging.program.version)?;
    let next = Program::build(packaging.root, &packaging.work.join("program"), profile, Some(&version))?;
    let wheel_of_next = wheel::build(packaging, &next)?;
    let result = upgrade(packaging, current, &wheel_of_next, &version);
    std::fs::remove_file(wheel_of_next)?;
    result
}

fn upgrade(packaging: &Packaging<'_>, current: &Path, newer: &Path, version: &str) -> anyhow::Result<()> {
    let Some(environment) = wheel::environment(packaging, "upgraded", current)? else { return Ok(()) };
    let binary = environment.join("bin/pinfold");
    let trial = Trial::new(&environment, &[&binary])?;
    let script = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done";
    let id = output(&mut trial.command(&["run", "-d", script]))?.trim().to_owned();
    let show = || -> anyhow::Result<Value> {
        serde_json::from_str(&output(&mut trial.command(&["show", &id, "--json"]))?).context("show says no JSON")
    };
    let status = || -> anyhow::Result<Value> {
        serde_json::from_str(&output(&mut trial.command(&["daemon", "status", "--json"]))?).context("no JSON")
    };
    let (before, old) = (show()?, status()?);
    output(&mut trial.command(&["upgrade", "--check"]))?;

    wheel::install(&environment, newer)?;
    let check = trial.command(&["upgrade", "--check"]).output()?;
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    ensure!(check.status.code() == Some(1) && said.contains("older"), "after the upgrade the check says {said}");
    ensure!(status()?["pid"] == old["pid"], "a check must replace nothing");

    let after = show()?;
    let new = status()?;
    ensure!(
        new["version"] == *version && new["pid"] != old["pid"],
        "the next command did not replace the daemon: {new}"
    );
    ensure!(after["pid"] == before["pid"] && after["status"] == "running", "the process is another one: {after}");
    let bytes = after["output"]["bytes"].as_u64();
    let deadline = Instant::now() + PATIENCE;
    while show()?["output"]["bytes"].as_u64() <= bytes {
        ensure!(Instant::now() < deadline, "the process prints nothing after the upgrade");
    }
    let text = output(&mut trial.command(&["logs", &id]))?;
    let counted: Vec<String> = (1..=text.lines().count()).map(|line| line.to_string()).collect();
    ensure!(text.lines().eq(counted.iter().map(String::as_str)), "lines are missing or repeated: {text}");
    output(&mut trial.command(&["upgrade", "--check"]))?;
    println!("upgrade: {} to {version} by pip, and the process that was kept went on", packaging.program.version);
    Ok(())
}

/// The next minor version.
fn next(version: &str) -> anyhow::Result<String> {
    let mut parts = version.split(['.', '-', '+']);
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).context("no version");
    Ok(format!("{}.{}.0", number()?, number()? + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_version_is_the_next_minor_one() {
        assert_eq!(next("0.1.7").expect("a version"), "0.2.0");
        assert_eq!(next("1.9.0-rc.1").expect("a version"), "1.10.0");
        assert!(next("one").is_err());
    }
}
