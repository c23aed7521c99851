//! Runs every file of fuzz/corpus without a fuzzer: inputs that once broke a target, and inputs that reach deep into it.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pinfold_hostile::TARGETS;

/// Maximum size of the whole corpus: people should be able to read it.
const MAX_CORPUS: u64 = 512 << 10;

/// Panic messages: `catch_unwind` does not see the panic of a spawned task.
static PANICKED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

#[test]
fn no_input_of_the_corpus_breaks_its_target() {
    std::panic::set_hook(Box::new(|panic| PANICKED.lock().expect("the list").push(panic.to_string())));
    let mut broken = Vec::new();
    for (name, target) in TARGETS {
        for file in files(&corpus().join(name)) {
            let bytes = std::fs::read(&file).expect("it can be read");
            let _ = std::panic::catch_unwind(|| target(&bytes));
            let panics = std::mem::take(&mut *PANICKED.lock().expect("the list"));
            broken.extend(panics.into_iter().map(|panic| format!("{}: {panic}", file.display())));
        }
    }
    let _ = std::panic::take_hook();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_target_has_a_corpus_and_a_program_and_the_corpus_is_small() {
    let mut bytes = 0;
    for (name, _) in TARGETS {
        let files = files(&corpus().join(name));
        assert!(!files.is_empty(), "fuzz/corpus/{name} is empty");
        bytes += files.iter().map(|file| file.metadata().expect("a file").len()).sum::<u64>();
        let program = corpus().with_file_name("fuzz_targets").join(format!("{name}.rs"));
        let text = std::fs::read_to_string(&program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        assert!(text.contains(&format!("run(\"{name}\"")), "{name}");
    }
    assert_eq!(std::fs::read_dir(corpus()).expect("the corpus").count(), TARGETS.len(), "a corpus without a target");
    assert!(bytes <= MAX_CORPUS, "the corpus has {bytes} bytes, at most {MAX_CORPUS} are allowed");
}
