//! How a server is set up.

use std::collections::BTreeMap;
use std::time::Duration;

use pinfold_api::types::Lifetime;

use crate::tools::Shape;

/// What the caller of a server decides.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The owner of every call, before anything a client says.
    pub owner: Option<String>,
    /// Its parent.
    pub parent: Option<String>,
    /// Only these tools; all where it is empty.
    pub tools: Vec<String>,
    pub shape: Shape,
    /// What becomes of processes when their owner is ended, unless a call says so.
    pub lifetime: Lifetime,
    /// How long those that are not to be kept outlive the last contact of their owner. Default: a minute on stdio,
    /// ten over HTTP, where each call is a contact.
    pub owner_grace: Option<String>,
    /// Variables of this program's environment that do not reach what it starts.
    pub withheld: Vec<String>,
    /// No call takes longer. Default: what is known of the client.
    pub longest_call: Option<Duration>,
    /// Hosts that may be named in `Host` beside loopback; for HTTP.
    pub allowed_hosts: Vec<String>,
    /// Origins that a browser may come from; none by default; for HTTP.
    pub allowed_origins: Vec<String>,
}

/// What commands are started on: the environment and directory of the shim, or the daemon's own.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The environment; where there is none, the daemon's is inherited.
    pub env: Option<BTreeMap<String, String>>,
    /// What a relative directory is relative to; where there is none, it must be absolute.
    pub cwd: Option<String>,
}

impl Base {
    /// This program's own environment and directory. What is not UTF-8 cannot be passed on, and what is withheld is not.
    pub fn of_this_program(withheld: &[String]) -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let cwd = std::env::current_dir().ok().and_then(|path| path.into_os_string().into_string().ok());
        let passes = |(name, _): &(String, String)| !withheld.contains(name);
        Base { env: Some(std::env::vars_os().filter_map(text).filter(passes).collect()), cwd }
    }
}
