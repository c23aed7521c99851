//! The socket that a process connects to when it is ready. It lies in the home, where nobody but its user can reach it,
//! and goes with the look for the readiness that it serves.
//!
//! The socket of a daemon that died is bound anew by the next one; a connection between the two is refused, and
//! whoever wants to be seen tries again.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use pinfold_model::id::ProcessId;
use pinfold_os::{proc, socket, tree};
use pinfold_store::layout::Home;
use tokio::net::{UnixListener, UnixStream};

/// The longest path that a program can connect to.
const PATH_MOST: usize = 107;

/// A listening socket, removed with it.
#[derive(Debug)]
pub(crate) struct ReadySocket {
    listener: UnixListener,
    path: PathBuf,
}

/// Who connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A process of the tree, or one that connected and is gone.
    Own(u32),
    Stranger(u32),
    /// Outside of what we can see.
    Unknown,
}

impl ReadySocket {
    /// Listens for a process, in place of whatever an earlier daemon left.
    pub(crate) fn open(home: &Home, id: &ProcessId) -> io::Result<Self> {
        let path = home.ready_socket(id);
        if path.as_os_str().len() > PATH_MOST {
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

    /// The next connection; it is closed when it has been looked at.
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

/// The kernel says who connected. One that is gone cannot be asked for its parents any more: it knew the path, which only
/// the process was given.
fn look_at(stream: &UnixStream, keeper: u32) -> Peer {
    let Ok(Some(pid)) = socket::peer_pid(stream.as_fd()) else { return Peer::Unknown };
    let is_own = tree::descendants(keeper).iter().any(|member| member.pid == pid);
    let lives = || proc::stat(pid).is_ok_and(|stat| stat.is_living());
    if is_own || !lives() { Peer::Own(pid) } else { Peer::Stranger(pid) }
}

/// Removes the sockets that an earlier daemon left; those still wanted are bound anew.
pub(crate) fn remove_sockets(home: &Home) {
    let Ok(entries) = std::fs::read_dir(home.ready()) else { return };
    for entry in entries.flatten() {
        let _ = std::fs::remove_file(entry.path());
    }
}
