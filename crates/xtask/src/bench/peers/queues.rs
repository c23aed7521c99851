//! Queues of shell commands: task-spooler, nq and pueue, configured to run all jobs at once.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use super::peer::{Peer, ToolDir, code_of, file_tail, output_of, polled};

/// Number of concurrent jobs: more than are ever started.
const ROOM: &str = "2000";

#[derive(Debug)]
pub(super) struct TaskSpooler {
    pub(super) den: ToolDir,
    pub(super) programs: PathBuf,
}

impl TaskSpooler {
    fn tsp(&self, arguments: &[&str]) -> Command {
        let mut command = self.den.command(self.programs.join("tsp"));
        command.env("TS_SOCKET", self.den.directory.join("socket")).env("TMPDIR", &self.den.directory);
        command.env("TS_SLOTS", ROOM).env("TS_MAXCONN", ROOM).args(arguments);
        command
    }
}

impl Peer for TaskSpooler {
    fn name(&self) -> &'static str {
        "task-spooler"
    }

    fn boot(&self) -> anyhow::Result<()> {
        code_of(&mut self.tsp(&["-l"])).map(drop)
    }

    fn start(&self, script: &str) -> anyhow::Result<String> {
        output_of(&mut self.tsp(&["sh", "-c", script]))
    }

    fn wait(&self, job: &str) -> anyhow::Result<Option<i32>> {
        code_of(&mut self.tsp(&["-w", job]))
    }

    fn tail(&self, job: &str) -> anyhow::Result<String> {
        file_tail(output_of(&mut self.tsp(&["-o", job]))?.as_ref())
    }

    fn stop(&self, job: &str) -> anyhow::Result<()> {
        code_of(&mut self.tsp(&["-k", job])).map(drop)
    }

    fn server(&self) -> Option<&'static str> {
        // The server is forked from the first client and has the same name.
        Some("tsp -l")
    }
}

#[derive(Debug)]
pub(super) struct Nq {
    pub(super) den: ToolDir,
    pub(super) programs: PathBuf,
}

impl Nq {
    fn nq(&self, directory: &str) -> Command {
        let mut command = self.den.command(self.programs.join("nq"));
        command.env("NQDIR", self.den.directory.join(directory));
        command
    }
}

impl Peer for Nq {
    fn name(&self) -> &'static str {
        "nq"
    }

    fn boot(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// One queue runs one job at a time, so each job gets a queue of its own.
    fn start(&self, script: &str) -> anyhow::Result<String> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let queue = format!("q{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let job = output_of(self.nq(&queue).args(["sh", "-c", script]))?;
        Ok(format!("{queue}/{job}"))
    }

    fn wait(&self, job: &str) -> anyhow::Result<Option<i32>> {
        let (queue, file) = job.split_once('/').context("a job of nq")?;
        code_of(self.nq(queue).args(["-w", file]))?;
        let said = self.tail(job)?;
        let code = said.rsplit_once("[exited with status ").and_then(|(_, rest)| rest.split_once('.'));
        Ok(code.and_then(|(code, _)| code.parse().ok()))
    }

    fn tail(&self, job: &str) -> anyhow::Result<String> {
        let text = file_tail(&self.den.directory.join(job))?;
        Ok(text)
    }

    /// nq has no stop: use the pid in the name of the job.
    fn stop(&self, job: &str) -> anyhow::Result<()> {
        let pid = job.rsplit_once('.').context("a job of nq")?.1;
        let pidfd = pinfold_testkit::Pidfd::open(pid.parse()?);
        pidfd.inspect(|keeper| keeper.signal(15));
        Ok(())
    }

    fn server(&self) -> Option<&'static str> {
        None
    }
}

#[derive(Debug)]
pub(super) struct Pueue {
    pub(super) den: ToolDir,
    pub(super) programs: PathBuf,
}

impl Pueue {
    fn command(&self, program: &str) -> Command {
        let mut command = self.den.command(self.programs.join(program));
        command.env("XDG_CONFIG_HOME", &self.den.directory).env("XDG_DATA_HOME", &self.den.directory);
        command.env("XDG_RUNTIME_DIR", &self.den.directory);
        command
    }

    fn state_of(&self, job: &str) -> anyhow::Result<Value> {
        let status = output_of(self.command("pueue").args(["status", "--json"]))?;
        let mut status: Value = serde_json::from_str(&status)?;
        Ok(status["tasks"][job]["status"].take())
    }
}

impl Peer for Pueue {
    fn name(&self) -> &'static str {
        "pueue"
    }

    fn boot(&self) -> anyhow::Result<()> {
        self.command("pueued").arg("--daemonize").stdout(Stdio::null()).status()?;
        let answers =
            || Ok(self.command("pueue").arg("status").stdout(Stdio::null()).status()?.success().then_some(()));
        polled(Duration::from_millis(20), answers)?;
        output_of(self.command("pueue").args(["parallel", ROOM])).map(drop)
    }

    fn start(&self, script: &str) -> anyhow::Result<String> {
        output_of(self.command("pueue").args([
            "add",
            "--print-task-id",
            "--immediate",
            "--escape",
            "--",
            "sh",
            "-c",
            script,
        ]))
    }

    /// `pueue wait` polls every two seconds; polling the status is faster.
    fn wait(&self, job: &str) -> anyhow::Result<Option<i32>> {
        let done = polled(Duration::from_millis(5), || {
            let state = self.state_of(job)?;
            Ok(state.get("Done").map(|done| done["result"].clone()))
        })?;
        Ok(match &done {
            Value::String(word) if word == "Success" => Some(0),
            other => other["Failed"].as_i64().and_then(|code| i32::try_from(code).ok()),
        })
    }

    fn tail(&self, job: &str) -> anyhow::Result<String> {
        output_of(self.command("pueue").args(["log", "--lines", "20", job]))
    }

    fn stop(&self, job: &str) -> anyhow::Result<()> {
        code_of(self.command("pueue").args(["kill", job])).map(drop)
    }

    fn server(&self) -> Option<&'static str> {
        Some("pueued")
    }
}
