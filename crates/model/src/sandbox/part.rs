//! The parts of a sandbox that the kernel enforces, and what each of them needs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Modes, owners, times and extended attributes of files (read-only mounts in a namespace).
    Metadata,
    /// Git's hooks and configuration, or all of `.git` (read-only mounts in a namespace).
    Git,
    /// Keys and passwords in the home directory (empty mounts in a namespace).
    Secrets,
    /// The network, with a namespace that has none.
    NetworkNamespace,
    /// System V IPC and POSIX message queues (a namespace).
    Ipc,
}

impl Part {
    /// Parts by name, in the order in which they are shown.
    pub const ALL: [Part; 12] = [
        Part::Files,
        Part::Truncate,
        Part::Devices,
        Part::Signals,
        Part::AbstractSockets,
        Part::Ports,
        Part::SystemCalls,
        Part::Metadata,
        Part::Git,
        Part::Secrets,
        Part::NetworkNamespace,
        Part::Ipc,
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
            Part::Metadata => "metadata",
            Part::Git => "git",
            Part::Secrets => "secrets",
            Part::NetworkNamespace => "network_namespace",
            Part::Ipc => "ipc",
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
            Part::Metadata => "changing modes, owners, times and extended attributes of files elsewhere",
            Part::Git => "changing what Git executes in the workspace: .git/hooks, .git/config, or all of .git",
            Part::Secrets => "reading keys and passwords in the home directory, such as ~/.ssh",
            Part::NetworkNamespace => "seeing or using any network interface",
            Part::Ipc => "System V IPC and POSIX message queues of programs outside",
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
            Part::Metadata | Part::Git | Part::Secrets | Part::NetworkNamespace | Part::Ipc => {
                "namespaces: root, or a user who may create them (`pinfold doctor` says what is in the way)"
            }
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
            Part::Metadata | Part::Git | Part::Secrets | Part::NetworkNamespace | Part::Ipc => kernel.namespaces,
        }
    }
}

/// What the kernel offers to sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// 0 if it has no Landlock, or Landlock is disabled.
    pub landlock_abi: u32,
    pub seccomp: bool,
    /// Whether this user can create user, mount, network and IPC namespaces, and change mounts in them.
    pub namespaces: bool,
}
