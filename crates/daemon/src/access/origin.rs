//! Where a connection to the socket comes from: from inside the tree of a process that pinfold keeps, or from outside.
//!
//! Every descendant of a kept process has its keeper as an ancestor, since the keeper is a subreaper. So the way up from
//! whoever connected, by pidfds, meets a keeper of this home or it does not. A connection from inside acts as the owner of
//! that process, by this proof and whatever its headers say; docs/security.md has what that does not promise.
//!
//! This is found out once for each connection, with its first request. A process that is outside stays outside, for orphans
//! only move up; so the ancestors of those who came before need not be looked at again ([`OUTSIDE_MOST`]).

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};

use pinfold_model::id::ProcessId;
use pinfold_os::held::{Held, Peer};
use pinfold_os::{proc, socket};
use tokio::net::UnixStream;

use crate::access::caller::{By, Proof};
use crate::access::closable::Line;
use crate::core::Core;
use crate::lock::lock;
use crate::registry::{Entry, Scope};

/// No way up is longer.
const DEPTH_MOST: usize = 4096;
/// Ancestors that are remembered as outside; when there are more, all are forgotten.
const OUTSIDE_MOST: usize = 4096;
/// Descriptors that a look at a peer needs at a time: a process, its parent and a file of `/proc`.
const SPARE: usize = 3;

/// What is known of peers in general.
#[derive(Debug)]
pub(crate) struct Peers {
    /// Given up for a moment to look at a peer when there are no more.
    spare: Mutex<Vec<File>>,
    outside: Mutex<HashSet<(u32, u64)>>,
    /// Connections from inside, with the process each comes from.
    inside: Mutex<Vec<(ProcessId, Weak<Line>)>>,
}

impl Default for Peers {
    fn default() -> Self {
        Self { spare: Mutex::new(spare_descriptors()), outside: Mutex::default(), inside: Mutex::default() }
    }
}

/// As many as a look at a peer needs at a time.
fn spare_descriptors() -> Vec<File> {
    (0..SPARE).map_while(|_| File::open("/dev/null").ok()).collect()
}

/// One connection to the socket.
#[derive(Debug)]
pub(crate) struct Connection {
    origin: Mutex<Found>,
    /// Who opened it, if it is in our pid namespace.
    pub(crate) pid: Option<u32>,
    pub(crate) line: Arc<Line>,
}

/// How far the origin of a connection is found out.
#[derive(Debug)]
enum Found {
    /// Nobody asked yet, or the processes were not all known.
    Open(Peer),
    Known(Origin),
}

/// Where a connection comes from.
#[derive(Clone, Debug)]
enum Origin {
    Outside,
    /// From inside the tree of this process.
    Process(Arc<Entry>),
    /// From inside a process that this daemon does not know yet.
    NotYet,
    /// It cannot be told, for this reason.
    Unknown(String),
    /// It could not be found out this time: no descriptor to look with, say.
    Failed(String),
}

impl Connection {
    pub(crate) fn new(stream: &UnixStream) -> io::Result<Self> {
        let peer = Peer::of(stream.as_fd())?;
        let pid = if let Peer::Inside(held) = &peer { Some(held.pid()) } else { None };
        Ok(Self { origin: Mutex::new(Found::Open(peer)), pid, line: Arc::default() })
    }

    /// Whom a request on this connection acts for; the error says why that cannot be told.
    pub(crate) fn proof(&self, core: &Core) -> Result<Proof, String> {
        let origin = {
            let mut found = lock(&self.origin);
            match &*found {
                Found::Known(origin) => origin.clone(),
                Found::Open(peer) => {
                    let origin = core.origin_of(peer);
                    if let Origin::Process(entry) = &origin {
                        core.peers.note_inside(entry, &self.line);
                    }
                    if !matches!(origin, Origin::NotYet | Origin::Failed(_)) {
                        *found = Found::Known(origin.clone());
                    }
                    origin
                }
            }
        };
        match origin {
            Origin::Outside => Ok(Proof::operator()),
            Origin::Process(entry) => {
                let owner = entry.state.borrow().history.owner().to_owned();
                let by = By::Process { entry, line: Arc::clone(&self.line) };
                Ok(Proof { scope: Scope::Owner(owner), by })
            }
            Origin::NotYet => Err("the daemon does not know yet from which process this comes: try again".to_owned()),
            Origin::Unknown(reason) | Origin::Failed(reason) => {
                Err(format!("where this connection comes from cannot be told: {reason}"))
            }
        }
    }
}

impl Peers {
    fn note_inside(&self, entry: &Entry, line: &Arc<Line>) {
        let mut inside = lock(&self.inside);
        inside.retain(|(_, line)| line.strong_count() > 0);
        inside.push((entry.id.clone(), Arc::downgrade(line)));
    }

    /// Closes the connections from inside a process that has another owner now: what they opened was opened as the old
    /// one. The connection by which it was handed over has an answer to come, and acts as the new owner from then on.
    pub(crate) fn cut_inside(&self, process: &ProcessId, handing: Option<&Arc<Line>>) {
        for (id, line) in lock(&self.inside).iter() {
            let own = handing.is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), line.as_ptr()));
            if id == process && !own {
                line.upgrade().iter().for_each(|line| line.cut());
            }
        }
    }
}

impl Core {
    fn origin_of(&self, peer: &Peer) -> Origin {
        if self.config.trust_children {
            return Origin::Outside;
        }
        let held = match peer {
            Peer::Foreign => return Origin::Outside,
            Peer::Gone => return gone(),
            // The routes of MCP are a client of our own socket, and act by headers that were checked before.
            Peer::Inside(held) if held.pid() == std::process::id() => return Origin::Outside,
            Peer::Inside(held) => held,
        };
        let mut found = self.climb(held);
        if found.as_ref().is_err_and(proc::is_shortage) {
            // Also without free descriptors an operator must be able to list, stop and shut down.
            let mut spare = lock(&self.peers.spare);
            spare.clear();
            found = self.climb(held);
            *spare = spare_descriptors();
        }
        // Only now: as long as it lives, its pid and its way up were its own.
        if !held.is_alive() {
            return gone();
        }
        match found {
            Ok(Some(origin)) => origin,
            Ok(None) if self.is_in_our_cgroup(held.pid()) => {
                Origin::Unknown("it comes from a process whose keeper is gone".to_owned())
            }
            Ok(None) => Origin::Outside,
            Err(error) => Origin::Failed(format!("the ancestors of process {} cannot be read: {error}", held.pid())),
        }
    }

    /// Goes up to the first keeper of this home; `None` if there is none.
    fn climb(&self, peer: &Held) -> io::Result<Option<Origin>> {
        let mut way = Vec::new();
        let mut above = peer.parent()?;
        while let Some(at) = above {
            let identity = at.identity().ok();
            if identity.is_some_and(|identity| lock(&self.peers.outside).contains(&identity)) {
                break;
            }
            if let Some(origin) = self.keeper_at(at.pid()) {
                return Ok(Some(origin));
            }
            way.extend(identity);
            if way.len() > DEPTH_MOST {
                return Err(io::Error::other("there are too many"));
            }
            above = at.parent()?;
        }
        let mut outside = lock(&self.peers.outside);
        if outside.len() + way.len() > OUTSIDE_MOST {
            outside.clear();
        }
        outside.extend(way);
        Ok(None)
    }

    /// What a keeper with this pid keeps, if there is one.
    fn keeper_at(&self, pid: u32) -> Option<Origin> {
        let keeps = |entry: &&Arc<Entry>| {
            let state = entry.state.borrow();
            let keeper = &state.history.intent.keeper;
            keeper.pid == pid && proc::start_time(pid).is_ok_and(|start| start == keeper.start_time)
        };
        if let Some(entry) = self.registry.live().iter().find(keeps) {
            return Some(Origin::Process(Arc::clone(entry)));
        }
        // One that an earlier daemon left and that is not taken up yet. When all are, a socket that nobody answers is a
        // dead keeper's, and the pid another process's.
        let path = self.home.keepers().join(pid.to_string());
        if !path.exists() {
            return None;
        }
        if self.recovery.is_reading() {
            return Some(Origin::NotYet);
        }
        let answers = socket::connect(&path).and_then(|stream| socket::peer_pid(stream.as_fd()));
        answers.is_ok_and(|listener| listener == Some(pid)).then_some(Origin::NotYet)
    }

    /// Whether a process is in a cgroup that was made for a kept process.
    fn is_in_our_cgroup(&self, pid: u32) -> bool {
        self.cgroups.is_ok() && proc::cgroups(pid).is_ok_and(|text| text.contains(&*self.cgroup_name))
    }
}

fn gone() -> Origin {
    let reason = "the program that opened it has ended: open another connection, by the program that asks";
    Origin::Unknown(reason.to_owned())
}
