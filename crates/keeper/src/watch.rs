//! A limited tree: the cgroups that limit it, and the keeper's own accounting of what no controller does.
//!
//! Only a process with limits has a watch; without one nothing here costs anything.
//!
//! What is accounted is looked at every so often, so a tree can be beyond its limit for that long; a controller
//! has no such time. A look at a large tree costs more, and is made less often.

use std::time::{Duration, Instant};

use pinfold_model::limits::{Reading, TreeLimits};
use pinfold_model::link::LimitPlace;
use pinfold_model::outcome::Cause;
use pinfold_os::cgroup::Cgroup;
use pinfold_os::controllers::{Bounds, Controller, Limited, Place, Version};
use pinfold_os::spawn::Child;
use pinfold_os::{brake, daemonize, tree};

/// The least and the longest time between two looks at what is accounted.
const LOOK_LEAST: Duration = Duration::from_millis(20);
const LOOK_MOST: Duration = Duration::from_millis(200);
/// A look is followed by so many times its own cost of rest.
const REST: u32 = 20;
/// How often the counters of controllers are read.
const LOOK_AT_COUNTERS: Duration = Duration::from_millis(100);
/// How often the brake on forks is set anew, since the user's other tasks count for it.
const BRAKE_AGAIN: Duration = Duration::from_secs(2);
/// Processor time that is far from its limit is looked at this often.
const LOOK_FAR: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Watch {
    limits: TreeLimits,
    limited: Limited,
    /// What the cgroup of the tree had used before it, where there is a cgroup to ask.
    cpu_before: Option<Duration>,
    /// Kills for want of memory: those counted at the last look, and those that were told.
    kills_seen: u64,
    kills_settled: u64,
    next: Instant,
    braked_at: Instant,
}

impl Watch {
    /// Makes the cgroups for a tree that is about to start. Whatever has no controller is accounted for.
    pub(crate) fn prepare(
        limits: TreeLimits,
        places: &[LimitPlace],
        leaf: &str,
        keepers_own: Option<&Cgroup>,
    ) -> Result<Self, String> {
        let bounds = Bounds { memory_bytes: limits.memory, pids: limits.pids, millicpus: limits.millicpus };
        let places: Vec<Place> = places.iter().filter_map(place).collect();
        let limited = Limited::make(&places, leaf, &bounds);
        let cpu_before = match limited.v2() {
            Some(_) => Some(Duration::ZERO),
            // One that had a tree before goes on counting.
            None => keepers_own.filter(|_| limits.cpu_time.is_some()).and_then(|cgroup| cgroup.cpu_time().ok()),
        };
        let now = Instant::now();
        let (next, braked_at) = (now + LOOK_LEAST, now);
        let watch = Self { limits, limited, cpu_before, kills_seen: 0, kills_settled: 0, next, braked_at };
        if limits.millicpus.is_some() && !watch.limited.enforces(Controller::Cpu) {
            watch.remove();
            return Err("its share of cores (`cpus`) cannot be set: the cpu controller refuses it".to_owned());
        }
        Ok(watch)
    }

    /// The cgroup that the tree is born into, if limits made one.
    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        self.limited.v2()
    }

    pub(crate) fn limited(&self) -> &Limited {
        &self.limited
    }

    /// The tree has begun.
    pub(crate) fn begin(&mut self, leader: &Child) {
        self.limited.entered();
        if let Some(most) = self.limits.pids.filter(|_| self.accounts(Controller::Pids)) {
            brake::brake_forks(&[leader.pid], 1, u64::from(most));
        }
    }

    /// When to look next.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Looks at what the tree uses; the limit that is reached. `reaped` is the processor time of what the keeper has
    /// waited for.
    pub(crate) fn look(&mut self, keepers_own: Option<&Cgroup>, reaped: Duration) -> Option<Cause> {
        let began = Instant::now();
        let cgroup = self.limited.v2().or(keepers_own).filter(|_| self.limits.cpu_time.is_some());
        let by_walk = self.accounts(Controller::Memory) || self.accounts(Controller::Pids);
        let by_clock = self.limits.cpu_time.is_some();
        let cpu_time = self.cpu_before.zip(cgroup.and_then(|cgroup| cgroup.cpu_time().ok()));
        let mut reading = Reading {
            refused_forks: self.limited.refused_forks(),
            cpu_time: cpu_time.map(|(before, now)| now.saturating_sub(before)),
            ..Reading::default()
        };
        let mut rest = Duration::ZERO;
        if by_walk || by_clock {
            self.walk(&mut reading, reaped);
            rest = (began.elapsed() * REST).min(LOOK_MOST);
        }
        let wait = match by_walk {
            true => rest.max(LOOK_LEAST),
            false if self.limits.memory.is_some() || self.limits.pids.is_some() => LOOK_AT_COUNTERS,
            false => LOOK_FAR,
        };
        self.next = Instant::now() + wait.min(self.soonest(reading.cpu_time)).max(rest);
        self.limits.reached(&reading)
    }

    /// Whether a kill for want of memory has been seen before this look and is not known to be the leader's end.
    /// The kernel counts a kill just before it sends it, so that what was counted is judged at the next look.
    pub(crate) fn saw_kill(&mut self, leader_is_dying: impl FnOnce() -> bool) -> bool {
        let seen = self.limited.oom_kills();
        let due = self.kills_seen > self.kills_settled && !leader_is_dying();
        if due {
            self.kills_settled = self.kills_seen;
        }
        self.kills_seen = seen;
        due
    }

    /// Whether there were kills that nobody was told of; they are told now.
    pub(crate) fn settle_kills(&mut self) -> bool {
        self.kills_seen = self.limited.oom_kills();
        let more = self.kills_seen > self.kills_settled;
        self.kills_settled = self.kills_seen;
        more
    }

    /// Whether the tree was refused a process or thread, by a controller.
    pub(crate) fn was_refused_forks(&self) -> bool {
        self.limited.refused_forks() > 0
    }

    /// The tree is gone.
    pub(crate) fn remove(&self) {
        self.limited.remove();
    }

    /// Whether the keeper accounts for what no controller limits.
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
        if let Some(most) = pids {
            if usage.threads > most {
                return;
            }
            if self.braked_at.elapsed() >= BRAKE_AGAIN {
                brake::brake_forks(&usage.pids, usage.threads, most);
                self.braked_at = Instant::now();
            }
        }
        if let Some(limit) = self.limits.memory.filter(|_| self.accounts(Controller::Memory)) {
            // The plain sum counts shared pages more than once: it can only be too great.
            let plain = usage.rss_bytes;
            reading.memory = Some(if plain > limit { usage.memory_bytes() } else { plain });
        }
        // The cgroup knows nothing of descendants that left it or never entered it; the walk nothing of those that ended
        // without being waited for. Each is too little at most, so the greater is the better.
        reading.cpu_time = reading.cpu_time.max(Some(usage.cpu + reaped));
    }

    /// How soon the processor time can be used up, with every core at work.
    fn soonest(&self, used: Option<Duration>) -> Duration {
        let Some(limit) = self.limits.cpu_time else { return LOOK_FAR };
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        (limit.saturating_sub(used.unwrap_or_default()) / cores).clamp(LOOK_LEAST, LOOK_FAR)
    }
}

fn place(told: &LimitPlace) -> Option<Place> {
    let version = if told.v2 { Version::V2 } else { Version::V1 };
    Some(Place { controller: Controller::parse(&told.controller)?, version, path: told.path.clone() })
}
