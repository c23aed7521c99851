//! Whether one more process may start. A live process is never evicted to make room.

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
}

impl Default for Limits {
    fn default() -> Self {
        Self { processes: 2000, store_bytes: 10 << 30, retention: Duration::from_secs(7 * 24 * 3600) }
    }
}

/// Why a start is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "{live} processes are live, the most that `limits.processes` allows: stop some (`pinfold ps`, `pinfold stop`) or raise it in the configuration"
    )]
    TooManyProcesses { live: usize },
}

/// Decides over one start.
pub fn try_admit(limits: &Limits, live: usize) -> Result<(), Refusal> {
    if live >= limits.processes { Err(Refusal::TooManyProcesses { live }) } else { Ok(()) }
}

/// A finished process in the store, as retention sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended<Id> {
    pub id: Id,
    /// How long ago it ended.
    pub age: Duration,
    pub bytes: u64,
}

/// Which finished processes to remove: those past retention, then the oldest until the store fits its quota.
/// `live_bytes` is what live processes hold; it counts, but is never removed.
pub fn to_remove<Id: Clone>(limits: &Limits, mut ended: Vec<Ended<Id>>, live_bytes: u64) -> Vec<Id> {
    ended.sort_by_key(|process| std::cmp::Reverse(process.age));
    let mut held = live_bytes + ended.iter().map(|process| process.bytes).sum::<u64>();
    let mut removed = Vec::new();
    for process in ended {
        if process.age > limits.retention || held > limits.store_bytes {
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
        Limits { processes: 3, store_bytes: 100, retention: Duration::from_secs(60) }
    }

    fn ended(id: u32, age: u64, bytes: u64) -> Ended<u32> {
        Ended { id, age: Duration::from_secs(age), bytes }
    }

    #[test]
    fn the_limit_refuses_with_an_explanation() {
        assert_eq!(try_admit(&limits(), 2), Ok(()));
        let refusal = try_admit(&limits(), 3).expect_err("refused").to_string();
        assert!(refusal.contains("limits.processes") && refusal.contains("pinfold stop"), "{refusal}");
    }

    #[test]
    fn retention_removes_what_ended_too_long_ago() {
        assert_eq!(to_remove(&limits(), vec![ended(1, 61, 5), ended(2, 60, 5), ended(3, 0, 5)], 0), [1]);
    }

    #[test]
    fn the_quota_removes_the_oldest_first_and_counts_the_live() {
        let all = vec![ended(1, 10, 40), ended(2, 30, 40), ended(3, 20, 40)];
        assert_eq!(to_remove(&limits(), all.clone(), 0), [2]);
        assert_eq!(to_remove(&limits(), all, 50), [2, 3]);
    }
}
