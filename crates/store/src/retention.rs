//! The size of process directories, and their removal. Which ones to remove is decided in the model (`admission`).
//!
//! Invariant S5, *a damaged directory harms no other*: directories are listed by name only, each is read on its own, and
//! everything in a directory is removed with it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pinfold_model::id::ProcessId;
use pinfold_os::{crash_point, proc};

use crate::layout::{Home, writer_of_new_file};

/// Prefix of a directory that is being removed and is no longer read.
const REMOVING: &str = ".gone-";

/// The processes that have a directory, unordered. Names that are not process ids are ignored.
pub fn list_process_dirs(home: &Home) -> io::Result<Vec<ProcessId>> {
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(home.processes())? {
        let entry = entry?;
        let id = entry.file_name().to_str().and_then(|name| ProcessId::parse(name).ok());
        if let (Some(id), Ok(true)) = (id, entry.file_type().map(|kind| kind.is_dir())) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// The disk space that the files of a directory use. Files that are removed meanwhile do not count.
pub fn process_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let blocks = entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.blocks());
    blocks.sum::<u64>() * 512
}

/// Removes a process's directory. Renames it first, so that a partially removed one is never read. Succeeds if it does
/// not exist.
pub fn remove_process(home: &Home, id: &ProcessId) -> io::Result<()> {
    let removing = home.processes().join(format!("{REMOVING}{id}"));
    match std::fs::rename(home.process(id), &removing) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            remove_whole(&removing)?;
            std::fs::rename(home.process(id), &removing)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => result?,
    }
    crash_point!("store.removal_renamed");
    remove_whole(&removing)?;
    crash_point!("store.removed");
    Ok(())
}

/// Removes what interrupted removals left, and temporary files of dead daemons. Returns how many there were.
pub fn remove_leftovers(home: &Home) -> io::Result<usize> {
    let mut removed = 0;
    for entry in std::fs::read_dir(home.processes())? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(REMOVING.as_bytes()) {
            remove_whole(&entry.path())?;
            removed += 1;
        }
    }
    // Only the daemon writes here, and there is only one, so the writer of a temporary file with another pid is dead.
    // The file may contain environment values.
    let agents = std::fs::read_dir(home.agents()).into_iter().flatten().flatten().map(|entry| entry.path());
    for directory in agents.chain([home.chains()]) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if writer_of_new_file(&entry.path()).is_some_and(|pid| pid != std::process::id()) {
                std::fs::remove_file(entry.path())?;
                removed += 1;
            }
        }
    }
    for entry in std::fs::read_dir(home.root())? {
        let path = entry?.path();
        if writer_of_new_file(&path).is_some_and(|pid| !proc::stat(pid).is_ok_and(|stat| stat.is_living())) {
            std::fs::remove_file(path)?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn remove_whole(path: &PathBuf) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ProcessDir;
    use crate::record::{RecordError, RecordWriter, read_record};
    use crate::testing::{Scratch, all_facts, append_all, id};
    use crate::{Durability, layout};

    #[test]
    fn s5_a_damaged_directory_harms_no_other() {
        let home = Scratch::home();
        for number in 0..6 {
            let dir = ProcessDir::prepare(&home.processes(), &id(number)).expect("prepared");
            let mut writer = RecordWriter::new(&dir, Durability::Programs);
            append_all(&mut writer, &all_facts(number));
        }
        let record = |number| home.process(&id(number)).join(layout::RECORD);
        std::fs::write(record(1), "no record at all\n").expect("written");
        std::fs::remove_file(record(2)).expect("removed");
        std::fs::write(record(3), "").expect("written");
        std::fs::create_dir_all(home.process(&id(4)).join("out.00000000000000000000/deep")).expect("made");
        std::fs::write(home.processes().join("not an id"), "").expect("written");
        std::fs::write(home.processes().join(id(9).as_str()), "a file").expect("written");

        let mut listed = list_process_dirs(&home).expect("listed");
        listed.sort();
        let mut expected: Vec<_> = (0..6).map(id).collect();
        expected.sort();
        assert_eq!(listed, expected);
        let read = |number| read_record(&home.process(&id(number)));
        assert!(matches!(read(1), Err(RecordError::Damaged { .. })));
        assert!(matches!(read(2), Err(RecordError::Missing { .. })));
        assert!(matches!(read(3), Err(RecordError::Empty { .. })));
        for whole in [0, 4, 5] {
            assert_eq!(read(whole).expect("whole").facts, all_facts(whole));
        }
        let reader = crate::reader::OutputReader::open(&home.process(&id(4)));
        assert_eq!(reader.extent().expect("extent").end, 0);
        for number in 0..6 {
            remove_process(&home, &id(number)).expect("removed, whatever it holds");
        }
        assert_eq!(list_process_dirs(&home).expect("listed"), []);
    }

    #[test]
    fn a_half_removed_directory_is_never_listed_and_is_removed_later() {
        let home = Scratch::home();
        let gone = home.processes().join(format!(".gone-{}", id(1)));
        std::fs::create_dir(&gone).expect("made");
        std::fs::write(gone.join("out.00000000000000000000"), "x").expect("written");
        ProcessDir::prepare(&home.processes(), &id(1)).expect("prepared");
        assert_eq!(list_process_dirs(&home).expect("listed"), [id(1)]);
        remove_process(&home, &id(1)).expect("removed over the leftover");
        assert!(!gone.exists() && !home.process(&id(1)).exists());
        remove_process(&home, &id(1)).expect("removed already");
        std::fs::create_dir(&gone).expect("made");
        assert_eq!(remove_leftovers(&home).expect("cleaned"), 1);
        assert_eq!(remove_leftovers(&home).expect("clean"), 0);
        let fresh = |pid: u32| home.root().join(format!("ids.new-{pid}"));
        [u32::MAX, std::process::id()].iter().for_each(|pid| std::fs::write(fresh(*pid), "").expect("written"));
        assert_eq!(remove_leftovers(&home).expect("cleaned"), 1);
        assert!(fresh(std::process::id()).exists(), "its writer lives");
        // Of a chain and of an agent, whichever process has the pid now.
        let parent = std::os::unix::process::parent_id();
        for directory in [home.chains(), home.agents().join("a")] {
            std::fs::create_dir_all(&directory).expect("made");
            for pid in [parent, std::process::id()] {
                std::fs::write(directory.join(format!("x.new-{pid}")), "SECRET=1").expect("written");
            }
        }
        assert_eq!(remove_leftovers(&home).expect("cleaned"), 2);
        assert!(home.chains().join(format!("x.new-{}", std::process::id())).exists(), "ours");
    }

    #[test]
    fn bytes_are_what_is_allocated() {
        let scratch = Scratch::new();
        assert_eq!(process_bytes(scratch.path()), 0);
        std::fs::write(scratch.path().join("out"), vec![1; 100_000]).expect("written");
        std::fs::File::open(scratch.path().join("out")).expect("open").sync_all().expect("allocated");
        assert!((100_000..200_000).contains(&process_bytes(scratch.path())));
        assert_eq!(process_bytes(&scratch.path().join("missing")), 0);
    }
}
