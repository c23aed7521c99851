//! How far each owner has read each process, so that a read without a cursor returns only new output.
//!
//! Lost with the server, which is harmless: the next read starts at 0. Limits: [`MAX_OWNERS`] owners with [`MAX_READINGS`]
//! processes each; beyond that the least recently used is forgotten.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pinfold_api::types::Range;

const MAX_OWNERS: usize = 1_000;
const MAX_READINGS: usize = 10_000;
/// Number of reads whose omitted ranges are remembered.
const MAX_OMITTED: usize = 8;

/// What every owner has seen.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    owners: Mutex<Owners>,
}

#[derive(Debug, Default)]
struct Owners {
    /// Incremented on every use, for least-recently-used eviction.
    clock: u64,
    seats: HashMap<String, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    used: u64,
    /// Topics that were explained to this owner.
    explained: HashSet<&'static str>,
    readings: HashMap<String, Reading>,
}

/// How far one process was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    used: u64,
    /// Where the next read begins.
    pub(crate) cursor: u64,
    /// Consecutive reads without new output.
    pub(crate) empty: u32,
    /// Ranges omitted from the latest reads.
    omitted: VecDeque<Range>,
}

impl Memory {
    /// How far this owner has read.
    pub(crate) fn cursor(&self, owner: &str, process: &str) -> u64 {
        self.look(owner, process, |reading| reading.cursor)
    }

    /// Whether the byte at this cursor was shown to the owner.
    pub(crate) fn has_seen(&self, owner: &str, process: &str, cursor: u64) -> bool {
        self.look(owner, process, |reading| {
            cursor < reading.cursor
                && !reading.omitted.iter().any(|left_out| (left_out.from..left_out.to).contains(&cursor))
        })
    }

    /// Notes a read up to this cursor and the range it omitted.
    pub(crate) fn read(&self, owner: &str, process: &str, cursor: u64, omitted: Option<Range>) {
        self.change(owner, process, |reading| {
            if cursor > reading.cursor {
                reading.empty = 0;
                reading.cursor = cursor;
            }
            if let Some(omitted) = omitted {
                reading.omitted.truncate(MAX_OMITTED - 1);
                reading.omitted.push_front(omitted);
            }
        });
    }

    /// Notes a read without new output; returns how many there were in a row.
    pub(crate) fn read_nothing(&self, owner: &str, process: &str) -> u32 {
        self.change(owner, process, |reading| {
            reading.empty += 1;
            reading.empty
        })
    }

    /// Whether this owner has not had this topic explained yet. Marks it as explained.
    pub(crate) fn is_first(&self, owner: &str, topic: &'static str) -> bool {
        self.owner(owner, |seen| seen.explained.insert(topic))
    }

    fn look<T: Default>(&self, owner: &str, process: &str, look: impl FnOnce(&Reading) -> T) -> T {
        let owners = self.lock();
        owners.seats.get(owner).and_then(|seen| seen.readings.get(process)).map(look).unwrap_or_default()
    }

    fn change<T>(&self, owner: &str, process: &str, change: impl FnOnce(&mut Reading) -> T) -> T {
        self.owner(owner, |seen| {
            make_room(&mut seen.readings, process, MAX_READINGS, |reading| reading.used);
            let clock = seen.used;
            let reading = seen.readings.entry(process.to_owned()).or_default();
            reading.used = clock;
            change(reading)
        })
    }

    fn owner<T>(&self, owner: &str, change: impl FnOnce(&mut Seen) -> T) -> T {
        let mut owners = self.lock();
        owners.clock += 1;
        let clock = owners.clock;
        make_room(&mut owners.seats, owner, MAX_OWNERS, |seen| seen.used);
        let seen = owners.seats.entry(owner.to_owned()).or_default();
        seen.used = clock;
        change(seen)
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the least recently used entry if the map is full.
fn make_room<T>(map: &mut HashMap<String, T>, key: &str, most: usize, used: impl Fn(&T) -> u64) {
    if map.len() < most || map.contains_key(key) {
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
    fn owners_read_apart_and_only_what_is_new() {
        let memory = Memory::default();
        memory.read("a", "p", 10, None);
        assert_eq!((memory.cursor("a", "p"), memory.cursor("b", "p")), (10, 0));
        memory.read("a", "p", 5, None);
        assert_eq!(memory.cursor("a", "p"), 10);
    }

    #[test]
    fn reads_that_bring_nothing_are_counted_until_one_does() {
        let memory = Memory::default();
        memory.read("a", "p", 10, None);
        assert_eq!([(); 3].map(|()| memory.read_nothing("a", "p")), [1, 2, 3]);
        memory.read("a", "p", 11, None);
        assert_eq!(memory.read_nothing("a", "p"), 1);
    }

    #[test]
    fn what_was_left_out_was_not_seen() {
        let memory = Memory::default();
        memory.read("a", "p", 100, Some(Range { from: 40, to: 60 }));
        let seen = |cursor| memory.has_seen("a", "p", cursor);
        assert_eq!(
            [seen(0), seen(39), seen(40), seen(59), seen(60), seen(100)],
            [true, true, false, false, true, false]
        );
    }

    #[test]
    fn each_owner_is_told_a_thing_for_the_first_time_once() {
        let memory = Memory::default();
        let first = |owner, topic| memory.is_first(owner, topic);
        assert_eq!([first("a", "x"), first("a", "x"), first("b", "x"), first("a", "y")], [true, false, true, true]);
    }

    #[test]
    fn the_oldest_is_forgotten_at_the_bound() {
        let memory = Memory::default();
        for process in 0..=MAX_READINGS {
            memory.read("a", &process.to_string(), 1, None);
        }
        assert_eq!((memory.cursor("a", "0"), memory.cursor("a", "1")), (0, 1));
    }
}
