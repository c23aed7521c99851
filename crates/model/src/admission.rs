//! Whether one more process may start, and what is removed to make room in the store. A live process is never
//! evicted.

use std::collections::HashMap;
use std::time::Duration;

/// The bounds of one pinfold, from its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Live processes at once.
    pub processes: usize,
    /// Bytes of the whole store; finished processes are removed oldest first to stay below.
    pub store_bytes: u64,
    /// How long a finished process is kept, counted from its end.
    pub retention: Duration,
    /// The bounds of each owner.
    pub owner: OwnerLimits,
}

/// The bounds of each owner; `None` is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Its live processes at once.
    pub processes: Option<usize>,
    /// The memory limits of its live processes together. What a process will use is not known before it does; what it
    /// may use is. So under this bound a process without a memory limit is refused.
    pub memory_bytes: Option<u64>,
    /// Bytes of its processes in the store; its finished ones are removed oldest first to stay below.
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
pub enum Refusal {
    #[error(
        "{} live, the most that `limits.processes` allows: stop some (`pinfold ps`, `pinfold stop`) or raise it in the configuration",
        if *live == 1 { "1 process is".to_owned() } else { format!("{live} processes are") }
    )]
    TooManyProcesses { live: usize },
    #[error(
        "owner `{owner}` has {live} live {}, the most that `limits.owner.processes` allows: stop some of its own (`pinfold ps --owner {owner}`, `pinfold stop`) or raise it in the configuration",
        if *live == 1 { "process" } else { "processes" }
    )]
    OwnerHasTooMany { owner: String, live: usize },
    #[error(
        "`limits.owner.memory` gives each owner {most} bytes for the memory limits of its processes: say with `memory_limit` how much this one may have"
    )]
    NoMemoryLimit { most: u64 },
    #[error(
        "the live processes of owner `{owner}` may use {held} bytes of memory by their limits; {asked} more is beyond the {most} of `limits.owner.memory`: ask for less, stop some of its own, or raise it in the configuration"
    )]
    OwnerMemory { owner: String, held: u64, asked: u64, most: u64 },
    #[error(
        "the live processes of owner `{owner}` fill its part of the store ({held} of {most} bytes, `limits.owner.store`): stop some of its own, give them a smaller output_limit, or raise it in the configuration"
    )]
    OwnerStore { owner: String, held: u64, most: u64 },
}

/// What an owner's live processes hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub live: usize,
    /// Their memory limits together.
    pub memory_bytes: u64,
}

/// Decides over one start.
pub fn try_admit(limits: &Limits, live: usize) -> Result<(), Refusal> {
    if live >= limits.processes { Err(Refusal::TooManyProcesses { live }) } else { Ok(()) }
}

impl OwnerLimits {
    /// Whether anything is bounded that has to be counted before a start.
    pub fn counts_live(&self) -> bool {
        self.processes.is_some() || self.memory_bytes.is_some()
    }

    /// Decides over one start of an owner that holds this much; `memory` is the start's own limit.
    pub fn try_admit(&self, owner: &str, held: Held, memory: Option<u64>) -> Result<(), Refusal> {
        if self.processes.is_some_and(|most| held.live >= most) {
            return Err(Refusal::OwnerHasTooMany { owner: owner.to_owned(), live: held.live });
        }
        let Some(most) = self.memory_bytes else { return Ok(()) };
        let asked = memory.ok_or(Refusal::NoMemoryLimit { most })?;
        if held.memory_bytes.saturating_add(asked) > most {
            let owner = owner.to_owned();
            return Err(Refusal::OwnerMemory { owner, held: held.memory_bytes, asked, most });
        }
        Ok(())
    }

    /// Decides over one start of an owner whose live processes take this much of the store. What its ended ones take
    /// can be removed.
    pub fn try_admit_store(&self, owner: &str, held: u64) -> Result<(), Refusal> {
        match self.store_bytes {
            Some(most) if held >= most => Err(Refusal::OwnerStore { owner: owner.to_owned(), held, most }),
            _ => Ok(()),
        }
    }
}

/// A finished process in the store, as retention sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended<Id> {
    pub id: Id,
    pub owner: String,
    /// How long ago it ended.
    pub age: Duration,
    pub bytes: u64,
}

/// Which finished processes to remove: those past retention, then of each owner the oldest until it fits its part, then
/// the oldest of all until the store fits its quota. `live` is what the live processes of each owner hold; it
/// counts, but is never removed.
pub fn to_remove<Id: Clone>(limits: &Limits, mut ended: Vec<Ended<Id>>, live: &HashMap<String, u64>) -> Vec<Id> {
    ended.sort_by_key(|process| std::cmp::Reverse(process.age));
    let mut by_owner = live.clone();
    for process in &ended {
        *by_owner.entry(process.owner.clone()).or_default() += process.bytes;
    }
    let mut held: u64 = by_owner.values().sum();
    let mut removed = Vec::new();
    ended.retain(|process| {
        let own = by_owner.entry(process.owner.clone()).or_default();
        let stays = process.age <= limits.retention && limits.owner.store_bytes.is_none_or(|most| *own <= most);
        if !stays {
            *own -= process.bytes;
            held -= process.bytes;
            removed.push(process.id.clone());
        }
        stays
    });
    for process in ended {
        if held > limits.store_bytes {
            held -= process.bytes;
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

    fn ended(id: u32, age: u64, bytes: u64) -> Ended<u32> {
        ended_of("ann", id, age, bytes)
    }

    fn ended_of(owner: &str, id: u32, age: u64, bytes: u64) -> Ended<u32> {
        Ended { id, owner: owner.into(), age: Duration::from_secs(age), bytes }
    }

    fn live(bytes: u64) -> HashMap<String, u64> {
        [("ann".to_owned(), bytes)].into()
    }

    #[test]
    fn the_limit_refuses_with_an_explanation() {
        assert_eq!(try_admit(&limits(), 2), Ok(()));
        let refusal = try_admit(&limits(), 3).expect_err("refused").to_string();
        assert!(refusal.contains("limits.processes") && refusal.contains("pinfold stop"), "{refusal}");
    }

    #[test]
    fn retention_removes_what_ended_too_long_ago() {
        assert_eq!(to_remove(&limits(), vec![ended(1, 61, 5), ended(2, 60, 5), ended(3, 0, 5)], &live(0)), [1]);
    }

    #[test]
    fn the_quota_removes_the_oldest_first_and_counts_the_live() {
        let all = vec![ended(1, 10, 40), ended(2, 30, 40), ended(3, 20, 40)];
        assert_eq!(to_remove(&limits(), all.clone(), &live(0)), [2]);
        assert_eq!(to_remove(&limits(), all, &live(50)), [2, 3]);
    }

    #[test]
    fn an_owners_part_removes_its_own_oldest_and_nobody_elses() {
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
    fn an_owners_limits_refuse_with_an_explanation() {
        let limits = OwnerLimits { processes: Some(2), memory_bytes: Some(100), store_bytes: Some(50) };
        let held = |live, memory_bytes| Held { live, memory_bytes };
        assert_eq!(limits.try_admit("ann", held(1, 60), Some(40)), Ok(()));
        assert_eq!(OwnerLimits::default().try_admit("ann", held(9, 900), None), Ok(()));
        let refuse = |held, memory| limits.try_admit("ann", held, memory).expect_err("refused").to_string();
        let too_many = refuse(held(2, 0), Some(1));
        assert!(too_many.contains("limits.owner.processes") && too_many.contains("`ann` has 2"), "{too_many}");
        assert!(refuse(held(1, 60), Some(41)).contains("limits.owner.memory"));
        assert!(refuse(held(0, 0), None).contains("memory_limit"));
        assert_eq!(limits.try_admit_store("ann", 49), Ok(()));
        assert!(limits.try_admit_store("ann", 50).expect_err("refused").to_string().contains("limits.owner.store"));
    }
}
