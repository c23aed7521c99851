//! What is asked of every tool, pinfold among them: start, wait, read, stop.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use pinfold_testkit::{Pidfd, carriers};

/// How long anything may take that is not the work itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A tool, installed. A job is named by whatever the tool calls it.
pub(super) trait Peer: Sync {
    fn name(&self) -> &'static str;
    /// Brings up its server, or does nothing where there is none. Called again after the server was killed.
    fn boot(&self) -> anyhow::Result<()>;
    /// Forgets what was before, when all of its processes were ended and it is to be booted anew.
    fn reset(&self) {}
    /// Starts `sh -c script`.
    fn start(&self, script: &str) -> anyhow::Result<String>;
    /// Waits for the end of a job; its exit code, if the tool knows it.
    fn wait(&self, job: &str) -> anyhow::Result<Option<i32>>;
    /// The end of its output, at least the last line of it.
    fn tail(&self, job: &str) -> anyhow::Result<String>;
    /// Stops it, the way its users do.
    fn stop(&self, job: &str) -> anyhow::Result<()>;
    /// What the command line of its server holds, for those that have one.
    fn server(&self) -> Option<&'static str>;
}

/// Where one tool lives while it is measured, and the mark by which its processes are known.
#[derive(Clone, Debug)]
pub(super) struct Den {
    pub(super) directory: PathBuf,
    mark: String,
}

impl Den {
    pub(super) fn make(below: &Path, name: &str) -> anyhow::Result<Self> {
        let directory = below.join(name);
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Den { directory, mark: format!("{}{name}", marks_of_this_run()) })
    }

    /// A program of the tool, with the mark in its environment, in the tool's own home.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let (name, value) = self.mark.split_once('=').unwrap_or_default();
        command.env(name, value).env("HOME", &self.directory).current_dir(&self.directory);
        command.env_remove("TMUX").stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Everybody who carries the mark.
    pub(super) fn processes(&self) -> Vec<u32> {
        carriers::carriers_of(&self.mark).iter().map(|member| member.pid).collect()
    }

    /// Ends everybody who carries the mark; returns when they are gone.
    pub(super) fn clear(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.processes().is_empty() {
            ensure!(Instant::now() < deadline, "{:?} of {} do not end", self.processes(), self.mark);
            carriers::kill_carriers(&self.mark);
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// What the mark of every process begins with that a tool of this run started.
pub(in crate::bench) fn marks_of_this_run() -> String {
    format!("PINFOLD_BENCH_MARK={}-", std::process::id())
}

/// Runs to the end; what it printed, without the last newline. Fails if the program does.
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

/// Runs to the end; its exit code.
pub(super) fn code_of(command: &mut Command) -> anyhow::Result<Option<i32>> {
    let child = command.stdout(Stdio::null()).spawn();
    let mut child = child.with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let _watch = Watch::over(child.id());
    Ok(child.wait()?.code())
}

/// Kills a program that takes too long, unless it is dropped before. Tools hang.
struct Watch {
    _done: Sender<()>,
}

impl Watch {
    fn over(pid: u32) -> Self {
        let (done, waits) = channel();
        if let Some(pidfd) = Pidfd::open(pid) {
            std::thread::spawn(move || {
                if waits.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    pidfd.kill();
                }
            });
        }
        Watch { _done: done }
    }
}

/// Asks again and again, for tools in which nothing can be waited for.
pub(super) fn polled<T>(pause: Duration, mut ask: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            bail!("no answer after {PATIENCE:?}");
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
