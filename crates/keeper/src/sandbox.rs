//! The sandbox of one process: prepared before the leader starts, its temporary directory, and what it refuses.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pinfold_model::facts::Fact;
use pinfold_model::outcome::Outcome;
use pinfold_model::sandbox::{
    Enforcement, GUESS_BYTES, GitAccess, Network, Part, Refusals, RefusedCall, SECRETS, Tier, Tmp, UnixSockets,
};
use pinfold_model::service::READY_SOCKET;
use pinfold_model::spec::{HOME_ENV, RESERVED_ENV, Spec};
use pinfold_os::sandbox::{
    self as os, Git, NamespacePolicy, Notice, Policy, Ports, RefusedCalls, Restrictions, Sockets,
};

use crate::driver::{Driver, KeeperContext};
use crate::system::System;

/// The name of the temporary directory, in the directory of the process.
const TMP: &str = "tmp";
/// The variables that name it.
pub(crate) const TMP_ENV: [&str; 3] = ["TMPDIR", "TMP", "TEMP"];
/// The temporary directories that all programs share.
const SHARED_TMP: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// What a sandboxed leader starts with.
#[derive(Debug)]
pub(crate) struct PreparedSandbox {
    pub(crate) restrictions: Restrictions,
    pub(crate) tmp: Option<OwnTmp>,
    redirects: Vec<PathBuf>,
}

/// The temporary directory of one process.
#[derive(Debug)]
pub(crate) struct OwnTmp(PathBuf);

impl OwnTmp {
    fn create(directory: &Path) -> io::Result<Self> {
        // The rule for it must name it without symbolic links.
        let path = directory.canonicalize()?.join(TMP);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it with everything in it. What cannot be removed goes with the directory of the process.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a sandboxed process has while it runs.
#[derive(Debug)]
pub(crate) struct RunningSandbox {
    pub(crate) tmp: Option<OwnTmp>,
    /// `None` if the kernel cannot report them, or nothing is left that could cause one.
    calls: Option<RefusedCalls>,
    refusals: Refusals,
    /// Files that did not exist at the start, and through which Git would take hooks and configuration from elsewhere. No
    /// mount can keep a file from being created in a directory that may be written.
    redirects: Vec<PathBuf>,
}

impl RunningSandbox {
    /// Of a leader that has just started in it.
    pub(crate) fn new(prepared: PreparedSandbox) -> Self {
        let PreparedSandbox { restrictions, tmp, redirects } = prepared;
        Self { tmp, calls: restrictions.into_refused_calls(), refusals: Refusals::default(), redirects }
    }

    pub(crate) fn refused_calls(&self) -> Option<&RefusedCalls> {
        self.calls.as_ref()
    }

    /// Answers one refused call, and counts it.
    fn answer(&mut self) {
        match self.calls.as_ref().map(RefusedCalls::answer) {
            Some(Notice::Refused(call)) => self.refusals.count(kind_of(call)),
            Some(Notice::Closed) => self.calls = None,
            Some(Notice::Nothing) | None => {}
        }
    }
}

/// The directories whose repositories are protected: the roots, and those that contain the working directory inside of a root.
fn repositories(enforcement: &Enforcement, spec: &Spec) -> Vec<PathBuf> {
    if !enforcement.got.contains(&Part::Git) {
        return vec![];
    }
    let sandbox = &enforcement.asked;
    let mut directories = sandbox.write.clone();
    let cwd = spec.cwd.canonicalize().unwrap_or_else(|_| spec.cwd.clone());
    for directory in cwd.ancestors().take_while(|directory| sandbox.may_write(directory)) {
        if !directories.iter().any(|known| known == directory) {
            directories.push(directory.to_owned());
        }
    }
    // A directory before what is in it.
    directories.sort_unstable();
    directories
}

/// `commondir` in the repositories whose hooks and configuration are protected, where it does not exist.
fn redirects(enforcement: &Enforcement, repositories: &[PathBuf]) -> Vec<PathBuf> {
    if enforcement.asked.git != GitAccess::Protected {
        return vec![];
    }
    let repositories = repositories.iter().map(|directory| directory.join(".git")).filter(|path| path.is_dir());
    let files = repositories.map(|path| path.join("commondir"));
    files.filter(|path| path.symlink_metadata().is_err()).collect()
}

fn kind_of(call: os::RefusedCall) -> RefusedCall {
    match call {
        os::RefusedCall::UnixSocket => RefusedCall::UnixSocket,
        os::RefusedCall::NetworkSocket => RefusedCall::NetworkSocket,
        os::RefusedCall::OtherSocket => RefusedCall::OtherSocket,
        os::RefusedCall::Namespace => RefusedCall::Namespace,
        os::RefusedCall::Mount => RefusedCall::Mount,
        os::RefusedCall::Keyring => RefusedCall::Keyring,
        os::RefusedCall::Other => RefusedCall::Other,
    }
}

impl<S: System> Driver<S> {
    pub(crate) fn call_refused(&mut self) {
        if let Some(sandbox) = &mut self.sandbox {
            sandbox.answer();
        }
    }

    /// Records what the sandbox refused, if that is new. If the leader failed, with the paths that its output names.
    pub(crate) fn note_refusals(&mut self, outcome: Option<&Outcome>, context: &mut KeeperContext<'_, S>) {
        let (Some(running), Some(enforcement)) = (&mut self.sandbox, &self.history.intent.spec.sandbox) else { return };
        if outcome.is_some_and(|outcome| !matches!(outcome, Outcome::Exited { code: 0 })) {
            let output = self.pump.tail(GUESS_BYTES);
            let tmp = running.tmp.as_ref().map(OwnTmp::path);
            let cwd = &self.history.intent.spec.cwd;
            running.refusals.paths = enforcement.guess_paths(&String::from_utf8_lossy(&output), cwd, tmp);
        }
        let created = running.redirects.iter().position(|path| path.symlink_metadata().is_ok());
        let created = created.map(|index| running.redirects.remove(index));
        let refusals = running.refusals.clone();
        if created.is_some() {
            let text = "`.git/commondir` was created in its sandbox: Git takes hooks and configuration from where it points; remove it";
            self.note(text.to_owned(), context);
        }
        if !refusals.is_empty() && self.history.refusals.as_ref() != Some(&refusals) {
            self.unwritten.push(Fact::Refused { refusals, at: context.system.moment() });
            self.write_pending(context);
        }
    }
}

/// Prepares the sandbox of a process in this directory, if it has one.
pub(crate) fn prepare(
    spec: &Spec,
    directory: &Path,
    terminal: Option<BorrowedFd<'_>>,
) -> io::Result<Option<PreparedSandbox>> {
    let Some(enforcement) = &spec.sandbox else { return Ok(None) };
    let sandbox = &enforcement.asked;
    let tmp = match sandbox.tmp {
        Tmp::Own => Some(OwnTmp::create(directory)?),
        Tmp::Shared => None,
    };
    let policy = policy(enforcement, spec, tmp.as_ref(), terminal);
    let repositories = policy.namespaces.as_ref().map(|namespaces| namespaces.repositories.as_slice());
    // Before the start: the program may create them at once.
    let redirects = redirects(enforcement, repositories.unwrap_or_default());
    match Restrictions::prepare(&policy) {
        Ok(restrictions) => Ok(Some(PreparedSandbox { restrictions, tmp, redirects })),
        Err(error) => {
            tmp.inspect(OwnTmp::remove);
            Err(error)
        }
    }
}

fn policy(enforcement: &Enforcement, spec: &Spec, tmp: Option<&OwnTmp>, terminal: Option<BorrowedFd<'_>>) -> Policy {
    let sandbox = &enforcement.asked;
    let mut write = sandbox.write.clone();
    match tmp {
        Some(own) => write.push(own.path().to_owned()),
        // Either may be a link or absent.
        None => write.extend(SHARED_TMP.iter().filter_map(|path| Path::new(path).canonicalize().ok())),
    }
    let own_ports = spec.service.ports.values().copied().flatten();
    Policy {
        write,
        terminal: terminal.map(|terminal| format!("/proc/self/fd/{}", terminal.as_raw_fd()).into()),
        sockets: match sandbox.network {
            Network::None => Sockets::NoNetwork,
            Network::Leased => Sockets::TcpOnly,
            Network::Full => Sockets::TcpAndUdp,
        },
        ports: (sandbox.network == Network::Leased)
            .then(|| Ports { bind: own_ports.collect(), connect: sandbox.connect.clone() }),
        unix_sockets: sandbox.unix == UnixSockets::Any,
        filter: enforcement.got.contains(&Part::SystemCalls),
        namespaces: (enforcement.tier == Tier::Namespaces).then(|| namespaces(enforcement, spec)),
    }
}

fn namespaces(enforcement: &Enforcement, spec: &Spec) -> NamespacePolicy {
    let gets = |part| enforcement.got.contains(&part);
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let secrets = home.into_iter().flat_map(|home| SECRETS.map(|name| home.join(name)));
    NamespacePolicy {
        no_network: gets(Part::NetworkNamespace),
        git: match enforcement.asked.git {
            _ if !gets(Part::Git) => Git::Writable,
            GitAccess::ReadOnly => Git::ReadOnly,
            GitAccess::Protected => Git::Protected,
            GitAccess::Writable => Git::Writable,
        },
        repositories: repositories(enforcement, spec),
        hidden: if gets(Part::Secrets) { secrets.collect() } else { vec![] },
    }
}

/// Whether a sandboxed process gets a variable: one that its list allows, or one that pinfold set for it.
pub(crate) fn passes(spec: &Spec, name: &str) -> bool {
    let Some(enforcement) = &spec.sandbox else { return true };
    let is_ours = || {
        RESERVED_ENV.contains(&name)
            || TMP_ENV.contains(&name)
            || [HOME_ENV, READY_SOCKET].contains(&name)
            || spec.service.ports.contains_key(name)
    };
    enforcement.asked.passes(name) || is_ours()
}
