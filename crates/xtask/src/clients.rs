//! Programs of others, from npm, in pinned versions: the agents that the client tests drive, and the conformance
//! suite. They live below target/clients, one directory each, and nothing else of the machine is touched.
//!
//! A machine without npm or without a network is no failure: whoever needs a program says that it is skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

/// How long one install may take.
const PATIENCE: Duration = Duration::from_secs(240);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// A program: the name of its directory, its package and its version.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub name: &'static str,
    pub package: &'static str,
    pub version: &'static str,
}

/// Runs what needs a newer Node than a distribution has.
pub const NODE: Program = Program { name: "node", package: "node", version: "24.21.0" };

/// The conformance suite. Its tag `latest` is an old line.
pub const SUITE: Program =
    Program { name: "conformance", package: "@modelcontextprotocol/conformance", version: "0.2.0-alpha.12" };

/// The agents.
pub const AGENTS: &[Program] = &[
    Program { name: "codex", package: "@openai/codex", version: "0.166.0" },
    Program { name: "claude", package: "@anthropic-ai/claude-code", version: "2.1.325" },
    // The last line of it that connects to a WebSocket of ours; newer ones know only their vendor's.
    Program { name: "claude-sdk", package: "@anthropic-ai/claude-code", version: "2.1.77" },
    Program { name: "gemini", package: "@google/gemini-cli", version: "0.61.0" },
    Program { name: "opencode", package: "opencode-ai", version: "1.18.33" },
];

/// Installs the agents, and says of each whether it is there.
pub fn run() -> anyhow::Result<ExitCode> {
    for program in AGENTS.iter().chain([&NODE]) {
        let begun = Instant::now();
        match install(program) {
            Ok(place) => println!(
                "{} {} in {} ({:.0}s)",
                program.package,
                program.version,
                place.display(),
                begun.elapsed().as_secs_f64()
            ),
            Err(reason) => println!("skipped: {} {} cannot be installed: {reason:#}", program.package, program.version),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where programs of others are: below the directory that this was built in.
pub fn place() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("own executable")?;
    let target = own.ancestors().nth(2).context("not built by cargo")?;
    Ok(target.join("clients"))
}

/// Installs a program unless it is there in its version, and gives its directory.
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
        // Half an install must not pass for one.
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
    let deadline = Instant::now() + PATIENCE;
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
            bail!("npm install took longer than {}s", PATIENCE.as_secs());
        }
        std::thread::sleep(LOOK);
    }
}

fn installed_version(place: &Path, package: &str) -> Option<String> {
    let text = std::fs::read_to_string(place.join("node_modules").join(package).join("package.json")).ok()?;
    serde_json::from_str::<Value>(&text).ok()?["version"].as_str().map(str::to_owned)
}
