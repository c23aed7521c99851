//! Sessions of agents: which client in which directory an owner belongs to, whether it is still open, and what ended
//! sessions left running, which a later one may take over.
//!
//! Invariant D9, *only an ended session's processes are shown to another session*. A session is open as long as one of
//! its servers is alive, and for other clients as long as the program that started a server is: it may start another.
//! Both are identified by pid, start time and boot. The server is checked against the peer of the connection that
//! registered it, and the program is its parent. Both are written to `sessions.json` before the answer, so that a new
//! daemon knows them. An owner that never registered, or that is in contact, has not ended. A session sees only what
//! has the same parent as itself, and never more than its connection may see (D5).
//!
//! Bounds: [`MAX_SESSIONS`] sessions, [`MAX_SHOWN`] processes in a list, [`MAX_ADOPTED`] in one adoption.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{
    AdoptAnswer, AdoptRefusal, AdoptRequest, LeftBehind, LeftBehindList, ServerProcess, SessionAnswer, SessionRequest,
};
use pinfold_model::spec::check_name;
use pinfold_model::units::Moment;
use pinfold_os::{crash_point, proc};
use pinfold_store::layout::Home;
use pinfold_store::sessions::{KeptProcess, KeptSession, commit_sessions, read_sessions};
use tokio::sync::Mutex as AsyncMutex;

use crate::access::caller::{AuthMethod, Caller};
use crate::clock::{now, rfc3339};
use crate::core::{Core, blocking};
use crate::mutex::lock;
use crate::registry::records::{self, TreeDetail};
use crate::registry::{Entry, Viewer};
use crate::request_error::RequestError;

/// Maximum number of sessions; registering one more is refused.
const MAX_SESSIONS: usize = 2_000;
/// Maximum number of servers of one session; one more is refused.
const MAX_SERVERS: usize = 64;
const MAX_SHOWN: usize = 20;
const MAX_ADOPTED: usize = 100;
/// Maximum length of a client's name and of a directory, in bytes.
const MAX_CLIENT: usize = 200;
const MAX_DIRECTORY: usize = 4096;
/// How long an ended session without live processes is remembered: a process may be waiting for its restart.
const FORGET_AFTER: Duration = Duration::from_secs(3600);
/// The purpose of a handover, as the record shows it.
const ADOPTED: &str = "its session has ended: another one of the same client and directory took it over";
const CHAT_CHANGED: &str = "its chat was cleared, or left for another, in the same client";

/// The pid of the peer of a request's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerPid(pub(crate) u32);

/// The known sessions.
#[derive(Debug)]
pub(crate) struct SessionBook {
    /// By owner.
    sessions: Mutex<BTreeMap<String, KeptSession>>,
    /// Locked while sessions change or processes are taken over, so that each is taken over once.
    changing: AsyncMutex<()>,
    /// Whether the last write of the file failed.
    unwritten: AtomicBool,
}

impl SessionBook {
    /// Reads the sessions of an earlier daemon. If unreadable, there are none: then no processes are shown to other
    /// sessions.
    pub(crate) fn open(home: &Home, boot_id: &str) -> Self {
        let sessions = read_sessions(home, boot_id).unwrap_or_else(|error| {
            tracing::warn!(path = %home.sessions().display(), %error, "cannot read the sessions");
            BTreeMap::new()
        });
        Self { sessions: Mutex::new(sessions), changing: AsyncMutex::default(), unwritten: AtomicBool::new(false) }
    }
}

/// Whether this process is alive. Only the kernel's answer that it does not exist counts, not a failed read.
fn is_alive(process: &KeptProcess) -> bool {
    match proc::stat(process.pid) {
        Ok(stat) => stat.start_time == process.start_time && stat.is_living(),
        Err(error) => !proc::is_gone(&error),
    }
}

/// The parent of a live server. Not init, which only adopts orphans; not a keeper, which outlives the process.
fn program_of(home: &Home, server: &KeptProcess) -> Option<KeptProcess> {
    let parent = proc::stat(server.pid).ok()?.ppid;
    let program = KeptProcess { pid: parent, start_time: proc::start_time(parent).ok()? };
    // Still its parent, so the pid was not reused while it was read.
    let is_parent = proc::stat(server.pid).is_ok_and(|stat| stat.ppid == parent);
    let is_keeper = home.keepers().join(parent.to_string()).exists();
    Some(program).filter(|_| is_parent && !is_keeper && parent > 1)
}

/// Removes dead servers and programs, and notes when the last server ended.
fn refresh(session: &mut KeptSession, at: Moment) {
    session.servers.retain(is_alive);
    session.programs.retain(is_alive);
    match (session.servers.is_empty(), session.ended) {
        (true, None) => session.ended = Some(at),
        (false, Some(_)) => session.ended = None,
        _ => {}
    }
}

impl Core {
    /// Registers the calling program as a server of its owner's session, until it exits.
    pub(crate) async fn register_session(
        self: &Arc<Self>,
        caller: &Caller,
        peer: Option<PeerPid>,
        request: SessionRequest,
    ) -> Result<SessionAnswer, RequestError> {
        let owner = owner_of(caller)?.to_owned();
        check(&request)?;
        let server = check_server(caller, peer, request.server)?;
        let _changing = self.sessions.changing.lock().await;
        let previous = request.instead_of.clone().filter(|previous| *previous != owner);
        let (left, changed) = {
            let mut sessions = lock(&self.sessions.sessions);
            let (before, at) = (sessions.clone(), now());
            let left = previous.filter(|previous| {
                let session = sessions.get_mut(previous).filter(|session| session.servers.contains(&server));
                session.is_some_and(|session| {
                    session.servers.retain(|known| *known != server);
                    refresh(session, at);
                    session.ended.is_some()
                })
            });
            if !sessions.contains_key(&owner) && sessions.len() >= MAX_SESSIONS {
                let message = format!("{MAX_SESSIONS} sessions are known, which is the maximum: end some");
                return Err(RequestError::new(ErrorCode::LimitReached, message));
            }
            let SessionRequest { client, directory, .. } = request;
            let new = || KeptSession {
                client: client.clone(),
                directory: directory.clone(),
                servers: vec![],
                programs: vec![],
                ended: None,
            };
            let session = sessions.entry(owner.clone()).or_insert_with(new);
            refresh(session, at);
            let known = session.servers.len().max(session.programs.len());
            if known >= MAX_SERVERS && !session.servers.contains(&server) {
                let message = format!("{MAX_SERVERS} servers serve owner `{owner}`, which is the maximum: end some");
                return Err(RequestError::new(ErrorCode::LimitReached, message));
            }
            (session.client, session.directory) = (client, directory);
            if !session.servers.contains(&server) {
                session.servers.push(server);
            }
            if let Some(program) = program_of(&self.home, &server).filter(|program| !session.programs.contains(program))
            {
                session.programs.push(program);
            }
            session.ended = None;
            (left, *sessions != before)
        };
        if changed || self.sessions.unwritten.load(Ordering::Relaxed) {
            self.commit_sessions().await?;
        }
        crash_point!("daemon.session_registered");
        let moved = match left {
            Some(left) => self.take_over(self.live_of(&left), &owner, CHAT_CHANGED).await.adopted,
            None => vec![],
        };
        Ok(SessionAnswer { owner, moved })
    }

    /// What ended sessions of the caller's client left running in its directory.
    pub(crate) async fn list_left_behind(
        self: &Arc<Self>,
        caller: &Caller,
        peer: Option<PeerPid>,
    ) -> Result<LeftBehindList, RequestError> {
        let left = self.left_behind(caller, peer)?;
        let total = left.len() as u64;
        let (home, at) = (self.home.clone(), now());
        let left_behind = blocking(move || {
            let show = |(entry, ended): (Arc<Entry>, Moment)| LeftBehind {
                process: records::record(&entry.snapshot(), &home.process(&entry.id), TreeDetail::Read),
                session_ended_at: rfc3339(ended),
                session_ended_seconds_ago: at.0.saturating_sub(ended.0) / 1_000_000,
            };
            left.into_iter().take(MAX_SHOWN).map(show).collect()
        });
        Ok(LeftBehindList { left_behind: left_behind.await?, total })
    }

    /// Takes over what ended sessions left running: these processes, or all. If two callers try, one gets each process.
    pub(crate) async fn adopt_left_behind(
        self: &Arc<Self>,
        caller: &Caller,
        peer: Option<PeerPid>,
        request: AdoptRequest,
    ) -> Result<AdoptAnswer, RequestError> {
        let owner = owner_of(caller)?.to_owned();
        if request.processes.len() > MAX_ADOPTED {
            return Err(RequestError::invalid(format!(
                "`processes` may have at most {MAX_ADOPTED} ids: send several requests"
            )));
        }
        let _changing = self.sessions.changing.lock().await;
        let mut entries: Vec<_> = self.left_behind(caller, peer)?.into_iter().map(|(entry, _)| entry).collect();
        let (mut refused, mut own) = (Vec::new(), Vec::new());
        if request.processes.is_empty() {
            entries.truncate(MAX_ADOPTED);
        } else {
            let is_left = |id: &String| entries.iter().any(|entry| entry.id.as_str() == id);
            let live = self.live_of(&owner);
            let is_own = |id: &&String| live.iter().any(|entry| entry.id.as_str() == *id);
            let (mine, missing): (Vec<_>, Vec<_>) =
                request.processes.iter().filter(|id| !is_left(id)).partition(is_own);
            own.extend(mine.into_iter().cloned());
            let missing = missing.into_iter();
            refused.extend(missing.map(|process| AdoptRefusal {
                process: process.chars().take(60).collect(),
                reason:
                    "it cannot be adopted: it has ended, its session is still open, or another session has adopted it".into(),
            }));
            entries.retain(|entry| request.processes.iter().any(|id| id == entry.id.as_str()));
        }
        let mut answer = self.take_over(entries, &owner, ADOPTED).await;
        answer.adopted.extend(own);
        answer.refused.extend(refused);
        Ok(answer)
    }

    /// Notes which sessions have ended, and forgets old ones that left nothing running.
    pub(crate) async fn refresh_sessions(self: &Arc<Self>) {
        let _changing = self.sessions.changing.lock().await;
        let changed = {
            let mut sessions = lock(&self.sessions.sessions);
            let (before, at) = (sessions.clone(), now());
            sessions.values_mut().for_each(|session| refresh(session, at));
            let live = self.registry.live();
            let owns = |owner: &String| live.iter().any(|entry| entry.state.borrow().history.owner() == owner);
            let is_old = |ended: Moment| at.0.saturating_sub(ended.0) > FORGET_AFTER.as_micros() as u64;
            sessions.retain(|owner, session| !session.ended.is_some_and(is_old) || owns(owner));
            *sessions != before
        };
        if changed && let Err(error) = self.commit_sessions().await {
            tracing::warn!(error = %error.0, "cannot write the sessions");
        }
    }

    /// Live processes of ended sessions with the caller's client, directory and parent, newest first.
    fn left_behind(&self, caller: &Caller, peer: Option<PeerPid>) -> Result<Vec<(Arc<Entry>, Moment)>, RequestError> {
        let viewer = owner_of(caller)?;
        let mut sessions = lock(&self.sessions.sessions);
        let at = now();
        sessions.values_mut().for_each(|session| refresh(session, at));
        let serves = |session: &&KeptSession| {
            caller.principal.method.is_by_socket()
                && session.servers.iter().any(|server| Some(server.pid) == peer.map(|PeerPid(pid)| pid))
        };
        let Some(own) = sessions.get(viewer).filter(serves) else {
            let message = "only a server of a registered session may do this: register with POST /v1/sessions first";
            return Err(RequestError::new(ErrorCode::Forbidden, message));
        };
        let is_elsewhere = |program: &KeptProcess| !own.programs.contains(program);
        let parent = self.owners.parent(viewer).or_else(|| caller.parent.clone());
        let ended: BTreeMap<&String, Moment> = sessions
            .iter()
            .filter(|(owner, session)| {
                let is_alike = session.client == own.client && session.directory == own.directory;
                *owner != viewer
                    && is_alike
                    && !session.programs.iter().any(is_elsewhere)
                    && self.owners.parent(owner) == parent
                    && !self.owners.is_in_contact(owner)
                    && self.is_in_reach(&caller.principal.viewer, owner)
            })
            .filter_map(|(owner, session)| Some((owner, session.ended?)))
            .collect();
        let mut left: Vec<(Arc<Entry>, Moment)> = Vec::new();
        for entry in self.registry.live() {
            let ended = ended.get(&entry.state.borrow().history.owner().to_owned()).copied();
            left.extend(ended.map(|ended| (entry, ended)));
        }
        left.sort_by_key(|(entry, _)| std::cmp::Reverse(entry.state.borrow().history.intent.at));
        Ok(left)
    }

    /// Whether a connection with this scope may see an owner.
    fn is_in_reach(&self, viewer: &Viewer, owner: &str) -> bool {
        match viewer {
            Viewer::Operator => true,
            Viewer::Owner(bound) => self.owners.sees(bound, owner),
        }
    }

    /// Hands processes over, all at once; reports keepers that do not answer. Called with `changing` locked.
    async fn take_over(self: &Arc<Self>, entries: Vec<Arc<Entry>>, owner: &str, purpose: &'static str) -> AdoptAnswer {
        let mut under_way = tokio::task::JoinSet::new();
        for entry in entries {
            let (core, owner) = (Arc::clone(self), owner.to_owned());
            under_way.spawn(async move {
                let given = core.give(&entry, &owner, purpose).await;
                if given.is_ok() {
                    core.peers.close_inside(&entry.id, None);
                }
                (entry.id.to_string(), given)
            });
        }
        let mut answer = AdoptAnswer::default();
        while let Some(done) = under_way.join_next().await {
            match done {
                Ok((id, Ok(()))) => answer.adopted.push(id),
                Ok((process, Err(error))) => answer.refused.push(AdoptRefusal { process, reason: error.0.message }),
                Err(error) => tracing::error!(%error, "taking over a process failed"),
            }
        }
        answer.adopted.sort_unstable();
        answer
    }

    async fn commit_sessions(self: &Arc<Self>) -> Result<(), RequestError> {
        let core = Arc::clone(self);
        let commit = move || {
            let sessions = lock(&core.sessions.sessions).clone();
            commit_sessions(&core.home, &core.boot_id, &sessions)
        };
        // Until the write is known to have succeeded.
        self.sessions.unwritten.store(true, Ordering::Relaxed);
        let written: io::Result<()> = blocking(commit).await?;
        self.sessions.unwritten.store(written.is_err(), Ordering::Relaxed);
        written.map_err(|error| {
            let message = format!(
                "cannot write {}: {error}: check its permissions and free space",
                self.home.sessions().display()
            );
            RequestError::new(ErrorCode::StoreUnwritable, message)
        })
    }
}

fn owner_of(caller: &Caller) -> Result<&str, RequestError> {
    match &caller.viewer {
        Viewer::Owner(owner) => Ok(owner),
        Viewer::Operator => Err(RequestError::invalid("a session needs an owner: name it in the Pinfold-Owner header")),
    }
}

fn check(request: &SessionRequest) -> Result<(), RequestError> {
    let is_valid = |text: &str, max_bytes: usize| {
        !text.is_empty() && text.len() <= max_bytes && !text.chars().any(char::is_control)
    };
    if !is_valid(&request.client, MAX_CLIENT) {
        let message = format!("`client` must be the client's name, 1 to {MAX_CLIENT} bytes without control characters");
        return Err(RequestError::invalid(message));
    }
    if !is_valid(&request.directory, MAX_DIRECTORY) || !request.directory.starts_with('/') {
        let message = format!("`directory` must be an absolute path of at most {MAX_DIRECTORY} bytes");
        return Err(RequestError::invalid(message));
    }
    request.instead_of.as_deref().map_or(Ok(()), |owner| check_name("instead_of", owner))?;
    Ok(())
}

/// The caller must be the server that it names: the kernel says which program opened the connection.
fn check_server(caller: &Caller, peer: Option<PeerPid>, named: ServerProcess) -> Result<KeptProcess, RequestError> {
    let forbidden = |message: &str| Err(RequestError::new(ErrorCode::Forbidden, message));
    let Some(PeerPid(pid)) = peer.filter(|_| caller.principal.method.is_by_socket()) else {
        return forbidden(
            "only a program that connects to the daemon's socket, in its pid namespace, can serve a session",
        );
    };
    if pid == std::process::id() {
        return forbidden("the daemon cannot serve a session itself");
    }
    let server = KeptProcess { pid: named.pid, start_time: named.start_time };
    if named.pid != pid || !is_alive(&server) {
        return forbidden("`server` is not the calling program: give its own pid and start time");
    }
    Ok(server)
}

impl AuthMethod {
    fn is_by_socket(&self) -> bool {
        matches!(self, AuthMethod::Socket | AuthMethod::Process { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(servers: Vec<KeptProcess>) -> KeptSession {
        KeptSession { client: "c".into(), directory: "/d".into(), servers, programs: vec![], ended: None }
    }

    #[test]
    fn a_session_ends_with_its_last_server_and_reopens_with_a_new_one() {
        let own =
            KeptProcess { pid: std::process::id(), start_time: proc::start_time(std::process::id()).expect("ours") };
        let recycled = KeptProcess { start_time: own.start_time + 1, ..own };
        let mut both = session(vec![own, recycled]);
        refresh(&mut both, Moment(5));
        assert_eq!((both.servers.as_slice(), both.ended), (std::slice::from_ref(&own), None));
        let mut gone = session(vec![recycled]);
        refresh(&mut gone, Moment(5));
        refresh(&mut gone, Moment(9));
        assert_eq!(gone.ended, Some(Moment(5)), "it ended once");
        gone.servers.push(own);
        refresh(&mut gone, Moment(11));
        assert_eq!(gone.ended, None);
    }

    #[test]
    fn a_session_request_is_validated() {
        let good = SessionRequest { client: "c".into(), directory: "/d".into(), ..SessionRequest::default() };
        assert!(check(&good).is_ok());
        for bad in [
            SessionRequest { client: String::new(), ..good.clone() },
            SessionRequest { client: "a\nb".into(), ..good.clone() },
            SessionRequest { client: "x".repeat(MAX_CLIENT + 1), ..good.clone() },
            SessionRequest { directory: "relative".into(), ..good.clone() },
            SessionRequest { directory: format!("/{}", "x".repeat(MAX_DIRECTORY)), ..good.clone() },
            SessionRequest { instead_of: Some("\u{1b}".into()), ..good.clone() },
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
    }
}
