//! What a name refers to, and under which command line a stray is shown.

use pinfold_api::types::{ListQuery, StartRequest, Status};
use pinfold_testkit::{Pinfold, until};
use serde_json::json;

use crate::PINFOLD;
use crate::mcp::agent::Agent;

fn named(pinfold: &Pinfold, name: &str, command: &str) -> String {
    let request = StartRequest { command: Some(command.into()), name: Some(name.into()), ..StartRequest::default() };
    pinfold.start_request(&request).record.id
}

#[test]
fn a_name_refers_to_the_live_process_else_to_the_latest_that_ended() {
    let pinfold = Pinfold::start(PINFOLD);
    let first = named(&pinfold, "web", "echo first");
    pinfold.wait_finished(&first);
    let second = named(&pinfold, "web", "echo second; exit 3");
    pinfold.wait_finished(&second);
    assert_eq!(pinfold.show("web").id, second);
    // Also when the daemon no longer has it in memory.
    pinfold.crash_and_restart();
    assert_eq!(pinfold.show("web").id, second);
    assert_eq!(pinfold.cli(&["logs", "web"]).stdout, "second\n");
    let living = named(&pinfold, "web", "exec sleep 300");
    assert_eq!(pinfold.show("web").id, living);
    let stopped = pinfold.cli(&["stop", "web"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(pinfold.show("web").id, living);
    // A stop of an ended process changes nothing.
    let again = pinfold.cli(&["stop", "web"]);
    assert_eq!(pinfold.show(&living).status, Status::Finished, "{again:?}");
    let missing = pinfold.cli(&["show", "wep"]);
    assert!(missing.stderr.contains("did you mean `web`"), "{missing:?}");
}

/// An id is never mistaken for the name of another process.
#[test]
fn an_id_wins_over_a_name_and_a_name_over_a_prefix_of_an_id() {
    let pinfold = Pinfold::start(PINFOLD);
    let other = named(&pinfold, "other", "true");
    pinfold.wait_finished(&other);
    let called_like_it = named(&pinfold, &other, "true");
    pinfold.wait_finished(&called_like_it);
    let beginning = named(&pinfold, &other[..2], "true");
    pinfold.wait_finished(&beginning);
    assert_eq!(pinfold.show(&other).id, other);
    assert_eq!(pinfold.show(&other[..2]).id, beginning);
    pinfold.crash_and_restart();
    assert_eq!(pinfold.show(&other).id, other);
    assert_eq!(pinfold.show(&other[..2]).id, beginning);
}

#[test]
fn the_tools_find_an_ended_process_by_its_name_for_its_owner_only() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let ran = agent.call("execute", json!({ "command": "echo built; exit 2", "name": "build" }));
    let id = ran.id().to_owned();
    let read = agent.call("process_output", json!({ "id": "build", "cursor": 0 }));
    assert_eq!((read.id(), read.output().trim_end()), (id.as_str(), "built"), "{}", read.text);
    let waited = agent.call("process_wait", json!({ "id": "build" }));
    assert_eq!((waited.id(), &waited.facts["exit_code"]), (id.as_str(), &json!(2)), "{}", waited.text);
    let both = agent.call("process_wait", json!({ "ids": ["build", id], "mode": "all" }));
    assert!(!both.is_error, "{}", both.text);
    let stopped = agent.call("process_signal", json!({ "id": "build" }));
    assert_eq!(stopped.facts["exit_code"], 2, "{}", stopped.text);
    let mut stranger = Agent::connect(&pinfold);
    let read = stranger.call("process_output", json!({ "id": "build" }));
    assert!(read.is_error && read.text.contains("not_found"), "{}", read.text);
}

/// The leader exits at once, possibly while its child is between fork and exec.
#[test]
fn a_stray_is_shown_with_its_own_command_line() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    for _ in 0..30 {
        let ran = agent.execute("sleep 301 & echo up");
        let strays = ran.facts["strays"].to_string();
        assert!(strays.contains("\"sleep 301\"") && !strays.contains("echo up"), "{}", ran.text);
    }
    let lists = pinfold.list(&ListQuery::default());
    for process in lists.processes {
        pinfold.cli(&["stop", "--grace", "0s", &process.id]);
        until("it is over", || pinfold.show(&process.id).status == Status::Finished);
    }
}
