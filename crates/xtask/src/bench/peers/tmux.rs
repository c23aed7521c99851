//! tmux, as many agents use it: one session for each command, kept after its end for its output.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::peer::{Peer, ToolDir, code_of, output_of};

#[derive(Debug)]
pub(super) struct Tmux {
    pub(super) den: ToolDir,
    pub(super) programs: PathBuf,
}

impl Tmux {
    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = self.den.command(self.program());
        command.env("SHELL", "/bin/sh").args(["-u", "-f", "/dev/null", "-S", "socket"]).args(arguments);
        command
    }

    fn program(&self) -> String {
        self.programs.join("tmux").display().to_string()
    }
}

impl Peer for Tmux {
    fn name(&self) -> &'static str {
        "tmux"
    }

    fn boot(&self) -> anyhow::Result<()> {
        let keep = ["set-option", "-g", "exit-empty", "off", ";", "set-option", "-g", "remain-on-exit", "on"];
        code_of(&mut self.tmux(&[&["start-server", ";"][..], &keep].concat())).map(drop)
    }

    /// The command writes its exit code and signals its end itself: tmux may miss both for a very short command.
    fn start(&self, script: &str) -> anyhow::Result<String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let job = format!("job{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let over = format!("sh -c \"$1\"; echo $? > {job}; {} -S socket wait-for -S {job}", self.program());
        output_of(&mut self.tmux(&["new-session", "-d", "-s", &job, "--", "sh", "-c", &over, "sh", script]))?;
        Ok(job)
    }

    fn wait(&self, job: &str) -> anyhow::Result<Option<i32>> {
        output_of(&mut self.tmux(&["wait-for", job]))?;
        Ok(std::fs::read_to_string(self.den.directory.join(job))?.trim().parse().ok())
    }

    fn tail(&self, job: &str) -> anyhow::Result<String> {
        output_of(&mut self.tmux(&["capture-pane", "-p", "-S", "-50", "-t", job]))
    }

    fn stop(&self, job: &str) -> anyhow::Result<()> {
        code_of(&mut self.tmux(&["kill-session", "-t", job])).map(drop)
    }

    fn server(&self) -> Option<&'static str> {
        Some("start-server")
    }
}
