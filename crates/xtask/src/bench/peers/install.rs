//! Installs other tools from Debian, PyPI, npm and crates.io below target/peers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

/// Timeout of one install: some are built from source.
const DEADLINE: Duration = Duration::from_secs(1200);

/// The source of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Debian(&'static str),
    Python(&'static str),
    Npm(&'static str),
    Rust(&'static str),
}

impl Source {
    /// Installs it unless it is installed; returns the directory of its programs.
    pub(super) fn install(self, below: &Path) -> anyhow::Result<PathBuf> {
        let (package, programs) = match self {
            Source::Debian(package) => (package, "usr/bin"),
            Source::Python(package) | Source::Rust(package) => (package, "bin"),
            Source::Npm(package) => (package, "node_modules/.bin"),
        };
        let place = below.join(package.replace(['/', '@', '='], "_"));
        let programs = place.join(programs);
        if place.join("installed").exists() {
            return Ok(programs);
        }
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place)?;
        eprintln!("bench: installing {package} …");
        self.fetch(&place)?;
        std::fs::write(place.join("installed"), "")?;
        Ok(programs)
    }

    fn fetch(self, place: &Path) -> anyhow::Result<()> {
        match self {
            Source::Debian(package) => {
                run(Command::new("apt-get").args(["download", package]).current_dir(place))?;
                let found = std::fs::read_dir(place)?.flatten().map(|entry| entry.path());
                let archive = found.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "deb"));
                run(Command::new("dpkg").arg("-x").arg(archive.context("no archive came")?).arg(place))
            }
            Source::Python(package) => {
                run(Command::new("python3").args(["-m", "venv"]).arg(place))?;
                let mut pip = Command::new(place.join("bin/pip"));
                // One tool requires a newer Python than it needs.
                pip.args(["install", "--quiet", "--disable-pip-version-check", "--ignore-requires-python", package]);
                run(&mut pip)
            }
            Source::Npm(package) => {
                // A dependency of one tool requires a version that was never published. Install scripts are skipped: one downloads a
                // browser, which is not needed.
                std::fs::write(place.join("package.json"), r#"{"overrides":{"typedarray.prototype.slice":"1.0.5"}}"#)?;
                let mut npm = Command::new("npm");
                run(npm.args(["install", "--ignore-scripts", "--silent", "--prefix"]).arg(place).arg(package))
            }
            Source::Rust(package) => {
                let install = |exactly: Option<&str>| {
                    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                    cargo.args(["install", "--quiet", "--root"]).arg(place).args(exactly).arg(package);
                    run(cargo.env("CARGO_TARGET_DIR", place.join("build")))
                };
                // Not --locked: a locked version may have been removed from the registry.
                install(Some("--locked")).or_else(|_| install(None))?;
                Ok(std::fs::remove_dir_all(place.join("build"))?)
            }
        }
    }
}

/// Runs a command with a timeout; its output is shown if it fails.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let log = tempfile(command)?;
    let words = std::fs::File::create(&log)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(words.try_clone()?)
        .stderr(words)
        .spawn()
        .with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let deadline = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("took longer than {DEADLINE:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let _ = std::fs::remove_file(&log);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    ensure!(status.success(), "{status}: {last}");
    Ok(())
}

fn tempfile(command: &Command) -> anyhow::Result<PathBuf> {
    let program = Path::new(command.get_program()).file_name().context("no program")?;
    Ok(std::env::temp_dir().join(format!("pinfold-bench-{}-{}", std::process::id(), program.display())))
}
