//! Waiting for children, and decoding their wait status (exit code, signal, core dump): observe the exit first, reap later.
//!
//! `observe_exit` leaves the child unreaped, so that its pid and session id stay reserved while its tree is still being
//! signalled. Exactly one place in a program reaps a child: the one that owns it.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

/// How a child ended, as the kernel reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    Exited { code: u8 },
    Signaled { signal: i32, core_dumped: bool },
}

/// A child that ended, with the resource usage of itself and of the descendants it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedChild {
    pub pid: u32,
    pub status: ExitStatus,
    pub cpu_us: u64,
    pub max_rss_bytes: u64,
}

/// How the child ended, or `None` if it is alive. The child stays a zombie.
pub fn observe_exit(pidfd: &OwnedFd) -> io::Result<Option<EndedChild>> {
    waitid(libc::P_PIDFD, pidfd.as_raw_fd() as u32, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
}

/// Waits until the child has ended and reaps it.
pub fn reap(pidfd: &OwnedFd) -> io::Result<Option<EndedChild>> {
    waitid(libc::P_PIDFD, pidfd.as_raw_fd() as u32, libc::WEXITED)
}

/// Reaps this child if it has ended. The pid must be that of an unreaped child of ours.
pub fn reap_if_ended(pid: u32) -> io::Result<Option<EndedChild>> {
    waitid(libc::P_PID, pid, libc::WEXITED | libc::WNOHANG | libc::__WALL)
}

fn waitid(kind: libc::idtype_t, id: u32, options: i32) -> io::Result<Option<EndedChild>> {
    // SAFETY: both are plain data, filled by the kernel.
    let (mut info, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { mem::zeroed() };
    loop {
        // The C library's waitid does not return the resource usage; the system call does.
        // SAFETY: both pointers are to valid locals.
        let result = unsafe { libc::syscall(libc::SYS_waitid, kind, id, &raw mut info, options, &raw mut usage) };
        if result == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: the kernel filled the fields of a SIGCHLD siginfo, or left zeros.
    let pid = unsafe { info.si_pid() };
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    let status = match info.si_code {
        libc::CLD_EXITED => ExitStatus::Exited { code: status as u8 },
        code => ExitStatus::Signaled { signal: status, core_dumped: code == libc::CLD_DUMPED },
    };
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Ok(Some(EndedChild {
        pid: pid as u32,
        status,
        cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
        max_rss_bytes: usage.ru_maxrss as u64 * 1024,
    }))
}
