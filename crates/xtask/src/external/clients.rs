//! Installs programs from npm in pinned versions below target/clients: the agents of the client tests, and the conformance suite.
//!
//! Without npm or a network the install fails, and callers report the test as skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

/// Timeout of one install.
const DEADLINE: Duration = Duration::from_secs(240);
/// How often the install is checked.
const LOOK: Duration = Duration::from_millis(100);

/// A program: the name of its directory, its package and its version.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub name: &'static str,
    pub package: &'static str,
    pub version: &'static str,
}

/// A newer Node than distributions have.
pub const NODE: Program = Program { name: "node", package: "node", version: "24.21.0" };

/// The conformance suite. Its tag `latest` points to an old release line.
pub const SUITE: Program =
    Program { name: "conformance", package: "@modelcontextprotocol/conformance", version: "0.2.0-alpha.12" };

/// The agents.
pub const AGENTS: &[Program] = &[
    Program { name: "codex", package: "@openai/codex", version: "0.166.0" },
    Program { name: "claude", package: "@anthropic-ai/claude-code", version: "2.1.325" },
    // The last release line that connects to any WebSocket; newer ones accept only the vendor's.
    Program { name: "claude-sdk", package: "@anthropic-ai/claude-code", version: "2.1.77" },
    Program { name: "gemini", package: "@google/gemini-cli", version: "0.61.0" },
    Program { name: "opencode", package: "opencode-ai", version: "1.18.33" },
];

/// Installs the agents and prints the result for each.
pub fn run() -> anyhow::Result<ExitCode> {
    for program in AGENTS.iter().chain([&NODE]) {
        let started = Instant::now();
        match install(program) {
            Ok(place) => println!(
                "{} {} in {} ({:.0}s)",
                program.package,
                program.version,
                place.display(),
                started.elapsed().as_secs_f64()
            ),
            Err(reason) => println!("skipped: {} {} cannot be installed: {reason:#}", program.package, program.version),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The install directory, below the target directory of this build.
pub fn place() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("own executable")?;
    let target = own.ancestors().nth(2).context("not built by cargo")?;
    Ok(target.join("clients"))
}

/// Installs a program unless this version is there already; returns its directory.
pub fn install(program: &Program) -> anyhow::Result<PathBuf> {
    let place = place()?.join(program.name);
    if installed_version(&place, program.package).as_deref() == Some(program.version) {
        return Ok(place);
    }
    if place.exists() {
        std::fs::remove_dir_all(&place).context("an older install cannot be removed")?;
    }
    std::fs::create_dir_all(&place)?;
    let cache = place.join("npm-cache");
    let done = npm(&place, &cache, program);
    let _ = std::fs::remove_dir_all(&cache);
    if done.is_err() {
        // Remove an incomplete install, so that it is not taken for a complete one.
        let _ = std::fs::remove_dir_all(&place);
    }
    done.map(|()| place)
}

fn npm(place: &Path, cache: &Path, program: &Program) -> anyhow::Result<()> {
    let mut command = Command::new("npm");
    command.args(["install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]);
    command.arg("--prefix").arg(place).arg("--cache").arg(cache);
    command.arg(format!("{}@{}", program.package, program.version));
    let mut npm = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("npm cannot be run")?;
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = npm.try_wait()? {
            match status.success() {
                true => return Ok(()),
                false => bail!("npm install: {status}"),
            }
        }
        if Instant::now() > deadline {
            npm.kill()?;
            npm.wait()?;
            bail!("npm install took longer than {}s", DEADLINE.as_secs());
        }
        std::thread::sleep(LOOK);
    }
}

fn installed_version(place: &Path, package: &str) -> Option<String> {
    let text = std::fs::read_to_string(place.join("node_modules").join(package).join("package.json")).ok()?;
    serde_json::from_str::<Value>(&text).ok()?["version"].as_str().map(str::to_owned)
}
