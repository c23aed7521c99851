//! Starting a daemon for a client that runs inside what is kept.
//!
//! A daemon that such a client starts itself would be below this keeper: it would be stopped, paused and killed with the
//! process. This keeper stands outside, so it starts the daemon as its own sibling. What is executed and with which
//! environment, the daemon before has said; nothing of it comes from the client.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use pinfold_os::daemonize::{self, Fork};

use crate::nursery::Birthright;

/// A daemon that was started so recently is on its way: no second one is started beside it.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct DaemonStarter {
    last: Option<Instant>,
}

impl DaemonStarter {
    /// Starts the daemon, unless one was started a moment ago.
    pub(crate) fn start(&mut self, birthright: &Birthright) -> Result<(), String> {
        if self.last.is_some_and(|last| last.elapsed() < ON_ITS_WAY) {
            return Ok(());
        }
        let Some(daemon) = &birthright.daemon else {
            return Err("this keeper was not told how to start a daemon".to_owned());
        };
        let log = birthright.home.join("daemon.log");
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&log);
        let log =
            log.map_err(|error| format!("cannot write {}: {error}", birthright.home.join("daemon.log").display()))?;
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
