//! `cargo xtask dashboard`: builds the bundle of the web dashboard from `dashboard/`, compares it with the committed one, and tries it in a
//! real Chromium, of which it also takes the pictures of docs/.
//!
//! Node, its packages and Chromium are needed here only: the daemon embeds the committed bundle. Everything happens in a copy below
//! target/, so the work tree stays as it is. Where Node or Chromium cannot be had, a line says that it is skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use clap::Args;
use pinfold_testkit::environments::is_root;

use crate::cargo_build;

/// Where the bundle is committed.
const BUNDLE: &str = "crates/daemon/src/dashboard/bundle";
/// What is copied from `dashboard/`.
const SOURCES: &[&str] = &["src", "tests", "build.mjs", "package.json", "package-lock.json", "tsconfig.json", ".npmrc"];
/// Seconds that the packages, Chromium and the tests may take.
const INSTALL_SECONDS: &str = "240";
const TEST_SECONDS: &str = "480";
/// The tests and the pictures, in the copy of `dashboard/`.
const TESTS: &str = "tests";
const SCREENSHOTS: &str = "tests/screenshots.mjs";
/// The pictures that docs/ has; others are taken to be looked at.
const PICTURES: &[&str] = &["dashboard-overview.png", "dashboard-log.png"];

/// What to do with the bundle.
#[derive(Clone, Copy, Debug, Args)]
pub struct Options {
    /// Write nothing; fail if the committed bundle is not what the sources give, byte for byte
    #[arg(long)]
    check: bool,
    /// Run the tests in Chromium with the committed bundle
    #[arg(long)]
    test: bool,
    /// Take the pictures of docs/ with the committed bundle, and others below target/ to look at
    #[arg(long, conflicts_with_all = ["check", "test"])]
    screenshots: bool,
}

/// Builds, compares or tests.
pub fn run(root: &Path, options: Options) -> anyhow::Result<ExitCode> {
    let place = match prepare(root) {
        Ok(place) => place,
        Err(reason) if options.check || options.test => {
            println!("SKIPPED: the dashboard's packages cannot be installed (Node 20 and npm are needed): {reason:#}");
            return Ok(ExitCode::SUCCESS);
        }
        Err(reason) => return Err(reason),
    };
    if options.screenshots {
        return screenshots(root, &place);
    }
    if options.check || !options.test {
        let stale = bundle(root, &place, options.check)?;
        if options.check && !stale.is_empty() {
            println!("{BUNDLE} is not what dashboard/ gives ({}): run `cargo xtask dashboard`", stale.join(", "));
            return Ok(ExitCode::FAILURE);
        }
    }
    match options.test {
        true => test(root, &place),
        false => Ok(ExitCode::SUCCESS),
    }
}

/// Copies the sources below target/ and installs their packages there.
fn prepare(root: &Path) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("own executable")?;
    let place = own.ancestors().nth(2).context("not built by cargo")?.join("dashboard");
    std::fs::create_dir_all(&place)?;
    for name in SOURCES {
        let (from, to) = (root.join("dashboard").join(name), place.join(name));
        if to.is_dir() {
            std::fs::remove_dir_all(&to)?;
        }
        copy(&from, &to).with_context(|| format!("dashboard/{name}"))?;
    }
    let lock = std::fs::read(place.join("package-lock.json"))?;
    let installed = place.join("installed");
    if std::fs::read(&installed).is_ok_and(|installed| installed == lock) {
        return Ok(place);
    }
    let mut npm = Command::new("timeout");
    npm.args([INSTALL_SECONDS, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"]);
    succeed(npm.current_dir(&place).stdout(Stdio::null()))?;
    // Half an install must not pass for one.
    std::fs::write(&installed, lock)?;
    Ok(place)
}

/// Checks the types and builds; gives the files that differ from the committed ones, which are written unless that is only checked.
fn bundle(root: &Path, place: &Path, check: bool) -> anyhow::Result<Vec<String>> {
    succeed(Command::new(place.join("node_modules/.bin/tsc")).args(["-p", "."]).current_dir(place))?;
    let built = place.join("bundle");
    if built.exists() {
        std::fs::remove_dir_all(&built)?;
    }
    succeed(Command::new("node").arg("build.mjs").arg(&built).current_dir(place))?;
    let committed = root.join(BUNDLE);
    let mut stale = Vec::new();
    for name in names(&built)? {
        let bytes = std::fs::read(built.join(&name))?;
        if std::fs::read(committed.join(&name)).is_ok_and(|committed| committed == bytes) {
            continue;
        }
        if !check {
            std::fs::create_dir_all(&committed)?;
            std::fs::write(committed.join(&name), bytes)?;
            println!("wrote {BUNDLE}/{name}");
        }
        stale.push(name);
    }
    for name in names(&committed)?.into_iter().filter(|name| !built.join(name).exists()) {
        if !check {
            std::fs::remove_file(committed.join(&name))?;
        }
        stale.push(name);
    }
    Ok(stale)
}

/// Runs the tests in Chromium.
fn test(root: &Path, place: &Path) -> anyhow::Result<ExitCode> {
    let Some(chromium) = chromium() else {
        println!("SKIPPED: no Chromium is installed, and it cannot be installed here (apt-get install chromium)");
        return Ok(ExitCode::SUCCESS);
    };
    let mut node = node(root, place, &chromium)?;
    node.args(["--test", "--test-reporter=spec", "--test-concurrency=2"]);
    let tests = names(&place.join(TESTS))?.into_iter().filter(|name| name.ends_with(".test.mjs"));
    node.args(tests.map(|name| format!("{TESTS}/{name}")));
    let passed = node.status().context("node cannot be run")?.success();
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Takes the pictures of docs/.
fn screenshots(root: &Path, place: &Path) -> anyhow::Result<ExitCode> {
    let chromium =
        chromium().context("no Chromium is installed, and it cannot be installed here (apt-get install chromium)")?;
    let taken = place.join("screenshots");
    succeed(node(root, place, &chromium)?.arg(SCREENSHOTS).arg(&taken))?;
    for name in PICTURES {
        std::fs::copy(taken.join(name), root.join("docs").join(name)).with_context(|| format!("docs/{name}"))?;
        println!("wrote docs/{name}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Node with what the tests and the pictures need: a binary with the committed bundle, Chromium, and an agent.
fn node(root: &Path, place: &Path, chromium: &Path) -> anyhow::Result<Command> {
    let [pinfold] = cargo_build::build(root, cargo_build::Profile::Dev, ["pinfold"])?;
    let mut node = Command::new("timeout");
    node.args(["--kill-after=10", TEST_SECONDS, "node"]).current_dir(place).stdin(Stdio::null());
    node.env("PINFOLD_BINARY", pinfold).env("PINFOLD_CHROMIUM", chromium);
    node.env("PINFOLD_FAKE_AGENT", root.join("crates/cli/tests/behaviours/agents/fake.sh"));
    Ok(node)
}

/// Chromium from the environment, from the path, or installed now where we may.
fn chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("PINFOLD_CHROMIUM") {
        return Some(PathBuf::from(named));
    }
    if let Some(found) = in_path() {
        return Some(found);
    }
    if is_root() {
        let mut apt = Command::new("timeout");
        apt.args([INSTALL_SECONDS, "apt-get", "install", "--yes", "--quiet", "chromium"]);
        let _ = apt.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    in_path()
}

fn in_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let programs = ["chromium", "chromium-browser", "google-chrome"];
    let mut places = std::env::split_paths(&path).flat_map(|folder| programs.map(|name| folder.join(name)));
    places.find(|place| place.is_file())
}

fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if !from.is_dir() {
        std::fs::copy(from, to)?;
        return Ok(());
    }
    std::fs::create_dir_all(to)?;
    for name in names(from)? {
        copy(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_os_string();
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("{program:?} cannot be run"))?;
    ensure!(status.success(), "{program:?}: {status}");
    Ok(())
}
