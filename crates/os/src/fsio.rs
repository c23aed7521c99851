//! Pipes and files: reading and writing without blocking, free space, file locks, standard streams.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{Access, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

/// The largest pipe buffer that an unprivileged user may set.
const MAX_PIPE_BYTES: usize = 1 << 20;

/// Frees the disk space of a range of a file. The range then reads as zeros; the file keeps its length.
pub fn punch_hole(file: &File, range: Range<u64>) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, flags, range.start, range.end - range.start)?)
}

/// The two ends of a pipe. The end that pinfold keeps is non-blocking.
#[derive(Debug)]
pub struct Pipe {
    pub read: OwnedFd,
    pub write: OwnedFd,
}

/// Makes a pipe with a non-blocking read end. Both descriptors are above 2, so that a child can `dup2` them to 0, 1 and
/// 2 in any order.
pub fn pipe() -> io::Result<Pipe> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (read, write) = (above_stdio(read)?, above_stdio(write)?);
    set_nonblocking(read.as_fd())?;
    Ok(Pipe { read, write })
}

/// Makes a pipe with a non-blocking write end; the reader blocks as usual. Both descriptors are above 2.
pub fn input_pipe() -> io::Result<Pipe> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (read, write) = (above_stdio(read)?, above_stdio(write)?);
    set_nonblocking(write.as_fd())?;
    Ok(Pipe { read, write })
}

/// Duplicates the descriptor if needed, so that its number is above 2.
pub(crate) fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > 2 { Ok(fd) } else { Ok(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?) }
}

/// Enlarges the pipe's buffer to the maximum: a process that writes a lot then wakes the reader less often.
pub fn widen(pipe: BorrowedFd<'_>) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, MAX_PIPE_BYTES);
}

/// `/dev/null`, open for reading and writing, with a number above 2.
pub fn dev_null() -> io::Result<OwnedFd> {
    above_stdio(rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Sets `O_NONBLOCK`.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// The result of [`read_some`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// This many bytes were read.
    Bytes(usize),
    /// There is nothing to read now.
    Empty,
    /// All writers have closed their end.
    Closed,
}

/// Appends what can be read to the buffer, up to its spare capacity. One `read`, which fills the spare capacity without
/// zeroing it first.
pub fn read_some(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> io::Result<ReadResult> {
    loop {
        return match rustix::io::read(fd, spare_capacity(buffer)) {
            Ok(0) => Ok(ReadResult::Closed),
            Ok(count) => Ok(ReadResult::Bytes(count)),
            Err(Errno::AGAIN) => Ok(ReadResult::Empty),
            Err(Errno::INTR) => continue,
            // EIO from a pseudoterminal means that the other side is closed.
            Err(Errno::IO) => Ok(ReadResult::Closed),
            Err(error) => Err(error.into()),
        };
    }
}

/// The result of [`write_some`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// This many bytes were written.
    Bytes(usize),
    /// There is no room now.
    Full,
    /// All readers have closed their end.
    Broken,
}

/// Writes as much as fits. The caller must have SIGPIPE blocked or ignored.
pub fn write_some(fd: BorrowedFd<'_>, bytes: &[u8]) -> WriteResult {
    loop {
        return match rustix::io::write(fd, bytes) {
            Ok(count) => WriteResult::Bytes(count),
            Err(Errno::AGAIN) => WriteResult::Full,
            Err(Errno::INTR) => continue,
            Err(_) => WriteResult::Broken,
        };
    }
}

/// Random bytes from the kernel.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // The kernel never returns fewer bytes than asked for up to 256.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// Open flag: fail if the last component of the path is a symbolic link.
pub const NO_FOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;
/// Open flag: do not block until the other end of a named pipe is opened.
pub const NO_WAIT: i32 = OFlags::NONBLOCK.bits() as i32;

/// Fails if files cannot be created in this directory.
pub fn check_writable(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Free space on the file system of this path, as available to an unprivileged user.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let status = rustix::fs::statvfs(path)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// Which process holds a lock taken with [`try_hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// No process holds it.
    Unlocked,
    Pid(u32),
    /// A process outside of our pid namespace.
    Unseen,
}

/// Takes a POSIX record lock on the file; false if another process has it. Unlike `flock`, the kernel tells other
/// processes the holder's pid. The lock is lost when this process closes any descriptor of the file, so open it once.
pub fn try_hold(file: BorrowedFd<'_>) -> io::Result<bool> {
    let lock = whole_file();
    // SAFETY: the descriptor is open, and the structure outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// Which other process holds a lock taken with [`try_hold`].
pub fn holder(file: BorrowedFd<'_>) -> io::Result<LockHolder> {
    let mut lock = whole_file();
    // SAFETY: the descriptor is open; the kernel writes to the structure, which outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(match (i32::from(lock.l_type), u32::try_from(lock.l_pid)) {
        (libc::F_UNLCK, _) => LockHolder::Unlocked,
        (_, Ok(pid)) if pid > 0 => LockHolder::Pid(pid),
        _ => LockHolder::Unseen,
    })
}

fn whole_file() -> libc::flock {
    // SAFETY: plain data; start 0 and length 0 mean the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock
}

/// Redirects stdin, stdout and stderr to one file.
pub fn point_stdio_at(file: BorrowedFd<'_>) -> io::Result<()> {
    rustix::stdio::dup2_stdin(file)?;
    rustix::stdio::dup2_stdout(file)?;
    rustix::stdio::dup2_stderr(file)?;
    Ok(())
}
