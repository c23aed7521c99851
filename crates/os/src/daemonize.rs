//! Calls that change the calling process itself: session, subreaper, signal dispositions, fork, descriptors, heap.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

static ORIGINAL_DESCRIPTOR_LIMIT: OnceLock<Option<u64>> = OnceLock::new();

/// Makes all threads share one heap that shrinks only on [`trim_memory`]. By default glibc gives each thread a heap of
/// its own, and each keeps its peak size. It also returns the top of a heap to the kernel as soon as 128 KiB of it are
/// free, which interrupts every core (TLB shootdown).
pub fn share_one_heap() {
    for (parameter, value) in [(libc::M_ARENA_MAX, 1), (libc::M_TRIM_THRESHOLD, i32::MAX), (libc::M_TOP_PAD, 1 << 20)] {
        // SAFETY: sets a parameter of the allocator, before there are threads.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Starts a new session, so that the terminal and signals to the old process group no longer reach us. Does nothing if
/// this process leads a process group: the kernel refuses `setsid` then.
pub fn leave_session() {
    let _ = rustix::process::setsid();
}

/// Makes orphaned descendants our children, whatever session or group they are in.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Lets the kernel reap exited children by itself.
pub fn ignore_children() {
    // SAFETY: sets a disposition, no handler runs.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Makes exited children stay zombies until they are waited for: the default.
pub fn default_child_signal() {
    // SAFETY: sets a disposition, no handler runs.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Resets every signal to its default disposition and unblocks all; children inherit both.
pub fn default_signals() {
    for signal in 1..=64 {
        // SAFETY: sets a disposition, no handler runs; numbers the kernel refuses are left alone.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: sigset_t is plain data; all zero is the empty set.
    let none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a valid local.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) };
}

/// Blocks the signals that a terminal or an operator may send to a whole process group: a keeper must outlive them.
/// Blocks rather than ignores: an ignored signal would stay ignored in the command after exec, while a blocked one is
/// unblocked before exec.
pub fn block_group_signals() -> io::Result<()> {
    // SAFETY: sigset_t is plain data.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: writes the local set.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    // SAFETY: the set is a valid local.
    match unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The side of a fork that the caller is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    Child,
    Parent { child: u32 },
}

/// Forks. Only for single-threaded programs, because the child runs on as a full program.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: the caller has one thread, so the child's memory is consistent.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent { child: child as u32 }),
    }
}

/// Forks a sibling: the new process is a child of our parent, not of us, and no subreaper below that parent adopts it.
/// Only for single-threaded programs.
pub fn fork_sibling() -> io::Result<Fork> {
    // SAFETY: clone_args is plain data; all zero is its documented initial value. With CLONE_PARENT the kernel uses our
    // own exit signal, so `exit_signal` stays 0.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = libc::CLONE_PARENT as u64;
    // SAFETY: the child has its own copy of memory, and the caller has one thread, so that it is consistent.
    match unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent { child: child as u32 }),
    }
}

/// Exits a forked child at once, without running the exit handlers that its parent registered.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor above 2 except this one.
pub fn close_all_but(kept: BorrowedFd<'_>) {
    let kept = kept.as_raw_fd();
    close_between(3, kept - 1);
    close_between(kept.max(2) + 1, RawFd::MAX);
}

fn close_between(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: the caller gives up every descriptor in this range.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// Returns free memory inside the heap to the kernel; by itself glibc returns only the top of the heap.
pub fn trim_memory() {
    // SAFETY: plain library call.
    unsafe { libc::malloc_trim(0) };
}

/// The pid of this process.
pub fn own_pid() -> u32 {
    std::process::id()
}

/// Raises the soft limit on open descriptors to the hard limit, and returns the limit that then applies.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    ORIGINAL_DESCRIPTOR_LIMIT.get_or_init(|| limit.current);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The soft limit that this program was started with, if [`raise_descriptor_limit`] has changed it and it is not
/// unlimited. Commands get it: programs that use `select` or close every descriptor rely on a low one.
pub fn original_descriptor_limit() -> Option<u64> {
    ORIGINAL_DESCRIPTOR_LIMIT.get().copied().flatten()
}

/// Lowers the soft limit on open descriptors.
pub fn lower_descriptor_limit(soft: u64) -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum })?)
}
/// Variables that a service manager sets for the main program of a unit and for no other.
pub const UNIT_ENV: [&str; 5] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "SYSTEMD_EXEC_PID"];

/// Whether a service manager started us as the main program of a unit.
pub fn is_unit() -> bool {
    std::env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid == std::process::id().to_string())
}
