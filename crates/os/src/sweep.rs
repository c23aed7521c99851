//! Ending the remains of a process whose keeper died, when no parent is left that could walk to them.
//!
//! Owns the search by environment mark and the loop that ends what it finds. It never touches a process that
//! neither carries the mark, nor descends from one that does, nor is in the given cgroup; and never its own
//! caller. What cannot be found this way: a process started with a wiped environment whose marked ancestors
//! are gone, outside of any cgroup; that is why there is a cgroup wherever one can be made.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cgroup::Cgroup;
use crate::proc;
use crate::tree::{self, Member, Target};

/// Scans in a row that must find nobody before all counts as ended: one may pass a fork or exec in flight by.
const QUIET_SCANS: usize = 2;
/// Longest wait for ends between two scans.
const BETWEEN_SCANS: Duration = Duration::from_millis(10);
/// Most processes waited for at once, to stay far from the limit on descriptors; the next scan meets the rest.
const MAX_WAITED: usize = 128;
/// Longest sweep; a later deadline is cut to this.
const LONGEST_SWEEP: Duration = Duration::from_secs(3600);

/// Who was ended and who was not, each with its pid and command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Found alive, dead now.
    pub killed: Vec<(u32, String)>,
    /// Still alive: another user's, or stuck in the kernel.
    pub survivors: Vec<(u32, String)>,
}

/// What a dead keeper may have left: who carries the mark (an exact `NAME=VALUE` of the environment), and who is in the
/// cgroup.
#[derive(Debug, Clone, Copy)]
pub struct Remains<'a> {
    pub mark: &'a [u8],
    pub cgroup: Option<&'a Cgroup>,
}

/// Kills all that carry `mark` (an exact `NAME=VALUE` of the environment) or descend from one that does,
/// and all in `cgroup`; returns when none is left, or only such as may not be killed, or at the deadline.
pub fn sweep(mark: &[u8], cgroup: Option<&Cgroup>, deadline: Duration) -> Swept {
    sweep_all(&[Remains { mark, cgroup }], deadline).pop().unwrap_or_default()
}

/// Does the same for many at once: each scan reads `/proc` once, however many there are. Answers in their order.
pub fn sweep_all(all: &[Remains<'_>], deadline: Duration) -> Vec<Swept> {
    let end = Instant::now() + deadline.min(LONGEST_SWEEP);
    let marks = Marks::new(all);
    let mut met: Vec<Met> = all.iter().map(|_| Met::default()).collect();
    let mut refused = HashSet::new();
    let mut quiet = 0;
    loop {
        let killed = |(remains, met): (&Remains<'_>, &mut Met)| {
            remains.cgroup.map(|group| kill_contained(group, met)).unwrap_or_default()
        };
        let contained: Vec<Contained> = all.iter().zip(&mut met).map(killed).collect();
        let (found, reach) = tree::stop_then_kill(|| {
            let mut found = Vec::new();
            for (place, member) in marks.find_families() {
                met[place].note(std::slice::from_ref(&member));
                found.push(member);
            }
            for (contained, met) in contained.iter().zip(&mut met) {
                met.note(&contained.by_hand);
                found.extend(contained.by_hand.iter().cloned());
            }
            found
        });
        refused.extend(reach.refused.into_iter().map(|(pid, _)| pid));
        let by_kernel = contained.iter().flat_map(|contained| contained.by_kernel.iter().cloned());
        let awaited = found.into_iter().chain(by_kernel);
        let awaited: Vec<Member> = awaited.filter(|member| !refused.contains(&member.pid)).collect();
        let populated = contained.iter().position(|contained| contained.populated);
        quiet = if awaited.is_empty() && populated.is_none() { quiet + 1 } else { 0 };
        if quiet == QUIET_SCANS || Instant::now() >= end {
            return met.into_iter().map(Met::judge).collect();
        }
        wait_for_ends(&awaited, end);
        if let Some(group) = populated.and_then(|place| all[place].cgroup) {
            let _ = group.wait_empty(BETWEEN_SCANS);
        }
    }
}

/// The living processes whose environment holds exactly this `NAME=VALUE`, without the calling process.
pub fn find_marked(mark: &[u8]) -> Vec<Member> {
    let marks = Marks::new(&[Remains { mark, cgroup: None }]);
    marks.find_marked().into_iter().map(|(_, member)| member).collect()
}

/// The marks that are looked for, each with its place among the remains.
struct Marks<'a>(HashMap<&'a [u8], usize>);

impl<'a> Marks<'a> {
    fn new(all: &[Remains<'a>]) -> Self {
        // A mark without a name would match what it should not.
        let is_proper = |mark: &[u8]| mark.iter().skip(1).any(|&byte| byte == b'=') && !mark.contains(&0);
        let marks = all.iter().enumerate().map(|(place, remains)| (remains.mark, place));
        Self(marks.filter(|(mark, _)| is_proper(mark)).collect())
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
        let place = || proc::environ_find(pid, |held| self.0.get(held).copied()).ok().flatten();
        let before = place()?;
        // Asked again after the stat, so that mark and start time belong to one and the same process:
        // pids are handed out in turn, so it cannot change there and back.
        let stat = proc::stat(pid).ok().filter(proc::Stat::is_living)?;
        (place() == Some(before)).then_some((before, Member { pid, stat }))
    }

    /// The marked and their descendants, each once. The caller's own descendants count only if marked.
    fn find_families(&self) -> Vec<(usize, Member)> {
        let mut family = self.find_marked();
        let mut known: HashSet<u32> = family.iter().map(|(_, member)| member.pid).collect();
        known.insert(std::process::id());
        for (place, root) in family.clone() {
            let below = tree::descendants_of(root.pid, root.stat.start_time);
            if below.iter().any(|member| member.pid == std::process::id()) {
                // The caller was itself started in there: what it started is not of the remains.
                known.extend(tree::descendants(std::process::id()).iter().map(|member| member.pid));
            }
            let new = below.into_iter().filter(|member| known.insert(member.pid));
            family.extend(new.map(|member| (place, member)));
        }
        family
    }
}

/// What is in the cgroup, by the way it has to end.
#[derive(Default)]
struct Contained {
    by_kernel: Vec<Member>,
    by_hand: Vec<Member>,
    /// The kernel was asked to kill all of it, and has not yet.
    populated: bool,
}

fn kill_contained(group: &Cgroup, met: &mut Met) -> Contained {
    let members = observe_members(group);
    met.note(&members);
    let caller_is_out = group.members().is_ok_and(|pids| !pids.contains(&std::process::id()));
    if caller_is_out && group.kill().is_ok() {
        let populated = group.is_populated().unwrap_or(false);
        return Contained { by_kernel: members, by_hand: Vec::new(), populated };
    }
    Contained { by_kernel: Vec::new(), by_hand: members, populated: false }
}

/// The living members without the caller; listed before and after, so that no recycled pid slips in.
fn observe_members(group: &Cgroup) -> Vec<Member> {
    let listed = group.members().unwrap_or_default();
    let stats = listed.into_iter().filter_map(|pid| proc::stat(pid).ok()).filter(proc::Stat::is_living);
    let seen: Vec<Member> = stats.map(|stat| Member { pid: stat.pid, stat }).collect();
    let still: HashSet<u32> = group.members().unwrap_or_default().into_iter().collect();
    let own = std::process::id();
    seen.into_iter().filter(|member| member.pid != own && still.contains(&member.pid)).collect()
}

/// Everybody found so far, with the command line read while it lived.
#[derive(Default)]
struct Met(BTreeMap<(u32, u64), String>);

impl Met {
    fn note(&mut self, members: &[Member]) {
        for member in members {
            let read = || proc::command_line(member.pid).unwrap_or_else(|_| format!("[{}]", member.stat.comm));
            self.0.entry(member.stat.identity()).or_insert_with(read);
        }
    }

    fn judge(self) -> Swept {
        let mut swept = Swept::default();
        for ((pid, start_time), command) in self.0 {
            let alive = proc::stat(pid).is_ok_and(|stat| stat.start_time == start_time && stat.is_living());
            let list = if alive { &mut swept.survivors } else { &mut swept.killed };
            list.push((pid, command));
        }
        swept
    }
}

/// Returns when all of them have ended, or after [`BETWEEN_SCANS`], or at the end.
fn wait_for_ends(members: &[Member], end: Instant) {
    let end = end.min(Instant::now() + BETWEEN_SCANS);
    let mut targets: Vec<Target> = members.iter().take(MAX_WAITED).filter_map(tree::target).collect();
    while !targets.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let mut polled: Vec<PollFd<'_>> = targets.iter().map(|held| PollFd::new(held, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let _ = poll(&mut polled, Some(&timeout));
        let ended: Vec<bool> = polled.iter().map(|held| !held.revents().is_empty()).collect();
        let mut ended = ended.into_iter();
        targets.retain(|_| !ended.next().unwrap_or(false));
    }
}
