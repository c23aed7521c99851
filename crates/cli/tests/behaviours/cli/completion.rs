//! Completion of ids, names and owners in a shell.

use std::path::Path;

use pinfold_api::types::StartRequest;
use pinfold_testkit::{Pinfold, Setup};

use crate::PINFOLD;
use crate::requests::request;

/// What bash offers for the last of these words; `None` if there is no bash here.
fn offered(pinfold: &Pinfold, words: &[&str]) -> Option<Vec<String>> {
    if !Path::new("/bin/bash").exists() {
        eprintln!("SKIPPED: /bin/bash is not installed");
        return None;
    }
    let script = "PATH=$(dirname \"$PINFOLD_PROGRAM\"):$PATH
        source <(pinfold completions bash)
        COMP_WORDS=(pinfold \"$@\"); COMP_CWORD=$#; COMP_TYPE=9
        _clap_complete_pinfold pinfold \"${COMP_WORDS[COMP_CWORD]}\" 2>/dev/null
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = std::process::Command::new("/bin/bash");
    bash.args(["-c", script, "bash"]).args(words).env("PINFOLD_HOME", pinfold.home()).env("PINFOLD_PROGRAM", PINFOLD);
    let output = bash.output().expect("bash");
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

#[test]
fn ids_names_and_owners_are_completed() {
    let pinfold = Pinfold::start(PINFOLD);
    let start = |name: &str| {
        let request =
            StartRequest { name: Some(name.into()), owner: Some("chat-7".into()), ..request("exec sleep 300") };
        pinfold.start_request(&request).record.id
    };
    let (web, worker) = (start("web"), start("worker"));
    let Some(all) = offered(&pinfold, &["logs", ""]) else { return };
    for word in [web.as_str(), &worker, "web", "worker"] {
        assert!(all.iter().any(|offered| offered.trim() == word), "{word} in {all:?}");
    }
    let trimmed = |words: &[&str]| -> Vec<String> {
        offered(&pinfold, words).unwrap_or_default().iter().map(|word| word.trim().to_owned()).collect()
    };
    assert_eq!(trimmed(&["stop", "we"]), ["web"]);
    assert_eq!(trimmed(&["stop", "web", "wo"]), ["worker"]);
    assert_eq!(trimmed(&["ps", "--owner", "ch"]), ["chat-7"]);
    assert_eq!(trimmed(&["owner", "end", "ch"]), ["chat-7"]);
    assert_eq!(trimmed(&["rer"]), ["rerun"]);
}

#[test]
fn completion_starts_no_daemon() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let Some(words) = offered(&pinfold, &["stop", "x"]) else { return };
    assert!(words.iter().all(|word| word.is_empty()), "{words:?}");
    assert!(!pinfold.home().join("socket").exists());
}
