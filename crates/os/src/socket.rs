//! Unix sockets: paths of any length, passing descriptors, credentials of the peer.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};

/// The kernel's limit on the length of a socket path: `sun_path` without its terminating NUL.
const MAX_PATH: usize = 107;
/// The first descriptor that a service manager passes on.
const FIRST_PASSED: RawFd = 3;

/// Makes a listening socket at the path, however long the path is. Fails if the path exists.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    by_short_path(path, |path| UnixListener::bind(path))
}

/// Connects to the socket at the path, however long the path is.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    by_short_path(path, |path| UnixStream::connect(path))
}

/// Makes a listening socket with an abstract name instead of a path: it goes away with its process and does not depend
/// on any file. Every user in this network namespace can bind or connect to any name, so check [`peer_uid`] at both ends.
pub fn listen_by_name(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Connects to the socket with this abstract name.
pub fn connect_by_name(name: &str) -> io::Result<UnixStream> {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)
}

/// The listening socket that a service manager passed on, as `sd_listen_fds(3)` says: descriptor 3, if LISTEN_PID is our pid and
/// the socket has this path. The descriptor is closed in programs that we execute.
pub fn inherited_listener(path: &Path) -> Option<UnixListener> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) || number("LISTEN_FDS") != Some(1) {
        return None;
    }
    // SAFETY: descriptor 3 is ours by the protocol above, and nothing else in this program has taken it over.
    let fd = unsafe { OwnedFd::from_raw_fd(FIRST_PASSED) };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok()?;
    let listens = rustix::net::sockopt::socket_acceptconn(&fd).ok()?;
    let listener = UnixListener::from(fd);
    let address = listener.local_addr().ok()?;
    (listens && address.as_pathname() == Some(path)).then_some(listener)
}

/// Calls `call` with the path itself, or, if it is too long, with a short one through `/proc/self/fd/N` of its directory.
fn by_short_path<T>(path: &Path, call: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= MAX_PATH {
        return call(path);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket path has no file name"));
    };
    let directory = File::open(parent)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    call(&short)
}

/// Makes two connected sockets.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// The uid of the peer, whatever pid namespace it is in.
pub fn peer_uid(socket: BorrowedFd<'_>) -> io::Result<u32> {
    peer(socket).map(|peer| peer.uid)
}

/// The pid of the process that connected, which may have exited since; `None` if it is outside of our pid namespace.
pub fn peer_pid(socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    peer(socket).map(|peer| u32::try_from(peer.pid).ok().filter(|pid| *pid > 0))
}

/// Not with rustix, whose type cannot represent pid 0, which means a peer outside of our pid namespace.
fn peer(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (fd, place) = (socket.as_raw_fd(), (&raw mut peer).cast());
    // SAFETY: the kernel writes at most `length` bytes to `peer`, and both outlive the call.
    let answer = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut length) };
    if answer == 0 { Ok(peer) } else { Err(io::Error::last_os_error()) }
}

/// Our own effective uid.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Sends without raising SIGPIPE. On a non-blocking socket, sends at most as much as fits.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}

/// Sends one byte and a descriptor.
pub fn send_fd(socket: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(socket, &[IoSlice::new(b"k")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a descriptor; `None` when the other end is closed.
pub fn receive_fd(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let received =
            rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        match received {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(message) if message.bytes == 0 => return Ok(None),
            Ok(_) => break,
        }
    }
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(Some(fd));
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "expected a message with a descriptor, got one without"))
}

/// Fills the buffer from a blocking socket.
pub fn read_exact(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::read(socket.as_fd(), &mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
