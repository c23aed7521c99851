//! Pipes and files: what the output takes on its way to the disk.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{Access, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

/// The largest pipe an ordinary user may ask for.
const PIPE_MOST: usize = 1 << 20;

/// Gives a range of a file back to the file system: it reads as zeros, and the file is as long as before.
pub fn punch_hole(file: &File, range: Range<u64>) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, flags, range.start, range.end - range.start)?)
}

/// The two ends of a pipe; ours does not block.
#[derive(Debug)]
pub struct Pipe {
    pub read: OwnedFd,
    pub write: OwnedFd,
}

/// Makes a pipe. Both ends are above 2, so that a child can place them at 0 to 2 in any order.
pub fn pipe() -> io::Result<Pipe> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (read, write) = (above_stdio(read)?, above_stdio(write)?);
    set_nonblocking(read.as_fd())?;
    Ok(Pipe { read, write })
}

/// Makes a pipe to write to without blocking; who reads it blocks as usual. Both ends are above 2.
pub fn input_pipe() -> io::Result<Pipe> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (read, write) = (above_stdio(read)?, above_stdio(write)?);
    set_nonblocking(write.as_fd())?;
    Ok(Pipe { read, write })
}

/// Moves a descriptor above 2.
pub(crate) fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > 2 { Ok(fd) } else { Ok(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?) }
}

/// Lets the pipe hold as much as it may; a writer in bulk then wakes the reader less often.
pub fn widen(pipe: BorrowedFd<'_>) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_MOST);
}

/// `/dev/null`, open for reading and writing, above 2.
pub fn dev_null() -> io::Result<OwnedFd> {
    above_stdio(rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes reads and writes return at once.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// What came of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// So many bytes.
    Bytes(usize),
    /// Nothing there now.
    Empty,
    /// All writers are gone.
    Closed,
}

/// Reads what is there to the end of a buffer, as much as it has room for. What it has room for need not be in memory yet.
pub fn read_some(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> io::Result<Moved> {
    loop {
        return match rustix::io::read(fd, spare_capacity(buffer)) {
            Ok(0) => Ok(Moved::Closed),
            Ok(count) => Ok(Moved::Bytes(count)),
            Err(Errno::AGAIN) => Ok(Moved::Empty),
            Err(Errno::INTR) => continue,
            // A pseudoterminal whose other side is closed says so in this way.
            Err(Errno::IO) => Ok(Moved::Closed),
            Err(error) => Err(error.into()),
        };
    }
}

/// What came of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// So many bytes.
    Bytes(usize),
    /// There is no room now.
    Full,
    /// All readers are gone.
    Broken,
}

/// Writes as much as there is room for. The caller blocks or ignores SIGPIPE.
pub fn write_some(fd: BorrowedFd<'_>, bytes: &[u8]) -> Wrote {
    loop {
        return match rustix::io::write(fd, bytes) {
            Ok(count) => Wrote::Bytes(count),
            Err(Errno::AGAIN) => Wrote::Full,
            Err(Errno::INTR) => continue,
            Err(_) => Wrote::Broken,
        };
    }
}

/// Random bytes from the kernel.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // Up to 256 bytes come whole.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// Open flag: refuse a symbolic link in the last place of the path.
pub const NO_FOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;
/// Open flag: do not wait for the other end of a named pipe.
pub const NO_WAIT: i32 = OFlags::NONBLOCK.bits() as i32;

/// Whether files can be made in this directory.
pub fn check_writable(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// What is free on the filesystem of this path, for us.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Who holds a lock of [`try_hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    Nobody,
    Pid(u32),
    /// A process that our pid namespace does not show.
    Unseen,
}

/// Takes a lock on the file of which the kernel tells others the holder's pid; false if another process has it. It is
/// lost when this process closes any descriptor of the file: open it once.
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

/// Which other process holds the lock.
pub fn holder(file: BorrowedFd<'_>) -> io::Result<Holder> {
    let mut lock = whole_file();
    // SAFETY: the descriptor is open; the kernel writes to the structure, which outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(match (i32::from(lock.l_type), u32::try_from(lock.l_pid)) {
        (libc::F_UNLCK, _) => Holder::Nobody,
        (_, Ok(pid)) if pid > 0 => Holder::Pid(pid),
        _ => Holder::Unseen,
    })
}

fn whole_file() -> libc::flock {
    // SAFETY: plain data; zeros stand for the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock
}

/// Points the three standard streams at one file.
pub fn point_stdio_at(file: BorrowedFd<'_>) -> io::Result<()> {
    rustix::stdio::dup2_stdin(file)?;
    rustix::stdio::dup2_stdout(file)?;
    rustix::stdio::dup2_stderr(file)?;
    Ok(())
}
