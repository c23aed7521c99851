//! The baseline: a command spawned and waited for by this program itself.
//!
//! `std` uses posix_spawn if nothing runs between fork and exec, as here.

use std::io::Read;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Name of the baseline in the report.
pub(super) const SPAWN_AND_WAIT: &str = "posix_spawn + waitpid of `sh -c true`, streams at /dev/null";

/// `sh -c true`, spawned and waited for.
pub(super) fn spawn_and_wait() -> anyhow::Result<()> {
    let status = shell("true").stdout(Stdio::null()).status().context("cannot run sh")?;
    ensure!(status.success(), "`true` ended with {status}");
    Ok(())
}

/// The same with its output read to the end through a pipe.
pub(super) fn spawn_read_and_wait() -> anyhow::Result<()> {
    let mut child = shell("true").stdout(Stdio::piped()).spawn().context("cannot run sh")?;
    let mut output = Vec::new();
    child.stdout.take().context("no pipe")?.read_to_end(&mut output)?;
    let status = child.wait()?;
    ensure!(status.success() && output.is_empty(), "`true` ended with {status}");
    Ok(())
}

/// A shell command, run to its end.
pub(super) fn run(command: &str) -> anyhow::Result<()> {
    let status = shell(command).stdout(Stdio::null()).status().context("cannot run sh")?;
    ensure!(status.success(), "`{command}` ended with {status}");
    Ok(())
}

fn shell(command: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stderr(Stdio::null());
    shell
}
