//! Generates process ids from a counter on disk and a random seed.
//!
//! Owns the file `ids`: `{"format":1,"seed":…,"reserved":…}`, replaced by rename. Numbers are reserved in blocks before
//! they are used, so that after a crash some are skipped and none is used twice. If the file is missing or damaged,
//! counting starts again with another seed, and ids with an existing directory are skipped.

use std::io;
use std::path::PathBuf;

use pinfold_model::id::ProcessId;
use pinfold_os::fsio::random;
use serde::{Deserialize, Serialize};

use crate::Durability;
use crate::layout::{Home, replace_file};

/// The version of the file's format.
pub const IDS_FORMAT: u32 = 1;
/// Numbers reserved at once: the file is written once per this many ids.
pub const BLOCK: u64 = 1024;

/// Generates ids. Only the daemon has one.
#[derive(Debug)]
pub struct IdSource {
    path: PathBuf,
    processes: PathBuf,
    seed: u64,
    next: u64,
    reserved: u64,
    durability: Durability,
}

#[derive(Serialize, Deserialize)]
struct OnDisk {
    format: u32,
    seed: u64,
    reserved: u64,
}

impl IdSource {
    pub fn open(home: &Home) -> io::Result<IdSource> {
        let path = home.ids();
        let on_disk = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<OnDisk>(&bytes).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (seed, reserved) = match on_disk {
            Some(OnDisk { format, .. }) if format > IDS_FORMAT => {
                let text = format!("{} was written by a newer pinfold (format {format}): upgrade", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            Some(OnDisk { seed, reserved, .. }) => (seed, reserved),
            None => (u64::from_le_bytes(random()?), 0),
        };
        Ok(IdSource {
            path,
            processes: home.processes(),
            seed,
            next: reserved,
            reserved,
            durability: home.durability(),
        })
    }

    /// A new id, never used before.
    #[expect(clippy::should_implement_trait, reason = "it can fail, and ids are not iterated over")]
    pub fn next(&mut self) -> io::Result<ProcessId> {
        loop {
            if self.next == self.reserved {
                self.reserve()?;
            }
            let id = ProcessId::from_number(self.next, self.seed);
            self.next += 1;
            if !self.processes.join(id.as_str()).try_exists()? {
                return Ok(id);
            }
        }
    }

    fn reserve(&mut self) -> io::Result<()> {
        let reserved = self.reserved + BLOCK;
        self.write(reserved)?;
        self.reserved = reserved;
        Ok(())
    }

    /// Writes the file again, into a home that was created again.
    pub fn rewrite(&self) -> io::Result<()> {
        self.write(self.reserved)
    }

    fn write(&self, reserved: u64) -> io::Result<()> {
        let on_disk = OnDisk { format: IDS_FORMAT, seed: self.seed, reserved };
        replace_file(&self.path, &serde_json::to_vec(&on_disk)?, self.durability)
    }
}

/// A unique mark for a process: 128 random bits in hex.
pub fn random_mark() -> io::Result<String> {
    Ok(format!("{:032x}", u128::from_le_bytes(random()?)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::testing::{Scratch, mode_of};

    #[test]
    fn no_id_is_used_twice_however_often_the_file_is_reopened() {
        let home = Scratch::home();
        let mut seen = HashSet::new();
        for count in [0, 1, 1023, 1024, 1025, 5] {
            let mut ids = IdSource::open(&home).expect("open");
            (0..count).for_each(|_| assert!(seen.insert(ids.next().expect("id"))));
        }
        assert_eq!(seen.len(), 3078);
        assert_eq!(mode_of(&home.ids()), 0o600);
    }

    #[test]
    fn a_damaged_or_missing_file_is_replaced_and_ids_with_a_directory_are_skipped() {
        let home = Scratch::home();
        let first = IdSource::open(&home).expect("open").next().expect("id");
        for content in [None, Some("{\"format\":1,\"se"), Some("")] {
            match content {
                None => std::fs::remove_file(home.ids()).expect("removed"),
                Some(content) => std::fs::write(home.ids(), content).expect("written"),
            }
            assert_ne!(IdSource::open(&home).expect("open").next().expect("id"), first);
        }
        let mut ids = IdSource { next: 0, ..IdSource::open(&home).expect("open") };
        let taken: Vec<_> = (0..3).map(|number| ProcessId::from_number(number, ids.seed)).collect();
        taken.iter().for_each(|id| std::fs::create_dir(home.process(id)).expect("directory"));
        assert_eq!(ids.next().expect("id"), ProcessId::from_number(3, ids.seed));
    }

    #[test]
    fn a_file_of_a_newer_pinfold_is_refused() {
        let home = Scratch::home();
        std::fs::write(home.ids(), r#"{"format":2,"seed":1,"reserved":2}"#).expect("written");
        assert!(IdSource::open(&home).expect_err("refused").to_string().contains("upgrade"));
    }

    #[test]
    fn marks_are_32_hex_digits_and_differ() {
        let (one, other) = (random_mark().expect("mark"), random_mark().expect("mark"));
        assert!(one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
        assert_ne!(one, other);
    }
}
