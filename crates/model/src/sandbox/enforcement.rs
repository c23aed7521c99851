//! What the kernel enforces of a sandbox, and what is said about it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    GitAccess, Kernel, Missing, Network, Part, Refusals, Sandbox, Secrets, TierChoice, Tmp, UnixSockets, is_plain,
};

/// How a sandbox is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Landlock and seccomp, in the process itself: needs no privileges.
    #[default]
    Landlock,
    /// Also mount, IPC and network namespaces: needs root, or a user who may create user namespaces.
    Namespaces,
}

impl Tier {
    pub fn name(self) -> &'static str {
        match self {
            Tier::Landlock => "landlock",
            Tier::Namespaces => "namespaces",
        }
    }
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
    "this machine cannot enforce the sandbox: {}; run it where it can be, or accept a weaker sandbox with \
     `missing=best_effort` (`pinfold sandbox check` shows what works here)",
    .0.iter().map(|part| format!("`{}` needs {}", part.name(), part.needs())).collect::<Vec<_>>().join(", ")
)]
pub struct NotEnforceable(pub Vec<Part>);

impl Sandbox {
    /// Whether this part belongs to it, where the machine can enforce it.
    fn wants(&self, part: Part) -> bool {
        let with_namespaces = self.tier != TierChoice::Landlock;
        match part {
            // Without Unix sockets, there are no abstract ones either.
            Part::AbstractSockets => self.unix == UnixSockets::Any,
            Part::Ports => self.network == Network::Leased,
            Part::Metadata | Part::Ipc => with_namespaces,
            Part::NetworkNamespace => with_namespaces && self.network == Network::None,
            // Where nothing can be written, `.git` cannot either.
            Part::Git => with_namespaces && self.git != GitAccess::Writable && !self.write.is_empty(),
            Part::Secrets => self.secrets == Secrets::Hidden,
            Part::Files | Part::Truncate | Part::Devices | Part::Signals | Part::SystemCalls => true,
        }
    }

    /// Whether it may not start without this part. With the tier `auto`, what namespaces add by default is optional.
    fn requires(&self, part: Part) -> bool {
        let is_optional = match part {
            Part::Metadata | Part::Ipc | Part::NetworkNamespace => self.tier == TierChoice::Auto,
            Part::Git => self.tier == TierChoice::Auto && self.git == GitAccess::Protected,
            _ => false,
        };
        self.wants(part) && !is_optional
    }

    /// What this machine enforces of it; an error if that is not all and the sandbox requires all.
    pub fn enforcement(&self, kernel: Kernel) -> Result<Enforcement, NotEnforceable> {
        let wanted = Part::ALL.into_iter().filter(|part| self.wants(*part));
        let (got, mut missing): (Vec<_>, Vec<_>) = wanted.partition(|part| part.is_enforced(kernel));
        missing.retain(|part| self.requires(*part));
        if !missing.is_empty() && self.missing == Missing::Refuse {
            return Err(NotEnforceable(missing));
        }
        let tier = match self.tier {
            TierChoice::Namespaces | TierChoice::Auto if kernel.namespaces => Tier::Namespaces,
            _ => Tier::Landlock,
        };
        Ok(Enforcement { asked: self.clone(), tier, landlock_abi: kernel.landlock_abi, got, missing })
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

    /// What a failed command may have run into, and what is known to have been refused.
    pub fn hint(&self, refused: Option<&Refusals>) -> String {
        let asked = &self.asked;
        // A hint is read as pinfold's own words: a directory's name is repeated only if it cannot be a sentence.
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
        let git = match asked.git {
            _ if !self.got.contains(&Part::Git) => "",
            GitAccess::ReadOnly => ", not in .git",
            _ => ", not in .git/hooks and .git/config",
        };
        let refused = match refused.and_then(Refusals::render) {
            Some(refused) => format!("The sandbox refused {refused}. "),
            None => String::new(),
        };
        format!(
            "it ran in the sandbox `{}`: it may write only in {}{git}; {network}{unix}. {refused}If it failed with \
             \"Permission denied\", \"Operation not permitted\" or \"Read-only file system\", retrying does not help: write \
             elsewhere, or ask for a wider sandbox",
            asked.profile.name(),
            roots.join(", ")
        )
    }
}
