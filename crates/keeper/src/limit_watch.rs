//! Resource limits of one tree: the cgroups that enforce them, and polling for limits that no controller enforces.
//!
//! Only a process with limits has a [`LimitWatch`].
//!
//! A polled limit can be exceeded until the next poll; a controller enforces at once. Polling a large tree costs
//! more, so it is done less often.

use std::time::{Duration, Instant};

use pinfold_model::limits::{Reading, TreeLimits};
use pinfold_model::link::LimitPlace;
use pinfold_model::outcome::Cause;
use pinfold_os::cgroup::Cgroup;
use pinfold_os::controllers::{Bounds, Controller, Limited, Place, Version};
use pinfold_os::spawn::Child;
use pinfold_os::{daemonize, fork_limit, tree};

/// Bounds of the time between two polls of a tree.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// After a poll, wait at least this many times as long as it took.
const COST_FACTOR: u32 = 20;
/// How often the controllers' counters are read.
const COUNTER_INTERVAL: Duration = Duration::from_millis(100);
/// How often the fork limit (RLIMIT_NPROC) is set again: the user's other tasks count towards it, too.
const FORK_LIMIT_INTERVAL: Duration = Duration::from_secs(2);
/// The longest time between two polls of processor time.
const CPU_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct LimitWatch {
    limits: TreeLimits,
    limited: Limited,
    /// Processor time that the cgroup had used before this tree started, if there is a cgroup.
    cpu_before: Option<Duration>,
    /// OOM kills: the count at the last poll, and the count already reported.
    kills_seen: u64,
    kills_reported: u64,
    next_poll: Instant,
    forks_limited_at: Instant,
}

impl LimitWatch {
    /// Creates the cgroups for a tree that is about to start. Limits without a controller are polled.
    pub(crate) fn prepare(
        limits: TreeLimits,
        places: &[LimitPlace],
        leaf: &str,
        keeper_cgroup: Option<&Cgroup>,
    ) -> Result<Self, String> {
        let bounds = Bounds { memory_bytes: limits.memory, pids: limits.pids, millicpus: limits.millicpus };
        let places: Vec<Place> = places.iter().filter_map(parse_place).collect();
        let limited = Limited::make(&places, leaf, &bounds);
        let cpu_before = match limited.v2() {
            Some(_) => Some(Duration::ZERO),
            // A reused cgroup continues to count.
            None => keeper_cgroup.filter(|_| limits.cpu_time.is_some()).and_then(|cgroup| cgroup.cpu_time().ok()),
        };
        let now = Instant::now();
        let (next_poll, forks_limited_at) = (now + MIN_POLL_INTERVAL, now);
        let watch = Self { limits, limited, cpu_before, kills_seen: 0, kills_reported: 0, next_poll, forks_limited_at };
        if limits.millicpus.is_some() && !watch.limited.enforces(Controller::Cpu) {
            watch.remove();
            return Err("`cpus` cannot be enforced: the cpu controller refuses it; start it without `cpus`".to_owned());
        }
        Ok(watch)
    }

    /// The cgroup for the tree, if limits need one.
    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        self.limited.v2()
    }

    pub(crate) fn limited(&self) -> &Limited {
        &self.limited
    }

    pub(crate) fn tree_started(&mut self, leader: &Child) {
        self.limited.entered();
        if let Some(max) = self.limits.pids.filter(|_| self.accounts(Controller::Pids)) {
            fork_limit::limit_forks(&[leader.pid], 1, u64::from(max));
        }
    }

    pub(crate) fn next_poll(&self) -> Instant {
        self.next_poll
    }

    /// Measures what the tree uses, and returns the limit it reached. `reaped` is the processor time of the children
    /// reaped so far.
    pub(crate) fn poll(&mut self, keeper_cgroup: Option<&Cgroup>, reaped: Duration) -> Option<Cause> {
        let started = Instant::now();
        let cgroup = self.limited.v2().or(keeper_cgroup).filter(|_| self.limits.cpu_time.is_some());
        let by_walk = self.accounts(Controller::Memory) || self.accounts(Controller::Pids);
        let by_cpu_time = self.limits.cpu_time.is_some();
        let cpu_time = self.cpu_before.zip(cgroup.and_then(|cgroup| cgroup.cpu_time().ok()));
        let mut reading = Reading {
            refused_forks: self.limited.refused_forks(),
            cpu_time: cpu_time.map(|(before, now)| now.saturating_sub(before)),
            ..Reading::default()
        };
        let mut rest = Duration::ZERO;
        if by_walk || by_cpu_time {
            self.walk(&mut reading, reaped);
            rest = (started.elapsed() * COST_FACTOR).min(MAX_POLL_INTERVAL);
        }
        let wait = match by_walk {
            true => rest.max(MIN_POLL_INTERVAL),
            false if self.limits.memory.is_some() || self.limits.pids.is_some() => COUNTER_INTERVAL,
            false => CPU_INTERVAL,
        };
        self.next_poll = Instant::now() + wait.min(self.time_to_cpu_limit(reading.cpu_time)).max(rest);
        self.limits.reached(&reading)
    }

    /// Whether an OOM kill is to be reported that was not the leader's end. The kernel counts a kill just before it
    /// delivers the signal, so a new count is reported at the next poll.
    pub(crate) fn has_oom_kill(&mut self, leader_is_dying: impl FnOnce() -> bool) -> bool {
        let seen = self.limited.oom_kills();
        let due = self.kills_seen > self.kills_reported && !leader_is_dying();
        if due {
            self.kills_reported = self.kills_seen;
        }
        self.kills_seen = seen;
        due
    }

    /// Whether there were OOM kills since the last report; counts them as reported.
    pub(crate) fn take_oom_kills(&mut self) -> bool {
        self.kills_seen = self.limited.oom_kills();
        let more = self.kills_seen > self.kills_reported;
        self.kills_reported = self.kills_seen;
        more
    }

    /// Whether a controller refused the tree a process or thread.
    pub(crate) fn was_refused_forks(&self) -> bool {
        self.limited.refused_forks() > 0
    }

    /// Removes the cgroups, after the tree has ended.
    pub(crate) fn remove(&self) {
        self.limited.remove();
    }

    /// Whether this limit is polled because no controller enforces it.
    fn accounts(&self, controller: Controller) -> bool {
        let bound = match controller {
            Controller::Memory => self.limits.memory.is_some(),
            Controller::Pids => self.limits.pids.is_some(),
            Controller::Cpu => false,
        };
        bound && !self.limited.enforces(controller)
    }

    fn walk(&mut self, reading: &mut Reading, reaped: Duration) {
        let pids = self.limits.pids.filter(|_| self.accounts(Controller::Pids)).map(u64::from);
        let usage = tree::usage_below(daemonize::own_pid(), pids);
        reading.pids = pids.map(|_| usage.threads);
        if let Some(max) = pids {
            if usage.threads > max {
                return;
            }
            if self.forks_limited_at.elapsed() >= FORK_LIMIT_INTERVAL {
                fork_limit::limit_forks(&usage.pids, usage.threads, max);
                self.forks_limited_at = Instant::now();
            }
        }
        if let Some(limit) = self.limits.memory.filter(|_| self.accounts(Controller::Memory)) {
            // The sum counts shared pages more than once, so it can only be too high: compute exactly only above the
            // limit.
            let plain = usage.rss_bytes;
            reading.memory = Some(if plain > limit { usage.memory_bytes() } else { plain });
        }
        // The cgroup misses descendants that left it or never entered; the walk misses those that ended unreaped.
        // Neither counts too much, so take the larger.
        reading.cpu_time = reading.cpu_time.max(Some(usage.cpu + reaped));
    }

    /// The earliest time at which the processor time can be used up, with every core busy.
    fn time_to_cpu_limit(&self, used: Option<Duration>) -> Duration {
        let Some(limit) = self.limits.cpu_time else { return CPU_INTERVAL };
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        (limit.saturating_sub(used.unwrap_or_default()) / cores).clamp(MIN_POLL_INTERVAL, CPU_INTERVAL)
    }
}

fn parse_place(place: &LimitPlace) -> Option<Place> {
    let version = if place.v2 { Version::V2 } else { Version::V1 };
    Some(Place { controller: Controller::parse(&place.controller)?, version, path: place.path.clone() })
}
