//! Sessions of agents: which client in which directory stands behind an owner, and whether it lives; and what ended sessions left
//! running, which a later one may take over.
//!
//! Invariant D9, *only an ended session's processes are shown to another session*. A session lives as long as one of its servers does,
//! and for others as long as the program does that started one: it may start another server. Both are known by pid, start time
//! and boot. The server is checked against the peer of the connection that registered it, the program is its parent, and both are
//! in `sessions.json` before the answer, so that a new daemon knows the same. An owner that never registered, or that is in
//! contact right now, has not ended. A session sees only what has the same parent as itself, and never more than its
//! connection may see (D5).
//!
//! Bounds: [`SESSIONS_MOST`] sessions, [`SHOWN_MOST`] processes in a list, [`ADOPTED_MOST`] in one adoption.

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

use crate::access::caller::{By, Caller};
use crate::clock::{now, rfc3339};
use crate::core::{Core, blocking};
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::records::{self, Look};
use crate::registry::{Entry, Scope};

/// Sessions that are known at once. One more is refused, and takes no part.
const SESSIONS_MOST: usize = 2_000;
/// Servers of one session. One more is refused.
const SERVERS_MOST: usize = 64;
const SHOWN_MOST: usize = 20;
const ADOPTED_MOST: usize = 100;
/// Bytes of a client's name and of a directory.
const CLIENT_MOST: usize = 200;
const DIRECTORY_MOST: usize = 4096;
/// An ended session that owns nothing live is forgotten after this: a process may be between two lives.
const FORGET_AFTER: Duration = Duration::from_secs(3600);
/// Why a process changes hands, as its record says.
const ADOPTED: &str = "its session has ended: another one of the same client and directory took it over";
const MOVED: &str = "its chat was cleared, or left for another, in the same client";

/// The pid of the program that opened the connection of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerPid(pub(crate) u32);

/// What the daemon knows of sessions.
#[derive(Debug)]
pub(crate) struct SessionBook {
    /// By owner.
    sessions: Mutex<BTreeMap<String, KeptSession>>,
    /// Held while sessions change or processes are taken over, so that each is taken over once.
    changing: AsyncMutex<()>,
    /// Whether the file lacks something, because it could not be written.
    unwritten: AtomicBool,
}

impl SessionBook {
    /// What an earlier daemon left. What cannot be read is nothing: then nobody's processes are shown to others.
    pub(crate) fn open(home: &Home, boot_id: &str) -> Self {
        let sessions = read_sessions(home, boot_id).unwrap_or_else(|error| {
            tracing::warn!(path = %home.sessions().display(), %error, "the sessions cannot be read");
            BTreeMap::new()
        });
        Self { sessions: Mutex::new(sessions), changing: AsyncMutex::default(), unwritten: AtomicBool::new(false) }
    }
}

/// Whether this very process lives. Only the kernel's word that there is none counts, not that we cannot look.
fn lives(process: &KeptProcess) -> bool {
    match proc::stat(process.pid) {
        Ok(stat) => stat.start_time == process.start_time && stat.is_living(),
        Err(error) => !proc::is_gone(&error),
    }
}

/// The program that started a server, which lives. Init starts none, it takes in what others left; nor does a keeper, which serves the
/// next process when this one is over.
fn program_of(home: &Home, server: &KeptProcess) -> Option<KeptProcess> {
    let parent = proc::stat(server.pid).ok()?.ppid;
    let program = KeptProcess { pid: parent, start_time: proc::start_time(parent).ok()? };
    // Still its parent, so that the pid was the parent's own while it was read.
    let is_parent = proc::stat(server.pid).is_ok_and(|stat| stat.ppid == parent);
    let is_keeper = home.keepers().join(parent.to_string()).exists();
    Some(program).filter(|_| is_parent && !is_keeper && parent > 1)
}

/// Takes the dead out, and notes when the last server went.
fn look_at(session: &mut KeptSession, at: Moment) {
    session.servers.retain(lives);
    session.programs.retain(lives);
    match (session.servers.is_empty(), session.ended) {
        (true, None) => session.ended = Some(at),
        (false, Some(_)) => session.ended = None,
        _ => {}
    }
}

impl Core {
    /// This program serves a session of the owner that it acts as, until it ends.
    pub(crate) async fn register_session(
        self: &Arc<Self>,
        caller: &Caller,
        peer: Option<PeerPid>,
        request: SessionRequest,
    ) -> Result<SessionAnswer, Refusal> {
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
                    look_at(session, at);
                    session.ended.is_some()
                })
            });
            if !sessions.contains_key(&owner) && sessions.len() >= SESSIONS_MOST {
                let message = format!("{SESSIONS_MOST} sessions are known, which is the most: end some");
                return Err(Refusal::new(ErrorCode::LimitReached, message));
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
            look_at(session, at);
            let most = session.servers.len().max(session.programs.len());
            if most >= SERVERS_MOST && !session.servers.contains(&server) {
                let message = format!("{SERVERS_MOST} servers serve owner `{owner}`, which is the most: end some");
                return Err(Refusal::new(ErrorCode::LimitReached, message));
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
            Some(left) => self.take_over(self.live_of(&left), &owner, MOVED).await.adopted,
            None => vec![],
        };
        Ok(SessionAnswer { owner, moved })
    }

    /// What ended sessions of the caller's client left running in its directory.
    pub(crate) async fn list_left_behind(
        self: &Arc<Self>,
        caller: &Caller,
        peer: Option<PeerPid>,
    ) -> Result<LeftBehindList, Refusal> {
        let left = self.left_behind(caller, peer)?;
        let total = left.len() as u64;
        let (home, at) = (self.home.clone(), now());
        let left_behind = blocking(move || {
            let show = |(entry, ended): (Arc<Entry>, Moment)| LeftBehind {
                process: records::record(&entry.snapshot(), &home.process(&entry.id), Look::Closely),
                session_ended_at: rfc3339(ended),
                session_ended_seconds_ago: at.0.saturating_sub(ended.0) / 1_000_000,
            };
            left.into_iter().take(SHOWN_MOST).map(show).collect()
        });
        Ok(LeftBehindList { left_behind: left_behind.await?, total })
    }

    /// Takes over what ended sessions left behind: these processes, or all. Of two who try, one gets each.
    pub(crate) async fn adopt_left_behind(
        self: &Arc<Self>,
        caller: &Caller,
        peer: Option<PeerPid>,
        request: AdoptRequest,
    ) -> Result<AdoptAnswer, Refusal> {
        let owner = owner_of(caller)?.to_owned();
        if request.processes.len() > ADOPTED_MOST {
            return Err(Refusal::invalid(format!(
                "`processes` has at most {ADOPTED_MOST} ids: take them over in parts"
            )));
        }
        let _changing = self.sessions.changing.lock().await;
        let mut entries: Vec<_> = self.left_behind(caller, peer)?.into_iter().map(|(entry, _)| entry).collect();
        let (mut refused, mut own) = (Vec::new(), Vec::new());
        if request.processes.is_empty() {
            entries.truncate(ADOPTED_MOST);
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
                    "it is not left behind: another session took it over, it has ended, or its session lives".into(),
            }));
            entries.retain(|entry| request.processes.iter().any(|id| id == entry.id.as_str()));
        }
        let mut answer = self.take_over(entries, &owner, ADOPTED).await;
        answer.adopted.extend(own);
        answer.refused.extend(refused);
        Ok(answer)
    }

    /// Notes which sessions have ended, and forgets those that left nothing running long ago.
    pub(crate) async fn tend_sessions(self: &Arc<Self>) {
        let _changing = self.sessions.changing.lock().await;
        let changed = {
            let mut sessions = lock(&self.sessions.sessions);
            let (before, at) = (sessions.clone(), now());
            sessions.values_mut().for_each(|session| look_at(session, at));
            let live = self.registry.live();
            let owns = |owner: &String| live.iter().any(|entry| entry.state.borrow().history.owner() == owner);
            let is_old = |ended: Moment| at.0.saturating_sub(ended.0) > FORGET_AFTER.as_micros() as u64;
            sessions.retain(|owner, session| !session.ended.is_some_and(is_old) || owns(owner));
            *sessions != before
        };
        if changed && let Err(refusal) = self.commit_sessions().await {
            tracing::warn!(error = %refusal.0, "the sessions cannot be written");
        }
    }

    /// Live processes of ended sessions with the caller's client, directory and parent, newest first.
    fn left_behind(&self, caller: &Caller, peer: Option<PeerPid>) -> Result<Vec<(Arc<Entry>, Moment)>, Refusal> {
        let viewer = owner_of(caller)?;
        let mut sessions = lock(&self.sessions.sessions);
        let at = now();
        sessions.values_mut().for_each(|session| look_at(session, at));
        let serves = |session: &&KeptSession| {
            caller.proof.by.is_by_socket()
                && session.servers.iter().any(|server| Some(server.pid) == peer.map(|PeerPid(pid)| pid))
        };
        let Some(own) = sessions.get(viewer).filter(serves) else {
            let message = "only a server of a registered session may ask this: see POST /v1/sessions";
            return Err(Refusal::new(ErrorCode::Forbidden, message));
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
                    && self.is_in_reach(&caller.proof.scope, owner)
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
    fn is_in_reach(&self, scope: &Scope, owner: &str) -> bool {
        match scope {
            Scope::Operator => true,
            Scope::Owner(bound) => self.owners.sees(bound, owner),
        }
    }

    /// Hands processes over, all at once; keepers that do not answer are named. Under `changing`.
    async fn take_over(self: &Arc<Self>, entries: Vec<Arc<Entry>>, owner: &str, purpose: &'static str) -> AdoptAnswer {
        let mut under_way = tokio::task::JoinSet::new();
        for entry in entries {
            let (core, owner) = (Arc::clone(self), owner.to_owned());
            under_way.spawn(async move {
                let given = core.give(&entry, &owner, purpose).await;
                if given.is_ok() {
                    core.peers.cut_inside(&entry.id, None);
                }
                (entry.id.to_string(), given)
            });
        }
        let mut answer = AdoptAnswer::default();
        while let Some(done) = under_way.join_next().await {
            match done {
                Ok((id, Ok(()))) => answer.adopted.push(id),
                Ok((process, Err(refusal))) => answer.refused.push(AdoptRefusal { process, reason: refusal.0.message }),
                Err(error) => tracing::error!(%error, "a process was not taken over"),
            }
        }
        answer.adopted.sort_unstable();
        answer
    }

    async fn commit_sessions(self: &Arc<Self>) -> Result<(), Refusal> {
        let core = Arc::clone(self);
        let commit = move || {
            let sessions = lock(&core.sessions.sessions).clone();
            commit_sessions(&core.home, &core.boot_id, &sessions)
        };
        // Until it is known to be written.
        self.sessions.unwritten.store(true, Ordering::Relaxed);
        let written: io::Result<()> = blocking(commit).await?;
        self.sessions.unwritten.store(written.is_err(), Ordering::Relaxed);
        written.map_err(|error| {
            let message = format!("{} cannot be written: {error}", self.home.sessions().display());
            Refusal::new(ErrorCode::StoreUnwritable, message)
        })
    }
}

fn owner_of(caller: &Caller) -> Result<&str, Refusal> {
    match &caller.scope {
        Scope::Owner(owner) => Ok(owner),
        Scope::Operator => Err(Refusal::invalid("a session has an owner: say which, with Pinfold-Owner")),
    }
}

fn check(request: &SessionRequest) -> Result<(), Refusal> {
    let is_text =
        |text: &str, most: usize| !text.is_empty() && text.len() <= most && !text.chars().any(char::is_control);
    if !is_text(&request.client, CLIENT_MOST) {
        let message = format!("`client` is the client's name, in 1 to {CLIENT_MOST} bytes without control characters");
        return Err(Refusal::invalid(message));
    }
    if !is_text(&request.directory, DIRECTORY_MOST) || !request.directory.starts_with('/') {
        let message = format!("`directory` is an absolute path of at most {DIRECTORY_MOST} bytes");
        return Err(Refusal::invalid(message));
    }
    request.instead_of.as_deref().map_or(Ok(()), |owner| check_name("instead_of", owner))?;
    Ok(())
}

/// The program that asks must be the one that it names: the kernel says who opened the connection.
fn check_server(caller: &Caller, peer: Option<PeerPid>, named: ServerProcess) -> Result<KeptProcess, Refusal> {
    let forbidden = |message: &str| Err(Refusal::new(ErrorCode::Forbidden, message));
    let Some(PeerPid(pid)) = peer.filter(|_| caller.proof.by.is_by_socket()) else {
        return forbidden("only a program that opens the daemon's socket, in its pid namespace, can serve a session");
    };
    if pid == std::process::id() {
        return forbidden("the daemon serves no session itself");
    }
    let server = KeptProcess { pid: named.pid, start_time: named.start_time };
    if named.pid != pid || !lives(&server) {
        return forbidden("`server` is not the program that asks: give its own pid and start time");
    }
    Ok(server)
}

impl By {
    fn is_by_socket(&self) -> bool {
        matches!(self, By::Socket | By::Process { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(servers: Vec<KeptProcess>) -> KeptSession {
        KeptSession { client: "c".into(), directory: "/d".into(), servers, programs: vec![], ended: None }
    }

    #[test]
    fn a_session_ends_with_its_last_server_and_lives_again_with_a_new_one() {
        let own =
            KeptProcess { pid: std::process::id(), start_time: proc::start_time(std::process::id()).expect("ours") };
        let recycled = KeptProcess { start_time: own.start_time + 1, ..own };
        let mut both = session(vec![own, recycled]);
        look_at(&mut both, Moment(5));
        assert_eq!((both.servers.as_slice(), both.ended), (std::slice::from_ref(&own), None));
        let mut gone = session(vec![recycled]);
        look_at(&mut gone, Moment(5));
        look_at(&mut gone, Moment(9));
        assert_eq!(gone.ended, Some(Moment(5)), "it ended once");
        gone.servers.push(own);
        look_at(&mut gone, Moment(11));
        assert_eq!(gone.ended, None);
    }

    #[test]
    fn what_a_session_says_of_itself_is_checked() {
        let good = SessionRequest { client: "c".into(), directory: "/d".into(), ..SessionRequest::default() };
        assert!(check(&good).is_ok());
        for bad in [
            SessionRequest { client: String::new(), ..good.clone() },
            SessionRequest { client: "a\nb".into(), ..good.clone() },
            SessionRequest { client: "x".repeat(CLIENT_MOST + 1), ..good.clone() },
            SessionRequest { directory: "relative".into(), ..good.clone() },
            SessionRequest { directory: format!("/{}", "x".repeat(DIRECTORY_MOST)), ..good.clone() },
            SessionRequest { instead_of: Some("\u{1b}".into()), ..good.clone() },
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
    }
}
