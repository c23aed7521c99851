//! Records how far each owner has read the output of each process, so that a read without a cursor returns only new
//! output.
//!
//! The state is lost when the server exits, which is harmless: the next read starts at 0. Limits: [`MAX_OWNERS`] owners
//! with [`MAX_PROCESSES`] processes each; beyond that the least recently used entry is removed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pinfold_api::types::Range;

const MAX_OWNERS: usize = 1_000;
const MAX_PROCESSES: usize = 10_000;
/// Number of reads per process whose omitted range is remembered.
const MAX_OMITTED: usize = 8;

/// The read positions of all owners.
#[derive(Debug, Default)]
pub(crate) struct ReadPositions {
    owners: Mutex<Owners>,
}

#[derive(Debug, Default)]
struct Owners {
    /// Incremented on every use, for least-recently-used eviction.
    clock: u64,
    by_owner: HashMap<String, OwnerState>,
}

#[derive(Debug, Default)]
struct OwnerState {
    used: u64,
    /// Topics that were already explained to this owner.
    explained: HashSet<&'static str>,
    positions: HashMap<String, ReadPosition>,
}

/// The read position of one owner in one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadPosition {
    used: u64,
    /// Where the next read starts.
    pub(crate) cursor: u64,
    /// Consecutive reads without new output.
    pub(crate) empty_reads: u32,
    /// Ranges omitted from the latest reads.
    omitted: VecDeque<Range>,
}

impl ReadPositions {
    /// Returns the cursor up to which this owner has read.
    pub(crate) fn cursor(&self, owner: &str, process: &str) -> u64 {
        self.get(owner, process, |position| position.cursor)
    }

    /// Whether the byte at this cursor was shown to the owner.
    pub(crate) fn has_seen(&self, owner: &str, process: &str, cursor: u64) -> bool {
        self.get(owner, process, |position| {
            cursor < position.cursor
                && !position.omitted.iter().any(|omitted| (omitted.from..omitted.to).contains(&cursor))
        })
    }

    /// Records a read up to this cursor, and the range that it omitted.
    pub(crate) fn record_read(&self, owner: &str, process: &str, cursor: u64, omitted: Option<Range>) {
        self.update(owner, process, |position| {
            if cursor > position.cursor {
                position.empty_reads = 0;
                position.cursor = cursor;
            }
            if let Some(omitted) = omitted {
                position.omitted.truncate(MAX_OMITTED - 1);
                position.omitted.push_front(omitted);
            }
        });
    }

    /// Records a read without new output; returns the number of such reads in a row.
    pub(crate) fn record_empty_read(&self, owner: &str, process: &str) -> u32 {
        self.update(owner, process, |position| {
            position.empty_reads += 1;
            position.empty_reads
        })
    }

    /// Marks a topic as explained to this owner; returns true the first time.
    pub(crate) fn mark_explained(&self, owner: &str, topic: &'static str) -> bool {
        self.update_owner(owner, |state| state.explained.insert(topic))
    }

    fn get<T: Default>(&self, owner: &str, process: &str, get: impl FnOnce(&ReadPosition) -> T) -> T {
        let owners = self.lock();
        owners.by_owner.get(owner).and_then(|state| state.positions.get(process)).map(get).unwrap_or_default()
    }

    fn update<T>(&self, owner: &str, process: &str, update: impl FnOnce(&mut ReadPosition) -> T) -> T {
        self.update_owner(owner, |state| {
            evict_if_full(&mut state.positions, process, MAX_PROCESSES, |position| position.used);
            let clock = state.used;
            let position = state.positions.entry(process.to_owned()).or_default();
            position.used = clock;
            update(position)
        })
    }

    fn update_owner<T>(&self, owner: &str, update: impl FnOnce(&mut OwnerState) -> T) -> T {
        let mut owners = self.lock();
        owners.clock += 1;
        let clock = owners.clock;
        evict_if_full(&mut owners.by_owner, owner, MAX_OWNERS, |state| state.used);
        let state = owners.by_owner.entry(owner.to_owned()).or_default();
        state.used = clock;
        update(state)
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the least recently used entry if the map is full.
fn evict_if_full<T>(map: &mut HashMap<String, T>, key: &str, max: usize, used: impl Fn(&T) -> u64) {
    if map.len() < max || map.contains_key(key) {
        return;
    }
    if let Some(oldest) = map.iter().min_by_key(|(_, value)| used(value)).map(|(key, _)| key.clone()) {
        map.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_its_own_position_and_it_only_advances() {
        let read_positions = ReadPositions::default();
        read_positions.record_read("a", "p", 10, None);
        assert_eq!((read_positions.cursor("a", "p"), read_positions.cursor("b", "p")), (10, 0));
        read_positions.record_read("a", "p", 5, None);
        assert_eq!(read_positions.cursor("a", "p"), 10);
    }

    #[test]
    fn empty_reads_are_counted_until_new_output() {
        let read_positions = ReadPositions::default();
        read_positions.record_read("a", "p", 10, None);
        assert_eq!([(); 3].map(|()| read_positions.record_empty_read("a", "p")), [1, 2, 3]);
        read_positions.record_read("a", "p", 11, None);
        assert_eq!(read_positions.record_empty_read("a", "p"), 1);
    }

    #[test]
    fn omitted_output_was_not_seen() {
        let read_positions = ReadPositions::default();
        read_positions.record_read("a", "p", 100, Some(Range { from: 40, to: 60 }));
        let seen = |cursor| read_positions.has_seen("a", "p", cursor);
        assert_eq!(
            [seen(0), seen(39), seen(40), seen(59), seen(60), seen(100)],
            [true, true, false, false, true, false]
        );
    }

    #[test]
    fn a_topic_is_explained_once_per_owner() {
        let read_positions = ReadPositions::default();
        let first = |owner, topic| read_positions.mark_explained(owner, topic);
        assert_eq!([first("a", "x"), first("a", "x"), first("b", "x"), first("a", "y")], [true, false, true, true]);
    }

    #[test]
    fn the_least_recently_used_entry_is_evicted_at_the_limit() {
        let read_positions = ReadPositions::default();
        for process in 0..=MAX_PROCESSES {
            read_positions.record_read("a", &process.to_string(), 1, None);
        }
        assert_eq!((read_positions.cursor("a", "0"), read_positions.cursor("a", "1")), (0, 1));
    }
}
