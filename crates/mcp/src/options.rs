//! Configuration of a server.

use std::collections::BTreeMap;
use std::time::Duration;

use pinfold_api::types::Lifetime;

use crate::tools::Shape;

/// The options of a server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Owner of every call. Overrides what the client says about itself.
    pub owner: Option<String>,
    /// Parent of the owner.
    pub parent: Option<String>,
    /// Tools to offer; empty means all.
    pub tools: Vec<String>,
    pub shape: Shape,
    /// Default `lifetime` of processes: what happens to them when their owner disconnects.
    pub lifetime: Lifetime,
    /// Grace period after the owner's last contact, before `lifetime` applies. Default: one minute on stdio, ten
    /// minutes over HTTP, where only calls count as contact.
    pub owner_grace: Option<String>,
    /// Environment variables of this program that commands do not inherit.
    pub withheld: Vec<String>,
    /// Maximum duration of a call. Default: the known timeout of the client.
    pub longest_call: Option<Duration>,
    /// Values accepted in `Host` besides loopback (HTTP only).
    pub allowed_hosts: Vec<String>,
    /// Browser origins that may connect; none by default (HTTP only).
    pub allowed_origins: Vec<String>,
}

/// Environment and working directory that commands start with: those of this program, or the daemon's.
#[derive(Clone, Debug, Default)]
pub struct CommandDefaults {
    /// The environment; `None` inherits the daemon's.
    pub env: Option<BTreeMap<String, String>>,
    /// The directory that a relative `workdir` is resolved against; `None` requires an absolute one.
    pub cwd: Option<String>,
}

impl CommandDefaults {
    /// The environment and directory of this process, without the `withheld` variables and without values that are not
    /// UTF-8.
    pub fn from_this_process(withheld: &[String]) -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let cwd = std::env::current_dir().ok().and_then(|path| path.into_os_string().into_string().ok());
        let passes = |(name, _): &(String, String)| !withheld.contains(name);
        CommandDefaults { env: Some(std::env::vars_os().filter_map(text).filter(passes).collect()), cwd }
    }
}
