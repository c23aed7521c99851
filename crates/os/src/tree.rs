//! The descendants of one process, and signals that reach all of them and nobody else.
//!
//! Owns the walk over parents and children and the rule that a signal goes through a pidfd whose process was
//! checked *after* the pidfd was opened: a recycled pid is never signalled. It does not wait, does not reap
//! and decides nothing about graces; the caller reaps and calls again until the tree is empty.
//!
//! A walk is not a snapshot. A process whose parent exits meanwhile moves to the nearest subreaper and may be
//! passed by (proc(5) promises a whole `children` list only for stopped children). So every operation walks
//! again until [`QUIET_WALKS`] walks in a row meet nobody new.

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

/// Most descendants one walk returns; those beyond are met by the next walk, once the first ones are gone.
pub const MAX_MEMBERS: usize = 32_768;
/// Most walks one operation makes before it answers with what it reached.
const MAX_ROUNDS: usize = 16;
/// Walks in a row that must meet nobody new before a tree counts as known.
const QUIET_WALKS: usize = 2;

/// One living process of a tree, as seen at the time of the walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Process id.
    pub pid: u32,
    /// What `/proc` said of it.
    pub stat: Stat,
}

/// One process held by a pidfd: it can be signalled and polled without ever meeting a successor of its pid.
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

/// Whom a signal reached, each once; a process that was gone by then is in neither list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// Pids to which the kernel delivered the signal.
    pub signalled: Vec<u32>,
    /// Pids for which it refused, with the errno (EPERM: another user's).
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

/// As [`descendants`], of exactly the process with this start time.
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

/// What a tree uses now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Living processes.
    pub pids: Vec<u32>,
    /// Their threads, the main ones included.
    pub threads: u64,
    /// Resident memory; what several share is counted for each.
    pub rss_bytes: u64,
    /// Processor time of those that live, and of those below them that ended.
    pub cpu: Duration,
}

impl TreeUsage {
    /// Memory with each shared page counted once over the tree, as far as the kernel tells; costs more.
    pub fn memory_bytes(&self) -> u64 {
        let held =
            |pid: &u32| proc::proportional_bytes(*pid).or_else(|_| proc::stat(*pid).map(|stat| stat.rss_bytes()));
        self.pids.iter().filter_map(|pid| held(pid).ok()).sum()
    }
}

/// What the descendants of `root` use. Looks no further once there are more than `most` threads: who asks that has
/// the answer. Ended children of `root` itself are left out: `root` has their usage when it waits for them.
pub fn usage_below(root: u32, most: Option<u64>) -> TreeUsage {
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
        let enough = most.is_some_and(|most| usage.threads > most) || usage.pids.len() == MAX_MEMBERS;
        if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    usage
}

/// Shows each descendant once, breadth first, zombies included, as long as `visit` wants more.
fn walk(root: u32, root_start: u64, mut visit: impl FnMut(Stat) -> ControlFlow<()>) {
    let scanned = (!kernel_lists_children()).then(scan_children);
    let children = |pid: u32| match &scanned {
        Some(map) => map.get(&pid).cloned().unwrap_or_default(),
        None => children_of(pid).unwrap_or_default(),
    };
    let mut met = HashSet::from([root]);
    let mut queue = VecDeque::from([(root, root_start)]);
    while let Some((parent, parent_start)) = queue.pop_front() {
        let listed = children(parent);
        // The list may be that of a successor to the pid, which is none of ours.
        if listed.is_empty() || proc::start_time(parent).ok() != Some(parent_start) {
            continue;
        }
        for pid in listed {
            let Ok(stat) = proc::stat(pid) else { continue };
            // A parent outside of the tree: moved away, or the pid is another process by now.
            let ours = stat.ppid == parent || met.contains(&stat.ppid);
            if !ours || !met.insert(pid) {
                continue;
            }
            queue.push_back(stat.identity());
            if visit(stat).is_break() {
                return;
            }
        }
    }
}

/// The calling process's own children, asked often and cheaply through one descriptor kept open.
///
/// For a single-threaded process: it sees the children of the thread that opened it, and must be opened
/// by the process that uses it, since a copy that came through fork still shows the parent's children.
#[derive(Debug)]
pub struct OwnChildren {
    /// `None` where the kernel has no `children` files: then `/proc` is scanned at each question.
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

    /// The children's pids, zombies included: only a reap takes a child off the list.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        let Some(list) = &self.list else {
            return Ok(scan_children().remove(&std::process::id()).unwrap_or_default());
        };
        let mut text = [0u8; 4096];
        let length = list.read_at(&mut text, 0)?;
        // The kernel gives whole entries: if another would have fitted, there is none.
        if length + ENTRY_MOST <= text.len() {
            return Ok(parse_pids(&text[..length]));
        }
        // More children than that are read without this bound.
        children_of(std::process::id())
    }
}

/// A pid of ten digits and a space.
const ENTRY_MOST: usize = 11;

fn parse_pids(text: &[u8]) -> Vec<u32> {
    let entries = text.split(|&byte| byte == b' ');
    entries.filter_map(|entry| std::str::from_utf8(entry).ok()?.trim().parse().ok()).collect()
}

/// Holds a member by pidfd, or `None` if it is gone or its pid now belongs to another process.
pub fn target(member: &Member) -> Option<Target> {
    try_target(member).ok().flatten()
}

/// As [`target`], telling "gone" from "no descriptor to be had".
pub(crate) fn try_target(member: &Member) -> io::Result<Option<Target>> {
    let Some(pid) = i32::try_from(member.pid).ok().and_then(Pid::from_raw) else {
        return Ok(None);
    };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    // Read after the open: if the pid still has that start time, the pidfd can only be of that process.
    let start_time = member.stat.start_time;
    let same = proc::start_time(member.pid).is_ok_and(|now| now == start_time);
    Ok(same.then_some(Target { pidfd, pid: member.pid, start_time }))
}

/// Sends a signal by number, realtime ones included, to exactly this process.
pub fn signal(target: &Target, signo: i32) -> io::Result<()> {
    let pidfd = target.pidfd.as_raw_fd();
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open while `target` is borrowed; a null siginfo makes the kernel fill in its own.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd, signo, no_info, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Continues exactly this process if a signal has stopped it; says whether it did.
pub fn continue_if_stopped(pid: u32, start_time: u64) -> bool {
    let stopped = |stat: &Stat| stat.start_time == start_time && stat.state == 'T';
    let Some(stat) = proc::stat(pid).ok().filter(stopped) else { return false };
    target(&Member { pid, stat }).is_some_and(|held| signal(&held, libc::SIGCONT).is_ok())
}

/// Kills exactly this process; false if it is gone.
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

/// Sends these signals, in this order, to every descendant of `root` that lives now. Whom a handler starts in
/// answer is spared: a program may clean up with programs of its own.
pub fn signal_descendants(root: u32, signals: &[i32]) -> Reach {
    let mut crowd = Crowd::default();
    crowd.gather(&mut || descendants(root), |_| {});
    let mut reach = Reach::default();
    for member in &crowd.members {
        reach.send(member, signals);
    }
    reach
}

/// Stops every living descendant of `root` that is not frozen, those that appear meanwhile too. The frozen ones count as
/// reached.
pub fn halt_descendants(root: u32, is_frozen: impl Fn(u32) -> bool) -> Reach {
    let mut reach = Reach::default();
    Crowd::default().gather(&mut || descendants(root), |member| match is_frozen(member.pid) {
        true => reach.signalled.push(member.pid),
        false => reach.send(member, &[libc::SIGSTOP]),
    });
    reach
}

/// Stops, then kills every living descendant of `root`, so that a forking tree cannot outrun the walk.
pub fn kill_descendants(root: u32) -> Reach {
    let mut halted = HashSet::new();
    stop_then_kill(|| halt_walk(root, &mut halted)).1
}

/// As [`descendants`], stopping each whom no walk met before it is asked for its children: a tree that forks as fast as
/// it is walked comes to a halt with the walk, and not after it.
fn halt_walk(root: u32, halted: &mut HashSet<(u32, u64)>) -> Vec<Member> {
    let Ok(start) = proc::start_time(root) else { return Vec::new() };
    let (mut living, mut reach) = (Vec::new(), Reach::default());
    walk(root, start, |stat| {
        if stat.is_living() {
            let member = Member { pid: stat.pid, stat };
            if halted.insert(member.stat.identity()) {
                reach.send(&member, &[libc::SIGSTOP]);
            }
            living.push(member);
        }
        if living.len() == MAX_MEMBERS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    living
}

/// Kills the whole process group that an unreaped child of ours leads, in one step of the kernel: nobody in it forks
/// on meanwhile, however fast. The child keeps the group's number from being another's.
pub fn kill_group(leader: &Child) {
    let Some(group) = i32::try_from(leader.pid).ok().and_then(Pid::from_raw) else { return };
    // A group that is empty has nobody to kill; whoever is another user's, the walk reports.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
}

/// Kills whomever `find` finds: SIGSTOP until it finds nobody new, then SIGKILL to all, the latest found first.
///
/// Children die before their parents because the end of a parent can orphan a stopped process group, which
/// the kernel then continues: it would run, and fork, once more.
pub(crate) fn stop_then_kill(mut find: impl FnMut() -> Vec<Member>) -> (Vec<Member>, Reach) {
    let mut crowd = Crowd::default();
    let mut reach = Reach::default();
    let mut ignored = Reach::default(); // who refuses SIGSTOP refuses SIGKILL too, and is reported then
    let settled = crowd.gather(&mut find, |member| ignored.send(member, &[libc::SIGSTOP]));
    for member in crowd.members.iter().rev() {
        reach.send(member, &[libc::SIGKILL]);
    }
    if !settled {
        crowd.gather(&mut find, |member| reach.send(member, &[libc::SIGKILL]));
    }
    (crowd.members, reach)
}

/// Everybody met so far, in the order of the first meeting.
#[derive(Default)]
struct Crowd {
    known: HashSet<(u32, u64)>,
    members: Vec<Member>,
}

impl Crowd {
    /// Walks until nobody new is met, or [`MAX_ROUNDS`] times; says which.
    fn gather(&mut self, find: &mut impl FnMut() -> Vec<Member>, mut meet: impl FnMut(&Member)) -> bool {
        let mut quiet = 0;
        for _ in 0..MAX_ROUNDS {
            let before = self.members.len();
            for member in find() {
                if self.known.insert(member.stat.identity()) {
                    meet(&member);
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
    /// One pidfd at a time: a tree larger than the limit on descriptors is still reached.
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

/// Kernels without CONFIG_PROC_CHILDREN, and sandboxes that imitate one, have no `children` files.
fn kernel_lists_children() -> bool {
    static LISTS: OnceLock<bool> = OnceLock::new();
    *LISTS.get_or_init(|| std::fs::exists("/proc/thread-self/children").unwrap_or(false))
}

/// Parent to children, by one pass over all of `/proc`.
fn scan_children() -> HashMap<u32, Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for stat in proc::pids().unwrap_or_default().into_iter().filter_map(|pid| proc::stat(pid).ok()) {
        children.entry(stat.ppid).or_default().push(stat.pid);
    }
    children
}
