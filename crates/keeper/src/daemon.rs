//! Starts a daemon for a client that runs inside the keeper's process.
//!
//! A daemon started by such a client would be a descendant of this keeper, and would be stopped, paused and killed
//! with the process. So the keeper starts it as its own sibling. Program and environment come from the previous
//! daemon; nothing comes from the client.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use pinfold_os::daemonize::{self, Fork};

use crate::nursery::NurseryConfig;

/// A daemon started less than this ago is still starting: do not start another.
const START_COOLDOWN: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct DaemonStarter {
    last: Option<Instant>,
}

impl DaemonStarter {
    /// Starts the daemon, unless one was started less than [`START_COOLDOWN`] ago.
    pub(crate) fn start(&mut self, config: &NurseryConfig) -> Result<(), String> {
        if self.last.is_some_and(|last| last.elapsed() < START_COOLDOWN) {
            return Ok(());
        }
        let Some(daemon) = &config.daemon else {
            return Err("the daemon that started this keeper did not say how to start another".to_owned());
        };
        let log = config.home.join("daemon.log");
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&log);
        let log = log.map_err(|error| format!("cannot write {}: {error}", config.home.join("daemon.log").display()))?;
        match daemonize::fork_sibling() {
            Ok(Fork::Parent { .. }) => {
                self.last = Some(Instant::now());
                Ok(())
            }
            Err(error) => Err(format!("cannot fork: {error}")),
            Ok(Fork::Child) => {
                daemonize::default_signals();
                let mut command = Command::new(&daemon.program);
                command.args(["daemon", "run", "--background"]).current_dir("/");
                command.env_clear().envs(daemon.env.iter().map(|(name, value)| (name, value))).stderr(log);
                let error = command.exec();
                eprintln!("pinfold: cannot execute {}: {error}", daemon.program.display());
                daemonize::exit_now(1)
            }
        }
    }
}
