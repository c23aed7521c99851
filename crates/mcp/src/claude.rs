//! Which session Claude Code is in right now.
//!
//! It tells its servers the session once, in the environment of their start. That is wrong from the first call on with `claude -p
//! --continue`, and later after `/clear` and `/resume`, which keep the server. But it keeps a file about itself, `sessions/PID.json` in
//! its configuration directory, with the session of the moment. The file counts if it is that of the program that started this
//! server: it names the pid and the start time of one of our ancestors.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use serde::Deserialize;

/// Ancestors that are looked at: the client, or a shell or launcher below it.
const MAX_ANCESTORS: usize = 4;
/// The most that is read of the file.
const LARGEST: u64 = 64 << 10;
/// Characters of a session's name; today it is a UUID.
const MAX_NAME: usize = 64;

/// What the file says; all else is ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    pid: u32,
    proc_start: String,
    session_id: String,
}

/// The session of the Claude Code that started this server; nothing if it does not say.
pub(crate) fn current_session() -> Option<String> {
    let sessions = configuration()?.join("sessions");
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..MAX_ANCESTORS {
        let (parent, start_time) = parent_and_start(pid)?;
        if let Some(about) = read(sessions.join(format!("{pid}.json"))) {
            return Some(about).filter(|about| is_of(about, pid, &start_time)).map(|about| about.session_id);
        }
        pid = parent;
    }
    None
}

fn configuration() -> Option<PathBuf> {
    let directory = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    directory("CLAUDE_CONFIG_DIR").or_else(|| Some(directory("HOME")?.join(".claude")))
}

fn read(path: PathBuf) -> Option<About> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(LARGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn is_of(about: &About, pid: u32, start_time: &str) -> bool {
    let is_plain = |name: &str| {
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    about.pid == pid && about.proc_start == start_time && is_plain(&about.session_id)
}

/// Of a process, by what the kernel shows: its parent, and its start in ticks since boot.
pub(crate) fn parent_and_start(pid: u32) -> Option<(u32, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the last bracket may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_counts_only_if_it_is_that_of_the_very_process() {
        let about = |pid, start: &str, session: &str| About {
            pid,
            proc_start: start.to_owned(),
            session_id: session.to_owned(),
        };
        assert!(is_of(&about(7, "70", "cfadcff5-2a71"), 7, "70"));
        assert!(!is_of(&about(8, "70", "cfadcff5-2a71"), 7, "70"), "another pid");
        assert!(!is_of(&about(7, "71", "cfadcff5-2a71"), 7, "70"), "an earlier process with that pid");
        assert!(!is_of(&about(7, "70", "a\nb"), 7, "70") && !is_of(&about(7, "70", ""), 7, "70"));
    }

    #[test]
    fn a_process_has_a_parent_and_a_start() {
        let (parent, start) = parent_and_start(std::process::id()).expect("ours");
        assert_eq!(parent, std::os::unix::process::parent_id());
        assert!(start.parse::<u64>().is_ok_and(|ticks| ticks > 0));
    }
}
