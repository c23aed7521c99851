//! Kills what is left of a process tree whose keeper died, when no ancestor is left to walk down from.
//!
//! Owns the search by environment mark and the loop that kills what it finds. It only touches processes that carry the
//! mark, descend from one that does, or are in the given cgroup; never the calling process. It cannot find a process
//! that was started with an empty environment, whose marked ancestors are gone, and that is in no cgroup. That is why
//! pinfold uses a cgroup wherever it can make one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cgroup::Cgroup;
use crate::proc;
use crate::tree::{self, Member, Target};

/// Consecutive scans that must find no process before the sweep is done: a single scan can miss one that is in the
/// middle of a fork or exec.
const QUIET_SCANS: usize = 2;
/// Maximum wait for processes to exit between two scans.
const SCAN_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of processes waited for at once, to stay far from the descriptor limit; the next scan finds the rest.
const MAX_WAITED: usize = 128;
/// Maximum duration of a sweep; a longer deadline is cut to this.
const MAX_SWEEP: Duration = Duration::from_secs(3600);

/// The result of a sweep: pid and command line of each process found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Found alive, dead now.
    pub killed: Vec<(u32, String)>,
    /// Still alive: owned by another user, or stuck in the kernel.
    pub survivors: Vec<(u32, String)>,
}

/// What a dead keeper may have left behind: processes with this mark (an exact `NAME=VALUE` in their environment), and
/// processes in this cgroup.
#[derive(Debug, Clone, Copy)]
pub struct Remains<'a> {
    pub mark: &'a [u8],
    pub cgroup: Option<&'a Cgroup>,
}

/// For each of `all`, kills every process that carries the mark, their descendants, and every process in the cgroup.
/// Returns when none is left, when only processes are left that we may not kill, or at the deadline. Each scan reads
/// `/proc` only once, for all of them. Results are in the order of `all`.
pub fn sweep_all(all: &[Remains<'_>], deadline: Duration) -> Vec<Swept> {
    let end = Instant::now() + deadline.min(MAX_SWEEP);
    let marks = Marks::new(all);
    let mut seen: Vec<SeenProcesses> = all.iter().map(|_| SeenProcesses::default()).collect();
    let mut refused = HashSet::new();
    let mut quiet = 0;
    loop {
        let killed = |(remains, seen): (&Remains<'_>, &mut SeenProcesses)| {
            remains.cgroup.map(|group| kill_cgroup(group, seen)).unwrap_or_default()
        };
        let in_cgroups: Vec<CgroupMembers> = all.iter().zip(&mut seen).map(killed).collect();
        let (found, reach) = tree::stop_then_kill(|| {
            let mut found = Vec::new();
            for (index, member) in marks.find_with_descendants() {
                seen[index].add(std::slice::from_ref(&member));
                found.push(member);
            }
            for (members, seen) in in_cgroups.iter().zip(&mut seen) {
                seen.add(&members.to_signal);
                found.extend(members.to_signal.iter().cloned());
            }
            found
        });
        refused.extend(reach.refused.into_iter().map(|(pid, _)| pid));
        let killed_by_kernel = in_cgroups.iter().flat_map(|members| members.killed_by_kernel.iter().cloned());
        let awaited = found.into_iter().chain(killed_by_kernel);
        let awaited: Vec<Member> = awaited.filter(|member| !refused.contains(&member.pid)).collect();
        let populated = in_cgroups.iter().position(|members| members.populated);
        quiet = if awaited.is_empty() && populated.is_none() { quiet + 1 } else { 0 };
        if quiet == QUIET_SCANS || Instant::now() >= end {
            return seen.into_iter().map(SeenProcesses::into_swept).collect();
        }
        wait_for_exits(&awaited, end);
        if let Some(group) = populated.and_then(|index| all[index].cgroup) {
            let _ = group.wait_empty(SCAN_INTERVAL);
        }
    }
}

/// The marks to search for, each with its index among the remains.
struct Marks<'a>(HashMap<&'a [u8], usize>);

impl<'a> Marks<'a> {
    fn new(all: &[Remains<'a>]) -> Self {
        // An entry without a variable name would match unrelated processes.
        let is_valid = |mark: &[u8]| mark.iter().skip(1).any(|&byte| byte == b'=') && !mark.contains(&0);
        let marks = all.iter().enumerate().map(|(index, remains)| (remains.mark, index));
        Self(marks.filter(|(mark, _)| is_valid(mark)).collect())
    }

    fn find_marked(&self) -> Vec<(usize, Member)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        proc::pids().unwrap_or_default().into_iter().filter_map(|pid| self.observe(pid)).collect()
    }

    fn observe(&self, pid: u32) -> Option<(usize, Member)> {
        if pid == std::process::id() {
            return None;
        }
        let index = || proc::environ_find(pid, |entry| self.0.get(entry).copied()).ok().flatten();
        let before = index()?;
        // Read the mark again after the stat, so that mark and start time belong to the same process: the kernel hands
        // out pids in sequence, so the pid cannot change to another process and back in between.
        let stat = proc::stat(pid).ok().filter(proc::Stat::is_living)?;
        (index() == Some(before)).then_some((before, Member { pid, stat }))
    }

    /// The marked processes and their descendants, each once. The caller's own descendants count only if marked.
    fn find_with_descendants(&self) -> Vec<(usize, Member)> {
        let mut found = self.find_marked();
        let mut known: HashSet<u32> = found.iter().map(|(_, member)| member.pid).collect();
        known.insert(std::process::id());
        for (index, root) in found.clone() {
            let below = tree::descendants_of(root.pid, root.stat.start_time);
            if below.iter().any(|member| member.pid == std::process::id()) {
                // The caller itself was started inside this tree: spare the processes that the caller started.
                known.extend(tree::descendants(std::process::id()).iter().map(|member| member.pid));
            }
            let new = below.into_iter().filter(|member| known.insert(member.pid));
            found.extend(new.map(|member| (index, member)));
        }
        found
    }
}

/// The members of a cgroup, by how they are killed.
#[derive(Default)]
struct CgroupMembers {
    /// By the `cgroup.kill` that was already written.
    killed_by_kernel: Vec<Member>,
    /// One by one, because `cgroup.kill` failed or would kill the caller too.
    to_signal: Vec<Member>,
    /// `cgroup.kill` was written and the cgroup is not empty yet.
    populated: bool,
}

fn kill_cgroup(group: &Cgroup, seen: &mut SeenProcesses) -> CgroupMembers {
    let members = observe_members(group);
    seen.add(&members);
    let caller_is_outside = group.members().is_ok_and(|pids| !pids.contains(&std::process::id()));
    if caller_is_outside && group.kill().is_ok() {
        let populated = group.is_populated().unwrap_or(false);
        return CgroupMembers { killed_by_kernel: members, to_signal: Vec::new(), populated };
    }
    CgroupMembers { killed_by_kernel: Vec::new(), to_signal: members, populated: false }
}

/// The living members without the caller. Lists them twice, before and after reading their stat, so that a recycled pid
/// is not taken for a member.
fn observe_members(group: &Cgroup) -> Vec<Member> {
    let listed = group.members().unwrap_or_default();
    let stats = listed.into_iter().filter_map(|pid| proc::stat(pid).ok()).filter(proc::Stat::is_living);
    let seen: Vec<Member> = stats.map(|stat| Member { pid: stat.pid, stat }).collect();
    let still: HashSet<u32> = group.members().unwrap_or_default().into_iter().collect();
    let own = std::process::id();
    seen.into_iter().filter(|member| member.pid != own && still.contains(&member.pid)).collect()
}

/// Every process found so far, with the command line that was read while it lived.
#[derive(Default)]
struct SeenProcesses(BTreeMap<(u32, u64), String>);

impl SeenProcesses {
    fn add(&mut self, members: &[Member]) {
        for member in members {
            let read = || proc::command_line(member.pid).unwrap_or_else(|_| format!("[{}]", member.stat.comm));
            self.0.entry(member.stat.identity()).or_insert_with(read);
        }
    }

    fn into_swept(self) -> Swept {
        let mut swept = Swept::default();
        for ((pid, start_time), command) in self.0 {
            let alive = proc::stat(pid).is_ok_and(|stat| stat.start_time == start_time && stat.is_living());
            let list = if alive { &mut swept.survivors } else { &mut swept.killed };
            list.push((pid, command));
        }
        swept
    }
}

/// Returns when all of them have exited, after [`SCAN_INTERVAL`], or at `end`, whichever comes first.
fn wait_for_exits(members: &[Member], end: Instant) {
    let end = end.min(Instant::now() + SCAN_INTERVAL);
    let mut targets: Vec<Target> = members.iter().take(MAX_WAITED).filter_map(tree::target).collect();
    while !targets.is_empty() {
        let remaining = end.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return;
        }
        let mut polled: Vec<PollFd<'_>> = targets.iter().map(|target| PollFd::new(target, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: remaining.as_secs() as i64, tv_nsec: i64::from(remaining.subsec_nanos()) };
        let _ = poll(&mut polled, Some(&timeout));
        let exited: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        let mut exited = exited.into_iter();
        targets.retain(|_| !exited.next().unwrap_or(false));
    }
}
