//! What every installed package must do: run a command, keep a process, and leave nothing behind.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::output;

/// A home of its own for the program of a package.
pub(super) struct Trial {
    home: PathBuf,
    /// The program and its leading arguments.
    command: Vec<PathBuf>,
}

impl Trial {
    /// Of a program, with a home below this directory.
    pub(super) fn new(place: &Path, command: &[&Path]) -> anyhow::Result<Self> {
        let home = std::env::temp_dir().join(format!("pinfold-package-{}", std::process::id()));
        super::remove(&home)?;
        std::fs::create_dir_all(&home)?;
        ensure!(place.is_dir(), "{} is no directory", place.display());
        Ok(Self { home, command: command.iter().map(|word| word.to_path_buf()).collect() })
    }

    /// A command of the program. It finds nothing of the machine's own pinfold.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).args(arguments).env("PINFOLD_HOME", &self.home).env("HOME", &self.home);
        command.current_dir(&self.home);
        command
    }

    /// Tries what the README begins with.
    pub(super) fn run(&self, version: &str) -> anyhow::Result<()> {
        let said = output(&mut self.command(&["--version"]))?;
        ensure!(said.trim() == format!("pinfold {version}"), "it says {said}");
        let said = output(&mut self.command(&["run", "--", "echo", "kept"]))?;
        ensure!(said == "kept\n", "it printed {said:?}");
        let failed = self.command(&["run", "exit 7"]).output()?;
        ensure!(failed.status.code() == Some(7), "the exit code was {:?}", failed.status);
        let id = output(&mut self.command(&["run", "-d", "sleep 600"]))?;
        let list = output(&mut self.command(&["ps"]))?;
        ensure!(list.contains(id.trim()), "{id} is not in {list}");
        Ok(())
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let stopped =
            output(&mut self.command(&["daemon", "stop", "--all"])).context("cannot stop the daemon of a trial");
        if let Err(error) = stopped.and_then(|_| super::remove(&self.home)) {
            eprintln!("xtask: {error:#}");
        }
    }
}
