//! `--json` prints the API's own objects, and nothing but them.

use pinfold_api::error::{ApiError, ErrorCode};
use pinfold_api::types::{
    Event, GcAnswer, Health, ListQuery, OutputPage, ProcessList, Record, ShutdownAnswer, SignalAnswer, Started, Status,
    StopAnswer, WaitAnswer, WaitManyAnswer, WaitReason,
};
use pinfold_testkit::{Pinfold, Setup};
use serde::de::DeserializeOwned;

use crate::PINFOLD;

/// One document on one line.
fn document<T: DeserializeOwned>(pinfold: &Pinfold, arguments: &[&str]) -> T {
    let cli = pinfold.cli(&[&["--json"], arguments].concat());
    assert_eq!((cli.stdout.lines().count(), cli.stderr.as_str()), (1, ""), "{arguments:?}: {cli:?}");
    serde_json::from_str(&cli.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", cli.stdout))
}

#[test]
fn documents_are_the_apis_own() {
    let pinfold = Pinfold::start(PINFOLD);
    let ended = pinfold.run("echo hello; exit 3").0.id;
    let ended = pinfold.wait_finished(&ended);
    assert_eq!(document::<Record>(&pinfold, &["show", &ended.id]), pinfold.show(&ended.id));
    assert_eq!(document::<ProcessList>(&pinfold, &["ps"]), pinfold.list(&ListQuery::default()));
    assert_eq!(document::<Health>(&pinfold, &["daemon", "status"]), pinfold.health());
    let page: OutputPage = document(&pinfold, &["logs", &ended.id]);
    assert_eq!((page.text.as_str(), page.closed), ("hello\n", true));
    let waited: WaitAnswer = document(&pinfold, &["wait", &ended.id]);
    assert_eq!((waited.reason, waited.record), (WaitReason::Exited, ended.clone()));

    let started: Started = document(&pinfold, &["run", "-d", "--name", "web", "sleep 300"]);
    assert!(started.created && started.record.status == Status::Running);
    let id = started.record.id.as_str();
    let many: WaitManyAnswer = document(&pinfold, &["wait", "--any", id, &ended.id]);
    assert_eq!((many.done.len(), many.pending.len()), (1, 1));
    assert!(document::<SignalAnswer>(&pinfold, &["pause", "web"]).record.paused);
    assert!(!document::<SignalAnswer>(&pinfold, &["resume", "web"]).record.paused);
    assert!(document::<SignalAnswer>(&pinfold, &["signal", "WINCH", "web"]).reached >= 1);
    let stopped: StopAnswer = document(&pinfold, &["stop", "web"]);
    assert_eq!((stopped.record.id.as_str(), stopped.survivors.len()), (id, 0));
    let ran: Started = document(&pinfold, &["run", "echo in json; exit 0"]);
    assert_eq!(ran.output_page.map(|page| page.text).as_deref(), Some("in json\n"));
    assert_eq!(document::<GcAnswer>(&pinfold, &["gc", "--older-than", "0", "--dry-run"]).removed.len(), 3);
    assert_eq!(document::<ShutdownAnswer>(&pinfold, &["daemon", "stop"]).left_running, 0);
}

#[test]
fn events_are_one_to_a_line() {
    let pinfold = Pinfold::start(PINFOLD);
    (0..3).for_each(|_| drop(pinfold.wait_finished(&pinfold.sh("exit 0").id)));
    let printed = pinfold.cli(&["events", "--json"]).stdout;
    let events: Vec<Event> = printed.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    assert_eq!(events, pinfold.events(0).events);
    let after = events[2].seq.to_string();
    assert_eq!(pinfold.cli(&["events", "--json", "--after", &after]).stdout.lines().count(), events.len() - 3);
}

#[test]
fn what_needs_no_daemon_is_json_too() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let findings: Vec<serde_json::Value> = document(&pinfold, &["doctor"]);
    let whole = |finding: &serde_json::Value| ["level", "topic", "text"].iter().all(|key| finding[key].is_string());
    assert!(findings.len() > 5 && findings.iter().all(whole), "{findings:?}");
    let config: serde_json::Value = document(&pinfold, &["config"]);
    assert_eq!(config["home"].as_str(), pinfold.home().to_str());
    assert!(config["toml"].as_str().is_some_and(|toml| toml.contains("grace")));
}

#[test]
fn errors_are_the_apis_own_on_stderr() {
    let pinfold = Pinfold::start(PINFOLD);
    for (arguments, code, exit) in [
        (&["show", "missing"][..], ErrorCode::NotFound, 2),
        (&["run", "--cwd", "/no/such/directory", "true"], ErrorCode::BadCwd, 125),
        (&["run", "--", "no-such-program", "x"], ErrorCode::NoProgram, 127),
        (&["ps", "--status", "dancing"], ErrorCode::InvalidRequest, 2),
    ] {
        let cli = pinfold.cli(&[&["--json"], arguments].concat());
        let error: ApiError = serde_json::from_str(&cli.stderr).unwrap_or_else(|error| panic!("{error}: {cli:?}"));
        assert_eq!((error.code, cli.code, cli.stdout.as_str()), (code, Some(exit), ""));
    }
}
