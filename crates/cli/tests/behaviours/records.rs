//! Reading and changing files of the store in tests.

use std::path::{Path, PathBuf};

use pinfold_model::facts::{Fact, Intent};
use pinfold_model::id::ProcessId;
use pinfold_store::Durability;
use pinfold_store::layout::ProcessDir;
use pinfold_store::record::{RecordWriter, read_record};
use pinfold_testkit::Pinfold;

/// The facts in the record of a process.
pub(crate) fn facts(pinfold: &Pinfold, id: &str) -> Vec<Fact> {
    read_record(&pinfold.directory(id)).expect("a readable record").facts
}

/// The intent of a record, as JSON.
pub(crate) fn intent(pinfold: &Pinfold, id: &str) -> Intent {
    match facts(pinfold, id).swap_remove(0) {
        Fact::Intended(intent) => *intent,
        other => panic!("a record that begins with {other:?}"),
    }
}

/// Rewrites the record, well formed, with the facts changed by `change`.
pub(crate) fn rewrite(pinfold: &Pinfold, id: &str, change: impl FnOnce(&mut Vec<Fact>)) {
    let mut changed = facts(pinfold, id);
    change(&mut changed);
    let scratch = pinfold.home().join("rewritten");
    std::fs::create_dir(&scratch).expect("a scratch directory");
    let directory = ProcessDir::prepare(&scratch, &ProcessId::parse(id).expect("an id")).expect("a directory");
    let mut writer = RecordWriter::new(&directory, Durability::Programs);
    for fact in &changed {
        writer.append(fact).expect("a written fact");
    }
    std::fs::copy(directory.path().join("record"), pinfold.directory(id).join("record")).expect("a new record");
    std::fs::remove_dir_all(scratch).expect("no scratch directory");
}

/// The intent among facts, to be changed.
pub(crate) fn intent_of(facts: &mut [Fact]) -> &mut Intent {
    match facts.first_mut() {
        Some(Fact::Intended(intent)) => intent,
        other => panic!("a record that begins with {other:?}"),
    }
}

/// Every file below a directory.
pub(crate) fn files_in(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry")) {
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            found.extend(files_in(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}
