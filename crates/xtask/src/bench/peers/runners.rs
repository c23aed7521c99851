//! Process runners with a server and a command line: agent-procs and shep.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use super::peer::{Peer, ToolDir, code_of, file_tail, output_of, polled};

/// A unique job name.
fn next_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("job{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

#[derive(Debug)]
pub(super) struct AgentProcs {
    pub(super) den: ToolDir,
    pub(super) programs: PathBuf,
    /// Each session has a server; a session whose server is a zombie cannot be used again.
    pub(super) session: AtomicU32,
}

impl AgentProcs {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.den.command(self.programs.join("agent-procs"));
        command.env("XDG_STATE_HOME", &self.den.directory).env("XDG_RUNTIME_DIR", &self.den.directory);
        let session = format!("bench{}", self.session.load(Ordering::Relaxed));
        command.args(["--session", &session]).args(arguments);
        command
    }
}

impl Peer for AgentProcs {
    fn name(&self) -> &'static str {
        "agent-procs"
    }

    fn reset(&self) {
        self.session.fetch_add(1, Ordering::Relaxed);
    }

    /// The first job starts the server.
    fn boot(&self) -> anyhow::Result<()> {
        output_of(&mut self.command(&["run", "true", "--name", &format!("boot-{}", next_name())])).map(drop)
    }

    fn start(&self, script: &str) -> anyhow::Result<String> {
        let name = next_name();
        output_of(&mut self.command(&["run", script, "--name", &name]))?;
        Ok(name)
    }

    fn wait(&self, job: &str) -> anyhow::Result<Option<i32>> {
        let said = output_of(&mut self.command(&["wait", job, "--exit", "--timeout", "60"]))?;
        Ok(said.rsplit(' ').next().and_then(|code| code.parse().ok()))
    }

    fn tail(&self, job: &str) -> anyhow::Result<String> {
        output_of(&mut self.command(&["logs", job, "--tail", "20"]))
    }

    fn stop(&self, job: &str) -> anyhow::Result<()> {
        code_of(&mut self.command(&["stop", job])).map(drop)
    }

    fn server(&self) -> Option<&'static str> {
        Some("run-daemon")
    }
}

#[derive(Debug)]
pub(super) struct Shep {
    pub(super) den: ToolDir,
    pub(super) programs: PathBuf,
}

impl Shep {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.den.command(self.programs.join("shep"));
        command.env("SHEP_HOME", self.den.directory.join("shep")).args(arguments);
        command
    }

    fn all(&self) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&output_of(&mut self.command(&["ls", "--format", "json"]))?)?)
    }
}

impl Peer for Shep {
    fn name(&self) -> &'static str {
        "shep"
    }

    fn boot(&self) -> anyhow::Result<()> {
        std::fs::create_dir_all(self.den.directory.join("shep"))?;
        output_of(&mut self.command(&["start"])).map(drop)
    }

    fn start(&self, script: &str) -> anyhow::Result<String> {
        let name = next_name();
        let file = self.den.directory.join(format!("{name}.sh"));
        std::fs::write(&file, script)?;
        // Running something once is only possible with such a file.
        let app = json!({ "name": name, "script": file, "interpreter": "/bin/sh", "autorestart": false });
        let flock = file.with_extension("json");
        std::fs::write(&flock, json!({ "app": [app] }).to_string())?;
        output_of(&mut self.command(&["start", "--flockfile", flock.to_str().context("a path")?]))?;
        Ok(name)
    }

    fn wait(&self, job: &str) -> anyhow::Result<Option<i32>> {
        polled(Duration::from_millis(1), || Ok(ended(&self.all()?, job)))
    }

    fn tail(&self, job: &str) -> anyhow::Result<String> {
        file_tail(&self.den.directory.join("shep/logs").join(format!("{job}-0-out.log")))
    }

    fn stop(&self, job: &str) -> anyhow::Result<()> {
        code_of(&mut self.command(&["stop", job])).map(drop)
    }

    fn server(&self) -> Option<&'static str> {
        Some("daemon")
    }
}

/// The exit code of a job that has ended.
fn ended(all: &Value, job: &str) -> Option<Option<i32>> {
    let entry = find(all, job)?;
    let over = matches!(entry["status"].as_str(), Some("stopped" | "exited" | "errored" | "failed"));
    over.then(|| entry["last_exit"]["code"].as_i64().and_then(|code| i32::try_from(code).ok()))
}

/// The object with this name, at any depth.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) if fields.get("name").is_some_and(|own| own == name) => Some(value),
        Value::Object(fields) => fields.values().find_map(|value| find(value, name)),
        Value::Array(values) => values.iter().find_map(|value| find(value, name)),
        _ => None,
    }
}
