//! Registers this server's session with the daemon: the client's name, its directory and the server process. The next
//! session in the same directory can then find what this one left running ([`crate::left_behind`]).
//!
//! Only for stdio servers, whose exit ends the session, and only without an explicit owner: processes of an explicit
//! owner are found by its name. Over HTTP the end of a session cannot be observed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use pinfold_api::types::{ServerProcess, SessionRequest};
use tokio::sync::Mutex;

use crate::claude::parent_and_start;
use crate::daemon_access::DaemonAccess;
use crate::identity::{Caller, ClientIdentity};
use crate::options::CommandDefaults;

/// Maximum length of a client name sent to the daemon.
const MAX_CLIENT_NAME: usize = 200;
/// Name used for a client that does not give one.
const UNNAMED: &str = "unnamed";
/// A session is registered again with the first call after this time, in case the daemon lost its state.
const REGISTER_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of remembered owners; beyond that all are forgotten and registered again.
const MAX_OWNERS: usize = 1_000;

/// Registers the sessions of this server with the daemon.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// The server's directory and process; `None` if sessions are not registered.
    location: Option<(String, ServerProcess)>,
    state: Mutex<Registered>,
}

#[derive(Debug, Default)]
struct Registered {
    /// When each owner was last registered.
    last_registered: HashMap<String, Instant>,
    /// The Claude Code session of the last call.
    claude: Option<String>,
}

impl Sessions {
    pub(crate) fn new(identity: &ClientIdentity, command_defaults: &CommandDefaults) -> Self {
        let is_enabled = identity.owner.is_none() && identity.connection.is_some();
        let directory =
            command_defaults.cwd.as_ref().filter(|_| is_enabled).and_then(|cwd| std::fs::canonicalize(cwd).ok());
        let directory = directory.and_then(|path| path.into_os_string().into_string().ok());
        let pid = std::process::id();
        let start_time = parent_and_start(pid).and_then(|(_, start)| start.parse().ok());
        let location = directory.zip(start_time.map(|start_time| ServerProcess { pid, start_time }));
        Sessions { location, state: Mutex::default() }
    }

    /// Whether this server registers sessions, and so can see what earlier sessions left behind.
    pub(crate) fn is_enabled(&self) -> bool {
        self.location.is_some()
    }

    /// Registers the caller's session unless that was done recently. If it fails, the next call tries again.
    pub(crate) async fn register(&self, client: Option<String>, caller: &Caller, daemon: &DaemonAccess) {
        let Some((directory, server)) = self.location.clone() else { return };
        let mut state = self.state.lock().await;
        let is_claude = caller.owner.starts_with("claude-");
        let instead_of = state.claude.clone().filter(|previous| is_claude && *previous != caller.owner);
        let is_fresh = state.last_registered.get(&caller.owner).is_some_and(|at| at.elapsed() < REGISTER_INTERVAL);
        if is_fresh && instead_of.is_none() {
            return;
        }
        let client = client.map_or(UNNAMED.to_owned(), |name| sanitize_client_name(&name));
        let request = &SessionRequest { client, directory, server, instead_of };
        match daemon.retry(|client| async move { client.register_session(request).await }).await {
            Ok(_) => {}
            // An older daemon, or one in another pid namespace, refuses every time: do not retry with each call.
            Err(error) if matches!(error.code.as_str(), "forbidden" | "no_such_route") => {}
            Err(_) => return,
        }
        if state.last_registered.len() >= MAX_OWNERS {
            state.last_registered.clear();
        }
        if let Some(previous) = &request.instead_of {
            state.last_registered.remove(previous);
        }
        state.last_registered.insert(caller.owner.clone(), Instant::now());
        if is_claude {
            state.claude = Some(caller.owner.clone());
        }
    }

    /// Forgets a registration that the daemon no longer knows, so that the next call repeats it.
    pub(crate) async fn forget(&self, owner: &str) {
        self.state.lock().await.last_registered.remove(owner);
    }
}

/// Removes control characters and limits the length, as the daemon requires.
fn sanitize_client_name(name: &str) -> String {
    let mut name: String = name.chars().filter(|c| !c.is_control()).collect();
    name.truncate(name.floor_char_boundary(MAX_CLIENT_NAME));
    if name.is_empty() { UNNAMED.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_enabled(identity: &ClientIdentity, cwd: Option<&str>) -> bool {
        Sessions::new(identity, &CommandDefaults { env: None, cwd: cwd.map(str::to_owned) }).is_enabled()
    }

    #[test]
    fn only_a_stdio_server_without_an_explicit_owner_registers_sessions() {
        let identity = ClientIdentity { connection: Some("mcp-1".into()), ..ClientIdentity::default() };
        assert!(is_enabled(&identity, Some("/")));
        assert!(!is_enabled(&identity, None), "over HTTP");
        assert!(!is_enabled(&ClientIdentity::default(), Some("/")), "no connection of its own");
        assert!(
            !is_enabled(&ClientIdentity { owner: Some("bot".into()), ..identity }, Some("/")),
            "processes of an explicit owner are found by its name"
        );
    }

    #[test]
    fn client_names_are_sanitized() {
        assert_eq!(
            [sanitize_client_name("opencode"), sanitize_client_name("a\nb"), sanitize_client_name("\0")],
            ["opencode", "ab", "unnamed"]
        );
        assert!(sanitize_client_name(&"ü".repeat(300)).len() <= MAX_CLIENT_NAME);
    }
}
