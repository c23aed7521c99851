//! A handle on one process, by pidfd: its parent, and whether it is alive. Results are about this process, never about a
//! later process with the same pid.
//!
//! Since Linux 6.13 the pidfd itself answers. On older kernels `/proc` is read, and afterwards the pidfd tells whether
//! the process is still alive: if it is, the pid belonged to it during the read.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::proc;

/// Attempts to read the parent before giving up; one fails if the parent exits while it is being read.
const MAX_ATTEMPTS: usize = 64;
/// `SO_PEERPIDFD`, since Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;
/// `PIDFD_GET_INFO` for the first version of its structure, since Linux 6.13.
const PIDFD_GET_INFO: libc::c_ulong = 0xC040_FF0B;
const PIDFD_INFO_PID: u64 = 1;

/// The first version of the kernel's `struct pidfd_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct PidfdInfo {
    mask: u64,
    cgroup_id: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    credentials: [u32; 8],
    spare: u32,
}

/// A handle on a process, dead or alive.
#[derive(Debug)]
pub struct ProcessHandle {
    hold: Hold,
    pid: u32,
}

/// What distinguishes the process from a later one with the same pid.
#[derive(Debug)]
enum Hold {
    Pidfd(OwnedFd),
    /// The start time, where pidfds are not available (valgrind, some sandboxes).
    StartTime(u64),
}

/// The process that connected to a socket.
#[derive(Debug)]
pub enum SocketPeer {
    /// In our pid namespace.
    Inside(ProcessHandle),
    /// In another pid namespace, and not a descendant of any process in ours.
    Foreign,
    /// It has exited: another process has inherited the connection or was passed it.
    Gone,
}

impl SocketPeer {
    /// The process that called `connect` on the other end.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let Some(pid) = crate::socket::peer_pid(socket)? else { return Ok(SocketPeer::Foreign) };
        match peer_pidfd(socket) {
            Ok(fd) => Ok(SocketPeer::Inside(ProcessHandle { hold: Hold::Pidfd(fd), pid })),
            Err(error) if is_ended(&error) => Ok(SocketPeer::Gone),
            // A kernel before 6.5. If the peer exited since it connected, this pid may already belong to another process.
            Err(_) => match ProcessHandle::open(pid) {
                Ok(held) => Ok(SocketPeer::Inside(held)),
                Err(error) if is_ended(&error) => Ok(SocketPeer::Gone),
                Err(error) => Err(error),
            },
        }
    }
}

impl ProcessHandle {
    /// The process that has this pid now.
    pub fn open(pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        let hold = match pidfd_open(raw, PidfdFlags::empty()) {
            Err(Errno::NOSYS | Errno::PERM) => Hold::StartTime(proc::start_time(pid)?),
            opened => Hold::Pidfd(opened?),
        };
        Ok(Self { hold, pid })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it is alive: false once it has exited, reaped or not.
    pub fn is_alive(&self) -> bool {
        match &self.hold {
            Hold::Pidfd(fd) => {
                let mut fds = [PollFd::new(fd, PollFlags::IN)];
                matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
            }
            Hold::StartTime(time) => {
                proc::stat(self.pid).is_ok_and(|stat| stat.start_time == *time && stat.is_living())
            }
        }
    }

    /// Its parent; `None` at the top of this pid namespace. A process whose parent is hidden from us (`hidepid`) counts
    /// as the top: everything above it belongs to another user.
    pub fn parent(&self) -> io::Result<Option<Self>> {
        for _ in 0..MAX_ATTEMPTS {
            let ppid = match self.ppid() {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
                ppid => ppid?,
            };
            if ppid == 0 {
                return Ok(None);
            }
            let parent = match Self::open(ppid) {
                Ok(parent) => parent,
                Err(error) if is_ended(&error) => continue,
                Err(error) => return Err(error),
            };
            // When a parent exits, its children get another parent. So while a child still names this ppid, the handle
            // just opened is on the right process.
            if self.ppid()? == ppid {
                return Ok(Some(parent));
            }
        }
        let reason =
            format!("cannot read the parent of process {}: it changed {MAX_ATTEMPTS} times in a row", self.pid);
        Err(io::Error::other(reason))
    }

    /// The pid and a number, which together identify this process within one boot.
    pub fn identity(&self) -> io::Result<(u32, u64)> {
        let number = match &self.hold {
            // Kernels with PIDFD_GET_INFO give each process an inode number in pidfs that is never reused.
            Hold::Pidfd(fd) if info(fd).is_ok() => rustix::fs::fstat(fd)?.st_ino,
            Hold::Pidfd(_) => self.read_proc(proc::start_time)?,
            Hold::StartTime(time) => *time,
        };
        Ok((self.pid, number))
    }

    fn ppid(&self) -> io::Result<u32> {
        let read = || self.read_proc(|pid| Ok(proc::stat(pid)?.ppid));
        match &self.hold {
            Hold::Pidfd(fd) => match info(fd) {
                Ok(info) => Ok(info.ppid),
                Err(error) if is_ended(&error) => Err(error),
                Err(_) => read(),
            },
            Hold::StartTime(_) => read(),
        }
    }

    /// Reads from `/proc`; fails unless the process was alive afterwards, so the result cannot be about another process.
    fn read_proc<T>(&self, read: impl FnOnce(u32) -> io::Result<T>) -> io::Result<T> {
        let value = read(self.pid);
        if !self.is_alive() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        match value {
            // Alive but not listed: /proc is mounted with hidepid, and the process belongs to another user.
            Err(error) if proc::is_gone(&error) => Err(io::ErrorKind::PermissionDenied.into()),
            value => value,
        }
    }
}

fn info(pidfd: &OwnedFd) -> io::Result<PidfdInfo> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_PID, ..PidfdInfo::default() };
    // SAFETY: the request's size is that of `info`, of which the kernel writes no more, and `info` outlives the call.
    let answer = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO as _, &raw mut info) };
    if answer == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    let (socket, place) = (socket.as_fd().as_raw_fd(), (&raw mut fd).cast());
    // SAFETY: the kernel writes at most `length` bytes to `fd`, and both outlive the call.
    let answer = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, SO_PEERPIDFD, place, &mut length) };
    if answer != 0 || fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn is_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODATA))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn the_ancestors_are_those_that_proc_shows() {
        let mut at = ProcessHandle::open(std::process::id()).expect("held");
        while let Some(parent) = at.parent().expect("a parent") {
            assert_eq!(parent.pid(), proc::stat(at.pid()).expect("its stat").ppid);
            at = parent;
        }
        assert_eq!(proc::stat(at.pid()).expect("its stat").ppid, 0, "the last ancestor is the top of the namespace");
    }

    #[test]
    fn a_process_that_exited_is_not_alive_and_has_no_parent() {
        let mut child = std::process::Command::new("sleep").arg("300").spawn().expect("a child");
        let held = ProcessHandle::open(child.id()).expect("held");
        assert!(held.is_alive());
        assert_eq!(held.parent().expect("a parent").map(|parent| parent.pid()), Some(std::process::id()));
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert!(!held.is_alive() && held.parent().is_err());
    }

    #[test]
    fn without_pidfds_the_start_time_distinguishes_a_process_from_a_later_one() {
        let mut child = std::process::Command::new("sleep").arg("300").spawn().expect("a child");
        let start = proc::start_time(child.id()).expect("its start");
        let held = ProcessHandle { hold: Hold::StartTime(start), pid: child.id() };
        let later = ProcessHandle { hold: Hold::StartTime(start + 1), pid: child.id() };
        assert!(held.is_alive() && !later.is_alive() && later.parent().is_err());
        assert_eq!(held.parent().expect("a parent").map(|parent| parent.pid()), Some(std::process::id()));
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert!(!held.is_alive() && held.parent().is_err());
    }

    #[test]
    fn an_identity_is_stable_and_differs_between_processes() {
        let own = || ProcessHandle::open(std::process::id()).expect("held").identity().expect("an identity");
        let parent = ProcessHandle::open(std::process::id()).expect("held").parent().expect("read").expect("a parent");
        assert_eq!(own(), own());
        assert_ne!(own(), parent.identity().expect("an identity"));
    }

    #[test]
    fn the_peer_is_the_process_that_connected() {
        let path = std::env::temp_dir().join(format!("pinfold-held-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("a socket");
        let _client = UnixStream::connect(&path).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        let _ = std::fs::remove_file(&path);
        match SocketPeer::of(server.as_fd()).expect("a peer") {
            SocketPeer::Inside(held) => assert!(held.pid() == std::process::id() && held.is_alive()),
            other => panic!("{other:?}"),
        }
    }
}
