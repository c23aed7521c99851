//! The socket that a process connects to when it is ready. It is in the home, which only its user can access, and is
//! removed with the readiness check that it belongs to.
//!
//! After a crash of the daemon the next one binds the socket again; in between, connections are refused and the process
//! must retry.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use pinfold_model::id::ProcessId;
use pinfold_os::{proc, socket, tree};
use pinfold_store::layout::Home;
use tokio::net::{UnixListener, UnixStream};

/// The longest path that a program can connect to.
const MAX_PATH: usize = 107;

/// A listening socket; its file is removed on drop.
#[derive(Debug)]
pub(crate) struct ReadySocket {
    listener: UnixListener,
    path: PathBuf,
}

/// Who connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A process of the tree, or one that has exited since.
    Own(u32),
    Stranger(u32),
    /// A process in another pid namespace.
    Unknown,
}

impl ReadySocket {
    /// Listens for a process, and replaces the socket of an earlier daemon.
    pub(crate) fn open(home: &Home, id: &ProcessId) -> io::Result<Self> {
        let path = home.ready_socket(id);
        if path.as_os_str().len() > MAX_PATH {
            let message = format!(
                "{} is too long for a socket that programs can connect to: set PINFOLD_HOME to a shorter directory",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        home.make_ready_directory()?;
        let _ = std::fs::remove_file(&path);
        let listener = socket::listen(&path)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The process behind the next connection, which is then closed.
    pub(super) async fn accept(&self, keeper: u32) -> io::Result<Peer> {
        let (stream, _) = self.listener.accept().await?;
        Ok(look_at(&stream, keeper))
    }
}

impl Drop for ReadySocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The kernel reports the pid of the peer. If that process has exited, its parents are unknown; it counts as part of the
/// tree because only the tree knows the path.
fn look_at(stream: &UnixStream, keeper: u32) -> Peer {
    let Ok(Some(pid)) = socket::peer_pid(stream.as_fd()) else { return Peer::Unknown };
    let is_own = tree::descendants(keeper).iter().any(|member| member.pid == pid);
    let lives = || proc::stat(pid).is_ok_and(|stat| stat.is_living());
    if is_own || !lives() { Peer::Own(pid) } else { Peer::Stranger(pid) }
}

/// Removes the sockets of an earlier daemon; those that are still needed are bound again.
pub(crate) fn remove_sockets(home: &Home) {
    let Ok(entries) = std::fs::read_dir(home.ready()) else { return };
    for entry in entries.flatten() {
        let _ = std::fs::remove_file(entry.path());
    }
}
