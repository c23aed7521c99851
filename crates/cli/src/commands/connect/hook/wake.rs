//! `hook wake`: waits while the agent is idle, and exits with 2 when there is a notice for it.
//!
//! Only one instance waits for each owner; a second one exits at once. It ends with its agent, and after [`MAX_WAIT`] at the
//! latest.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::parent_id;
use std::time::{Duration, Instant};

use pinfold_api::client::ClientError;
use pinfold_daemon::config::Paths;

use super::inbox::Inbox;
use super::notice::{News, render_notice};
use crate::exit;
use crate::failure::Failure;

/// Maximum wait: half a day.
const MAX_WAIT: Duration = Duration::from_secs(12 * 60 * 60);
/// How often to check that the agent is still running, and for events whose lease has expired.
const CHECK_INTERVAL: &str = "30s";
/// How Claude Code was started. Only as [`TERMINAL`] does it run this hook in the background; otherwise it waits for every hook,
/// so a long wait would block it.
const ENTRY: &str = "CLAUDE_CODE_ENTRYPOINT";
const TERMINAL: &str = "cli";

/// Waits for unread events and prints a notice to stderr. Returns the exit code: 2 if a notice was printed, otherwise 0.
pub(super) async fn run(inbox: &Inbox, paths: &Paths) -> Result<u8, Failure> {
    if std::env::var(ENTRY).is_ok_and(|entry| entry != TERMINAL) {
        return Ok(0);
    }
    let Some(_alone) = claim(paths, inbox.owner()) else { return Ok(0) };
    let Ok(Some(news)) = watch(inbox).await else { return Ok(0) };
    // stderr is not shown, so the notice stays unread.
    if std::io::stderr().write_all(render_notice(&news).as_bytes()).is_err() {
        return Ok(0);
    }
    let _ = inbox.ack(&news).await;
    Ok(exit::WAKE_AGENT)
}

/// Waits for unread events; `None` if no more can come.
async fn watch(inbox: &Inbox) -> Result<Option<Vec<News>>, ClientError> {
    let (ancestors, started) = (ancestors(), Instant::now());
    loop {
        // Read before the inbox, so that no event is missed in between.
        let seen = inbox.latest().await?;
        let has_live = inbox.has_live().await?;
        let news = inbox.take().await?;
        if !news.is_empty() {
            return Ok(Some(news));
        }
        if !has_live {
            return Ok(None);
        }
        // Another reader may take the new event first: check again either way.
        inbox.wait(seen, CHECK_INTERVAL).await?;
        if ancestors != self::ancestors() || started.elapsed() > MAX_WAIT {
            return Ok(None);
        }
    }
}

/// Locks the wait for this owner: an abstract socket name can be bound by one process at a time and is freed when that ends.
fn claim(paths: &Paths, owner: &str) -> Option<UnixListener> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (&paths.home, owner).hash(&mut hasher);
    let name = SocketAddr::from_abstract_name(format!("pinfold-wake-{:016x}", hasher.finish())).ok()?;
    UnixListener::bind_addr(&name).ok()
}

/// Parent and grandparent: one of them is the agent, which may run hooks in a shell.
fn ancestors() -> (u32, Option<u32>) {
    let parent = parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).ok();
    let grandparent = stat.and_then(|stat| stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok());
    (parent, grandparent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_waits_for_each_owner() {
        let paths = Paths::in_home(format!("/no/such/home/{}", std::process::id()).into());
        let first = claim(&paths, "claude-a").expect("the first");
        assert!(claim(&paths, "claude-a").is_none(), "a second");
        assert!(claim(&paths, "claude-b").is_some(), "another's");
        drop(first);
        assert!(claim(&paths, "claude-a").is_some(), "after it");
    }

    #[test]
    fn parent_and_grandparent_are_found() {
        let (parent, grandparent) = ancestors();
        assert!(parent > 0 && grandparent.is_some());
    }
}
