//! The system calls that the filter refused: the kernel asks this process about each, and gets the error to return.
//!
//! Nothing is asked about a call that is allowed. The caller of a refused one waits for the answer; if this process dies,
//! the call fails with ENOSYS instead. The answer is never "continue", so changing the arguments meanwhile gains nothing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`, whose numbers contain the sizes of the structures.
const RECEIVE: libc::c_ulong = 0xC050_2100;
const SEND: libc::c_ulong = 0xC018_2101;
const _: () = assert!(size_of::<libc::seccomp_notif>() == 0x50 && size_of::<libc::seccomp_notif_resp>() == 0x18);

/// What a refused call was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedCall {
    UnixSocket,
    NetworkSocket,
    OtherSocket,
    Namespace,
    Mount,
    Keyring,
    Other,
}

/// What came of waiting for a refused call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    Refused(RefusedCall),
    /// None is waiting: its caller may have been killed.
    Nothing,
    /// No process is left that has the filter.
    Closed,
}

/// The source of refused calls of one program and its descendants. Readable when one waits.
#[derive(Debug)]
pub struct RefusedCalls(OwnedFd);

impl RefusedCalls {
    pub(super) fn new(listener: OwnedFd) -> Self {
        Self(listener)
    }

    /// Answers one refused call with EPERM. Does not wait.
    pub fn answer(&self) -> Notice {
        // Receiving would wait if there was no call: the kernel has no flag against that.
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        let _ = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        let ready = polled[0].revents();
        if !ready.contains(PollFlags::IN) {
            let closed = ready.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
            return if closed { Notice::Closed } else { Notice::Nothing };
        }
        // SAFETY: plain data; the kernel requires zeros.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one structure of this size.
        if unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE as _, &raw mut call) } < 0 {
            let gone = io::Error::last_os_error().raw_os_error();
            let may_retry = matches!(gone, Some(libc::ENOENT | libc::EINTR));
            return if may_retry { Notice::Nothing } else { Notice::Closed };
        }
        let mut answer = libc::seccomp_notif_resp { id: call.id, val: 0, error: -libc::EPERM, flags: 0 };
        // A failure means that the caller was killed meanwhile.
        // SAFETY: the kernel reads one structure of this size.
        unsafe { libc::ioctl(self.0.as_raw_fd(), SEND as _, &raw mut answer) };
        Notice::Refused(purpose(&call.data))
    }
}

impl AsFd for RefusedCalls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn purpose(data: &libc::seccomp_data) -> RefusedCall {
    match libc::c_long::from(data.nr) {
        libc::SYS_socket | libc::SYS_socketpair => match data.args[0] as i32 {
            libc::AF_UNIX => RefusedCall::UnixSocket,
            libc::AF_INET | libc::AF_INET6 => RefusedCall::NetworkSocket,
            _ => RefusedCall::OtherSocket,
        },
        libc::SYS_clone | libc::SYS_unshare | libc::SYS_setns => RefusedCall::Namespace,
        libc::SYS_mount
        | libc::SYS_umount2
        | libc::SYS_pivot_root
        | libc::SYS_open_tree
        | libc::SYS_move_mount
        | libc::SYS_fsopen
        | libc::SYS_fsconfig
        | libc::SYS_fsmount
        | libc::SYS_fspick
        | libc::SYS_mount_setattr => RefusedCall::Mount,
        libc::SYS_add_key | libc::SYS_request_key | libc::SYS_keyctl => RefusedCall::Keyring,
        // Data over a connection that is opened by sending.
        libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg => RefusedCall::NetworkSocket,
        _ => RefusedCall::Other,
    }
}
