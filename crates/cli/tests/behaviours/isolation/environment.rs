//! Which variables a process inherits, and which it never does.

use pinfold_api::types::StartRequest;
use pinfold_testkit::{Pinfold, Setup};

use crate::PINFOLD;

const CONFIG: &str = "[environment]\nallow = [\"PATH\", \"HOME\", \"OURS_*\"]\ndeny = [\"*_TOKEN\"]\n";

fn filtered() -> Pinfold {
    let env = ["OURS_NAME", "OURS_TOKEN", "THEIRS"].map(|name| (name.to_owned(), "value".to_owned())).to_vec();
    Pinfold::start_with(PINFOLD, Setup { config: CONFIG.into(), env, user: None })
}

/// The names in the output of `env`, without the variables that pinfold and the shell set.
fn names(output: &str) -> Vec<&str> {
    let mut names: Vec<_> = output.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !name.starts_with("PINFOLD_") && !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    names
}

#[test]
fn only_allowed_variables_pass_from_the_daemon() {
    let pinfold = filtered();
    for _ in 0..2 {
        let (_, output) = pinfold.run("env");
        assert_eq!(names(&output), ["HOME", "OURS_NAME", "PATH"], "{output}");
        // Also for a keeper that an earlier daemon forked.
        pinfold.crash_and_restart();
    }
}

#[test]
fn variables_set_in_a_request_always_pass() {
    let pinfold = filtered();
    let request = StartRequest {
        command: Some("env".into()),
        env: [("GITHUB_TOKEN".to_owned(), Some("value".to_owned()))].into(),
        ..StartRequest::default()
    };
    let id = pinfold.start_request(&request).record.id;
    pinfold.wait_finished(&id);
    assert!(names(&pinfold.text(&id)).contains(&"GITHUB_TOKEN"));
}

#[test]
fn only_allowed_variables_pass_from_the_command_line() {
    let pinfold = filtered();
    let cli = pinfold.cli(&["run", "--env", "ASKED_TOKEN=value", "env"]);
    assert_eq!(names(&cli.stdout), ["ASKED_TOKEN", "HOME", "OURS_NAME", "PATH"], "{cli:?}");
}
