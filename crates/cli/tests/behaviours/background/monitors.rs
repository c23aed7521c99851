//! Monitors: patterns that are watched for in output, and the events that they cause.

use pinfold_api::types::{Event, EventKind, ListQuery, Notify, OutputQuery, StartRequest, Status, WaitReason};
use pinfold_testkit::{Pinfold, until, until_some};

use crate::PINFOLD;
use crate::output::gate::Gate;
use crate::requests::{leave, post};

fn watched(command: &str, notify: Notify) -> StartRequest {
    StartRequest { command: Some(command.into()), notify: Some(notify), ..StartRequest::default() }
}

fn pattern(pattern: &str) -> Notify {
    Notify { patterns: vec![pattern.into()], cooldown: Some("0".into()), ..Notify::default() }
}

/// Events of these kinds of a process, in order.
fn events_of(pinfold: &Pinfold, id: &str, kinds: &[EventKind]) -> Vec<Event> {
    let events = pinfold.events(0).events.into_iter();
    events.filter(|event| event.process == id && kinds.contains(&event.kind)).collect()
}

fn matches(pinfold: &Pinfold, id: &str) -> Vec<Event> {
    events_of(pinfold, id, &[EventKind::Matched])
}

/// The lines in the events.
fn texts(events: &[Event]) -> Vec<&str> {
    events.iter().filter_map(|event| event.text.as_deref()).collect()
}

fn until_matched(pinfold: &Pinfold, id: &str, count: usize) -> Vec<Event> {
    until_some("matches", || Some(matches(pinfold, id)).filter(|found| found.len() >= count))
}

fn until_ended(pinfold: &Pinfold, id: &str) -> Event {
    until_some("the end of a watch", || events_of(pinfold, id, &[EventKind::WatchEnded]).pop())
}

/// A line in two writes, a coloured one, and one without a newline.
#[test]
fn monitor_matches_lines() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "rest");
    let command =
        format!("printf 'fine\\nerr'; {}; printf 'or: \\033[31mred\\033[0m\\nfine\\nlast error'", gate.wait());
    let id = pinfold.start_request(&watched(&command, pattern("error"))).record.id;
    gate.open();
    let found = until_matched(&pinfold, &id, 2);
    assert_eq!(texts(&found), ["error: red", "last error"]);
    assert_eq!(found.iter().map(|event| event.cursor).collect::<Vec<_>>(), [Some(5), Some(30)]);
    assert!(found.iter().all(|event| event.announce && event.suppressed == Some(0) && event.outcome.is_none()));
    // The line can be read at the cursor.
    let page = pinfold.output(&id, &OutputQuery { cursor: found[1].cursor, ..OutputQuery::default() });
    assert_eq!(page.text, "last error");
}

#[test]
fn monitor_rate_limit() {
    let pinfold = Pinfold::start(PINFOLD);
    // Matches within the cooldown are counted, and the count is in the final event.
    let slow = Notify { cooldown: Some("1h".into()), ..pattern("line") };
    let id = pinfold.start_request(&watched("for i in $(seq 50); do echo line $i; done", slow)).record.id;
    let ended = until_ended(&pinfold, &id);
    assert_eq!((texts(&matches(&pinfold, &id)), ended.suppressed), (vec!["line 1"], Some(49)));
    // The configured number of matches, then no more; the process continues.
    let (more, end) = (Gate::new(&pinfold, "more"), Gate::new(&pinfold, "end"));
    let command =
        format!("for i in $(seq 9); do echo line $i; done; {}; echo line 10; {}; exit 6", more.wait(), end.wait());
    let id = pinfold.start_request(&watched(&command, Notify { max_events: Some(3), ..pattern("line") })).record.id;
    let ended = until_ended(&pinfold, &id);
    assert!(ended.text.as_ref().is_some_and(|text| text.contains("max_events")) && ended.announce, "{ended:?}");
    more.open();
    let reached = end.reached();
    assert_eq!(texts(&matches(&pinfold, &id)), ["line 1", "line 2", "line 3"]);
    assert_eq!(pinfold.show(&id).status, Status::Running);
    reached.open();
    pinfold.wait_finished(&id);
    // The end is still reported, and the watch did not start again.
    assert_eq!(matches(&pinfold, &id).len(), 3);
    let done: Vec<_> =
        pinfold.events(0).events.into_iter().filter(|event| event.process == id && event.completion).collect();
    assert!(done.len() == 1 && done[0].announce, "{done:?}");
}

/// Endless output neither floods its owner with events nor slows the daemon.
#[test]
fn monitor_rate_limit_noise() {
    let pinfold = Pinfold::start(PINFOLD);
    let noisy =
        pinfold.start_request(&watched("exec yes match", Notify { cooldown: Some("1h".into()), ..pattern("match") }));
    let ended = until_ended(&pinfold, &noisy.record.id);
    assert_eq!((ended.suppressed, matches(&pinfold, &noisy.record.id).len()), (Some(1000), 1));
    assert_eq!(pinfold.show(&noisy.record.id).status, Status::Running);
    // One that is searched all the time and never matches.
    let quiet = pinfold.start_request(&watched("exec yes nothing", pattern("something"))).record.id;
    assert_eq!(pinfold.list(&ListQuery::default()).processes.len(), 2);
    for id in [&noisy.record.id, &quiet] {
        let stopped = pinfold.stop(id);
        assert!(stopped.survivors.is_empty() && stopped.record.outcome.is_some());
    }
    assert_eq!(events_of(&pinfold, &quiet, &[EventKind::Matched, EventKind::WatchEnded]), []);
}

/// A line that the response to a start or a read has shown is not reported again.
#[test]
fn monitor_not_for_shown() {
    let pinfold = Pinfold::start(PINFOLD);
    let gates = ["two", "three"].map(|name| Gate::new(&pinfold, name));
    let command = format!("echo error 1; {}; echo error 2; {}; echo error 3", gates[0].wait(), gates[1].wait());
    let ann = pinfold.client().acting_as("ann", None);
    let request = StartRequest { wait: Some("60s".into()), ..watched(&command, pattern("error")) };
    let answer = pinfold.block(async {
        let asking = ann.clone();
        let start = tokio::spawn(async move { asking.start(&request).await.expect("it starts") });
        // Another caller sees the first line; then the owner is released, and has seen it too.
        loop {
            let list = pinfold.client().list(&ListQuery::default()).await.expect("a list");
            if let Some(record) = list.processes.first()
                && !pinfold.client().output(&record.id, &OutputQuery::default()).await.expect("output").text.is_empty()
            {
                break;
            }
        }
        // Its output may arrive just before it is waited for.
        while pinfold.client().release_owner("ann").await.expect("an answer").released == 0 {}
        start.await.expect("an answer")
    });
    assert_eq!(answer.waited.map(|waited| waited.reason), Some(WaitReason::Cancelled));
    assert_eq!(answer.output_page.map(|page| page.text).as_deref(), Some("error 1\n"));
    let id = answer.record.id;
    gates[0].open();
    assert_eq!(texts(&until_matched(&pinfold, &id, 1)), ["error 2"], "somebody else's read hides nothing");
    gates[1].open();
    pinfold.wait_finished(&id);
    assert_eq!(texts(&until_matched(&pinfold, &id, 2)), ["error 2", "error 3"]);
    // A read by its owner.
    let gate = Gate::new(&pinfold, "read");
    let command = format!("printf 'error half'; {}; echo", gate.wait());
    let id = pinfold.block(ann.start(&watched(&command, pattern("error")))).expect("it starts").record.id;
    let reached = gate.reached();
    let page = pinfold
        .block(ann.output(&id, &OutputQuery { wait: Some("60s".into()), ..OutputQuery::default() }))
        .expect("output");
    assert_eq!(page.text, "error half");
    reached.open();
    pinfold.wait_finished(&id);
    // The end of the line is after what was shown: only the newline is new, which is not a line.
    let after = pinfold.start_request(&watched("echo error after", pattern("error"))).record.id;
    until_matched(&pinfold, &after, 1);
    assert_eq!(matches(&pinfold, &id), []);
}

#[test]
fn monitor_not_after_stop() {
    let pinfold = Pinfold::start(PINFOLD);
    let command = "trap 'echo error: stopped; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let id = pinfold.start_request(&watched(command, pattern("ready|error"))).record.id;
    until_matched(&pinfold, &id, 1);
    pinfold.stop(&id);
    assert!(pinfold.text(&id).ends_with("error: stopped\n"));
    let after = pinfold.start_request(&watched("echo error after", pattern("error"))).record.id;
    until_matched(&pinfold, &after, 1);
    assert_eq!(texts(&matches(&pinfold, &id)), ["ready"]);
}

/// A match is reported once, and the count continues, however often the daemon dies.
#[test]
fn monitor_exactly_once_over_crashes() {
    let pinfold = Pinfold::start(PINFOLD);
    let gates = ["one", "two", "three"].map(|name| Gate::new(&pinfold, name));
    let steps: Vec<String> =
        gates.iter().enumerate().map(|(n, gate)| format!("{}; echo error {n}", gate.wait())).collect();
    let id =
        pinfold.start_request(&watched(&steps.join(";"), Notify { max_events: Some(2), ..pattern("error") })).record.id;
    gates[0].open();
    let first = until_matched(&pinfold, &id, 1);
    // No daemon watches when the second line is printed.
    pinfold.kill_daemon();
    gates[1].open();
    let reached = gates[2].reached();
    pinfold.start_daemon();
    let ended = until_ended(&pinfold, &id);
    let found = matches(&pinfold, &id);
    assert_eq!((texts(&found), &found[0]), (vec!["error 0", "error 1"], &first[0]));
    pinfold.crash_and_restart();
    reached.open();
    pinfold.wait_finished(&id);
    pinfold.crash_and_restart();
    assert_eq!((matches(&pinfold, &id), until_ended(&pinfold, &id)), (found, ended), "what has ended stays so");
}

/// Options of the start hold although the daemon died right after it, or the client disconnected.
#[test]
fn flags_survive_crash() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "go");
    let notify = Notify {
        exclude: Some("not this".into()),
        webhook: Some("http://127.0.0.1:9/x".into()),
        on_complete: Some(false),
        ..pattern("error")
    };
    let started = pinfold.start_request(&watched(&format!("{}; echo error; echo error not this", gate.wait()), notify));
    pinfold.crash_and_restart();
    let id = started.record.id;
    assert_eq!(pinfold.show(&id).notify, started.record.notify);
    gate.open();
    pinfold.wait_finished(&id);
    assert_eq!(texts(&until_matched(&pinfold, &id, 1)), ["error"]);
    let done = events_of(&pinfold, &id, &[EventKind::Finished]);
    assert!(done.len() == 1 && done[0].completion && !done[0].announce);
    // A client that disconnects in the middle of its start.
    let gate = Gate::new(&pinfold, "gone");
    let request =
        StartRequest { wait: Some("60s".into()), ..watched(&format!("{}; echo error", gate.wait()), pattern("error")) };
    let start = post(&pinfold, "/v1/processes", &request);
    let query = ListQuery { status: Some("running".into()), ..ListQuery::default() };
    let id = until_some("its start", || pinfold.list(&query).processes.first().map(|record| record.id.clone()));
    // If it were answered before its disconnect is noticed, the line would count as shown.
    leave(start);
    gate.open();
    pinfold.wait_finished(&id);
    until("a match", || texts(&matches(&pinfold, &id)) == ["error"]);
}

#[test]
fn heartbeat_optional() {
    let pinfold = Pinfold::start(PINFOLD);
    let gates = ["two", "end"].map(|name| Gate::new(&pinfold, name));
    let command = format!("echo one; {}; printf 'two \\033[1mbold\\033[0m\\n'; {}", gates[0].wait(), gates[1].wait());
    let silent = pinfold.start_request(&watched(&gates[1].wait(), Notify::default())).record.id;
    let notify = Notify { heartbeat: Some("1s".into()), ..Notify::default() };
    let id = pinfold.start_request(&watched(&command, notify)).record.id;
    let beats = |id: &str| events_of(&pinfold, id, &[EventKind::Heartbeat]);
    let said = |id: &str| beats(id).iter().filter_map(|event| event.text.clone()).collect::<String>();
    until("the first heartbeat", || said(&id) == "one\n");
    // A new daemon repeats no match, and reports only new ones.
    pinfold.crash_and_restart();
    gates[0].open();
    until("another", || said(&id) == "one\ntwo bold\n");
    until("one with nothing new", || beats(&id).last().is_some_and(|event| event.text.is_none()));
    assert!(beats(&id).iter().all(|event| event.announce && event.cursor.is_some()));
    assert_eq!(beats(&silent), [], "not requested");
    pinfold.stop(&id);
    pinfold.stop(&silent);
}
