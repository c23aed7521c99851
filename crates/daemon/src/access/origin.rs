//! Where a socket connection comes from: from inside the tree of a managed process, or from outside.
//!
//! A keeper is a subreaper, so it is an ancestor of every descendant of its process. A connection is therefore from inside
//! if one of the ancestors of its peer, walked by pidfds, is a keeper of this home. It then acts as the owner of that process, whatever
//! its headers say; docs/security.md says what this does not guarantee.
//! The origin is determined once per connection, with its first request. A process that is outside cannot get inside,
//! because an orphan is only reparented to an ancestor. So ancestors found to be outside are remembered and not checked
//! again ([`MAX_OUTSIDE`]).

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};

use pinfold_model::id::ProcessId;
use pinfold_os::process_handle::{ProcessHandle, SocketPeer};
use pinfold_os::{proc, socket};
use tokio::net::UnixStream;

use crate::access::caller::{AuthMethod, Principal};
use crate::access::closable::ConnectionHandle;
use crate::core::Core;
use crate::mutex::lock;
use crate::registry::{Entry, Viewer};

/// Maximum number of ancestors; a longer chain is an error.
const MAX_DEPTH: usize = 4096;
/// Ancestors remembered as outside; when full, all are forgotten.
const MAX_OUTSIDE: usize = 4096;
/// Descriptors that the walk needs at a time: a process, its parent and a file of `/proc`.
const SPARE_DESCRIPTORS: usize = 3;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Peers {
    /// Reserved descriptors: if none are left, these are closed to make room for walking `/proc`, then reopened.
    spare: Mutex<Vec<File>>,
    outside: Mutex<HashSet<(u32, u64)>>,
    /// Connections from inside, with the process each comes from.
    inside: Mutex<Vec<(ProcessId, Weak<ConnectionHandle>)>>,
}

impl Default for Peers {
    fn default() -> Self {
        Self { spare: Mutex::new(spare_descriptors()), outside: Mutex::default(), inside: Mutex::default() }
    }
}

/// As many as a walk needs at a time.
fn spare_descriptors() -> Vec<File> {
    (0..SPARE_DESCRIPTORS).map_while(|_| File::open("/dev/null").ok()).collect()
}

/// One connection to the socket.
#[derive(Debug)]
pub(crate) struct Connection {
    origin: Mutex<OriginState>,
    /// The peer's pid, if it is in our pid namespace.
    pub(crate) pid: Option<u32>,
    pub(crate) handle: Arc<ConnectionHandle>,
}

/// Whether the origin of a connection is known.
#[derive(Debug)]
enum OriginState {
    /// Not determined yet, or not all processes were known.
    Unresolved(SocketPeer),
    Resolved(Origin),
}

/// Where a connection comes from.
#[derive(Clone, Debug)]
enum Origin {
    Outside,
    /// From inside the tree of this process.
    Process(Arc<Entry>),
    /// From inside a process that this daemon does not know yet.
    NotRecovered,
    /// It cannot be determined, for this reason.
    Unknown(String),
    /// A temporary failure, such as no free descriptor.
    Failed(String),
}

impl Connection {
    pub(crate) fn new(stream: &UnixStream) -> io::Result<Self> {
        let peer = SocketPeer::of(stream.as_fd())?;
        let pid = if let SocketPeer::Inside(held) = &peer { Some(held.pid()) } else { None };
        Ok(Self { origin: Mutex::new(OriginState::Unresolved(peer)), pid, handle: Arc::default() })
    }

    /// The principal of requests on this connection; the error says why there is none.
    pub(crate) fn principal(&self, core: &Core) -> Result<Principal, String> {
        let origin = {
            let mut found = lock(&self.origin);
            match &*found {
                OriginState::Resolved(origin) => origin.clone(),
                OriginState::Unresolved(peer) => {
                    let origin = core.origin_of(peer);
                    if let Origin::Process(entry) = &origin {
                        core.peers.note_inside(entry, &self.handle);
                    }
                    if !matches!(origin, Origin::NotRecovered | Origin::Failed(_)) {
                        *found = OriginState::Resolved(origin.clone());
                    }
                    origin
                }
            }
        };
        match origin {
            Origin::Outside => Ok(Principal::operator()),
            Origin::Process(entry) => {
                let owner = entry.state.borrow().history.owner().to_owned();
                let method = AuthMethod::Process { entry, handle: Arc::clone(&self.handle) };
                Ok(Principal { viewer: Viewer::Owner(owner), method })
            }
            Origin::NotRecovered => {
                Err("the daemon has not recovered the process that this connection comes from yet: try again"
                    .to_owned())
            }
            Origin::Unknown(reason) | Origin::Failed(reason) => {
                Err(format!("cannot determine where this connection comes from: {reason}"))
            }
        }
    }
}

impl Peers {
    fn note_inside(&self, entry: &Entry, handle: &Arc<ConnectionHandle>) {
        let mut inside = lock(&self.inside);
        inside.retain(|(_, handle)| handle.strong_count() > 0);
        inside.push((entry.id.clone(), Arc::downgrade(handle)));
    }

    /// Closes the connections from inside a process after a handover: they were opened as the old owner. The one that
    /// requested the handover stays open for its answer, and acts as the new owner from then on.
    pub(crate) fn close_inside(&self, process: &ProcessId, handing: Option<&Arc<ConnectionHandle>>) {
        for (id, handle) in lock(&self.inside).iter() {
            let own = handing.is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), handle.as_ptr()));
            if id == process && !own {
                handle.upgrade().iter().for_each(|handle| handle.close());
            }
        }
    }
}

impl Core {
    fn origin_of(&self, peer: &SocketPeer) -> Origin {
        if self.config.trust_children {
            return Origin::Outside;
        }
        let held = match peer {
            SocketPeer::Foreign => return Origin::Outside,
            SocketPeer::Gone => return peer_exited(),
            // The mounted MCP routes connect to our own socket, with headers that were checked before.
            SocketPeer::Inside(held) if held.pid() == std::process::id() => return Origin::Outside,
            SocketPeer::Inside(held) => held,
        };
        let mut found = self.find_keeper_above(held);
        if found.as_ref().is_err_and(proc::is_shortage) {
            // Without free descriptors an operator must still be able to list, stop and shut down.
            let mut spare = lock(&self.peers.spare);
            spare.clear();
            found = self.find_keeper_above(held);
            *spare = spare_descriptors();
        }
        // Checked after the walk: while the peer was alive, its pid and parents were its own.
        if !held.is_alive() {
            return peer_exited();
        }
        match found {
            Ok(Some(origin)) => origin,
            Ok(None) if self.is_in_our_cgroup(held.pid()) => {
                Origin::Unknown("it comes from a process whose keeper has died".to_owned())
            }
            Ok(None) => Origin::Outside,
            Err(error) => Origin::Failed(format!("the ancestors of process {} cannot be read: {error}", held.pid())),
        }
    }

    /// Walks up to the first keeper of this home; `None` if there is none.
    fn find_keeper_above(&self, peer: &ProcessHandle) -> io::Result<Option<Origin>> {
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
            if way.len() > MAX_DEPTH {
                return Err(io::Error::other(format!("there are more than {MAX_DEPTH}")));
            }
            above = at.parent()?;
        }
        let mut outside = lock(&self.peers.outside);
        if outside.len() + way.len() > MAX_OUTSIDE {
            outside.clear();
        }
        outside.extend(way);
        Ok(None)
    }

    /// The process of the keeper with this pid, if there is one.
    fn keeper_at(&self, pid: u32) -> Option<Origin> {
        let keeps = |entry: &&Arc<Entry>| {
            let state = entry.state.borrow();
            let keeper = &state.history.intent.keeper;
            keeper.pid == pid && proc::start_time(pid).is_ok_and(|start| start == keeper.start_time)
        };
        if let Some(entry) = self.registry.live().iter().find(keeps) {
            return Some(Origin::Process(Arc::clone(entry)));
        }
        // A keeper of an earlier daemon that is not recovered yet. After recovery, a socket without a listener is that
        // of a dead keeper, and the pid was reused.
        let path = self.home.keepers().join(pid.to_string());
        if !path.exists() {
            return None;
        }
        if self.recovery.is_reading() {
            return Some(Origin::NotRecovered);
        }
        let answers = socket::connect(&path).and_then(|stream| socket::peer_pid(stream.as_fd()));
        answers.is_ok_and(|listener| listener == Some(pid)).then_some(Origin::NotRecovered)
    }

    /// Whether a process is in a cgroup that was made for a managed process.
    fn is_in_our_cgroup(&self, pid: u32) -> bool {
        self.cgroups.is_ok() && proc::cgroups(pid).is_ok_and(|text| text.contains(&*self.cgroup_name))
    }
}

fn peer_exited() -> Origin {
    let reason =
        "the program that opened it has exited: open a new connection from the program that sends the requests";
    Origin::Unknown(reason.to_owned())
}
