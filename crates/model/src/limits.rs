//! The limits of one process's whole tree: which values are accepted, and when one is reached.
//!
//! Who enforces a limit (a cgroup controller, or the keeper's own accounting) is decided by the daemon and the keeper, which
//! know the machine. This file only says what a measured value means for a limit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::outcome::Cause;

/// No program can run with less memory than this.
pub const MIN_MEMORY: u64 = 1 << 20;
/// Smallest share of a core, in thousandths: the smallest quota of the kernel is a hundredth.
pub const MIN_CPUS: f64 = 0.01;
/// More cores than any machine has.
pub const MAX_CPUS: f64 = 4096.0;

/// The limits of a process; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// From its start on.
    pub time: Option<Duration>,
    /// Without output.
    pub idle: Option<Duration>,
    pub tree: TreeLimits,
}

/// The limits of a whole tree; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeLimits {
    /// Bytes of memory of all its processes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processes and threads alive at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// A rate, in thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub millicpus: Option<u32>,
    /// Processor time of all its processes together, those that ended included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<Duration>,
}

/// Why a bound cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLimit {
    #[error("memory_limit {0} is too small: give at least {MIN_MEMORY} bytes")]
    SmallMemory(u64),
    #[error("{0} is zero: leave it out for no limit")]
    Zero(&'static str),
    #[error("cpus {0} is not usable: give a number of cores from {MIN_CPUS} to {MAX_CPUS}, such as 0.5")]
    BadCpus(String),
}

/// What a tree was seen to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes of memory, where the keeper accounts for it; the kernel's own controller needs no reading.
    pub memory: Option<u64>,
    /// Processes and threads, where the keeper counts them.
    pub pids: Option<u64>,
    /// How often the kernel refused a fork or thread beyond the bound.
    pub refused_forks: u64,
    pub cpu_time: Option<Duration>,
}

impl TreeLimits {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Checks what needs no look at the machine.
    pub fn check(&self) -> Result<(), BadLimit> {
        match self {
            Self { memory: Some(bytes), .. } if *bytes < MIN_MEMORY => Err(BadLimit::SmallMemory(*bytes)),
            Self { pids: Some(0), .. } => Err(BadLimit::Zero("pids_limit")),
            Self { cpu_time: Some(Duration::ZERO), .. } => Err(BadLimit::Zero("cpu_time_limit")),
            _ => Ok(()),
        }
    }

    /// These, and where they are silent, the others.
    pub fn or(self, others: Self) -> Self {
        Self {
            memory: self.memory.or(others.memory),
            pids: self.pids.or(others.pids),
            millicpus: self.millicpus.or(others.millicpus),
            cpu_time: self.cpu_time.or(others.cpu_time),
        }
    }

    /// The first bound that a reading shows to be reached.
    pub fn reached(&self, reading: &Reading) -> Option<Cause> {
        let beyond =
            |limit: Option<u64>, used: Option<u64>| matches!((limit, used), (Some(limit), Some(used)) if used > limit);
        if beyond(self.pids.map(u64::from), reading.pids) || self.pids.is_some() && reading.refused_forks > 0 {
            return Some(Cause::PidsLimit);
        }
        if beyond(self.memory, reading.memory) {
            return Some(Cause::OutOfMemory);
        }
        match (self.cpu_time, reading.cpu_time) {
            (Some(limit), Some(used)) if used >= limit => Some(Cause::CpuTimeLimit),
            _ => None,
        }
    }
}

/// A number of cores as thousandths.
pub fn parse_cpus(cpus: f64) -> Result<u32, BadLimit> {
    if !cpus.is_finite() || !(MIN_CPUS..=MAX_CPUS).contains(&cpus) {
        return Err(BadLimit::BadCpus(cpus.to_string()));
    }
    Ok((cpus * 1000.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> TreeLimits {
        let cpu_time = Some(Duration::from_secs(2));
        TreeLimits { memory: Some(8 << 20), pids: Some(4), millicpus: None, cpu_time }
    }

    #[test]
    fn a_bound_is_reached_by_what_was_read_and_by_nothing_else() {
        let none = Reading::default();
        assert_eq!(limits().reached(&none), None);
        let cases = [
            (Reading { memory: Some(8 << 20), ..none }, None),
            (Reading { memory: Some((8 << 20) + 1), ..none }, Some(Cause::OutOfMemory)),
            (Reading { pids: Some(4), ..none }, None),
            (Reading { pids: Some(5), ..none }, Some(Cause::PidsLimit)),
            (Reading { refused_forks: 1, ..none }, Some(Cause::PidsLimit)),
            (Reading { cpu_time: Some(Duration::from_millis(1999)), ..none }, None),
            (Reading { cpu_time: Some(Duration::from_secs(2)), ..none }, Some(Cause::CpuTimeLimit)),
        ];
        for (reading, cause) in cases {
            assert_eq!(limits().reached(&reading), cause, "{reading:?}");
            assert_eq!(TreeLimits::default().reached(&reading), None, "without bounds none is reached");
        }
    }

    #[test]
    fn bounds_that_no_program_could_live_under_are_refused() {
        assert_eq!(limits().check(), Ok(()));
        let refuse = |limits: TreeLimits| limits.check().expect_err("refused").to_string();
        assert!(refuse(TreeLimits { memory: Some(4096), ..limits() }).contains("1048576"));
        assert!(refuse(TreeLimits { pids: Some(0), ..limits() }).contains("pids_limit"));
        assert!(refuse(TreeLimits { cpu_time: Some(Duration::ZERO), ..limits() }).contains("cpu_time_limit"));
        assert_eq!(parse_cpus(0.5), Ok(500));
        for cpus in [0.0, -1.0, 0.001, f64::NAN, f64::INFINITY, 1e9] {
            assert!(parse_cpus(cpus).expect_err("refused").to_string().contains("0.5"), "{cpus}");
        }
    }

    #[test]
    fn a_request_goes_before_the_configuration() {
        let asked = TreeLimits { pids: Some(9), ..TreeLimits::default() };
        assert_eq!(asked.or(limits()), TreeLimits { pids: Some(9), ..limits() });
    }
}
