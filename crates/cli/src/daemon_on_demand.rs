//! Connects to the daemon; starts one first if none is running.
//!
//! Many clients may do this at once: only the daemon that gets the lock on the home stays, the others exit with
//! [`exit::OTHER_DAEMON`], and every client connects to the one that stays. A leftover socket is replaced by the daemon.
//!
//! A client inside a process of this home asks the keeper of that process to start the daemon: a daemon started by the client
//! itself would be stopped with the process.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pinfold_api::client::{Client, ClientError};
use pinfold_daemon::config::Paths;
use pinfold_keeper::ancestor::{self, AncestorKeeper};

use crate::exit;
use crate::failure::Failure;

/// Time for a new daemon to listen.
const DEADLINE: Duration = Duration::from_secs(10);
/// The pause between attempts doubles from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(50);
/// How much of the log is searched for the reason of a failed start.
const MAX_REASON: u64 = 16 << 10;
/// Time for a daemon that a keeper was asked to start; then the log is read and the keeper is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(3);

/// A daemon that was started by this client and does not listen yet.
struct StartingDaemon {
    started_by: StartedBy,
    log: File,
    /// Length of the log when the daemon was started.
    log_start: u64,
}

enum StartedBy {
    /// This client. The child is the parent of the daemon and exits once the daemon is ready.
    Us(Child),
    /// The keeper of the process that this client runs in; the time it was asked.
    Keeper(Instant),
}

/// Returns when a daemon accepts connections; starts one if none runs.
pub(crate) async fn ensure(client: &Client, paths: &Paths) -> Result<(), Failure> {
    let deadline = Instant::now() + DEADLINE;
    let mut pause = FIRST_PAUSE;
    let mut starting: Option<StartingDaemon> = None;
    loop {
        let error = match client.connect().await {
            Ok(()) => {
                if let Some(starting) = starting {
                    starting.settle(deadline).await;
                }
                return Ok(());
            }
            Err(error) => error,
        };
        if !is_not_running(&error) {
            return Err(error.into());
        }
        starting = match starting {
            None => Some(StartingDaemon::spawn(paths)?),
            Some(starting) => starting.check()?,
        };
        if Instant::now() > deadline {
            let seconds = DEADLINE.as_secs();
            let log = paths.log();
            return Err(Failure::internal(format!(
                "no daemon answered within {seconds}s: {error}: run `pinfold doctor`, or read the log in {}",
                log.display()
            )));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Whether the error means that no daemon listens, so that starting one helps or at least reports why it cannot start.
pub(crate) fn is_not_running(error: &ClientError) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    match error {
        ClientError::Unreachable { source, .. } => {
            matches!(source.kind(), NotFound | ConnectionRefused | NotADirectory)
        }
        ClientError::Api { .. } | ClientError::Protocol(_) => false,
    }
}

/// The keeper of the process that this program runs in, if it runs in a process of this home.
pub(crate) fn find_ancestor_keeper(paths: &Paths) -> Result<Option<AncestorKeeper>, Failure> {
    ancestor::find_ancestor_keeper(&paths.home)
        .map_err(|error| Failure::internal(format!("cannot tell whether this runs inside a pinfold process: {error}")))
}

/// The command that runs this program as the daemon of a home.
pub(crate) fn daemon_command(paths: &Paths, how: &str) -> Result<Command, Failure> {
    let mut command = Command::new(own_executable()?);
    command.args(["daemon", "run", how]).current_dir("/");
    if let Some(home) = paths.moved_home() {
        command.env("PINFOLD_HOME", home);
    }
    Ok(command)
}

/// The path of this program.
pub(crate) fn own_executable() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::internal(format!(
            "cannot find the pinfold executable: {error}; was it removed while it ran? Install it again"
        ))
    })
}

impl StartingDaemon {
    fn spawn(paths: &Paths) -> Result<Self, Failure> {
        let (log, log_start) = open_log(paths).map_err(|error| {
            let home = paths.home.display();
            let way_out = match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    "free some space, or set PINFOLD_HOME to another disk"
                }
                _ => "set PINFOLD_HOME to a directory that you can write to",
            };
            Failure::internal(format!("cannot write to {home}: {error}: {way_out}"))
        })?;
        if let Some(keeper) = find_ancestor_keeper(paths)? {
            let pid = keeper.pid();
            keeper.start_daemon().map_err(|error| {
                Failure::internal(format!(
                    "no daemon is running, and a daemon started inside a pinfold process would be stopped with it; the keeper \
                     of that process (pid {pid}) could not start one either: {error}: run `pinfold daemon start` in a shell \
                     outside"
                ))
            })?;
            return Ok(StartingDaemon { started_by: StartedBy::Keeper(Instant::now()), log, log_start });
        }
        let mut command = daemon_command(paths, "--background")?;
        let stderr = log.try_clone()?;
        // In a process group of its own: a signal to our group must not end the daemon while it starts.
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).process_group(0).spawn();
        let child = child.map_err(|error| Failure::internal(format!("cannot start the daemon: {error}")))?;
        Ok(StartingDaemon { started_by: StartedBy::Us(child), log, log_start })
    }

    /// Waits until the child has exited: the daemon is then ready, or it lost against another one. A daemon that is still
    /// starting could otherwise appear after somebody stopped the other one.
    async fn settle(mut self, deadline: Instant) {
        let StartedBy::Us(child) = &mut self.started_by else { return };
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    }

    /// Itself while it is starting; `None` once a daemon runs, this or another; otherwise why it failed.
    fn check(mut self) -> Result<Option<Self>, Failure> {
        let status = match &mut self.started_by {
            StartedBy::Us(child) => child.try_wait()?,
            StartedBy::Keeper(asked) if asked.elapsed() < ASK_AGAIN => None,
            StartedBy::Keeper(_) => {
                return match reason_in(&self.log_text()) {
                    Some(reason) if !reason.starts_with('{') => {
                        Err(Failure::internal(format!("the daemon could not start: {reason}")))
                    }
                    _ => Ok(None),
                };
            }
        };
        let Some(status) = status else { return Ok(Some(self)) };
        if status.success() || status.code() == Some(i32::from(exit::OTHER_DAEMON)) {
            return Ok(None);
        }
        Err(Failure::internal(format!("the daemon could not start: {}", self.reason(status))))
    }

    /// The last thing it wrote before it exited.
    fn reason(&mut self, status: ExitStatus) -> String {
        reason_in(&self.log_text()).unwrap_or_else(|| status.to_string())
    }

    fn log_text(&mut self) -> String {
        let mut text = Vec::new();
        let read = self.log.seek(SeekFrom::Start(self.log_start));
        let _ = read.and_then(|_| (&mut self.log).take(MAX_REASON).read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// The text from the last `pinfold: ` on, otherwise the last line.
fn reason_in(log: &str) -> Option<String> {
    let ours = log.rsplit_once("pinfold: ").map(|(_, reason)| reason.trim_end());
    ours.or_else(|| log.lines().rev().find(|line| !line.trim().is_empty())).map(str::to_owned)
}

/// Opens the log for appending and returns its length. Creates the home, so that the daemon can write why it fails.
fn open_log(paths: &Paths) -> std::io::Result<(File, u64)> {
    DirBuilder::new().recursive(true).mode(0o700).create(&paths.home)?;
    let mut log = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(paths.log())?;
    let end = log.seek(SeekFrom::End(0))?;
    Ok((log, end))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    fn unreachable(kind: ErrorKind) -> ClientError {
        ClientError::Unreachable { socket: "/s".into(), source: kind.into() }
    }

    #[test]
    fn a_daemon_is_started_only_if_none_listens() {
        assert!(is_not_running(&unreachable(ErrorKind::NotFound)));
        assert!(is_not_running(&unreachable(ErrorKind::ConnectionRefused)));
        assert!(!is_not_running(&unreachable(ErrorKind::PermissionDenied)));
    }

    #[test]
    fn the_reason_is_the_last_message_of_pinfold() {
        let log = "{\"level\":\"INFO\"}\npinfold: config.toml: no such setting\n  at line 3\n";
        assert_eq!(reason_in(log).as_deref(), Some("config.toml: no such setting\n  at line 3"));
        assert_eq!(reason_in("panicked at x\n\n").as_deref(), Some("panicked at x"));
        assert_eq!(reason_in(""), None);
    }
}
