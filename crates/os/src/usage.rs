//! What many trees use now, measured together.
//!
//! A few trees are walked one by one. For many, one pass over `/proc` is cheaper: a walk reads four files per process, a
//! pass reads one, though also those of unrelated processes.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use crate::proc::{self, Stat};
use crate::tree;

/// Up to this many trees are walked one by one.
const MAX_WALKED: usize = 16;

/// What one tree uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeLoad {
    /// CPU time for comparing two measurements of the same root: it never decreases, because it includes what the root has
    /// reaped so far, for this tree or an earlier one.
    pub cpu_total: Duration,
    /// CPU time of the living processes, and of their descendants that have exited.
    pub cpu_living: Duration,
    /// Sum of the resident memory; shared pages are counted once per process.
    pub rss_bytes: u64,
    /// The largest resident memory of one process.
    pub max_rss_bytes: u64,
    /// Living processes.
    pub processes: u32,
}

impl TreeLoad {
    fn add(&mut self, stat: &Stat) {
        let cpu = stat.cpu_with_waited();
        self.cpu_total += cpu;
        if stat.is_living() {
            self.cpu_living += cpu;
            self.rss_bytes += stat.rss_bytes();
            self.max_rss_bytes = self.max_rss_bytes.max(stat.rss_bytes());
            self.processes += 1;
        }
    }
}

/// Measures the descendants of each root, given by pid and start time; the root itself is left out. `None` for a root that
/// no longer exists.
pub fn measure_trees(roots: &[(u32, u64)]) -> Vec<Option<TreeLoad>> {
    match roots.len() <= MAX_WALKED {
        true => roots.iter().map(|root| measure_by_walk(*root)).collect(),
        false => measure_by_pass(roots),
    }
}

fn measure_by_walk((pid, start_time): (u32, u64)) -> Option<TreeLoad> {
    let root = proc::stat(pid).ok().filter(|stat| stat.start_time == start_time)?;
    let mut load = TreeLoad { cpu_total: waited(&root), ..TreeLoad::default() };
    tree::walk(pid, start_time, |stat| {
        load.add(&stat);
        ControlFlow::Continue(())
    });
    Some(load)
}

fn measure_by_pass(roots: &[(u32, u64)]) -> Vec<Option<TreeLoad>> {
    let stats = proc::pids().unwrap_or_default().into_iter().filter_map(|pid| proc::stat(pid).ok());
    let stats: HashMap<u32, Stat> = stats.map(|stat| (stat.pid, stat)).collect();
    let mut children: HashMap<u32, Vec<u32>> = HashMap::with_capacity(stats.len());
    for stat in stats.values() {
        children.entry(stat.ppid).or_default().push(stat.pid);
    }
    let measure = |(pid, start_time): &(u32, u64)| {
        let root = stats.get(pid).filter(|stat| stat.start_time == *start_time)?;
        let mut load = TreeLoad { cpu_total: waited(root), ..TreeLoad::default() };
        // Pids recycled during the pass could make a loop.
        let mut seen = HashSet::from([*pid]);
        let mut queue = vec![*pid];
        while let Some(parent) = queue.pop() {
            for child in children.get(&parent).into_iter().flatten().filter(|child| seen.insert(**child)) {
                if let Some(stat) = stats.get(child) {
                    load.add(stat);
                    queue.push(*child);
                }
            }
        }
        Some(load)
    };
    roots.iter().map(measure).collect()
}

/// CPU time of the descendants that a process has reaped.
fn waited(stat: &Stat) -> Duration {
    stat.cpu_with_waited().saturating_sub(Duration::from_millis(stat.cpu_ms()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_walk_and_a_pass_over_all_processes_find_the_same_tree() {
        let own = std::process::id();
        let mut shell = Command::new("sh").args(["-c", "sleep 60 & sleep 60 & wait"]).spawn().unwrap();
        let root = (shell.id(), proc::start_time(shell.id()).unwrap());
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        // A child that has not executed its program yet has no memory of its own.
        let is_complete = |load: &TreeLoad| load.processes == 2 && load.max_rss_bytes > 0;
        while !measure_by_walk(root).as_ref().is_some_and(is_complete) && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (walked, passed) = (measure_by_walk(root), measure_by_pass(&[root]));
        let gone = (root.0, root.1 + 1);
        let (none, neither) = (measure_by_walk(gone), measure_by_pass(&[gone, (own, 0)]));
        for child in tree::children_of(root.0).unwrap() {
            tree::kill_exactly(child, proc::start_time(child).unwrap()).unwrap();
        }
        shell.wait().unwrap();
        let walked = walked.unwrap();
        assert_eq!(walked.processes, 2);
        assert!(walked.rss_bytes >= walked.max_rss_bytes && walked.max_rss_bytes > 0, "{walked:?}");
        assert_eq!(passed[0].as_ref().map(|load| load.processes), Some(2));
        assert_eq!((none, neither), (None, vec![None, None]));
    }
}
