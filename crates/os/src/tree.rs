//! The descendants of one process, and signals that reach all of them and no other process, even if a pid was reused.
//!
//! Owns the walk over parents and children, and the rule that a signal is sent through a pidfd whose process was checked
//! *after* the pidfd was opened: a recycled pid is never signalled. It does not wait, reap or apply grace periods; the
//! caller reaps and calls again until the tree is empty.
//!
//! A walk is not a snapshot. A process whose parent exits during the walk moves to the nearest subreaper and may be
//! missed (proc(5) guarantees a complete `children` list only for stopped children). So every operation walks again
//! until [`QUIET_WALKS`] consecutive walks find no new process.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::proc::{self, Stat, is_gone};
use crate::spawn::Child;

/// Maximum number of descendants that one walk returns; a later walk finds the rest, once the first ones are gone.
const MAX_MEMBERS: usize = 32_768;
/// Maximum number of walks per operation; after that it returns what it has reached.
const MAX_WALKS: usize = 16;
/// Consecutive walks that must find no new process before a tree counts as completely known.
const QUIET_WALKS: usize = 2;

/// One living process of a tree, as it was at the time of the walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Process id.
    pub pid: u32,
    /// Its `/proc/PID/stat`.
    pub stat: Stat,
}

/// One process by its pidfd: it can be signalled and polled, and never confused with a later process of the same pid.
#[derive(Debug)]
pub struct Target {
    pidfd: OwnedFd,
    /// Process id.
    pub pid: u32,
    /// Start time, in clock ticks since boot.
    pub start_time: u64,
}

impl AsFd for Target {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Which processes a signal reached, each once. A process that had already exited is in neither list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// Pids to which the kernel delivered the signal.
    pub signalled: Vec<u32>,
    /// Pids for which it refused, with the errno (EPERM: the process belongs to another user).
    pub refused: Vec<(u32, i32)>,
}

/// The children of all threads of `pid`, zombies included.
pub fn children_of(pid: u32) -> io::Result<Vec<u32>> {
    if !kernel_lists_children() {
        proc::stat(pid)?;
        return Ok(scan_children().remove(&pid).unwrap_or_default());
    }
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        match std::fs::read_to_string(thread?.path().join("children")) {
            Ok(list) => children.extend(list.split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok())),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

/// All living descendants of `root`, breadth first, each once, without `root` and without zombies.
pub fn descendants(root: u32) -> Vec<Member> {
    proc::start_time(root).map_or_else(|_| Vec::new(), |start| descendants_of(root, start))
}

/// Like [`descendants`], but only if the process has this start time.
pub(crate) fn descendants_of(root: u32, root_start: u64) -> Vec<Member> {
    let mut living = Vec::new();
    walk(root, root_start, |stat| {
        if stat.is_living() {
            living.push(Member { pid: stat.pid, stat });
        }
        if living.len() == MAX_MEMBERS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    living
}

/// What a tree currently uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Living processes.
    pub pids: Vec<u32>,
    /// Their threads, the main ones included.
    pub threads: u64,
    /// Resident memory; shared pages are counted once per process.
    pub rss_bytes: u64,
    /// CPU time of the living processes, and of their descendants that have exited.
    pub cpu: Duration,
}

impl TreeUsage {
    /// Memory with shared pages divided among their users (PSS), where the kernel provides it. Slow: see
    /// [`proc::proportional_bytes`].
    pub fn memory_bytes(&self) -> u64 {
        let used =
            |pid: &u32| proc::proportional_bytes(*pid).or_else(|_| proc::stat(*pid).map(|stat| stat.rss_bytes()));
        self.pids.iter().filter_map(|pid| used(pid).ok()).sum()
    }
}

/// What the descendants of `root` use. Stops once it has counted more than `max_threads` threads: the caller then knows
/// that the limit is exceeded. Exited children of `root` itself are left out: `root` gets their usage when it reaps them.
pub fn usage_below(root: u32, max_threads: Option<u64>) -> TreeUsage {
    let mut usage = TreeUsage::default();
    let Ok(start) = proc::start_time(root) else { return usage };
    walk(root, start, |stat| {
        if stat.is_living() {
            usage.pids.push(stat.pid);
            usage.threads += stat.threads;
            usage.rss_bytes += stat.rss_bytes();
        }
        if stat.is_living() || stat.ppid != root {
            usage.cpu += stat.cpu_with_waited();
        }
        let enough = max_threads.is_some_and(|max| usage.threads > max) || usage.pids.len() == MAX_MEMBERS;
        if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    usage
}

/// Calls `visit` with each descendant once, breadth first, zombies included, until it returns `Break`.
pub(crate) fn walk(root: u32, root_start: u64, mut visit: impl FnMut(Stat) -> ControlFlow<()>) {
    let scanned = (!kernel_lists_children()).then(scan_children);
    let children = |pid: u32| match &scanned {
        Some(map) => map.get(&pid).cloned().unwrap_or_default(),
        None => children_of(pid).unwrap_or_default(),
    };
    let mut seen = HashSet::from([root]);
    let mut queue = VecDeque::from([(root, root_start)]);
    while let Some((parent, parent_start)) = queue.pop_front() {
        let listed = children(parent);
        // If the start time changed, the list belongs to another process that got this pid.
        if listed.is_empty() || proc::start_time(parent).ok() != Some(parent_start) {
            continue;
        }
        for pid in listed {
            let Ok(stat) = proc::stat(pid) else { continue };
            // If its parent is not in the tree, the process was reparented, or the pid was recycled.
            let in_tree = stat.ppid == parent || seen.contains(&stat.ppid);
            if !in_tree || !seen.insert(pid) {
                continue;
            }
            queue.push_back(stat.identity());
            if visit(stat).is_break() {
                return;
            }
        }
    }
}

/// The children of the calling process, read cheaply through a descriptor that stays open.
///
/// Only for a single-threaded process: it lists the children of the thread that opened it. Open it in the process that
/// uses it: a copy inherited through fork still lists the parent's children.
#[derive(Debug)]
pub struct OwnChildren {
    /// `None` if the kernel has no `children` files: then each call scans `/proc`.
    list: Option<File>,
}

impl OwnChildren {
    /// Opens the list of the calling thread.
    pub fn open() -> io::Result<OwnChildren> {
        match File::open("/proc/thread-self/children") {
            Ok(list) => Ok(OwnChildren { list: Some(list) }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(OwnChildren { list: None }),
            Err(error) => Err(error),
        }
    }

    /// The pids of the children, including zombies: a child is listed until it is reaped.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        let Some(list) = &self.list else {
            return Ok(scan_children().remove(&std::process::id()).unwrap_or_default());
        };
        let mut text = [0u8; 4096];
        let length = list.read_at(&mut text, 0)?;
        // The kernel returns whole entries: if there is room for another one, the list is complete.
        if length + MAX_ENTRY <= text.len() {
            return Ok(parse_pids(&text[..length]));
        }
        children_of(std::process::id())
    }
}

/// Maximum length of an entry: a pid of ten digits and a space.
const MAX_ENTRY: usize = 11;

fn parse_pids(text: &[u8]) -> Vec<u32> {
    let entries = text.split(|&byte| byte == b' ');
    entries.filter_map(|entry| std::str::from_utf8(entry).ok()?.trim().parse().ok()).collect()
}

/// Opens a pidfd of a member; `None` if it has exited or its pid now belongs to another process.
pub fn target(member: &Member) -> Option<Target> {
    try_target(member).ok().flatten()
}

/// Like [`target`], but an error if no descriptor could be opened.
pub(crate) fn try_target(member: &Member) -> io::Result<Option<Target>> {
    let Some(pid) = i32::try_from(member.pid).ok().and_then(Pid::from_raw) else {
        return Ok(None);
    };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    // Read after the open: if the pid still has this start time, the pidfd refers to this process.
    let start_time = member.stat.start_time;
    let same = proc::start_time(member.pid).is_ok_and(|now| now == start_time);
    Ok(same.then_some(Target { pidfd, pid: member.pid, start_time }))
}

/// Sends a signal by number, realtime signals included, to exactly this process.
pub fn signal(target: &Target, signo: i32) -> io::Result<()> {
    let pidfd = target.pidfd.as_raw_fd();
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open while `target` is borrowed; a null siginfo makes the kernel fill in its own.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd, signo, no_info, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends SIGCONT to exactly this process if it is stopped; returns whether it did.
pub fn continue_if_stopped(pid: u32, start_time: u64) -> bool {
    let stopped = |stat: &Stat| stat.start_time == start_time && stat.state == 'T';
    let Some(stat) = proc::stat(pid).ok().filter(stopped) else { return false };
    target(&Member { pid, stat }).is_some_and(|held| signal(&held, libc::SIGCONT).is_ok())
}

/// Kills exactly this process; false if it has already exited.
pub fn kill_exactly(pid: u32, start_time: u64) -> io::Result<bool> {
    let Ok(stat) = proc::stat(pid) else { return Ok(false) };
    if stat.start_time != start_time {
        return Ok(false);
    }
    match try_target(&Member { pid, stat })? {
        Some(held) => signal(&held, libc::SIGKILL).map(|()| true),
        None => Ok(false),
    }
}

/// Sends these signals, in this order, to every living descendant of `root`. Finds all of them before it sends the first
/// signal, so that processes started by a signal handler, for example to clean up, are not signalled.
pub fn signal_descendants(root: u32, signals: &[i32]) -> Reach {
    let mut seen = SeenSet::default();
    seen.gather(&mut || descendants(root), |_| {});
    let mut reach = Reach::default();
    for member in &seen.members {
        reach.send(member, signals);
    }
    reach
}

/// Sends SIGSTOP to every living descendant of `root` that is not frozen, including those that appear during the call.
/// Frozen ones count as reached.
pub fn halt_descendants(root: u32, is_frozen: impl Fn(u32) -> bool) -> Reach {
    let mut reach = Reach::default();
    SeenSet::default().gather(&mut || descendants(root), |member| match is_frozen(member.pid) {
        true => reach.signalled.push(member.pid),
        false => reach.send(member, &[libc::SIGSTOP]),
    });
    reach
}

/// Kills every living descendant of `root`. Stops all of them first, so that a tree that forks cannot outrun the walk.
pub fn kill_descendants(root: u32) -> Reach {
    let mut stopped = HashSet::new();
    stop_then_kill(|| stopping_walk(root, &mut stopped)).1
}

/// Like [`descendants`], but sends SIGSTOP to each new process before it reads its children: a tree that forks as fast
/// as it is walked is stopped during the walk, not after it.
fn stopping_walk(root: u32, stopped: &mut HashSet<(u32, u64)>) -> Vec<Member> {
    let Ok(start) = proc::start_time(root) else { return Vec::new() };
    let (mut living, mut reach) = (Vec::new(), Reach::default());
    walk(root, start, |stat| {
        if stat.is_living() {
            let member = Member { pid: stat.pid, stat };
            if stopped.insert(member.stat.identity()) {
                reach.send(&member, &[libc::SIGSTOP]);
            }
            living.push(member);
        }
        if living.len() == MAX_MEMBERS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    living
}

/// Kills the whole process group that an unreaped child of ours leads, in one system call: no member can fork in
/// between. As long as the child is not reaped, no other group can get this number.
pub fn kill_group(leader: &Child) {
    let Some(group) = i32::try_from(leader.pid).ok().and_then(Pid::from_raw) else { return };
    // Errors do not matter: the group is empty, or a member belongs to another user, which the walk reports.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
}

/// Kills every process that `find` returns: SIGSTOP until it finds no new one, then SIGKILL to all, the last found first.
///
/// Children are killed before their parents, because the exit of a parent can orphan a stopped process group. The kernel
/// then sends SIGCONT to the group, and its members would run, and fork, once more.
pub(crate) fn stop_then_kill(mut find: impl FnMut() -> Vec<Member>) -> (Vec<Member>, Reach) {
    let mut seen = SeenSet::default();
    let mut reach = Reach::default();
    let mut ignored = Reach::default(); // a process that cannot be stopped cannot be killed either, and is reported then
    let complete = seen.gather(&mut find, |member| ignored.send(member, &[libc::SIGSTOP]));
    for member in seen.members.iter().rev() {
        reach.send(member, &[libc::SIGKILL]);
    }
    if !complete {
        seen.gather(&mut find, |member| reach.send(member, &[libc::SIGKILL]));
    }
    (seen.members, reach)
}

/// Every process found so far, in the order in which they were first found.
#[derive(Default)]
struct SeenSet {
    known: HashSet<(u32, u64)>,
    members: Vec<Member>,
}

impl SeenSet {
    /// Calls `find` until it returns no new process; false if it still did after [`MAX_WALKS`] calls.
    fn gather(&mut self, find: &mut impl FnMut() -> Vec<Member>, mut on_new: impl FnMut(&Member)) -> bool {
        let mut quiet = 0;
        for _ in 0..MAX_WALKS {
            let before = self.members.len();
            for member in find() {
                if self.known.insert(member.stat.identity()) {
                    on_new(&member);
                    self.members.push(member);
                }
            }
            quiet = if self.members.len() == before { quiet + 1 } else { 0 };
            if quiet == QUIET_WALKS {
                return true;
            }
        }
        false
    }
}

impl Reach {
    /// Opens one pidfd at a time, so that a tree larger than the descriptor limit is still reached.
    fn send(&mut self, member: &Member, signals: &[i32]) {
        let sent = try_target(member).and_then(|held| match held {
            Some(held) => signals.iter().try_for_each(|signo| signal(&held, *signo)).map(|()| true),
            None => Ok(false),
        });
        match sent {
            Ok(true) => self.signalled.push(member.pid),
            Ok(false) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => self.refused.push((member.pid, error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }
}

/// False for kernels without CONFIG_PROC_CHILDREN, and for sandboxes that emulate one.
fn kernel_lists_children() -> bool {
    static LISTS: OnceLock<bool> = OnceLock::new();
    *LISTS.get_or_init(|| std::fs::exists("/proc/thread-self/children").unwrap_or(false))
}

/// Children by parent, from one pass over `/proc`.
fn scan_children() -> HashMap<u32, Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for stat in proc::pids().unwrap_or_default().into_iter().filter_map(|pid| proc::stat(pid).ok()) {
        children.entry(stat.ppid).or_default().push(stat.pid);
    }
    children
}
