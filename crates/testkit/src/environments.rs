//! The grounds that daemons are tested on: as root and as an ordinary user, with and without cgroups.

use std::fmt;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Pinfold, Setup, until};

/// The uid of an ordinary user, for tests that run as root.
pub const NOBODY: u32 = 65534;

/// Whether the tests run as root, and so can start a daemon as another user.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Where cgroup v2 is mounted, if it is.
pub fn cgroup_mount() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    mount.split(' ').nth(1).map(PathBuf::from)
}

/// The user that the daemon runs as, and how it contains process trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Environment {
    pub user: User,
    pub containment: Containment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Root,
    Ordinary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Containment {
    /// With a cgroup and the walk over parents and children.
    Cgroup,
    /// With the walk only.
    Walk,
}

/// A daemon on a ground.
#[derive(Debug)]
pub struct DaemonIn {
    pub pinfold: Pinfold,
    pub ground: Environment,
    /// A cgroup that its user may move processes into, if the ground uses cgroups.
    pub cgroups: Option<PathBuf>,
    // Dropped last: it is empty only when the daemon and its keepers have exited.
    _delegated: Option<Delegated>,
}

impl Environment {
    pub const ALL: [Environment; 4] = [
        Environment { user: User::Root, containment: Containment::Cgroup },
        Environment { user: User::Root, containment: Containment::Walk },
        Environment { user: User::Ordinary, containment: Containment::Cgroup },
        Environment { user: User::Ordinary, containment: Containment::Walk },
    ];

    /// Starts a daemon on this ground, or returns why this machine or user cannot.
    pub fn try_start(self, binary: &str) -> Result<DaemonIn, String> {
        if self.user == User::Root && !is_root() {
            return Err("not run as root".to_owned());
        }
        let drops_root = self.user == User::Ordinary && is_root();
        let user = drops_root.then_some(NOBODY);
        let on = |pinfold, cgroups, delegated| DaemonIn { pinfold, ground: self, cgroups, _delegated: delegated };
        if self.containment == Containment::Walk {
            return Ok(on(Pinfold::start_with(binary, setup("subreaper", user)), None, None));
        }
        let mount = cgroup_mount().ok_or("no cgroup v2 is mounted here")?;
        if drops_root {
            let delegated = Delegated::make(&mount);
            return Ok(on(delegated.start(binary), Some(delegated.path.clone()), Some(delegated)));
        }
        let pinfold = Pinfold::start_with(binary, setup("auto", None));
        let health = pinfold.health();
        match health.containment.as_str() {
            "cgroup" => Ok(on(pinfold, is_root().then_some(mount), None)),
            _ => Err(health.no_cgroup.unwrap_or_else(|| "no cgroup can be made here".to_owned())),
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = match self.user {
            User::Root => "root",
            User::Ordinary => "user",
        };
        match self.containment {
            Containment::Cgroup => write!(f, "{user}, cgroup"),
            Containment::Walk => write!(f, "{user}, none"),
        }
    }
}

/// The setup of a daemon with this `containment`, run as this user.
pub fn setup(containment: &str, user: Option<u32>) -> Setup {
    // Commands start in the home directory by default, and an ordinary user cannot enter root's.
    let env = user.map(|_| ("HOME".to_owned(), "/".to_owned()));
    Setup { config: format!("containment = \"{containment}\"\n"), user, env: env.into_iter().collect() }
}

/// A cgroup delegated to an ordinary user, as a service manager would do it. Removed when dropped.
#[derive(Debug)]
pub struct Delegated {
    pub path: PathBuf,
}

impl Delegated {
    pub fn make(mount: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = mount.join(format!("delegated-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a cgroup");
        for name in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
            chown(path.join(name), Some(NOBODY), Some(NOBODY)).expect("it can be given away");
        }
        Self { path }
    }

    /// Starts a daemon inside of it.
    pub fn start(&self, binary: &str) -> Pinfold {
        let pinfold = Pinfold::prepare(binary, setup("auto", Some(NOBODY)));
        let start = pinfold.command(&["daemon", "start"]);
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.path.display());
        let mut inside = Command::new("sh");
        inside.args(["-c", &script]).arg(start.get_program()).args(start.get_args()).current_dir("/");
        let env = start.get_envs().filter_map(|(name, value)| Some((name, value?)));
        assert!(inside.envs(env).stdout(Stdio::null()).status().expect("sh").success());
        pinfold
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        until("the delegated cgroup is empty", || std::fs::remove_dir(&self.path).is_ok());
    }
}
