//! Sandboxes as text from clients, and the paths that are guessed from the output of a process.

use std::path::{Path, PathBuf};

use pinfold_model::sandbox::{Kernel, MAX_GUESSED_PATHS, Sandbox, SandboxRequest};

use crate::feed::{Feed, text};

pub(crate) fn target(data: &[u8]) {
    let mut feed = Feed(data);
    let length = feed.byte().into();
    let asked = text(feed.bytes(length));
    let kernel = Kernel { landlock_abi: u32::from(feed.byte() % 8), seccomp: true, namespaces: feed.byte() % 2 == 0 };
    let output = text(feed.0);
    let Ok(parts) = SandboxRequest::Text(asked.clone()).parse("/home/ann") else { return };
    let cwd = Path::new("/work");
    let Some(sandbox) = Sandbox::of(&parts, cwd, None) else { return };
    // A root with a comma cannot be written as text.
    if !sandbox.write.iter().any(|root| root.to_string_lossy().contains(',')) {
        let again = SandboxRequest::Text(sandbox.render()).parse("/home/ann").expect("what is rendered can be read");
        assert_eq!(Sandbox::of(&again, cwd, None), Some(sandbox.clone()), "{asked}");
    }
    let Ok(enforcement) = sandbox.enforcement(kernel) else { return };
    let guessed = enforcement.guess_paths(&output, cwd, None);
    assert!(guessed.len() <= MAX_GUESSED_PATHS);
    let is_plain = |path: &PathBuf| path.to_str().is_some_and(|path| !path.contains(char::is_whitespace));
    assert!(guessed.iter().all(is_plain), "a sentence was taken for a path: {guessed:?}");
}
