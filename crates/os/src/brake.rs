//! A brake on trees that fork faster than they can be walked, for users whom the kernel holds to RLIMIT_NPROC.
//!
//! That limit counts all tasks of a user, so it cannot be the limit of one tree. It is set to what the user's other
//! tasks take, and the tree's own limit, and some more: far enough to be met by nobody but a tree that is already
//! beyond its limit, near enough for the walk to win. Root is not held to it.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, getuid, prlimit};

use crate::proc;

/// How many tasks more than it should have a tree can get, if nobody stops it; and how many the user can start
/// elsewhere before the next look without the tree being refused one.
const SLACK: u64 = 512;

/// Lets these processes, and whatever they start, fork only until the user has this many tasks more than now are
/// outside of the tree.
pub fn brake_forks(pids: &[u32], own_tasks: u64, most: u64) {
    if getuid().is_root() || pids.is_empty() {
        return;
    }
    let others = tasks_of_user().saturating_sub(own_tasks);
    let ours = getrlimit(Resource::Nproc);
    let wanted = others + most + SLACK;
    let current = Some(ours.current.map_or(wanted, |allowed| allowed.min(wanted)));
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
        // The pid may be another's by now: of the same user then, who is only held to what holds here.
        let _ = prlimit(Some(pid), Resource::Nproc, Rlimit { current, maximum: ours.maximum });
    }
}

/// Processes and threads of the calling user.
fn tasks_of_user() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let uid = getuid().as_raw();
    let is_own = |pid: &u32| std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|entry| entry.uid() == uid);
    let own = proc::pids().unwrap_or_default().into_iter().filter(is_own);
    own.filter_map(|pid| proc::stat(pid).ok()).map(|stat| stat.threads).sum()
}
