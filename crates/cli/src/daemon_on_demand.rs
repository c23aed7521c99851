//! A daemon on demand: connect, and where nobody listens, start one and connect to it.
//!
//! Safe when many clients do this at once: daemons exclude one another by the lock on the home, the losers exit
//! with [`exit::OTHER_DAEMON`], and every client connects to the winner. A dead socket is the daemon's to replace.
//!
//! A client that runs inside a process of this home does not start the daemon itself: that would end with the process. It
//! asks the keeper above it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pinfold_api::client::{Client, ClientError};
use pinfold_daemon::config::Paths;
use pinfold_keeper::inside::{self, KeeperAbove};

use crate::exit;
use crate::failure::Failure;

/// How long a new daemon may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pauses between tries grow from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(50);
/// How much of the log is read for the reason of a failed start.
const REASON_MOST: u64 = 16 << 10;

/// How long a daemon that a keeper was asked for may take, before the log is read and the keeper asked again.
const ASK_AGAIN: Duration = Duration::from_secs(3);

/// A daemon that was started here and is not known to listen yet.
struct Newborn {
    started_by: StartedBy,
    /// Where its part of the log begins.
    log: File,
    log_start: u64,
}

enum StartedBy {
    /// This client. The child stands between us and the daemon, and ends when that is ready.
    Us(Child),
    /// The keeper above us, at this time.
    Keeper(Instant),
}

/// Returns when the daemon can be reached; starts one if there is none.
pub(crate) async fn ensure(client: &Client, paths: &Paths) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    let mut newborn: Option<Newborn> = None;
    loop {
        let error = match client.connect().await {
            Ok(()) => {
                if let Some(newborn) = newborn {
                    newborn.settle(deadline).await;
                }
                return Ok(());
            }
            Err(error) => error,
        };
        if !nobody_listens(&error) {
            return Err(error.into());
        }
        newborn = match newborn {
            None => Some(Newborn::spawn(paths)?),
            Some(newborn) => newborn.still_coming()?,
        };
        if Instant::now() > deadline {
            let seconds = PATIENCE.as_secs();
            let log = paths.log();
            return Err(Failure::trouble(format!(
                "no daemon answered within {seconds}s: {error}; see {} or run `pinfold doctor`",
                log.display()
            )));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Whether a new daemon would help, or would at least know why not.
pub(crate) fn nobody_listens(error: &ClientError) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    match error {
        ClientError::Unreachable { source, .. } => {
            matches!(source.kind(), NotFound | ConnectionRefused | NotADirectory)
        }
        ClientError::Api { .. } | ClientError::Protocol(_) => false,
    }
}

/// The keeper of this home below which this program runs, if it does.
pub(crate) fn keeper_above(paths: &Paths) -> Result<Option<KeeperAbove>, Failure> {
    inside::keeper_above(&paths.home)
        .map_err(|error| Failure::trouble(format!("cannot see whether this runs inside a process of pinfold: {error}")))
}

/// This program as the daemon of a home.
pub(crate) fn daemon_command(paths: &Paths, how: &str) -> Result<Command, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::trouble(format!("own executable: {error}")))?;
    let mut command = Command::new(program);
    command.args(["daemon", "run", how]).current_dir("/");
    if let Some(home) = paths.moved_home() {
        command.env("PINFOLD_HOME", home);
    }
    Ok(command)
}

impl Newborn {
    fn spawn(paths: &Paths) -> Result<Self, Failure> {
        let (log, log_start) = open_log(paths).map_err(|error| {
            let home = paths.home.display();
            let way_out = match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    "free some space, or set PINFOLD_HOME to another disk"
                }
                _ => "set PINFOLD_HOME to a directory of your own",
            };
            Failure::trouble(format!("cannot write to {home}: {error}: {way_out}"))
        })?;
        if let Some(keeper) = keeper_above(paths)? {
            let pid = keeper.pid();
            keeper.start_daemon().map_err(|error| {
                Failure::trouble(format!(
                    "no daemon runs, and one that is started in here would end with the process that this command is part \
                     of; the keeper of that process (pid {pid}) could not start it: {error}: run `pinfold daemon start` \
                     elsewhere"
                ))
            })?;
            return Ok(Newborn { started_by: StartedBy::Keeper(Instant::now()), log, log_start });
        }
        let mut command = daemon_command(paths, "--background")?;
        let stderr = log.try_clone()?;
        // In a group of its own: whoever is killed with all of ours takes no daemon along that is about to come.
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).process_group(0).spawn();
        let child = child.map_err(|error| Failure::trouble(format!("cannot start the daemon: {error}")))?;
        Ok(Newborn { started_by: StartedBy::Us(child), log, log_start })
    }

    /// Waits until it stands on its own, or for its end if it was not first. It must not come to life later, in the
    /// place of a daemon that somebody has stopped meanwhile.
    async fn settle(mut self, deadline: Instant) {
        let StartedBy::Us(child) = &mut self.started_by else { return };
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    }

    /// Itself while it is on its way; nothing once a daemon is there, this or another; else the reason why it failed.
    fn still_coming(mut self) -> Result<Option<Self>, Failure> {
        let status = match &mut self.started_by {
            StartedBy::Us(child) => child.try_wait()?,
            StartedBy::Keeper(asked) if asked.elapsed() < ASK_AGAIN => None,
            StartedBy::Keeper(_) => {
                return match reason_in(&self.log_text()) {
                    Some(reason) if !reason.starts_with('{') => {
                        Err(Failure::trouble(format!("the daemon could not start: {reason}")))
                    }
                    _ => Ok(None),
                };
            }
        };
        let Some(status) = status else { return Ok(Some(self)) };
        if status.success() || status.code() == Some(i32::from(exit::OTHER_DAEMON)) {
            return Ok(None);
        }
        Err(Failure::trouble(format!("the daemon could not start: {}", self.reason(status))))
    }

    /// What it wrote last before it ended.
    fn reason(&mut self, status: ExitStatus) -> String {
        reason_in(&self.log_text()).unwrap_or_else(|| status.to_string())
    }

    fn log_text(&mut self) -> String {
        let mut text = Vec::new();
        let read = self.log.seek(SeekFrom::Start(self.log_start));
        let _ = read.and_then(|_| (&mut self.log).take(REASON_MOST).read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// What comes after the last message of our own, else the last line at all.
fn reason_in(log: &str) -> Option<String> {
    let ours = log.rsplit_once("pinfold: ").map(|(_, reason)| reason.trim_end());
    ours.or_else(|| log.lines().rev().find(|line| !line.trim().is_empty())).map(str::to_owned)
}

/// Opens the log for appending, with its end. Makes the home if need be: its reason must have a place.
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
    fn a_daemon_is_started_only_where_nobody_listens() {
        assert!(nobody_listens(&unreachable(ErrorKind::NotFound)));
        assert!(nobody_listens(&unreachable(ErrorKind::ConnectionRefused)));
        assert!(!nobody_listens(&unreachable(ErrorKind::PermissionDenied)));
    }

    #[test]
    fn the_reason_is_the_last_message_of_our_own() {
        let log = "{\"level\":\"INFO\"}\npinfold: config.toml: no such setting\n  at line 3\n";
        assert_eq!(reason_in(log).as_deref(), Some("config.toml: no such setting\n  at line 3"));
        assert_eq!(reason_in("panicked at x\n\n").as_deref(), Some("panicked at x"));
        assert_eq!(reason_in(""), None);
    }
}
