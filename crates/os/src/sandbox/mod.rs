//! Restricts what a new program may do: namespaces, Landlock, a seccomp filter, fewer capabilities and `no_new_privs`.
//!
//! [`Restrictions::prepare`] does everything that can fail or allocate, before the clone. The child then only makes
//! system calls ([`Restrictions::apply`]). What is applied holds for the program and all its descendants, and cannot be
//! lifted.

mod capabilities;
mod landlock;
mod namespaces;
mod refused;
mod seccomp;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use capabilities::Capabilities;
use landlock::Ruleset;
use namespaces::Namespaces;
use seccomp::Filter;

use crate::socket;

pub use landlock::abi as landlock_abi;
pub use namespaces::{Git, NamespacePolicy, try_namespaces};
pub use refused::{Notice, RefusedCall, RefusedCalls};

/// Device files that every sandboxed program may write to.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// The sockets that a program may create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// No TCP and UDP.
    NoNetwork,
    /// TCP only.
    TcpOnly,
    /// TCP and UDP.
    TcpAndUdp,
}

/// TCP ports that a program may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    pub bind: Vec<u16>,
    pub connect: Vec<u16>,
}

/// What to restrict a program to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Directories and files that it may write. A path with a symbolic link in it is an error.
    pub write: Vec<PathBuf>,
    /// Its terminal, which it may write too.
    pub terminal: Option<PathBuf>,
    pub sockets: Sockets,
    /// With TCP: these ports only, on a kernel that can restrict them.
    pub ports: Option<Ports>,
    /// Whether it may create Unix sockets other than pairs.
    pub unix_sockets: bool,
    /// Whether to install the filter of system calls.
    pub filter: bool,
    /// What it gets namespaces for; `None` without.
    pub namespaces: Option<NamespacePolicy>,
}

/// A policy in the form in which the child applies it.
#[derive(Debug)]
pub struct Restrictions {
    namespaces: Option<Namespaces>,
    /// `None` on a kernel without Landlock.
    ruleset: Option<Ruleset>,
    filter: Option<InstalledFilter>,
    capabilities: Capabilities,
}

/// The filter, and how the parent learns what it refused.
#[derive(Debug)]
struct InstalledFilter {
    plain: Filter,
    notifying: Filter,
    /// The child sends the source of refused calls through the second one.
    channel: (OwnedFd, OwnedFd),
}

impl InstalledFilter {
    fn prepare(policy: &Policy) -> io::Result<Self> {
        let plain = Filter::new(policy.sockets, policy.unix_sockets);
        Ok(Self { notifying: plain.notifying(), plain, channel: socket::pair()? })
    }

    fn apply(&self) -> bool {
        match self.notifying.apply_notifying() {
            Some(listener) => socket::send_fd(self.channel.1.as_fd(), listener.as_fd()).is_ok(),
            None => self.plain.apply(),
        }
    }
}

impl Restrictions {
    /// Opens every path of the policy. What this kernel's Landlock does not know is left out: compare [`landlock_abi`]
    /// first.
    pub fn prepare(policy: &Policy) -> io::Result<Self> {
        let abi = landlock_abi();
        let ruleset = (abi > 0).then(|| ruleset(policy, abi)).transpose()?;
        let filter = policy.filter.then(|| InstalledFilter::prepare(policy)).transpose()?;
        let namespaces = policy.namespaces.as_ref().map(|namespaces| Namespaces::prepare(namespaces, &policy.write));
        Ok(Self { namespaces: namespaces.transpose()?, ruleset, filter, capabilities: Capabilities::reduced()? })
    }

    /// After the start: the calls that the filter refuses. `None` if the kernel cannot report them.
    pub fn into_refused_calls(self) -> Option<RefusedCalls> {
        let (ours, theirs) = self.filter?.channel;
        // The child closed its copy at exec: what it sent is here, or nothing will come.
        drop(theirs);
        socket::receive_fd(ours.as_fd()).ok().flatten().map(RefusedCalls::new)
    }

    /// Whether the working directory must be entered again after [`Self::apply`]: it is on another mount then.
    pub(crate) fn moves_mounts(&self) -> bool {
        self.namespaces.is_some()
    }

    /// Restricts the calling thread: system calls only, no allocation, no locks. False if one failed, with its errno.
    pub(crate) fn apply(&self) -> bool {
        // First, because all others take away the rights that it needs.
        if !self.namespaces.as_ref().is_none_or(Namespaces::apply) {
            return false;
        }
        // SAFETY: plain system call.
        let no_new_privs = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
        no_new_privs
            && self.capabilities.apply()
            && self.ruleset.as_ref().is_none_or(Ruleset::apply)
            && self.filter.as_ref().is_none_or(InstalledFilter::apply)
    }
}

fn ruleset(policy: &Policy, abi: u32) -> io::Result<Ruleset> {
    let mut ruleset = Ruleset::new(abi, policy.ports.is_some())?;
    for root in &policy.write {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("`{}`: {error}", root.display()));
        ruleset.allow_writing(root).map_err(named)?;
    }
    for device in DEVICES.iter().map(PathBuf::from).chain(policy.terminal.clone()) {
        match ruleset.allow_device(&device) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    if let Some(ports) = &policy.ports {
        ruleset.allow_ports(ports)?;
    }
    Ok(ruleset)
}

/// Whether this kernel has seccomp filters.
pub fn has_filters() -> bool {
    seccomp::is_available()
}
