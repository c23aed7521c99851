//! The operations of every tool, including pinfold: start, wait, read, stop.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use pinfold_testkit::{Pidfd, carriers};

/// Timeout of everything except the work itself.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// An installed tool. A job is identified by the tool's own name for it.
pub(super) trait Peer: Sync {
    fn name(&self) -> &'static str;
    /// Starts its server, if it has one. Called again after the server was killed.
    fn boot(&self) -> anyhow::Result<()>;
    /// Resets its state after all its processes were killed, before it is started again.
    fn reset(&self) {}
    /// Starts `sh -c script`.
    fn start(&self, script: &str) -> anyhow::Result<String>;
    /// Waits for the end of a job; returns its exit code if the tool knows it.
    fn wait(&self, job: &str) -> anyhow::Result<Option<i32>>;
    /// The end of its output, at least the last line.
    fn tail(&self, job: &str) -> anyhow::Result<String>;
    /// Stops a job as users do.
    fn stop(&self, job: &str) -> anyhow::Result<()>;
    /// A part of its server's command line, if it has a server.
    fn server(&self) -> Option<&'static str>;
}

/// The directory of one tool, and the mark that identifies its processes.
#[derive(Clone, Debug)]
pub(super) struct ToolDir {
    pub(super) directory: PathBuf,
    mark: String,
}

impl ToolDir {
    pub(super) fn make(below: &Path, name: &str) -> anyhow::Result<Self> {
        let directory = below.join(name);
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(ToolDir { directory, mark: format!("{}{name}", marks_of_this_run()) })
    }

    /// A command of the tool, with the mark in its environment.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let (name, value) = self.mark.split_once('=').unwrap_or_default();
        command.env(name, value).env("HOME", &self.directory).current_dir(&self.directory);
        command.env_remove("TMUX").stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// All processes with the mark.
    pub(super) fn processes(&self) -> Vec<u32> {
        carriers::carriers_of(&self.mark).iter().map(|member| member.pid).collect()
    }

    /// Kills all processes with the mark; returns when they are gone.
    pub(super) fn clear(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        while !self.processes().is_empty() {
            ensure!(Instant::now() < deadline, "{:?} of {} do not end", self.processes(), self.mark);
            carriers::kill_carriers(&self.mark);
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Prefix of the marks of this run.
pub(in crate::bench) fn marks_of_this_run() -> String {
    format!("PINFOLD_BENCH_MARK={}-", std::process::id())
}

/// Runs a command; returns its output without the last newline. Fails if the command fails.
pub(super) fn output_of(command: &mut Command) -> anyhow::Result<String> {
    let child = command.stdout(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let _watch = Watch::over(child.id());
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{} ended with {}", named(command), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// A command line without the environment, and without scripts.
fn named(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().display().to_string();
    let short = command.get_args().map(|word| word.display().to_string()).filter(|word| word.len() < 20);
    format!("`{}`", [program].into_iter().chain(short).collect::<Vec<_>>().join(" "))
}

/// Runs a command; returns its exit code.
pub(super) fn code_of(command: &mut Command) -> anyhow::Result<Option<i32>> {
    let child = command.stdout(Stdio::null()).spawn();
    let mut child = child.with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let _watch = Watch::over(child.id());
    Ok(child.wait()?.code())
}

/// Kills a program that takes too long, unless dropped before.
struct Watch {
    _done: Sender<()>,
}

impl Watch {
    fn over(pid: u32) -> Self {
        let (done, waits) = channel();
        if let Some(pidfd) = Pidfd::open(pid) {
            std::thread::spawn(move || {
                if waits.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout) {
                    pidfd.kill();
                }
            });
        }
        Watch { _done: done }
    }
}

/// Polls, for tools without a wait.
pub(super) fn polled<T>(pause: Duration, mut ask: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            bail!("no answer after {DEADLINE:?}");
        }
        std::thread::sleep(pause);
    }
}

/// The end of a file.
pub(super) fn file_tail(path: &Path) -> anyhow::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    const TAIL: u64 = 4096;
    let mut file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(end.saturating_sub(TAIL)))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
