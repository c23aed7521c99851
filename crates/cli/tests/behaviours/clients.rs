//! Programs beside the daemon: `pinfold` in the foreground, unrelated processes, and finding processes by their
//! environment.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use pinfold_testkit::{Cli, Pidfd, Pinfold, alive, until_some};

/// A command that runs in parallel with the test, in its own process group. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Starts `pinfold` with these arguments.
    pub(crate) fn start(pinfold: &Pinfold, arguments: &[&str]) -> Self {
        Self::spawn(pinfold.command(arguments))
    }

    /// Starts a command in parallel with the test.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().expect("a client");
        let stdout = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, stdout }
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it handles TERM, so that the signal does not kill it.
    pub(crate) fn until_it_takes_term(&self) {
        const TERM: u64 = 1 << (15 - 1);
        let status = format!("/proc/{}/status", self.pid());
        pinfold_testkit::until("a handler for TERM", || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & TERM != 0)
        });
    }

    /// Sends a signal to it alone.
    pub(crate) fn signal(&self, number: i32) {
        Pidfd::open(self.child.id()).expect("it is not reaped").signal(number);
    }

    /// Sends a signal to its whole group, whose id is reserved until it is reaped.
    pub(crate) fn signal_group(&self, number: i32) {
        let group = format!("-{}", self.child.id());
        let kill = Command::new("kill").args([&format!("-{number}"), "--", &group]).status();
        assert!(kill.expect("kill").success(), "{group}");
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits until it exits, up to the deadline of tests.
    pub(crate) fn end(mut self) -> Cli {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let status = until_some("the end of a client", || self.child.try_wait().expect("a child"));
        self.stdout.read_to_string(&mut stdout).expect("text");
        let mut pipe = self.child.stderr.take().expect("its errors");
        pipe.read_to_string(&mut stderr).expect("text");
        Cli { code: status.code(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that has nothing to do with pinfold and must not be signalled. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Bystander(Child);

impl Bystander {
    pub(crate) fn start() -> Self {
        Self(Command::new("sleep").arg("300").spawn().expect("a bystander"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn lives(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processes that have this in their environment.
pub(crate) fn carriers_of(mark: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let carries = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes()) && alive(*pid)
    };
    pids.filter(carries).collect()
}
