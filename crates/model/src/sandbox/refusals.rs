//! What a sandbox refused while the process ran: system calls, which the kernel reports, and paths, which are guessed from
//! the output of a failed command.

use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Enforcement, Part, is_plain};

/// Paths that are named at most.
pub const MAX_GUESSED_PATHS: usize = 4;
/// Bytes at the end of the output in which they are searched.
pub const GUESS_BYTES: usize = 4096;
/// How programs report that they may not write, in lower case.
const ERRORS: [&str; 5] =
    ["permission denied", "read-only file system", "operation not permitted", "device or resource busy", "eacces"];

/// What a refused system call was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefusedCall {
    /// A Unix socket, as for Docker, D-Bus or ssh-agent.
    UnixSocket,
    /// TCP, UDP or another Internet socket.
    NetworkSocket,
    /// Another kind of socket.
    OtherSocket,
    /// A new namespace, as containers and other sandboxes need.
    Namespace,
    /// A mount.
    Mount,
    /// The kernel's keyrings.
    Keyring,
    /// Another privileged call.
    Other,
}

impl RefusedCall {
    pub fn about(self) -> &'static str {
        match self {
            RefusedCall::UnixSocket => "Unix sockets",
            RefusedCall::NetworkSocket => "network sockets",
            RefusedCall::OtherSocket => "other kinds of sockets",
            RefusedCall::Namespace => "new namespaces",
            RefusedCall::Mount => "mounts",
            RefusedCall::Keyring => "kernel keyrings",
            RefusedCall::Other => "privileged system calls",
        }
    }
}

/// How often a kind of call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedCount {
    pub call: RefusedCall,
    pub count: u32,
}

/// What a sandbox refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusals {
    /// System calls that the filter refused, by kind. Reported by the kernel, so certain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<RefusedCount>,
    /// Paths that it probably could not write: its output names them beside an error, and the sandbox does not allow them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathBuf>,
}

impl Refusals {
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.paths.is_empty()
    }

    pub fn count(&mut self, call: RefusedCall) {
        match self.calls.iter_mut().find(|counted| counted.call == call) {
            Some(counted) => counted.count = counted.count.saturating_add(1),
            None => self.calls.push(RefusedCount { call, count: 1 }),
        }
    }

    /// What was refused, in words, if there is something to say.
    pub fn render(&self) -> Option<String> {
        let mut said = Vec::new();
        if !self.calls.is_empty() {
            let times = |count: u32| if count == 1 { "once".to_owned() } else { format!("{count} times") };
            let calls = self.calls.iter().map(|counted| format!("{} ({})", counted.call.about(), times(counted.count)));
            said.push(calls.collect::<Vec<_>>().join(", "));
        }
        if !self.paths.is_empty() {
            let paths: Vec<_> = self.paths.iter().map(|path| format!("`{}`", path.display())).collect();
            said.push(format!("judging by the output, writing {}", paths.join(", ")));
        }
        (!said.is_empty()).then(|| said.join(" and, "))
    }
}

impl Enforcement {
    /// Paths that the end of the output names beside an error, and that this sandbox does not allow to be written. `tmp` is
    /// its temporary directory.
    pub fn guess_paths(&self, output: &str, cwd: &Path, tmp: Option<&Path>) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for line in output.lines().rev() {
            let lower = line.to_ascii_lowercase();
            let Some((at, error)) = ERRORS.iter().find_map(|error| lower.find(error).map(|at| (at, error))) else {
                continue;
            };
            let (before, after) = (&line[..at], &line[at + error.len()..]);
            let named = [last_name(before), first_quoted(after)];
            for name in named.into_iter().flatten().filter(|name| is_plain(name) && !name.contains("..")) {
                let path: PathBuf = cwd.join(name).components().filter(|part| *part != Component::CurDir).collect();
                let is_own_tmp = tmp.is_some_and(|tmp| path.starts_with(tmp));
                if found.len() < MAX_GUESSED_PATHS && !is_own_tmp && self.denies(&path) && !found.contains(&path) {
                    found.push(path);
                }
            }
        }
        found
    }

    fn denies(&self, path: &Path) -> bool {
        let in_git = path.components().any(|part| part.as_os_str() == ".git");
        !self.asked.may_write(path) || in_git && self.got.contains(&Part::Git)
    }
}

/// The last quoted or unquoted name in the text before an error, as in `touch: cannot touch 'a': Permission denied`.
fn last_name(text: &str) -> Option<&str> {
    let text = text.trim_end_matches(|c: char| c == ':' || c == '[' || c == '(' || c.is_whitespace());
    let quoted = |quote: char| text.strip_suffix(quote).and_then(|rest| rest.rsplit(['\'', '"', '`', '‘']).next());
    // Without quotes it may be any word, unless it has a slash.
    let unquoted = || text.rsplit(char::is_whitespace).next().filter(|name| name.contains('/'));
    ['\'', '"', '`', '’'].into_iter().find_map(quoted).or_else(unquoted).filter(|name| !name.is_empty())
}

/// The first quoted name after an error, as in `EACCES: permission denied, open '/a'`.
fn first_quoted(text: &str) -> Option<&str> {
    let start = text.find(['\'', '"', '`'])?;
    let quote = text[start..].chars().next()?;
    text[start + 1..].split(quote).next().filter(|name| !name.is_empty())
}
