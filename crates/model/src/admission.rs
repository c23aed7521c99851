//! Whether one more process may start, and which finished processes are removed to free storage. A running process is
//! never removed.

use std::collections::HashMap;
use std::time::Duration;

/// Limits of one daemon, from its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Running processes at once.
    pub processes: usize,
    /// Bytes of the whole store; above it, finished processes are removed, oldest first.
    pub store_bytes: u64,
    /// How long a finished process is kept after its end.
    pub retention: Duration,
    pub owner: OwnerLimits,
}

/// Limits of each owner; `None` means unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Running processes at once.
    pub processes: Option<usize>,
    /// Sum of the memory limits of its running processes. Actual use is not known at the start, so with this limit a
    /// process without a memory limit is refused.
    pub memory_bytes: Option<u64>,
    /// Bytes of its processes in the store; above it, its finished ones are removed, oldest first.
    pub store_bytes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        let retention = Duration::from_secs(7 * 24 * 3600);
        Self { processes: 2000, store_bytes: 10 << 30, retention, owner: OwnerLimits::default() }
    }
}

/// Why a start is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    #[error(
        "{} running, which is the maximum (`limits.processes`): stop some (`pinfold ps`, `pinfold stop`) or raise it in the configuration",
        if *live == 1 { "1 process is".to_owned() } else { format!("{live} processes are") }
    )]
    TooManyProcesses { live: usize },
    #[error(
        "owner `{owner}` has {live} running {}, which is the maximum (`limits.owner.processes`): stop some of them (`pinfold ps --owner {owner}`, `pinfold stop`) or raise it in the configuration",
        if *live == 1 { "process" } else { "processes" }
    )]
    OwnerHasTooMany { owner: String, live: usize },
    #[error(
        "each owner has {max} bytes for the memory limits of its processes (`limits.owner.memory`): give this process a `memory_limit`"
    )]
    NoMemoryLimit { max: u64 },
    #[error(
        "the memory limits of owner `{owner}` add up to {used} bytes; {requested} more would exceed its maximum of {max} (`limits.owner.memory`): give a smaller `memory_limit`, stop some of its processes, or raise it in the configuration"
    )]
    OwnerMemory { owner: String, used: u64, requested: u64, max: u64 },
    #[error(
        "the running processes of owner `{owner}` use {used} of its {max} bytes of storage (`limits.owner.store`): stop some of them, start them with a smaller `output_limit`, or raise it in the configuration"
    )]
    OwnerStore { owner: String, used: u64, max: u64 },
}

/// What an owner's running processes use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerUsage {
    pub live: usize,
    /// Sum of their memory limits.
    pub memory_bytes: u64,
}

/// Whether one more process may start.
pub fn try_admit(limits: &Limits, live: usize) -> Result<(), AdmissionError> {
    if live >= limits.processes { Err(AdmissionError::TooManyProcesses { live }) } else { Ok(()) }
}

impl OwnerLimits {
    /// Whether an owner's running processes must be counted before a start.
    pub fn counts_live(&self) -> bool {
        self.processes.is_some() || self.memory_bytes.is_some()
    }

    /// Whether one more process of this owner may start; `memory` is its memory limit.
    pub fn try_admit(&self, owner: &str, used: OwnerUsage, memory: Option<u64>) -> Result<(), AdmissionError> {
        if self.processes.is_some_and(|max| used.live >= max) {
            return Err(AdmissionError::OwnerHasTooMany { owner: owner.to_owned(), live: used.live });
        }
        let Some(max) = self.memory_bytes else { return Ok(()) };
        let requested = memory.ok_or(AdmissionError::NoMemoryLimit { max })?;
        if used.memory_bytes.saturating_add(requested) > max {
            let owner = owner.to_owned();
            return Err(AdmissionError::OwnerMemory { owner, used: used.memory_bytes, requested, max });
        }
        Ok(())
    }

    /// Whether one more process may start, given the bytes that the owner's running processes have in the store.
    /// Finished ones do not count: they can be removed.
    pub fn try_admit_store(&self, owner: &str, used: u64) -> Result<(), AdmissionError> {
        match self.store_bytes {
            Some(max) if used >= max => Err(AdmissionError::OwnerStore { owner: owner.to_owned(), used, max }),
            _ => Ok(()),
        }
    }
}

/// A finished process in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProcess<Id> {
    pub id: Id,
    pub owner: String,
    /// Time since it ended.
    pub age: Duration,
    pub bytes: u64,
}

/// Which finished processes to remove: those past retention, then each owner's oldest until the owner is within its
/// limit, then the oldest of all until the store is. `live` is what each owner's running processes use: counted,
/// never removed.
pub fn to_remove<Id: Clone>(
    limits: &Limits,
    mut ended: Vec<StoredProcess<Id>>,
    live: &HashMap<String, u64>,
) -> Vec<Id> {
    ended.sort_by_key(|process| std::cmp::Reverse(process.age));
    let mut by_owner = live.clone();
    for process in &ended {
        *by_owner.entry(process.owner.clone()).or_default() += process.bytes;
    }
    let mut used: u64 = by_owner.values().sum();
    let mut removed = Vec::new();
    ended.retain(|process| {
        let own = by_owner.entry(process.owner.clone()).or_default();
        let stays = process.age <= limits.retention && limits.owner.store_bytes.is_none_or(|max| *own <= max);
        if !stays {
            *own -= process.bytes;
            used -= process.bytes;
            removed.push(process.id.clone());
        }
        stays
    });
    for process in ended {
        if used > limits.store_bytes {
            used -= process.bytes;
            removed.push(process.id);
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        let owner = OwnerLimits::default();
        Limits { processes: 3, store_bytes: 100, retention: Duration::from_secs(60), owner }
    }

    fn ended(id: u32, age: u64, bytes: u64) -> StoredProcess<u32> {
        ended_of("ann", id, age, bytes)
    }

    fn ended_of(owner: &str, id: u32, age: u64, bytes: u64) -> StoredProcess<u32> {
        StoredProcess { id, owner: owner.into(), age: Duration::from_secs(age), bytes }
    }

    fn live(bytes: u64) -> HashMap<String, u64> {
        [("ann".to_owned(), bytes)].into()
    }

    #[test]
    fn a_start_above_the_limit_is_refused_with_an_explanation() {
        assert_eq!(try_admit(&limits(), 2), Ok(()));
        let refusal = try_admit(&limits(), 3).expect_err("refused").to_string();
        assert!(refusal.contains("limits.processes") && refusal.contains("pinfold stop"), "{refusal}");
    }

    #[test]
    fn retention_removes_processes_that_ended_too_long_ago() {
        assert_eq!(to_remove(&limits(), vec![ended(1, 61, 5), ended(2, 60, 5), ended(3, 0, 5)], &live(0)), [1]);
    }

    #[test]
    fn the_store_limit_removes_the_oldest_first_and_counts_running_processes() {
        let all = vec![ended(1, 10, 40), ended(2, 30, 40), ended(3, 20, 40)];
        assert_eq!(to_remove(&limits(), all.clone(), &live(0)), [2]);
        assert_eq!(to_remove(&limits(), all, &live(50)), [2, 3]);
    }

    #[test]
    fn an_owners_store_limit_removes_only_its_own_oldest_processes() {
        let owner = OwnerLimits { store_bytes: Some(50), ..OwnerLimits::default() };
        let limits = Limits { store_bytes: 1000, owner, ..limits() };
        let all = vec![
            ended_of("bob", 1, 50, 40),
            ended_of("ann", 2, 40, 30),
            ended_of("ann", 3, 30, 20),
            ended_of("ann", 4, 20, 10),
        ];
        assert_eq!(to_remove(&limits, all.clone(), &live(0)), [2]);
        assert_eq!(to_remove(&limits, all.clone(), &live(45)), [2, 3, 4], "a live one is never removed");
        assert_eq!(to_remove(&limits, all, &[("bob".to_owned(), 500)].into()), [1, 2]);
    }

    #[test]
    fn a_start_above_an_owners_limit_is_refused_with_an_explanation() {
        let limits = OwnerLimits { processes: Some(2), memory_bytes: Some(100), store_bytes: Some(50) };
        let used = |live, memory_bytes| OwnerUsage { live, memory_bytes };
        assert_eq!(limits.try_admit("ann", used(1, 60), Some(40)), Ok(()));
        assert_eq!(OwnerLimits::default().try_admit("ann", used(9, 900), None), Ok(()));
        let refuse = |used, memory| limits.try_admit("ann", used, memory).expect_err("refused").to_string();
        let too_many = refuse(used(2, 0), Some(1));
        assert!(too_many.contains("limits.owner.processes") && too_many.contains("`ann` has 2"), "{too_many}");
        assert!(refuse(used(1, 60), Some(41)).contains("limits.owner.memory"));
        assert!(refuse(used(0, 0), None).contains("memory_limit"));
        assert_eq!(limits.try_admit_store("ann", 49), Ok(()));
        assert!(limits.try_admit_store("ann", 50).expect_err("refused").to_string().contains("limits.owner.store"));
    }
}
