//! What a process does to itself: session, subreaper, signals, forks, descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// All threads share one heap, which shrinks only when it is told to. By default glibc gives each thread its own, each of
/// which keeps what it once needed; and one that ends in 128 KiB of nothing is cut, for which every core is interrupted.
pub fn share_one_heap() {
    for (parameter, value) in [(libc::M_ARENA_MAX, 1), (libc::M_TRIM_THRESHOLD, i32::MAX), (libc::M_TOP_PAD, 1 << 20)] {
        // SAFETY: sets a parameter of the allocator, before there are threads.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Leaves the caller's session, so that its terminal and its process group's signals reach us no more.
/// A process group leader stays where it is.
pub fn leave_session() {
    let _ = rustix::process::setsid();
}

/// Orphaned descendants become our children, however they left their parents.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Ended children vanish without being waited for.
pub fn ignore_children() {
    // SAFETY: sets a disposition, no handler runs.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Ended children wait to be waited for, as they do by default.
pub fn default_child_signal() {
    // SAFETY: sets a disposition, no handler runs.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Gives every signal its default disposition: what this process's children will find.
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

/// Holds back what a terminal or an operator may send to a whole group: a keeper ends when its work is done.
/// Blocked, not ignored: children would inherit the ignoring, and they unblock everything before exec.
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

/// Which side of a fork this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    Child,
    Parent { child: u32 },
}

/// Forks. Only for programs of one thread: the child goes on as a full program.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: the caller has one thread, so the child's memory is consistent.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent { child: child as u32 }),
    }
}

/// Forks a sibling: its parent is our parent, and no reaper or subreaper below that has a hold on it. Only for programs
/// of one thread.
pub fn fork_sibling() -> io::Result<Fork> {
    // SAFETY: clone_args is plain data; all zero is its documented initial value. With CLONE_PARENT the exit signal is ours.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = libc::CLONE_PARENT as u64;
    // SAFETY: the child has its own copy of memory, and the caller has one thread, so that it is consistent.
    match unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent { child: child as u32 }),
    }
}

/// Ends a forked child without running what its parent has registered for its own exit.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor above 2 but one.
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

/// Returns what the allocator holds in reserve to the kernel; by itself it returns only the end of its heap.
pub fn trim_memory() {
    // SAFETY: plain library call.
    unsafe { libc::malloc_trim(0) };
}

/// Our own pid.
pub fn own_pid() -> u32 {
    std::process::id()
}

/// The most descriptors this process may open; raises the soft limit to the hard one.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
