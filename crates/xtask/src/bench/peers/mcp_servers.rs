//! MCP servers that run commands: desktop-commander and mcp-background-job, used as by an agent.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::peer::{DEADLINE, Peer, ToolDir, polled};
use super::wire::Wire;

/// The server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    DesktopCommander,
    BackgroundJob,
}

#[derive(Debug)]
pub(super) struct McpServer {
    den: ToolDir,
    programs: PathBuf,
    kind: Kind,
    wire: Mutex<Option<Arc<Wire>>>,
}

impl McpServer {
    pub(super) fn new(kind: Kind, den: ToolDir, programs: PathBuf) -> Self {
        McpServer { den, programs, kind, wire: Mutex::new(None) }
    }

    /// The result of a tool, as text and as structured content.
    fn tool(&self, name: &str, arguments: Value) -> anyhow::Result<(String, Value)> {
        let wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner).clone().context("not booted")?;
        let params = json!({ "name": name, "arguments": arguments });
        let mut result = wire.call("tools/call", params, DEADLINE * 3)?;
        let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        if result["isError"] == true {
            bail!("{text}");
        }
        Ok((text, result["structuredContent"].take()))
    }

    /// desktop-commander's status of a job, after waiting at most this long.
    fn read(&self, pid: &str, wait: Duration) -> anyhow::Result<String> {
        let arguments = json!({ "pid": pid.parse::<u64>()?, "timeout_ms": wait.as_millis() as u64, "offset": -20 });
        Ok(self.tool("read_process_output", arguments)?.0)
    }
}

impl Peer for McpServer {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::DesktopCommander => "desktop-commander",
            Kind::BackgroundJob => "mcp-background-job",
        }
    }

    fn boot(&self) -> anyhow::Result<()> {
        let mut command = self.den.command(self.programs.join(self.name()));
        match self.kind {
            Kind::DesktopCommander => command.env("SHELL", "/bin/sh"),
            // The maximum that it allows.
            Kind::BackgroundJob => command.env("MCP_BG_MAX_JOBS", "100"),
        };
        let wire = Wire::open(&mut command)?;
        let client = json!({ "name": "bench", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        wire.call("initialize", hello, DEADLINE)?;
        wire.notify("notifications/initialized")?;
        *self.wire.lock().unwrap_or_else(PoisonError::into_inner) = Some(wire.into());
        Ok(())
    }

    fn start(&self, script: &str) -> anyhow::Result<String> {
        match self.kind {
            Kind::DesktopCommander => {
                let arguments = json!({ "command": script, "timeout_ms": 1, "shell": "/bin/sh" });
                let (text, _) = self.tool("start_process", arguments)?;
                let pid = text.split_once("PID ").and_then(|(_, rest)| rest.split_whitespace().next());
                pid.map(str::to_owned).with_context(|| format!("no pid in {text:?}"))
            }
            Kind::BackgroundJob => {
                let quoted = script.replace('\'', "'\\''");
                let (_, job) = self.tool("execute_command", json!({ "command": format!("sh -c '{quoted}'") }))?;
                job["job_id"].as_str().map(str::to_owned).context("no job")
            }
        }
    }

    fn wait(&self, job: &str) -> anyhow::Result<Option<i32>> {
        match self.kind {
            Kind::DesktopCommander => polled(Duration::from_millis(1), || {
                let text = self.read(job, Duration::from_secs(30))?;
                let code = text.rsplit_once("completed with exit code ");
                Ok(code.map(|(_, rest)| rest.split_whitespace().next().and_then(|code| code.parse().ok())))
            }),
            // It has neither exit codes nor waits.
            Kind::BackgroundJob => polled(Duration::from_millis(1), || {
                let (_, state) = self.tool("get_job_status", json!({ "job_id": job }))?;
                Ok((state["status"] != "running").then_some(None))
            }),
        }
    }

    fn tail(&self, job: &str) -> anyhow::Result<String> {
        match self.kind {
            Kind::DesktopCommander => self.read(job, Duration::from_millis(1)),
            Kind::BackgroundJob => {
                let (_, output) = self.tool("tail_job_output", json!({ "job_id": job, "lines": 20 }))?;
                Ok(output["stdout"].as_str().unwrap_or_default().to_owned())
            }
        }
    }

    fn stop(&self, job: &str) -> anyhow::Result<()> {
        let (tool, arguments) = match self.kind {
            Kind::DesktopCommander => ("force_terminate", json!({ "pid": job.parse::<u64>()? })),
            Kind::BackgroundJob => ("kill_job", json!({ "job_id": job })),
        };
        self.tool(tool, arguments).map(drop)
    }

    fn server(&self) -> Option<&'static str> {
        Some(self.name())
    }
}
