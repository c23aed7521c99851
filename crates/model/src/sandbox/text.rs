//! Sandboxes written as text: `workspace-write,network=none,write=/data`.

use std::path::{Path, PathBuf};

use super::{
    GitAccess, MAX_CONNECT_PORTS, MAX_ENV_PATTERNS, MAX_WRITE_ROOTS, Missing, Network, Profile, Sandbox, SandboxParts,
    SandboxRequest, Secrets, TierChoice, Tmp, UnixSockets,
};

/// Why a sandbox cannot be used. Each says what to give instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSandbox {
    #[error("sandbox `{0}` is unknown: use `read-only`, `workspace-write` or `off`")]
    UnknownProfile(String),
    #[error(
        "`{0}` is not a part of a sandbox: use write=DIR, network=full|leased|none, connect=PORT, unix=none|any, \
         env=NAME, tmp=own|shared, tier=auto|namespaces|landlock, git=protected|read-only|writable, \
         secrets=visible|hidden or missing=refuse|best_effort"
    )]
    UnknownPart(String),
    #[error("`{part}={value}` in a sandbox: use {expected}")]
    BadValue { part: &'static str, value: String, expected: &'static str },
    #[error("the sandbox `off` takes no parts: leave out `{0}`, or choose `read-only` or `workspace-write`")]
    OffWithParts(&'static str),
    #[error("sandbox: `connect` goes with `network` `leased`: add network=leased, or leave it out")]
    ConnectWithoutLeased,
    #[error("sandbox: write root `{}` is not absolute: give an absolute path, or one that begins with `~/`", .0.display())]
    RelativeRoot(PathBuf),
    #[error("sandbox: `{0}` needs namespaces, which `tier=landlock` does without: leave out one of them")]
    NeedsNamespaces(&'static str),
    #[error("sandbox: more than {most} entries in `{part}`: give fewer")]
    TooMany { part: &'static str, most: usize },
    #[error("sandbox: `{0}` holds a NUL byte or is empty")]
    Unusable(&'static str),
}

impl SandboxRequest {
    /// Its parts, within their bounds. `~` is replaced with this home directory.
    pub fn parse(&self, home: &str) -> Result<SandboxParts, BadSandbox> {
        let mut parts = match self {
            SandboxRequest::Text(text) => parse_text(text)?,
            SandboxRequest::Parts(parts) => parts.clone(),
        };
        for root in &mut parts.write {
            if let Ok(rest) = root.strip_prefix("~") {
                *root = Path::new(home).join(rest);
            }
        }
        check(&parts)?;
        Ok(parts)
    }
}

fn parse_text(text: &str) -> Result<SandboxParts, BadSandbox> {
    let mut words = text.split(',').map(str::trim);
    let profile = match words.next().unwrap_or_default() {
        "off" => Profile::Off,
        "read-only" => Profile::ReadOnly,
        "workspace-write" => Profile::WorkspaceWrite,
        other => return Err(BadSandbox::UnknownProfile(excerpt(other))),
    };
    let mut parts = SandboxParts::new(profile);
    for word in words {
        let (part, value) = word.split_once('=').ok_or_else(|| BadSandbox::UnknownPart(excerpt(word)))?;
        let bad = |part, expected| BadSandbox::BadValue { part, value: excerpt(value), expected };
        match part {
            "write" => parts.write.push(PathBuf::from(value)),
            "env" => parts.env.get_or_insert_default().extend((!value.is_empty()).then(|| value.to_owned())),
            "connect" => parts.connect.push(value.parse().map_err(|_| bad("connect", "a port number"))?),
            "network" => {
                parts.network = Some(match value {
                    "full" => Network::Full,
                    "leased" => Network::Leased,
                    "none" => Network::None,
                    _ => return Err(bad("network", "full, leased or none")),
                });
            }
            "unix" => {
                parts.unix = Some(match value {
                    "any" => UnixSockets::Any,
                    "none" => UnixSockets::None,
                    _ => return Err(bad("unix", "none or any")),
                });
            }
            "tmp" => {
                parts.tmp = Some(match value {
                    "own" => Tmp::Own,
                    "shared" => Tmp::Shared,
                    _ => return Err(bad("tmp", "own or shared")),
                });
            }
            "tier" => {
                parts.tier = Some(match value {
                    "auto" => TierChoice::Auto,
                    "namespaces" => TierChoice::Namespaces,
                    "landlock" => TierChoice::Landlock,
                    _ => return Err(bad("tier", "auto, namespaces or landlock")),
                });
            }
            "git" => {
                parts.git = Some(match value {
                    "protected" => GitAccess::Protected,
                    "read-only" => GitAccess::ReadOnly,
                    "writable" => GitAccess::Writable,
                    _ => return Err(bad("git", "protected, read-only or writable")),
                });
            }
            "secrets" => {
                parts.secrets = Some(match value {
                    "visible" => Secrets::Visible,
                    "hidden" => Secrets::Hidden,
                    _ => return Err(bad("secrets", "visible or hidden")),
                });
            }
            "missing" => {
                parts.missing = Some(match value {
                    "refuse" => Missing::Refuse,
                    "best_effort" => Missing::BestEffort,
                    _ => return Err(bad("missing", "refuse or best_effort")),
                });
            }
            _ => return Err(BadSandbox::UnknownPart(excerpt(word))),
        }
    }
    Ok(parts)
}

fn check(parts: &SandboxParts) -> Result<(), BadSandbox> {
    if parts.profile == Profile::Off {
        return match first_part(parts) {
            Some(part) => Err(BadSandbox::OffWithParts(part)),
            None => Ok(()),
        };
    }
    let env = parts.env.as_deref().unwrap_or_default();
    for (part, count, most) in [
        ("write", parts.write.len(), MAX_WRITE_ROOTS),
        ("connect", parts.connect.len(), MAX_CONNECT_PORTS),
        ("env", env.len(), MAX_ENV_PATTERNS),
    ] {
        if count > most {
            return Err(BadSandbox::TooMany { part, most });
        }
    }
    for root in &parts.write {
        if !root.is_absolute() {
            return Err(BadSandbox::RelativeRoot(root.clone()));
        }
        if root.to_str().is_none_or(|root| root.contains('\0')) {
            return Err(BadSandbox::Unusable("write"));
        }
    }
    if env.iter().any(|name| name.is_empty() || name.contains('\0')) {
        return Err(BadSandbox::Unusable("env"));
    }
    // Without `network`, the floor may be the one that says `leased`.
    if !parts.connect.is_empty() && parts.network.is_some_and(|network| network != Network::Leased) {
        return Err(BadSandbox::ConnectWithoutLeased);
    }
    if parts.tier == Some(TierChoice::Landlock) {
        if parts.git.is_some_and(|git| git != GitAccess::Writable) {
            return Err(BadSandbox::NeedsNamespaces("git"));
        }
        if parts.secrets == Some(Secrets::Hidden) {
            return Err(BadSandbox::NeedsNamespaces("secrets"));
        }
    }
    Ok(())
}

/// The first part that is given.
fn first_part(parts: &SandboxParts) -> Option<&'static str> {
    let given = [
        ("write", !parts.write.is_empty()),
        ("network", parts.network.is_some()),
        ("connect", !parts.connect.is_empty()),
        ("unix", parts.unix.is_some()),
        ("env", parts.env.is_some()),
        ("tmp", parts.tmp.is_some()),
        ("tier", parts.tier.is_some()),
        ("git", parts.git.is_some()),
        ("secrets", parts.secrets.is_some()),
        ("missing", parts.missing.is_some()),
    ];
    given.into_iter().find(|(_, given)| *given).map(|(part, _)| part)
}

fn excerpt(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(60).collect()
}

impl Sandbox {
    /// The sandbox as text that can be given to a start.
    pub fn render(&self) -> String {
        let mut text = self.profile.name().to_owned();
        let mut add = |part: &str, value: &str| {
            text.push_str(&format!(",{part}={value}"));
        };
        self.write.iter().for_each(|root| add("write", &root.to_string_lossy()));
        match self.network {
            Network::Full => {}
            Network::Leased => add("network", "leased"),
            Network::None => add("network", "none"),
        }
        self.connect.iter().for_each(|port| add("connect", &port.to_string()));
        if self.unix == UnixSockets::Any {
            add("unix", "any");
        }
        match self.env.as_deref() {
            None => {}
            Some([]) => add("env", ""),
            Some(names) => names.iter().for_each(|name| add("env", name)),
        }
        if self.tmp == Tmp::Shared {
            add("tmp", "shared");
        }
        match self.tier {
            TierChoice::Auto => {}
            TierChoice::Namespaces => add("tier", "namespaces"),
            TierChoice::Landlock => add("tier", "landlock"),
        }
        match self.git {
            GitAccess::Protected => {}
            GitAccess::ReadOnly => add("git", "read-only"),
            GitAccess::Writable if self.tier == TierChoice::Landlock => {}
            GitAccess::Writable => add("git", "writable"),
        }
        if self.secrets == Secrets::Hidden {
            add("secrets", "hidden");
        }
        if self.missing == Missing::BestEffort {
            add("missing", "best_effort");
        }
        text
    }
}
