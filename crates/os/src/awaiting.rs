//! Detects that a process is blocked waiting for input: which system call its threads sleep in, and on which file.
//!
//! Owns the reading of `/proc/PID/task/TID/syscall` and of the descriptors and memory that the call refers to. The
//! caller must be an ancestor of the process or run as its user. If the kernel does not tell, the answer is `Unknown`,
//! never a guess. A sleep with a timeout is `Unknown` too: a program that sets one has something else to do.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Stat, fstat};

/// Maximum number of threads of one process that are checked; later ones are ignored.
const MAX_THREADS: usize = 64;
/// Maximum number of descriptors of one call that are checked; later ones are ignored.
const MAX_WATCHED: u64 = 1024;
/// The device number of `/dev/tty`, which stands for the reader's controlling terminal.
const OWN_TERMINAL: u64 = 5 << 8;

/// Whether a process waits for input. Ordered: of several threads or processes, the greatest value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaiting {
    /// It is doing something else.
    Else,
    /// The kernel does not tell, or the sleep has a timeout.
    Unknown,
    /// It sleeps until there is input.
    Input,
}

/// The pipe or terminal that input comes from, as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputSource {
    Pipe { device: u64, inode: u64 },
    Terminal { number: u64 },
}

impl InputSource {
    /// The pipe or terminal of a descriptor: either end of a pipe, the process's end of a terminal.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self::from_stat(&fstat(fd.as_fd())?))
    }

    fn from_stat(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice => InputSource::Terminal { number: stat.st_rdev },
            _ => InputSource::Pipe { device: stat.st_dev, inode: stat.st_ino },
        }
    }

    /// Whether this descriptor of the process refers to this pipe or terminal.
    fn is_open_as(self, pid: u32, fd: u64) -> bool {
        let Ok(stat) = rustix::fs::stat(format!("/proc/{pid}/fd/{fd}")) else { return false };
        let other = Self::from_stat(&stat);
        other == self
            || matches!((self, other), (InputSource::Terminal { .. }, InputSource::Terminal { number: OWN_TERMINAL }))
    }
}

/// Checks every thread of a process.
pub fn observe(pid: u32, source: InputSource) -> Awaiting {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Awaiting::Else };
    let threads = threads.flatten().take(MAX_THREADS);
    threads.map(|thread| observe_thread(pid, &thread.path().join("syscall"), source)).max().unwrap_or(Awaiting::Else)
}

fn observe_thread(pid: u32, path: &std::path::Path, source: InputSource) -> Awaiting {
    match fs::read_to_string(path) {
        Ok(line) => parse(&line).map_or(Awaiting::Else, |call| classify_wait(pid, &call, source)),
        Err(error) if crate::proc::is_gone(&error) => Awaiting::Else,
        Err(_) => Awaiting::Unknown,
    }
}

/// The number of the system call and its arguments; `None` for a thread that is running.
fn parse(line: &str) -> Option<(i64, [u64; 6])> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok()?;
    }
    Some((number, arguments))
}

/// The kind of system call; `endless` if it has no timeout.
enum Call {
    Read,
    Poll { endless: bool },
    Select { endless: bool },
    Epoll { endless: bool },
    Other,
}

fn classify((number, arguments): &(i64, [u64; 6])) -> Call {
    let forever = |milliseconds: u64| (milliseconds as i32) < 0;
    match *number {
        libc::SYS_read | libc::SYS_readv | libc::SYS_preadv2 => Call::Read,
        libc::SYS_ppoll => Call::Poll { endless: arguments[2] == 0 },
        libc::SYS_pselect6 => Call::Select { endless: arguments[4] == 0 },
        libc::SYS_epoll_pwait => Call::Epoll { endless: forever(arguments[3]) },
        libc::SYS_epoll_pwait2 => Call::Epoll { endless: arguments[3] == 0 },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => Call::Poll { endless: forever(arguments[2]) },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => Call::Select { endless: arguments[4] == 0 },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => Call::Epoll { endless: forever(arguments[3]) },
        _ => Call::Other,
    }
}

fn classify_wait(pid: u32, call: &(i64, [u64; 6]), source: InputSource) -> Awaiting {
    let arguments = &call.1;
    let (watched, endless) = match classify(call) {
        Call::Read => (Some(vec![arguments[0]]), true),
        Call::Poll { endless } => (polled(pid, arguments[0], arguments[1]), endless),
        Call::Select { endless } => (selected(pid, arguments[1], arguments[0]), endless),
        Call::Epoll { endless } => (in_epoll(pid, arguments[0]), endless),
        Call::Other => return Awaiting::Else,
    };
    let Some(watched) = watched else { return Awaiting::Unknown };
    match watched.into_iter().any(|fd| source.is_open_as(pid, fd)) {
        true if endless => Awaiting::Input,
        true => Awaiting::Unknown,
        false => Awaiting::Else,
    }
}

/// The descriptors in a `pollfd` array that are polled for reading.
fn polled(pid: u32, address: u64, count: u64) -> Option<Vec<u64>> {
    const SIZE: usize = size_of::<libc::pollfd>();
    let memory = read_memory(pid, address, usize::try_from(count.min(MAX_WATCHED)).ok()? * SIZE)?;
    let entry = |entry: &[u8]| {
        let fd = i32::from_ne_bytes(*entry.first_chunk()?);
        let events = i16::from_ne_bytes(*entry.get(4..6)?.first_chunk()?);
        u64::try_from(fd).ok().filter(|_| events & libc::POLLIN != 0)
    };
    Some(memory.chunks_exact(SIZE).filter_map(entry).collect())
}

/// The descriptors in an `fd_set`.
fn selected(pid: u32, address: u64, count: u64) -> Option<Vec<u64>> {
    if address == 0 {
        return Some(vec![]);
    }
    let count = count.min(MAX_WATCHED);
    let memory = read_memory(pid, address, usize::try_from(count.div_ceil(64)).ok()? * 8)?;
    Some((0..count).filter(|fd| memory[(fd / 8) as usize] & (1 << (fd % 8)) != 0).collect())
}

/// The descriptors that an epoll descriptor watches for reading.
fn in_epoll(pid: u32, epoll: u64) -> Option<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{epoll}")).ok()?;
    let watched = text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
        let fd = words.next()?.parse().ok()?;
        let events = u32::from_str_radix(words.nth(1)?, 16).ok()?;
        Some(fd).filter(|_| events & libc::EPOLLIN as u32 != 0)
    });
    Some(watched.collect())
}

fn read_memory(pid: u32, address: u64, length: usize) -> Option<Vec<u8>> {
    let mut memory = vec![0_u8; length];
    let local = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
    // SAFETY: the kernel writes at most `length` bytes to our own buffer; it only reads the remote address, and returns
    // an error for a wrong one.
    let read = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
    (usize::try_from(read) == Ok(length)).then_some(memory)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// A program on a pipe of ours, and what it is seen to wait for.
    fn seen(program: &str, argument: &str, wanted: Awaiting) {
        let mut child = Command::new(program).args(["-c", argument]).stdin(Stdio::piped()).spawn().expect("a program");
        let source = InputSource::of(child.stdin.as_ref().expect("its stdin").as_fd()).expect("a pipe");
        let deadline = Instant::now() + Duration::from_secs(60);
        while observe(child.id(), source) != wanted {
            assert!(Instant::now() < deadline, "{program} {argument}: {:?}", observe(child.id(), source));
            std::thread::sleep(Duration::from_millis(5));
        }
        end(&mut child);
    }

    fn end(child: &mut Child) {
        child.kill().expect("our own child");
        child.wait().expect("its end");
    }

    #[test]
    fn a_program_that_reads_is_told_from_one_that_sleeps() {
        seen("sh", "read x", Awaiting::Input);
        seen("sh", "exec sleep 300", Awaiting::Else);
        seen("sh", "while :; do :; done", Awaiting::Else);
    }

    #[test]
    fn whatever_call_it_sleeps_in() {
        if Command::new("python3").arg("--version").output().is_err() {
            return eprintln!("skipped: there is no python3");
        }
        seen("python3", "import select; select.select([0],[],[])", Awaiting::Input);
        seen("python3", "import select; p=select.poll(); p.register(0); p.poll()", Awaiting::Input);
        seen("python3", "import select; p=select.epoll(); p.register(0); p.poll()", Awaiting::Input);
        seen("python3", "import select; select.select([0],[],[],300)", Awaiting::Unknown);
        seen("python3", "import os; r,w=os.pipe(); os.read(r,1)", Awaiting::Else);
    }
}
