//! Slows down trees that fork faster than they can be walked, with RLIMIT_NPROC. The kernel does not apply it to root.
//!
//! RLIMIT_NPROC counts all tasks of a user, so it cannot be the limit of one tree. It is set to the number of the
//! user's other tasks, plus the tree's own limit, plus [`SLACK`]: high enough that only a tree beyond its own limit
//! reaches it, low enough that the walk that kills the tree can catch up.

use rustix::process::{Pid, Resource, Rlimit, getrlimit, getuid, prlimit};

use crate::proc;

/// How many tasks a tree can get beyond its limit before forks fail; also how many tasks the user can start elsewhere,
/// until the limit is set again, before a tree within its limit is refused a fork.
const SLACK: u64 = 512;

/// Sets RLIMIT_NPROC of these processes, which their children inherit. `own_tasks` is the number of tasks that the tree
/// has now, `max_tasks` the tree's limit.
pub fn limit_forks(pids: &[u32], own_tasks: u64, max_tasks: u64) {
    if getuid().is_root() || pids.is_empty() {
        return;
    }
    let others = tasks_of_user().saturating_sub(own_tasks);
    let ours = getrlimit(Resource::Nproc);
    let wanted = others + max_tasks + SLACK;
    let current = Some(ours.current.map_or(wanted, |allowed| allowed.min(wanted)));
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
        // If the pid was recycled, the limit lands on an unrelated process. prlimit only succeeds for the same user,
        // and never raises the limit above this process's own.
        let _ = prlimit(Some(pid), Resource::Nproc, Rlimit { current, maximum: ours.maximum });
    }
}

/// Number of processes and threads of the calling user.
fn tasks_of_user() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let uid = getuid().as_raw();
    let is_own = |pid: &u32| std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|entry| entry.uid() == uid);
    let own = proc::pids().unwrap_or_default().into_iter().filter(is_own);
    own.filter_map(|pid| proc::stat(pid).ok()).map(|stat| stat.threads).sum()
}
