//! Sandboxes: what a process may write, connect to and signal.
//!
//! A start asks with a [`SandboxRequest`]. The daemon turns it into a [`Sandbox`], in which every part is decided, and
//! compares it with the [`Floor`] of its owner and of the process that sends the request. [`Sandbox::enforcement`]
//! says which parts the kernel can enforce. The keeper applies what is enforced.
//!
//! Invariant L9, *a floor only tightens*: no start gets a sandbox that allows more than its floor in any part.

mod enforcement;
mod floor;
mod part;
mod refusals;
mod text;

pub use enforcement::{Enforcement, NotEnforceable, Tier};
pub use floor::{Floor, Looser};
pub use part::{Kernel, Part};
pub use refusals::{GUESS_BYTES, MAX_GUESSED_PATHS, Refusals, RefusedCall, RefusedCount};
pub use text::BadSandbox;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::EnvironmentFilter;

/// Bounds of a request; one that exceeds them is refused.
pub const MAX_WRITE_ROOTS: usize = 32;
pub const MAX_CONNECT_PORTS: usize = 64;
pub const MAX_ENV_PATTERNS: usize = 256;

/// Where it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Profile {
    /// No sandbox.
    #[serde(rename = "off")]
    Off,
    /// Only in `write` and its temporary directory.
    #[serde(rename = "read-only")]
    ReadOnly,
    /// Also in its working directory.
    #[serde(rename = "workspace-write")]
    WorkspaceWrite,
}

impl Profile {
    pub fn name(self) -> &'static str {
        match self {
            Profile::Off => "off",
            Profile::ReadOnly => "read-only",
            Profile::WorkspaceWrite => "workspace-write",
        }
    }
}

/// What it may do with the network. Ordered from the tightest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No TCP, UDP or other network socket.
    None,
    /// TCP only: listen on the ports in `ports`, connect to those and to the ports in `connect`.
    Leased,
    /// TCP and UDP.
    #[default]
    Full,
}

/// Whether it may use Unix sockets, other than socket pairs. Ordered from the tightest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnixSockets {
    /// No: Docker, D-Bus, ssh-agent and pinfold itself cannot be reached.
    #[default]
    None,
    /// Sockets with a path. Abstract ones only within its own tree.
    Any,
}

/// The directory for temporary files. Ordered from the tightest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tmp {
    /// A new directory, in TMPDIR. It is removed when the process has finished.
    #[default]
    Own,
    /// The directories that all programs share: /tmp, /var/tmp and /dev/shm.
    Shared,
}

/// What to do if the kernel cannot enforce a part. Ordered from the tightest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// Refuse the start.
    #[default]
    Refuse,
    /// Start it without that part, and show which parts are missing.
    BestEffort,
}

/// How it is enforced. Ordered from the tightest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TierChoice {
    /// With Landlock, seccomp and namespaces; what namespaces add is required.
    Namespaces,
    /// With namespaces where this user can create them, else with Landlock and seccomp alone.
    #[default]
    Auto,
    /// With Landlock and seccomp alone.
    Landlock,
}

/// The Git repositories at the roots that it may write. Needs namespaces. Ordered from the tightest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum GitAccess {
    /// Nothing in `.git` can be written.
    #[serde(rename = "read-only")]
    ReadOnly,
    /// `.git/hooks` and `.git/config`, which Git executes, cannot be written.
    #[default]
    #[serde(rename = "protected")]
    Protected,
    #[serde(rename = "writable")]
    Writable,
}

/// Keys and passwords in the home directory, such as `~/.ssh`. Ordered from the tightest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Secrets {
    /// They appear empty. Needs namespaces.
    Hidden,
    #[default]
    Visible,
}

/// What `secrets` `hidden` hides, in the home directory.
pub const SECRETS: [&str; 20] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".oci",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".git-credentials",
    ".password-store",
    ".vault-token",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/op",
    ".local/share/keyrings",
];

/// A sandbox as text, such as `read-only,network=none`, or as its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SandboxRequest {
    Text(String),
    Parts(SandboxParts),
}

/// The parts of a sandbox. A part that is left out gets its default, or what the floor of the owner says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxParts {
    /// `read-only`, `workspace-write` or `off`.
    pub profile: Profile,
    /// Directories or files in which it may write, besides what the profile allows. At most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<PathBuf>,
    /// `full` (default), `leased` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// With `network` `leased`: TCP ports that it may connect to. At most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connect: Vec<u16>,
    /// `none` (default) or `any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix: Option<UnixSockets>,
    /// Names of the environment variables that it gets; `*` matches any characters. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<String>>,
    /// `own` (default) or `shared`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmp: Option<Tmp>,
    /// `auto` (default), `namespaces` or `landlock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierChoice>,
    /// `protected` (default), `read-only` or `writable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitAccess>,
    /// `visible` (default) or `hidden`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Secrets>,
    /// `refuse` (default) or `best_effort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
}

impl SandboxParts {
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            write: vec![],
            network: None,
            connect: vec![],
            unix: None,
            env: None,
            tmp: None,
            tier: None,
            git: None,
            secrets: None,
            missing: None,
        }
    }
}

/// A sandbox with every part decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sandbox {
    pub profile: Profile,
    /// Where it may write, besides its temporary directory: absolute paths without symbolic links.
    pub write: Vec<PathBuf>,
    pub network: Network,
    /// With `network` `leased`: TCP ports that it may connect to, besides its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connect: Vec<u16>,
    pub unix: UnixSockets,
    /// The environment variables that it gets; null for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<String>>,
    pub tmp: Tmp,
    #[serde(default = "landlock_alone")]
    pub tier: TierChoice,
    #[serde(default = "unprotected")]
    pub git: GitAccess,
    #[serde(default)]
    pub secrets: Secrets,
    pub missing: Missing,
}

/// What a record says that was written before there were namespaces.
fn landlock_alone() -> TierChoice {
    TierChoice::Landlock
}

fn unprotected() -> GitAccess {
    GitAccess::Writable
}

impl Sandbox {
    /// Whether it may write to this path.
    pub fn may_write(&self, path: &Path) -> bool {
        self.write.iter().any(|root| path.starts_with(root))
    }

    /// Whether a variable of the environment is passed to it.
    pub fn passes(&self, name: &str) -> bool {
        let Some(allow) = &self.env else { return true };
        EnvironmentFilter { allow: Some(allow.clone()), deny: vec![] }.passes(name)
    }
}

impl From<&Sandbox> for SandboxParts {
    /// The request for this sandbox.
    fn from(sandbox: &Sandbox) -> Self {
        Self {
            profile: sandbox.profile,
            write: sandbox.write.clone(),
            network: Some(sandbox.network),
            connect: sandbox.connect.clone(),
            unix: Some(sandbox.unix),
            env: sandbox.env.clone(),
            tmp: Some(sandbox.tmp),
            tier: Some(sandbox.tier),
            // Without namespaces nothing protects it, which is what leaving it out means.
            git: (sandbox.tier != TierChoice::Landlock).then_some(sandbox.git),
            secrets: Some(sandbox.secrets),
            missing: Some(sandbox.missing),
        }
    }
}

/// Whether a path can be repeated in pinfold's own words: it cannot be read as a sentence.
fn is_plain(path: &str) -> bool {
    path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@".contains(c))
}

#[cfg(test)]
mod tests;
