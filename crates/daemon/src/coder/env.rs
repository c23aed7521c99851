//! The environment of a command: the daemon's, then the hook's variables, the request's, and the chat.
//!
//! The hook is a command of the configuration. It is not run as a managed process, because its output may be secret
//! and must not be stored. Bounds: [`HOOK_TIMEOUT`], [`MAX_OUTPUT`] bytes; run again after [`MAX_AGE`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_model::service::READY_SOCKET;
use pinfold_model::spec::{DEFAULT_PATH, RESERVED_ENV};
use pinfold_os::fsio::{self, ReadResult};
use pinfold_os::poll::{Interest, wait_ready};
use pinfold_os::tree;
use tokio::sync::Mutex;

use super::chat::Chat;
use crate::core::{Core, blocking};

/// How long the hook may take.
const HOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest output of the hook, in bytes.
const MAX_OUTPUT: usize = 1 << 20;
/// How long the output of the hook is reused before it is run again.
const MAX_AGE: Duration = Duration::from_secs(5);
/// How long a start waits for the hook or the shell to be found.
const DEADLINE: Duration = HOOK_TIMEOUT.saturating_add(Duration::from_secs(2));
/// How often to check for its exit while it prints nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The variable with the id of the chat.
const CHAT: &str = "CODER_CHAT_ID";

/// The last output of the hook, and its time. One thread at a time runs the hook and holds the lock meanwhile: a hook or a
/// directory of PATH that hangs blocks one thread, and all others give up after [`DEADLINE`].
#[derive(Debug, Default)]
pub(super) struct Hook {
    output: Arc<Mutex<Option<HookOutput>>>,
    shell: Arc<Mutex<Option<Shell>>>,
}

/// When the hook was asked, and the variables that it set.
type HookOutput = (Instant, BTreeMap<String, String>);

/// The `sh` of the daemon's own PATH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shell {
    pub(super) path: PathBuf,
    /// Directories before it in PATH, which have no `sh`.
    without: Vec<PathBuf>,
}

impl Shell {
    /// Whether `sh` is this one with such a PATH. Only names are compared: the directories of a request are not read,
    /// because they may be on a mount that hangs. False if that is unknown.
    pub(super) fn is_found_in(&self, path: &OsStr) -> bool {
        let unlike = |directory: &PathBuf| !self.without.contains(directory);
        let first = std::env::split_paths(path).find(unlike);
        first.is_some_and(|first| self.path.parent() == Some(&first))
    }

    fn find(path: &OsStr) -> Option<Self> {
        let mut without = Vec::new();
        for directory in std::env::split_paths(path) {
            let shell = directory.join("sh");
            if is_executable(&shell) {
                return Some(Self { path: shell, without });
            }
            without.push(directory);
        }
        None
    }
}

/// The `sh` of the daemon's own PATH. Found once, then remembered.
pub(super) async fn find_shell(core: &Core) -> Option<Shell> {
    let known = Arc::clone(&core.coder.hook.shell);
    let look = async {
        let mut known = known.lock_owned().await;
        if let Some(shell) = &*known {
            return Some(shell.clone());
        }
        blocking(move || {
            *known = own_shell();
            known.clone()
        })
        .await
        .ok()
        .flatten()
    };
    tokio::time::timeout(DEADLINE, look).await.ok().flatten()
}

fn own_shell() -> Option<Shell> {
    Shell::find(&std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into()))
}

/// The variables that are added to the daemon's environment. Later ones win, the chat last.
pub(super) async fn layers(
    core: &Core,
    chat: &Chat,
    asked: BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    let mut env = hooked(core).await;
    env.extend(asked.into_iter().filter_map(entry));
    env.extend(chat.id().map(|id| (CHAT.to_owned(), id)));
    env.retain(|name, _| !RESERVED_ENV.contains(&name.as_str()) && name != READY_SOCKET);
    env.into_iter().map(|(name, value)| (name, Some(value))).collect()
}

/// A variable as `NAME=VALUE` sets it: of a name with `=` in it the name ends there, and without a name nothing is set.
fn entry((name, value): (String, String)) -> Option<(String, String)> {
    let pair = format!("{name}={value}");
    let (name, value) = pair.split_once('=').filter(|(name, _)| !name.is_empty())?;
    Some((name.to_owned(), value.to_owned()))
}

/// The variables of the hook; none if it fails.
async fn hooked(core: &Core) -> BTreeMap<String, String> {
    let Some(command) = core.config.coder.env_command.clone() else { return BTreeMap::new() };
    let (said, directory) = (Arc::clone(&core.coder.hook.output), core.user_home.clone());
    let ask = async {
        let mut said = said.lock_owned().await;
        if let Some((_, env)) = said.as_ref().filter(|(at, _)| at.elapsed() < MAX_AGE) {
            return Ok(env.clone());
        }
        let ask = move || {
            let ran = run(&command, &directory).map(|bytes| parse(&bytes));
            *said = Some((Instant::now(), ran.clone().unwrap_or_default()));
            ran
        };
        blocking(ask).await.unwrap_or_else(|error| Err(error.0.message))
    };
    let said = tokio::time::timeout(DEADLINE, ask).await;
    said.unwrap_or_else(|_| Err("it did not finish in time".to_owned())).unwrap_or_else(|reason| {
        tracing::warn!(
            reason,
            "the command in the setting coder.env_command failed: processes start without its variables"
        );
        BTreeMap::new()
    })
}

/// Runs the hook and returns its output.
fn run(command: &str, directory: &str) -> Result<Vec<u8>, String> {
    let shell = own_shell().ok_or("there is no sh in PATH")?.path;
    let pipe = fsio::pipe().map_err(|error| error.to_string())?;
    let mut child = Command::new(shell)
        .args(["-c", command])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::from(pipe.write))
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let deadline = Instant::now() + HOOK_TIMEOUT;
    let mut said = Vec::new();
    let result = loop {
        // Checked before the read, so that everything printed before the exit is read.
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        let silent = drain(pipe.read.as_fd(), &mut said).map_err(|error| error.to_string())?;
        match ended {
            Some(status) if status.success() => break Ok(said),
            Some(status) => break Err(format!("it ended with {status}")),
            None if said.len() > MAX_OUTPUT => break Err(format!("it said more than {MAX_OUTPUT} bytes")),
            None if Instant::now() > deadline => {
                break Err(format!("it took longer than {} s", HOOK_TIMEOUT.as_secs()));
            }
            None if silent == ReadResult::Closed => std::thread::sleep(POLL_INTERVAL),
            None => drop(wait_ready(&[(pipe.read.as_fd(), Interest::Read)], Some(POLL_INTERVAL))),
        }
    };
    if result.is_err() {
        tree::kill_descendants(child.id());
        let _ = child.kill();
        let _ = child.wait();
    }
    result
}

/// Reads what is available, up to a little more than the maximum.
fn drain(fd: std::os::fd::BorrowedFd<'_>, said: &mut Vec<u8>) -> std::io::Result<ReadResult> {
    loop {
        said.reserve(16 * 1024);
        match fsio::read_some(fd, said)? {
            ReadResult::Bytes(_) if said.len() <= MAX_OUTPUT => {}
            ReadResult::Bytes(_) => return Ok(ReadResult::Empty),
            nothing => return Ok(nothing),
        }
    }
}

/// Parses `NAME=VALUE` entries: separated by NULs if there are any, as `env -0` prints them, otherwise one per line.
pub(super) fn parse(bytes: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(bytes);
    let end = if text.contains('\0') { '\0' } else { '\n' };
    let pairs = text.split(end).filter_map(|line| line.split_once('='));
    let pairs = pairs.filter(|(name, _)| is_name(name));
    pairs.map(|(name, value)| (name.to_owned(), value.trim_end_matches('\r').to_owned())).collect()
}

fn is_name(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_set_a_variable_are_taken_and_others_are_not() {
        let env = parse(b"A=1\nB=x=y\n\nno assignment\n=x\n2=x\nC D=x\nE=\nF=cr\r\n");
        let pairs = [("A", "1"), ("B", "x=y"), ("E", ""), ("F", "cr")];
        assert_eq!(env, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(parse(b"A=two\nlines\0B=1\0").get("A").map(String::as_str), Some("two\nlines"));
    }

    /// What is before it decides, as far as that is known.
    #[test]
    fn a_shell_is_known_by_the_names_of_directories() {
        let shell = Shell { path: "/bin/sh".into(), without: vec!["/a".into(), "/b".into()] };
        for (path, found) in
            [("/a:/bin", true), ("/bin:/else", true), ("/b:/a:/bin", true), ("/else:/bin", false), ("", false)]
        {
            assert_eq!(shell.is_found_in(OsStr::new(path)), found, "{path}");
        }
        assert!(
            Shell::find(OsStr::new("/no/such:/bin")).is_some_and(|shell| shell.without == [PathBuf::from("/no/such")])
        );
    }

    #[test]
    fn a_hook_is_heard_to_its_end_and_its_failure_is_one() {
        assert_eq!(run("printf A=1; sleep 0.1; printf B", "/"), Ok(b"A=1B".to_vec()));
        assert!(run("echo A=1; exit 3", "/").expect_err("failed").contains('3'));
        // A background process that keeps its output open does not delay it.
        assert_eq!(run("sleep 5 & printf A=1", "/"), Ok(b"A=1".to_vec()));
        assert!(run("head -c 2000000 /dev/zero; sleep 5", "/").expect_err("too much").contains("more than"));
    }
}
