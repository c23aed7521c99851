//! The sandbox of one process: prepared before the leader starts, and its temporary directory.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pinfold_model::sandbox::{Enforcement, GitAccess, Network, Part, SECRETS, Tier, Tmp, UnixSockets};
use pinfold_model::service::READY_SOCKET;
use pinfold_model::spec::{HOME_ENV, RESERVED_ENV, Spec};
use pinfold_os::sandbox::{Git, NamespacePolicy, Policy, Ports, Restrictions, Sockets};

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
    match Restrictions::prepare(&policy) {
        Ok(restrictions) => Ok(Some(PreparedSandbox { restrictions, tmp })),
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
        namespaces: (enforcement.tier == Tier::Namespaces).then(|| namespaces(enforcement)),
    }
}

fn namespaces(enforcement: &Enforcement) -> NamespacePolicy {
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
