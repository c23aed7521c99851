//! Sandboxes: what a process may write, connect to and signal.
//!
//! A start asks with a [`SandboxRequest`]. The daemon turns it into a [`Sandbox`], in which every part is decided, and
//! compares it with the [`Floor`] of its owner and of the process that sends the request. [`Sandbox::enforcement`]
//! says which parts the kernel can enforce. The keeper applies what is enforced.
//!
//! Invariant L9, *a floor only tightens*: no start gets a sandbox that allows more than its floor in any part.

mod floor;
mod text;

pub use floor::{Floor, Looser};
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
    /// `refuse` (default) or `best_effort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
}

impl SandboxParts {
    pub fn new(profile: Profile) -> Self {
        Self { profile, write: vec![], network: None, connect: vec![], unix: None, env: None, tmp: None, missing: None }
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
    pub missing: Missing,
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
            missing: Some(sandbox.missing),
        }
    }
}

/// A part of a sandbox that the kernel enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Writing, creating, renaming, linking and removing files (Landlock ABI 1, Linux 5.13).
    Files,
    /// Truncating files (Landlock ABI 3, Linux 6.2).
    Truncate,
    /// Control commands on devices (Landlock ABI 5, Linux 6.10).
    Devices,
    /// Signals to processes outside (Landlock ABI 6, Linux 6.12).
    Signals,
    /// Abstract Unix sockets of programs outside (Landlock ABI 6, Linux 6.12).
    AbstractSockets,
    /// TCP ports (Landlock ABI 4, Linux 6.7).
    Ports,
    /// System calls and kinds of sockets (seccomp).
    SystemCalls,
}

impl Part {
    /// Parts by name, in the order in which they are shown.
    pub const ALL: [Part; 7] = [
        Part::Files,
        Part::Truncate,
        Part::Devices,
        Part::Signals,
        Part::AbstractSockets,
        Part::Ports,
        Part::SystemCalls,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Part::Files => "files",
            Part::Truncate => "truncate",
            Part::Devices => "devices",
            Part::Signals => "signals",
            Part::AbstractSockets => "abstract_sockets",
            Part::Ports => "ports",
            Part::SystemCalls => "system_calls",
        }
    }

    /// What it stops, in words.
    pub fn about(self) -> &'static str {
        match self {
            Part::Files => "writing, creating, renaming, linking and removing files elsewhere",
            Part::Truncate => "truncating files elsewhere",
            Part::Devices => "control commands on devices",
            Part::Signals => "signals to processes outside",
            Part::AbstractSockets => "abstract Unix sockets of programs outside",
            Part::Ports => "TCP ports other than its own and the listed ones",
            Part::SystemCalls => {
                "kinds of sockets, io_uring, keyrings, bpf, mounts, namespaces and other privileged calls"
            }
        }
    }

    /// What the kernel needs to enforce it.
    pub fn needs(self) -> &'static str {
        match self {
            Part::Files => "Linux 5.13 with Landlock (`landlock` in the kernel's list of security modules)",
            Part::Truncate => "Linux 6.2 (Landlock ABI 3)",
            Part::Ports => "Linux 6.7 (Landlock ABI 4)",
            Part::Devices => "Linux 6.10 (Landlock ABI 5)",
            Part::Signals | Part::AbstractSockets => "Linux 6.12 (Landlock ABI 6)",
            Part::SystemCalls => "a kernel with seccomp filters",
        }
    }

    /// Whether this kernel can enforce it.
    pub fn is_enforced(self, kernel: Kernel) -> bool {
        let abi = |least| kernel.landlock_abi >= least;
        match self {
            Part::Files => abi(1),
            Part::Truncate => abi(3),
            Part::Ports => abi(4),
            Part::Devices => abi(5),
            Part::Signals | Part::AbstractSockets => abi(6),
            Part::SystemCalls => kernel.seccomp,
        }
    }
}

/// What the kernel offers to sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// 0 if it has no Landlock, or Landlock is disabled.
    pub landlock_abi: u32,
    pub seccomp: bool,
}

/// How a sandbox is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Landlock and seccomp, in the process itself: needs no privileges.
    #[default]
    Landlock,
}

/// A sandbox, and what the kernel enforces of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Enforcement {
    pub asked: Sandbox,
    pub tier: Tier,
    pub landlock_abi: u32,
    /// The parts that are enforced.
    pub got: Vec<Part>,
    /// The parts that this kernel cannot enforce. Not empty only with `missing` `best_effort`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Part>,
}

/// Parts that this kernel cannot enforce, although the sandbox requires all of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this kernel cannot enforce the sandbox: {}; run it on a newer kernel, or accept a weaker sandbox with \
     `missing=best_effort` (`pinfold sandbox check` shows what works here)",
    .0.iter().map(|part| format!("`{}` needs {}", part.name(), part.needs())).collect::<Vec<_>>().join(", ")
)]
pub struct NotEnforceable(pub Vec<Part>);

impl Sandbox {
    /// The parts of it that the kernel has to enforce.
    pub fn parts(&self) -> Vec<Part> {
        let is_asked = |part: &Part| match part {
            // Without Unix sockets, there are no abstract ones either.
            Part::AbstractSockets => self.unix == UnixSockets::Any,
            Part::Ports => self.network == Network::Leased,
            _ => true,
        };
        Part::ALL.into_iter().filter(is_asked).collect()
    }

    /// What this kernel enforces of it; an error if that is not all and the sandbox requires all.
    pub fn enforcement(&self, kernel: Kernel) -> Result<Enforcement, NotEnforceable> {
        let (got, missing): (Vec<_>, Vec<_>) = self.parts().into_iter().partition(|part| part.is_enforced(kernel));
        if !missing.is_empty() && self.missing == Missing::Refuse {
            return Err(NotEnforceable(missing));
        }
        let (tier, landlock_abi) = (Tier::Landlock, kernel.landlock_abi);
        Ok(Enforcement { asked: self.clone(), tier, landlock_abi, got, missing })
    }

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

impl Enforcement {
    /// One line for lists: the profile, and what is missing.
    pub fn label(&self) -> String {
        let mut label = self.asked.profile.name().to_owned();
        if self.asked.network != Network::Full {
            label.push_str(if self.asked.network == Network::None { ", no network" } else { ", leased ports" });
        }
        if !self.missing.is_empty() {
            let missing: Vec<_> = self.missing.iter().map(|part| part.name()).collect();
            label.push_str(&format!(", best effort: {} not enforced", missing.join(", ")));
        }
        label
    }

    /// What a failed command may have run into.
    pub fn hint(&self) -> String {
        let asked = &self.asked;
        // A hint is read as pinfold's own words: a directory's name is repeated only if it cannot be a sentence.
        let is_plain = |root: &str| root.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@".contains(c));
        let shown = |root: &PathBuf| match root.to_str().filter(|root| is_plain(root)) {
            Some(root) => format!("`{root}`"),
            None => "a directory that its record names".to_owned(),
        };
        let mut roots: Vec<String> = asked.write.iter().map(shown).collect();
        roots.push(if asked.tmp == Tmp::Own { "$TMPDIR" } else { "/tmp, /var/tmp and /dev/shm" }.to_owned());
        let network = match asked.network {
            Network::Full => "TCP and UDP are allowed",
            Network::Leased => "only its own TCP ports and the listed ones are allowed, no UDP",
            Network::None => "there is no network",
        };
        let unix = if asked.unix == UnixSockets::None { ", no Unix sockets" } else { "" };
        format!(
            "it ran in the sandbox `{}`: it may write only in {}; {network}{unix}. If it failed with \"Permission denied\" or \
             \"Operation not permitted\", retrying does not help: write elsewhere, or ask for a wider sandbox",
            asked.profile.name(),
            roots.join(", ")
        )
    }
}

#[cfg(test)]
mod tests;
