//! How far each owner has read each process, so that a read without a cursor brings only what is new.
//!
//! Lost with the server, at no harm: a first read begins at 0. Bounds: [`OWNERS_MOST`] owners and [`READINGS_MOST`]
//! processes each; beyond, whatever was used longest ago is forgotten and read from 0 again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const OWNERS_MOST: usize = 1_000;
const READINGS_MOST: usize = 10_000;

/// What every owner has seen.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    owners: Mutex<Owners>,
}

#[derive(Debug, Default)]
struct Owners {
    /// Rises with every use, to tell which was longest ago.
    clock: u64,
    seats: HashMap<String, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    used: u64,
    readings: HashMap<String, Reading>,
}

/// How far one process was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    used: u64,
    /// Where the next read begins.
    pub(crate) cursor: u64,
    /// Reads in a row that brought nothing.
    pub(crate) empty: u32,
}

impl Memory {
    /// How far this owner has read.
    pub(crate) fn reading(&self, owner: &str, process: &str) -> Reading {
        let owners = self.lock();
        owners.seats.get(owner).and_then(|seen| seen.readings.get(process)).copied().unwrap_or_default()
    }

    /// Notes a read up to here, and gives what is known then.
    pub(crate) fn read(&self, owner: &str, process: &str, cursor: u64) -> Reading {
        let mut owners = self.lock();
        owners.clock += 1;
        let clock = owners.clock;
        make_room(&mut owners.seats, owner, OWNERS_MOST, |seen| seen.used);
        let seen = owners.seats.entry(owner.to_owned()).or_default();
        seen.used = clock;
        make_room(&mut seen.readings, process, READINGS_MOST, |reading| reading.used);
        let reading = seen.readings.entry(process.to_owned()).or_default();
        reading.used = clock;
        if cursor > reading.cursor {
            reading.empty = 0;
            reading.cursor = cursor;
        } else {
            reading.empty += 1;
        }
        *reading
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets what was used longest ago if one more would be too many.
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
        memory.read("a", "p", 10);
        assert_eq!((memory.reading("a", "p").cursor, memory.reading("b", "p").cursor), (10, 0));
        assert_eq!(memory.read("a", "p", 5).cursor, 10);
    }

    #[test]
    fn reads_that_bring_nothing_are_counted_until_one_does() {
        let memory = Memory::default();
        memory.read("a", "p", 10);
        assert_eq!((1..=3).map(|_| memory.read("a", "p", 10).empty).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(memory.read("a", "p", 11).empty, 0);
    }

    #[test]
    fn the_oldest_is_forgotten_at_the_bound() {
        let memory = Memory::default();
        for process in 0..=READINGS_MOST {
            memory.read("a", &process.to_string(), 1);
        }
        assert_eq!(memory.reading("a", "0").cursor, 0);
        assert_eq!(memory.reading("a", "1").cursor, 1);
    }
}
