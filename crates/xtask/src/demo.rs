//! `cargo xtask demo`: builds pinfold, runs a command that leaves a stray, and shows that it is listed and stopped. Uses a home
//! of its own and leaves nothing behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo_build::{Profile, build};

/// A command that leaves a stray.
const COMMAND: &str = "setsid sleep 300 & echo up";

/// Runs it.
pub fn run(workspace: &Path) -> Result<()> {
    let [binary] = build(workspace, Profile::Dev, ["pinfold"])?;
    let home = std::env::temp_dir().join(format!("pinfold-demo-{}", std::process::id()));
    let demo = Demo { binary, home };
    let shown = demo.show();
    let _ = demo.command(&["daemon", "stop", "--all"]).stdout(Stdio::null()).status();
    let _ = std::fs::remove_dir_all(&demo.home);
    shown
}

struct Demo {
    binary: PathBuf,
    home: PathBuf,
}

impl Demo {
    fn show(&self) -> Result<()> {
        println!("A command that leaves a child in another session:");
        self.step(&["run", COMMAND])?;
        println!("It returned at once, and the child is listed:");
        self.step(&["ps"])?;
        let id = self.newest()?;
        self.step(&["show", &id])?;
        println!("Stop ends the whole tree, as confirmed by the kernel:");
        self.step(&["stop", &id])?;
        self.step(&["ps"])?;
        self.step(&["events"])
    }

    /// Prints a command as it would be typed, and runs it.
    fn step(&self, arguments: &[&str]) -> Result<()> {
        let typed: Vec<_> = arguments.iter().map(|word| quoted(word)).collect();
        println!("\n$ pinfold {}", typed.join(" "));
        let status = self.command(arguments).status().context("pinfold cannot be executed")?;
        println!();
        ensure!(status.success(), "pinfold {} ended with {status}", typed.join(" "));
        Ok(())
    }

    fn newest(&self) -> Result<String> {
        let output = self.command(&["ps", "--json"]).stdout(Stdio::piped()).output()?;
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).context("ps --json is JSON")?;
        let id = list["processes"][0]["id"].as_str().context("ps lists the process")?;
        Ok(id.to_owned())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).env("PINFOLD_HOME", &self.home).stdin(Stdio::null());
        command
    }
}

fn quoted(word: &str) -> String {
    if word.contains(' ') { format!("'{word}'") } else { word.to_owned() }
}
