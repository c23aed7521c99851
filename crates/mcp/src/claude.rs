//! Finds the current session of the Claude Code instance that started this server.
//!
//! Claude Code passes the session to its servers once, in their environment. This value is wrong from the start with
//! `claude -p --continue`, and becomes wrong after `/clear` and `/resume`, which keep the server running. The current
//! session is in `sessions/PID.json` in Claude Code's configuration directory. We use that file only if its pid and
//! start time are those of one of our ancestors.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use serde::Deserialize;

/// Number of ancestors to check: the client may start servers through a shell or launcher.
const MAX_ANCESTORS: usize = 4;
/// Maximum number of bytes read of the file.
const MAX_FILE_SIZE: u64 = 64 << 10;
/// Maximum length of a session id; currently it is a UUID.
const MAX_SESSION_ID: usize = 64;

/// The fields of the file that we use.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionFile {
    pid: u32,
    proc_start: String,
    session_id: String,
}

/// Returns the session of the Claude Code instance that started this server, if its file can be found.
pub(crate) fn current_session() -> Option<String> {
    let sessions = config_dir()?.join("sessions");
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..MAX_ANCESTORS {
        let (parent, start_time) = parent_and_start(pid)?;
        if let Some(file) = read(sessions.join(format!("{pid}.json"))) {
            return Some(file).filter(|file| belongs_to(file, pid, &start_time)).map(|file| file.session_id);
        }
        pid = parent;
    }
    None
}

fn config_dir() -> Option<PathBuf> {
    let directory = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    directory("CLAUDE_CONFIG_DIR").or_else(|| Some(directory("HOME")?.join(".claude")))
}

fn read(path: PathBuf) -> Option<SessionFile> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(MAX_FILE_SIZE).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn belongs_to(file: &SessionFile, pid: u32, start_time: &str) -> bool {
    let is_valid_id = |name: &str| {
        (1..=MAX_SESSION_ID).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    file.pid == pid && file.proc_start == start_time && is_valid_id(&file.session_id)
}

/// Returns a process's parent pid and its start time in clock ticks since boot, from /proc.
pub(crate) fn parent_and_start(pid: u32) -> Option<(u32, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name in parentheses may contain anything, so split after the last `)`.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_used_only_if_pid_and_start_time_match() {
        let file = |pid, start: &str, session: &str| SessionFile {
            pid,
            proc_start: start.to_owned(),
            session_id: session.to_owned(),
        };
        assert!(belongs_to(&file(7, "70", "cfadcff5-2a71"), 7, "70"));
        assert!(!belongs_to(&file(8, "70", "cfadcff5-2a71"), 7, "70"), "another pid");
        assert!(!belongs_to(&file(7, "71", "cfadcff5-2a71"), 7, "70"), "an earlier process with that pid");
        assert!(!belongs_to(&file(7, "70", "a\nb"), 7, "70") && !belongs_to(&file(7, "70", ""), 7, "70"));
    }

    #[test]
    fn parent_and_start_time_are_read_from_proc() {
        let (parent, start) = parent_and_start(std::process::id()).expect("ours");
        assert_eq!(parent, std::os::unix::process::parent_id());
        assert!(start.parse::<u64>().is_ok_and(|ticks| ticks > 0));
    }
}
