//! `rerun` starts the command of another process again, with its options.

use pinfold_api::types::{ListQuery, Outcome, Record, Started};
use pinfold_testkit::Pinfold;

use crate::PINFOLD;

fn started(pinfold: &Pinfold, arguments: &[&str]) -> Record {
    let cli = pinfold.cli(arguments);
    assert_eq!(cli.code, Some(0), "{arguments:?}: {}", cli.stderr);
    serde_json::from_str::<Started>(&cli.stdout).expect("a started process").record
}

#[test]
fn rerun_repeats_the_command_with_its_options() {
    let pinfold = Pinfold::start(PINFOLD);
    let directory = pinfold.home().to_str().expect("text").to_owned();
    let first = started(
        &pinfold,
        &[
            "--json",
            "run",
            "-d",
            "--name",
            "tests",
            "--label",
            "kind=unit",
            "--cwd",
            &directory,
            "--streams",
            "separate",
            "--time-limit",
            "90s",
            "--owner",
            "ann",
            "pwd; exit 3",
        ],
    );
    pinfold.wait_finished(&first.id);
    let cli = pinfold.cli(&["rerun", "tests"]);
    assert_eq!((cli.code, cli.stdout.as_str()), (Some(3), format!("{directory}\n").as_str()), "{}", cli.stderr);
    let again = pinfold.show("tests");
    assert_ne!(again.id, first.id, "the name means the later one");
    assert_eq!((again.command, again.cwd, again.owner), (first.command, first.cwd, first.owner));
    assert_eq!(again.outcome, Some(Outcome::Exited { code: 3 }));
    assert_eq!((again.labels["kind"].as_str(), again.labels["rerun-of"].as_str()), ("unit", first.id.as_str()));
    let request = again.request.expect("a request");
    assert_eq!(request.time_limit, first_request(&pinfold, &first.id));
}

fn first_request(pinfold: &Pinfold, id: &str) -> Option<pinfold_api::input::Span> {
    let limit = pinfold.show(id).request.expect("a request").time_limit;
    assert!(limit.is_some());
    limit
}

#[test]
fn rerun_takes_the_environment_of_this_shell_and_stores_no_value() {
    let pinfold = Pinfold::start(PINFOLD);
    let first = started(&pinfold, &["--json", "run", "-d", "--env", "SECRET=hunter2", "echo ${#SECRET}"]);
    pinfold.wait_finished(&first.id);
    assert_eq!(pinfold.text(&first.id), "7\n");
    assert!(!pinfold.cli(&["show", "--json", &first.id]).stdout.contains("hunter2"));
    assert_eq!(pinfold.cli(&["rerun", &first.id]).stdout, "0\n");
    assert_eq!(pinfold.cli(&["rerun", &first.id, "--env", "SECRET=other"]).stdout, "5\n");
}

#[test]
fn rerun_keeps_the_sandbox() {
    let pinfold = Pinfold::start(PINFOLD);
    let target = pinfold.home().join("written");
    let command = format!("touch {} && echo WRITTEN", target.display());
    let first = pinfold.cli(&["--json", "run", "-d", "--sandbox", "read-only", &command]);
    if first.code != Some(0) {
        assert!(first.stdout.contains("sandbox") || first.stderr.contains("sandbox"), "{first:?}");
        eprintln!("skipped: this kernel has no sandbox");
        return;
    }
    let first = serde_json::from_str::<Started>(&first.stdout).expect("a started process").record;
    pinfold.wait_finished(&first.id);
    let again = pinfold.cli(&["rerun", &first.id]);
    assert!(again.code != Some(0) && !again.stdout.contains("WRITTEN") && !target.exists(), "{again:?}");
    let query = ListQuery { label: vec![format!("rerun-of={}", first.id)], ..ListQuery::default() };
    let listed = pinfold.list(&query).processes;
    assert_eq!(listed[0].sandbox.as_ref().map(|it| &it.asked), first.sandbox.as_ref().map(|it| &it.asked));
}

#[test]
fn rerun_of_what_cannot_be_repeated_says_why() {
    let pinfold = Pinfold::start(PINFOLD);
    let missing = pinfold.cli(&["rerun", "missing"]);
    assert!(missing.code == Some(125) && missing.stderr.contains("missing"), "{missing:?}");
    let plain = pinfold.run("true").0.id;
    let attached = pinfold.cli(&["rerun", "-i", &plain]);
    assert!(attached.code != Some(0) && attached.stderr.contains("--interactive"), "{attached:?}");
    let directory = pinfold.home().join("gone");
    std::fs::create_dir(&directory).expect("created");
    let path = directory.to_str().expect("text");
    let first = started(&pinfold, &["--json", "run", "-d", "--cwd", path, "true"]);
    pinfold.wait_finished(&first.id);
    std::fs::remove_dir(&directory).expect("removed");
    let gone = pinfold.cli(&["rerun", &first.id]);
    assert!(gone.code != Some(0) && gone.stderr.contains(path), "{gone:?}");
}
