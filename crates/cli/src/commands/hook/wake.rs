//! `wake`: waits beside an idle agent, and ends with 2 when there is something to tell it.
//!
//! One waits for each owner; a second one leaves at once. It ends with its agent, and after [`MOST`] at the latest.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::parent_id;
use std::time::{Duration, Instant};

use pinfold_api::client::ClientError;
use pinfold_daemon::config::Paths;

use super::mail::Mail;
use super::notice::{News, render_notice};
use crate::exit;
use crate::failure::Failure;

/// How long it waits at most: half a day.
const MOST: Duration = Duration::from_secs(12 * 60 * 60);
/// How often it looks whether its agent is still there, and whether a lease has ended that was not made good.
const LOOK: &str = "30s";
/// Claude Code tells what it was started as. Only as [`TERMINAL`] does it run this hook beside the chat; else it waits
/// for every hook, and a waiting one would hold it up.
const ENTRY: &str = "CLAUDE_CODE_ENTRYPOINT";
const TERMINAL: &str = "cli";

/// Waits; 2 if something was told, else 0.
pub(super) async fn run(mail: &Mail, paths: &Paths) -> Result<u8, Failure> {
    if std::env::var(ENTRY).is_ok_and(|entry| entry != TERMINAL) {
        return Ok(0);
    }
    let Some(_alone) = claim(paths, mail.owner()) else { return Ok(0) };
    let Ok(Some(news)) = watch(mail).await else { return Ok(0) };
    // Nobody reads it: then nobody was told.
    if std::io::stderr().write_all(render_notice(&news).as_bytes()).is_err() {
        return Ok(0);
    }
    let _ = mail.ack(&news).await;
    Ok(exit::WAKES)
}

/// What there is to tell, as soon as there is; nothing if nothing can come any more.
async fn watch(mail: &Mail) -> Result<Option<Vec<News>>, ClientError> {
    let (family, begun) = (family(), Instant::now());
    loop {
        // Looked at before the mail, so that nothing falls between the two.
        let seen = mail.latest().await?;
        let has_live = mail.has_live().await?;
        let news = mail.take().await?;
        if !news.is_empty() {
            return Ok(Some(news));
        }
        if !has_live {
            return Ok(None);
        }
        // What comes may be told by somebody else, or not after all: it is looked at again either way.
        mail.wait(seen, LOOK).await?;
        if family != self::family() || begun.elapsed() > MOST {
            return Ok(None);
        }
    }
}

/// The right to wait for this owner: a name that the kernel gives to one at a time, and takes back at its end.
fn claim(paths: &Paths, owner: &str) -> Option<UnixListener> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (&paths.home, owner).hash(&mut hasher);
    let name = SocketAddr::from_abstract_name(format!("pinfold-wake-{:016x}", hasher.finish())).ok()?;
    UnixListener::bind_addr(&name).ok()
}

/// Parent and grandparent: the agent, or the shell that it runs hooks in and the agent.
fn family() -> (u32, Option<u32>) {
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
    fn a_process_has_a_family() {
        let (parent, grandparent) = family();
        assert!(parent > 0 && grandparent.is_some());
    }
}
