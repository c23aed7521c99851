//! Whether a process is blocked until somebody sends it input: which call its threads sleep in, and on which file.
//!
//! Owns the reading of `/proc/PID/task/TID/syscall` and of what lies behind it. It needs to be an ancestor of the
//! process or to have its user; where the kernel does not tell, the answer is "unknown" and never a guess. A sleep with a
//! time limit is unknown too: whoever sets an alarm has something else to do.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Stat, fstat};

/// The most threads of one process that are looked at, and the most descriptors that one call waits for.
const THREADS_MOST: usize = 64;
const WATCHED_MOST: u64 = 1024;
/// `/dev/tty`: whoever reads it reads its own terminal.
const OWN_TERMINAL: u64 = 5 << 8;

/// What is known of a process, ordered: of several, the greatest is what counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaiting {
    /// It does something else.
    Else,
    /// The kernel does not tell, or it may wake by itself.
    Unknown,
    /// It sleeps until there is input.
    Input,
}

/// The file that input comes through, known by what the kernel calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Pipe { device: u64, inode: u64 },
    Terminal { number: u64 },
}

impl Source {
    /// The pipe or terminal behind a descriptor, either end of a pipe, the process's end of a terminal.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self::from_stat(&fstat(fd.as_fd())?))
    }

    fn from_stat(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice => Source::Terminal { number: stat.st_rdev },
            _ => Source::Pipe { device: stat.st_dev, inode: stat.st_ino },
        }
    }

    /// Whether this descriptor of a process is the file.
    fn is_behind(self, pid: u32, fd: u64) -> bool {
        let Ok(stat) = rustix::fs::stat(format!("/proc/{pid}/fd/{fd}")) else { return false };
        let found = Self::from_stat(&stat);
        found == self || matches!((self, found), (Source::Terminal { .. }, Source::Terminal { number: OWN_TERMINAL }))
    }
}

/// Looks at every thread of a process.
pub fn observe(pid: u32, source: Source) -> Awaiting {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Awaiting::Else };
    let threads = threads.flatten().take(THREADS_MOST);
    threads.map(|thread| observe_thread(pid, &thread.path().join("syscall"), source)).max().unwrap_or(Awaiting::Else)
}

fn observe_thread(pid: u32, path: &std::path::Path, source: Source) -> Awaiting {
    match fs::read_to_string(path) {
        Ok(line) => parse(&line).map_or(Awaiting::Else, |call| judge(pid, &call, source)),
        Err(error) if crate::proc::is_gone(&error) => Awaiting::Else,
        Err(_) => Awaiting::Unknown,
    }
}

/// The number of a system call and its arguments; `None` for a thread that runs.
fn parse(line: &str) -> Option<(i64, [u64; 6])> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok()?;
    }
    Some((number, arguments))
}

/// Which kind of sleep a call is.
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

fn judge(pid: u32, call: &(i64, [u64; 6]), source: Source) -> Awaiting {
    let arguments = &call.1;
    let (watched, endless) = match classify(call) {
        Call::Read => (Some(vec![arguments[0]]), true),
        Call::Poll { endless } => (polled(pid, arguments[0], arguments[1]), endless),
        Call::Select { endless } => (selected(pid, arguments[1], arguments[0]), endless),
        Call::Epoll { endless } => (in_epoll(pid, arguments[0]), endless),
        Call::Other => return Awaiting::Else,
    };
    let Some(watched) = watched else { return Awaiting::Unknown };
    match watched.into_iter().any(|fd| source.is_behind(pid, fd)) {
        true if endless => Awaiting::Input,
        true => Awaiting::Unknown,
        false => Awaiting::Else,
    }
}

/// The descriptors in a `pollfd` array that are waited on for reading.
fn polled(pid: u32, address: u64, count: u64) -> Option<Vec<u64>> {
    const SIZE: usize = size_of::<libc::pollfd>();
    let memory = read_memory(pid, address, usize::try_from(count.min(WATCHED_MOST)).ok()? * SIZE)?;
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
    let count = count.min(WATCHED_MOST);
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
    // SAFETY: the kernel writes at most `length` bytes to our own buffer; the remote address is only read by it, and a
    // wrong one is an error.
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
        let source = Source::of(child.stdin.as_ref().expect("its stdin").as_fd()).expect("a pipe");
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
