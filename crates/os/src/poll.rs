//! Waiting until descriptors are ready, and a descriptor for SIGCHLD.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

/// The readiness to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    Read,
    Write,
    ReadWrite,
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// There is data to read, or end of file.
    pub read: bool,
    pub write: bool,
}

/// Waits until a descriptor is ready or the timeout has passed. Returns the readiness of each, in the order of `watched`.
pub fn wait_ready(watched: &[(BorrowedFd<'_>, Interest)], timeout: Option<Duration>) -> io::Result<Vec<Ready>> {
    let flags = |interest: Interest| match interest {
        Interest::Read => PollFlags::IN,
        Interest::Write => PollFlags::OUT,
        Interest::ReadWrite => PollFlags::IN | PollFlags::OUT,
    };
    let mut polled: Vec<_> =
        watched.iter().map(|(fd, interest)| PollFd::from_borrowed_fd(*fd, flags(*interest))).collect();
    let timeout =
        timeout.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let closed = PollFlags::HUP | PollFlags::ERR;
    Ok(polled
        .iter()
        .map(|polled| Ready {
            read: polled.revents().intersects(PollFlags::IN | closed),
            write: polled.revents().intersects(PollFlags::OUT | PollFlags::ERR),
        })
        .collect())
}

/// A signalfd that becomes readable when a child exits. Blocks SIGCHLD for this thread.
#[derive(Debug)]
pub struct ChildSignal(OwnedFd);

impl ChildSignal {
    pub fn new() -> io::Result<Self> {
        // SAFETY: sigset_t is plain data.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: writes the local set.
        unsafe { libc::sigaddset(&mut set, libc::SIGCHLD) };
        // SAFETY: the set is a valid local.
        if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: makes a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and not owned by anything else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Consumes the pending signal. There is at most one, however many children exited.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; size_of::<libc::signalfd_siginfo>()]);
    }
}

impl AsFd for ChildSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for ChildSignal {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}
