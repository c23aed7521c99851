//! The session that this server serves, as the daemon knows it: who the client is, where it works, and that it lives. So that what a
//! session leaves running can be found by the next one ([`crate::left_behind`]).
//!
//! Only for a server of its own process, whose end is the end of the session, and only where the owner follows from what the client
//! says: an owner that was named explicitly is found again by its name. Over HTTP no session is known to have ended.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use pinfold_api::types::{ServerProcess, SessionRequest};
use tokio::sync::Mutex;

use crate::claude::parent_and_start;
use crate::daemon_access::DaemonAccess;
use crate::identity::{Caller, ClientIdentity};
use crate::options::Base;

/// The longest name of a client that is passed on.
const MAX_CLIENT: usize = 200;
/// What a client is called that does not say its name.
const UNNAMED: &str = "unnamed";
/// A session is registered again after this time, with the next call: the daemon may have lost what it knew.
const AGAIN: Duration = Duration::from_secs(60);
/// Owners that are remembered as registered; at the bound all are forgotten, and registered again.
const MAX_OWNERS: usize = 1_000;

/// What this server tells the daemon of the sessions it serves.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// Where the server runs and which process it is; nothing if it takes no part.
    place: Option<(String, ServerProcess)>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// When each owner was registered last.
    registered: HashMap<String, Instant>,
    /// The session that Claude Code was in with the last call.
    claude: Option<String>,
}

impl Sessions {
    pub(crate) fn new(identity: &ClientIdentity, base: &Base) -> Self {
        let takes_part = identity.owner.is_none() && identity.connection.is_some();
        let directory = base.cwd.as_ref().filter(|_| takes_part).and_then(|cwd| std::fs::canonicalize(cwd).ok());
        let directory = directory.and_then(|path| path.into_os_string().into_string().ok());
        let pid = std::process::id();
        let start_time = parent_and_start(pid).and_then(|(_, start)| start.parse().ok());
        let place = directory.zip(start_time.map(|start_time| ServerProcess { pid, start_time }));
        Sessions { place, known: Mutex::default() }
    }

    /// Whether what other sessions left behind concerns this server.
    pub(crate) fn takes_part(&self) -> bool {
        self.place.is_some()
    }

    /// Makes the session of this caller known, if it is not. In trouble it is not known, and tried again with the next call.
    pub(crate) async fn register(&self, client: Option<String>, caller: &Caller, daemon: &DaemonAccess) {
        let Some((directory, server)) = self.place.clone() else { return };
        let mut known = self.known.lock().await;
        let is_claude = caller.owner.starts_with("claude-");
        let instead_of = known.claude.clone().filter(|previous| is_claude && *previous != caller.owner);
        let is_fresh = known.registered.get(&caller.owner).is_some_and(|at| at.elapsed() < AGAIN);
        if is_fresh && instead_of.is_none() {
            return;
        }
        let client = client.map_or(UNNAMED.to_owned(), |name| named(&name));
        let request = &SessionRequest { client, directory, server, instead_of };
        match daemon.ask(|client| async move { client.register_session(request).await }).await {
            Ok(_) => {}
            // An older daemon, or one in another pid namespace: it would say the same of every call.
            Err(refusal) if matches!(refusal.code.as_str(), "forbidden" | "no_such_route") => {}
            Err(_) => return,
        }
        if known.registered.len() >= MAX_OWNERS {
            known.registered.clear();
        }
        if let Some(previous) = &request.instead_of {
            known.registered.remove(previous);
        }
        known.registered.insert(caller.owner.clone(), Instant::now());
        if is_claude {
            known.claude = Some(caller.owner.clone());
        }
    }

    /// The daemon does not know this session: it is to be registered again.
    pub(crate) async fn forget(&self, owner: &str) {
        self.known.lock().await.registered.remove(owner);
    }
}

/// A client's name as the daemon takes it.
fn named(name: &str) -> String {
    let mut name: String = name.chars().filter(|c| !c.is_control()).collect();
    name.truncate(name.floor_char_boundary(MAX_CLIENT));
    if name.is_empty() { UNNAMED.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes_part(identity: &ClientIdentity, cwd: Option<&str>) -> bool {
        Sessions::new(identity, &Base { env: None, cwd: cwd.map(str::to_owned) }).takes_part()
    }

    #[test]
    fn only_a_server_of_its_own_with_no_named_owner_takes_part() {
        let identity = ClientIdentity { connection: Some("mcp-1".into()), ..ClientIdentity::default() };
        assert!(takes_part(&identity, Some("/")));
        assert!(!takes_part(&identity, None), "over HTTP");
        assert!(!takes_part(&ClientIdentity::default(), Some("/")), "no connection of its own");
        assert!(
            !takes_part(&ClientIdentity { owner: Some("bot".into()), ..identity }, Some("/")),
            "found again by its name"
        );
    }

    #[test]
    fn a_client_has_a_name_that_the_daemon_takes() {
        assert_eq!([named("opencode"), named("a\nb"), named("\0")], ["opencode", "ab", "unnamed"]);
        assert!(named(&"ü".repeat(300)).len() <= MAX_CLIENT);
    }
}
