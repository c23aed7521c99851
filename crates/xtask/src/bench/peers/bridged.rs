//! Tools that are libraries or servers with their own protocol: supervisord, pm2 and hermes-agent's registry. Each is used through
//! a short bridge in its own language, so that the cost of a command line is not measured.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::peer::{DEADLINE, Peer, ToolDir, polled};
use super::wire::Wire;

/// The tool behind a bridge.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Supervisor,
    Pm2,
    Hermes,
}

#[derive(Debug)]
pub(super) struct Bridged {
    den: ToolDir,
    programs: PathBuf,
    kind: Kind,
    // Cloned for each call, so that calls do not block each other.
    wire: Mutex<Option<std::sync::Arc<Wire>>>,
}

impl Bridged {
    pub(super) fn new(kind: Kind, den: ToolDir, programs: PathBuf) -> Self {
        Bridged { den, programs, kind, wire: Mutex::new(None) }
    }

    fn call(&self, method: &str, argument: &str) -> anyhow::Result<Value> {
        let wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner).clone();
        wire.context("not booted")?.call(method, json!([argument]), DEADLINE * 3)
    }

    fn bridge(&self) -> anyhow::Result<Command> {
        let (name, text) = match self.kind {
            // Not named supervisor.py: Python would import the script instead of the package.
            Kind::Supervisor => ("bridge.py", include_str!("bridges/supervisor.py")),
            Kind::Pm2 => ("pm2.js", include_str!("bridges/pm2.js")),
            Kind::Hermes => ("hermes.py", include_str!("bridges/hermes.py")),
        };
        let script = self.den.directory.join(name);
        std::fs::write(&script, text)?;
        let mut command = match self.kind {
            Kind::Pm2 => self.den.command("node"),
            Kind::Supervisor | Kind::Hermes => self.den.command(self.programs.join("python")),
        };
        let modules = self.programs.parent().context("no directory above the programs")?;
        command.arg(script).env("NODE_PATH", modules).env("PM2_HOME", self.den.directory.join("pm2"));
        command.env("HERMES_HOME", self.den.directory.join("hermes"));
        Ok(command)
    }

    fn supervisord(&self) -> anyhow::Result<()> {
        let at = self.den.directory.display();
        let config = format!(
            "[unix_http_server]\nfile={at}/socket\n[supervisord]\nlogfile={at}/log\npidfile={at}/pid\nloglevel=critical\n\
             [rpcinterface:supervisor]\nsupervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface\n\
             [include]\nfiles={at}/jobs/*.conf\n"
        );
        std::fs::create_dir_all(self.den.directory.join("jobs"))?;
        let path = self.den.directory.join("supervisord.conf");
        std::fs::write(&path, config)?;
        let socket = self.den.directory.join("socket");
        let _ = std::fs::remove_file(&socket);
        let status = self.den.command(self.programs.join("supervisord")).arg("-c").arg(path).status()?;
        ensure!(status.success(), "supervisord does not start");
        polled(Duration::from_millis(20), || Ok(socket.exists().then_some(())))
    }
}

impl Peer for Bridged {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Supervisor => "supervisord",
            Kind::Pm2 => "pm2 (its API)",
            Kind::Hermes => "hermes-agent's registry",
        }
    }

    fn boot(&self) -> anyhow::Result<()> {
        if matches!(self.kind, Kind::Supervisor) {
            self.supervisord()?;
        }
        let wire = Wire::open(&mut self.bridge()?)?;
        *self.wire.lock().unwrap_or_else(PoisonError::into_inner) = Some(wire.into());
        Ok(())
    }

    fn start(&self, script: &str) -> anyhow::Result<String> {
        self.call("start", script)?.as_str().map(str::to_owned).context("no job")
    }

    fn wait(&self, job: &str) -> anyhow::Result<Option<i32>> {
        Ok(self.call("wait", job)?.as_i64().and_then(|code| i32::try_from(code).ok()))
    }

    fn tail(&self, job: &str) -> anyhow::Result<String> {
        Ok(self.call("tail", job)?.as_str().unwrap_or_default().to_owned())
    }

    fn stop(&self, job: &str) -> anyhow::Result<()> {
        self.call("stop", job).map(drop)
    }

    fn server(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Supervisor => Some("supervisord"),
            Kind::Pm2 => Some("God Daemon"),
            Kind::Hermes => Some("hermes.py"),
        }
    }
}
