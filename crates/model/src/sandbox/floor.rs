//! Floors: the widest sandbox that a start may have.

use std::path::{Path, PathBuf};

use super::{GitAccess, Missing, Network, Profile, Sandbox, SandboxParts, Secrets, TierChoice, Tmp, UnixSockets};
use crate::environment::EnvironmentFilter;

/// The widest sandbox that a start may have, from the configuration or from the sandbox of the process that requests
/// the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Where it may write at most; `None` for anywhere that the start names.
    pub write: Option<Vec<PathBuf>>,
    pub network: Network,
    /// With `leased`: the ports that it may connect to at most.
    pub connect: Vec<u16>,
    pub unix: UnixSockets,
    /// The variables that it may get at most; `None` for all.
    pub env: Option<Vec<String>>,
    pub tmp: Tmp,
    pub tier: TierChoice,
    pub git: GitAccess,
    pub secrets: Secrets,
    pub missing: Missing,
}

/// A start that asks for more than its floor allows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox may not be wider than {source_of_floor}, in `{part}`: {allowed}; leave `sandbox` out to get that")]
pub struct Looser {
    pub part: &'static str,
    /// What the floor allows for this part.
    pub allowed: String,
    /// Where the floor comes from, such as "the floor of its owner".
    pub source_of_floor: &'static str,
}

impl From<&Sandbox> for Floor {
    fn from(sandbox: &Sandbox) -> Self {
        Self {
            write: Some(sandbox.write.clone()),
            network: sandbox.network,
            connect: sandbox.connect.clone(),
            unix: sandbox.unix,
            env: sandbox.env.clone(),
            tmp: sandbox.tmp,
            tier: sandbox.tier,
            git: sandbox.git,
            secrets: sandbox.secrets,
            missing: sandbox.missing,
        }
    }
}

impl From<&SandboxParts> for Floor {
    /// The floor that the configuration describes. `workspace-write` without `write` allows any working directory.
    fn from(parts: &SandboxParts) -> Self {
        let anywhere = parts.profile == Profile::WorkspaceWrite && parts.write.is_empty();
        Self {
            write: (!anywhere).then(|| parts.write.clone()),
            network: parts.network.unwrap_or_default(),
            connect: parts.connect.clone(),
            unix: parts.unix.unwrap_or_default(),
            env: parts.env.clone(),
            tmp: parts.tmp.unwrap_or_default(),
            tier: parts.tier.unwrap_or_default(),
            git: git_of(parts, parts.tier.unwrap_or_default(), GitAccess::default()),
            secrets: parts.secrets.unwrap_or_default(),
            missing: parts.missing.unwrap_or_default(),
        }
    }
}

impl Floor {
    /// The floor that allows only what both allow.
    pub fn meet(&self, other: &Floor) -> Floor {
        let network = self.network.min(other.network);
        let connect = match (self.network, other.network) {
            (Network::Leased, Network::Leased) => {
                self.connect.iter().copied().filter(|port| other.connect.contains(port)).collect()
            }
            (Network::Leased, _) => self.connect.clone(),
            (_, Network::Leased) => other.connect.clone(),
            _ => vec![],
        };
        Floor {
            write: match (&self.write, &other.write) {
                (None, roots) | (roots, None) => roots.clone(),
                (Some(ours), Some(theirs)) => Some(common_roots(ours, theirs)),
            },
            network,
            connect: if network == Network::Leased { connect } else { vec![] },
            unix: self.unix.min(other.unix),
            env: match (&self.env, &other.env) {
                (None, names) | (names, None) => names.clone(),
                (Some(ours), Some(theirs)) => Some(common_names(ours, theirs)),
            },
            tmp: self.tmp.min(other.tmp),
            tier: self.tier.min(other.tier),
            git: self.git.min(other.git),
            secrets: self.secrets.min(other.secrets),
            missing: self.missing.min(other.missing),
        }
    }

    /// The sandbox of a start that asks for none: as wide as the floor allows.
    pub fn widest(&self, cwd: &Path) -> Sandbox {
        let write = self.write.clone().unwrap_or_else(|| vec![cwd.to_owned()]);
        Sandbox {
            profile: if write.is_empty() { Profile::ReadOnly } else { Profile::WorkspaceWrite },
            write,
            network: self.network,
            connect: self.connect.clone(),
            unix: self.unix,
            env: self.env.clone(),
            tmp: self.tmp,
            tier: self.tier,
            git: self.git,
            secrets: self.secrets,
            missing: self.missing,
        }
    }

    /// Refuses a sandbox that allows more than this floor (L9).
    pub fn check(&self, sandbox: &Sandbox, source_of_floor: &'static str) -> Result<(), Looser> {
        let looser = |part, allowed: String| Err(Looser { part, allowed, source_of_floor });
        if let Some(roots) = &self.write
            && let Some(wider) = sandbox.write.iter().find(|path| !roots.iter().any(|root| path.starts_with(root)))
        {
            let roots: Vec<_> = roots.iter().map(|root| root.display().to_string()).collect();
            let allowed = if roots.is_empty() { "nothing".to_owned() } else { roots.join(", ") };
            return looser("write", format!("`{}` is not in what may be written: {allowed}", wider.display()));
        }
        if sandbox.network > self.network {
            return looser("network", format!("`{}`", name(&self.network)));
        }
        if self.network == Network::Leased
            && let Some(port) = sandbox.connect.iter().find(|port| !self.connect.contains(port))
        {
            return looser("connect", format!("port {port} is not among the ports it may connect to"));
        }
        if sandbox.unix > self.unix {
            return looser("unix", "`none`".to_owned());
        }
        if let Some(names) = &self.env {
            let is_covered = |asked: &String| is_covered(asked, names);
            if !sandbox.env.as_ref().is_some_and(|asked| asked.iter().all(is_covered)) {
                return looser("env", format!("only {}", names.join(", ")));
            }
        }
        if sandbox.tmp > self.tmp {
            return looser("tmp", "`own`".to_owned());
        }
        if sandbox.tier > self.tier {
            let name = if self.tier == TierChoice::Auto { "auto" } else { "namespaces" };
            return looser("tier", format!("`{name}`"));
        }
        if sandbox.git > self.git {
            let name = if self.git == GitAccess::ReadOnly { "read-only" } else { "protected" };
            return looser("git", format!("`{name}`"));
        }
        if sandbox.secrets > self.secrets {
            return looser("secrets", "`hidden`".to_owned());
        }
        if sandbox.missing > self.missing {
            return looser("missing", "`refuse`".to_owned());
        }
        Ok(())
    }
}

fn name(network: &Network) -> &'static str {
    match network {
        Network::None => "none",
        Network::Leased => "leased",
        Network::Full => "full",
    }
}

/// The paths that are below a root of both: of each pair, the deeper one.
fn common_roots(ours: &[PathBuf], theirs: &[PathBuf]) -> Vec<PathBuf> {
    let below = |paths: &[PathBuf], roots: &[PathBuf]| -> Vec<PathBuf> {
        paths.iter().filter(|path| roots.iter().any(|root| path.starts_with(root))).cloned().collect()
    };
    let mut common = below(ours, theirs);
    for path in below(theirs, ours) {
        if !common.contains(&path) {
            common.push(path);
        }
    }
    common
}

/// Patterns of names that both lists allow. Two different patterns with `*` may overlap; that part is left out.
fn common_names(ours: &[String], theirs: &[String]) -> Vec<String> {
    let mut common: Vec<String> = ours.iter().filter(|name| is_covered(name, theirs)).cloned().collect();
    for name in theirs.iter().filter(|name| is_covered(name, ours)) {
        if !common.contains(name) {
            common.push(name.clone());
        }
    }
    common
}

/// Whether every name that a pattern matches is allowed.
fn is_covered(pattern: &str, allowed: &[String]) -> bool {
    let matches = || EnvironmentFilter { allow: Some(allowed.to_vec()), deny: vec![] }.passes(pattern);
    allowed.iter().any(|name| name == pattern) || (!pattern.contains('*') && matches())
}

/// The access to `.git` that parts ask for. Without namespaces nothing protects it.
fn git_of(parts: &SandboxParts, tier: TierChoice, default: GitAccess) -> GitAccess {
    parts.git.unwrap_or(if tier == TierChoice::Landlock { GitAccess::Writable } else { default })
}

impl Sandbox {
    /// The sandbox that a start asks for, with unset parts as the floor has them, or at their defaults. `cwd` and the
    /// roots in `parts` must be free of symbolic links.
    pub fn of(parts: &SandboxParts, cwd: &Path, floor: Option<&Floor>) -> Option<Self> {
        if parts.profile == Profile::Off {
            return None;
        }
        let mut write = parts.write.clone();
        if parts.profile == Profile::WorkspaceWrite && !write.iter().any(|root| cwd.starts_with(root)) {
            write.insert(0, cwd.to_owned());
        }
        let network = parts.network.or(floor.map(|floor| floor.network)).unwrap_or_default();
        let connect = match floor {
            Some(floor) if parts.connect.is_empty() && network == Network::Leased => floor.connect.clone(),
            _ => parts.connect.clone(),
        };
        // The default, unless the floor is tighter.
        let (tier, git, secrets) = match floor {
            Some(floor) => (floor.tier.min(TierChoice::default()), floor.git.min(GitAccess::default()), floor.secrets),
            None => Default::default(),
        };
        let tier = parts.tier.unwrap_or(tier);
        Some(Self {
            profile: parts.profile,
            write,
            network,
            connect,
            unix: parts.unix.unwrap_or_default(),
            env: parts.env.clone().or(floor.and_then(|floor| floor.env.clone())),
            tmp: parts.tmp.unwrap_or_default(),
            tier,
            git: git_of(parts, tier, git),
            secrets: parts.secrets.unwrap_or(secrets),
            missing: parts.missing.or(floor.map(|floor| floor.missing)).unwrap_or_default(),
        })
    }
}
