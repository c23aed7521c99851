//! Lists: the last line of output, periods of time, several labels.

use pinfold_api::types::{ListQuery, ProcessList, Record, StartRequest};
use pinfold_testkit::{Pinfold, until, until_some};

use crate::PINFOLD;
use crate::output::gate::Gate;

fn ids(list: &ProcessList) -> Vec<&str> {
    list.processes.iter().map(|record| record.id.as_str()).collect()
}

fn listed(pinfold: &Pinfold, id: &str) -> Record {
    let query = ListQuery { tree: Some(false), ..ListQuery::default() };
    pinfold.list(&query).processes.into_iter().find(|record| record.id == id).expect("it is listed")
}

fn last_line(pinfold: &Pinfold, id: &str) -> Option<String> {
    listed(pinfold, id).output.last_line
}

#[test]
fn a_list_shows_the_last_line_of_each_process_while_it_runs_and_afterwards() {
    let pinfold = Pinfold::start(PINFOLD);
    let (first, second) = (Gate::new(&pinfold, "first"), Gate::new(&pinfold, "second"));
    let script = format!(
        "{}; printf 'one\\n\\033[31mtwo\\033[0m\\n\\n'; {}; printf 'Proceed?\\a [y/N] '",
        first.wait(),
        second.wait()
    );
    let id = pinfold.sh(&script).id;
    let silent = listed(&pinfold, &id).output;
    assert_eq!((silent.last_line, silent.last_output_at, silent.bytes), (None, None, 0));
    first.open();
    until("the second line is the last", || last_line(&pinfold, &id).as_deref() == Some("two"));
    let spoken = listed(&pinfold, &id).output;
    assert_eq!(spoken.bytes, "one\n\x1b[31mtwo\x1b[0m\n\n".len() as u64);
    let then: jiff::Timestamp = spoken.last_output_at.expect("a time").parse().expect("RFC 3339");
    second.open();
    pinfold.wait_finished(&id);
    let ended = listed(&pinfold, &id).output;
    assert_eq!(ended.last_line.as_deref(), Some("Proceed? [y/N]"), "an unfinished line counts");
    assert!(ended.last_output_at.expect("a time").parse::<jiff::Timestamp>().expect("RFC 3339") >= then);
    pinfold.crash_and_restart();
    assert_eq!(last_line(&pinfold, &id).as_deref(), Some("Proceed? [y/N]"));
    assert_eq!(pinfold.show(&id).output.last_line.as_deref(), Some("Proceed? [y/N]"));
}

#[test]
fn a_last_line_is_found_after_output_was_dropped_and_new_segments_began() {
    let pinfold = Pinfold::start(PINFOLD);
    let (more, end) = (Gate::new(&pinfold, "more"), Gate::new(&pinfold, "end"));
    let command = format!("seq 1 5000; {}; seq 5001 20000; {}", more.wait(), end.wait());
    let request = StartRequest { command: Some(command), output_limit: Some("64k".into()), ..StartRequest::default() };
    let id = pinfold.start_request(&request).record.id;
    until("the first part is written", || last_line(&pinfold, &id).as_deref() == Some("5000"));
    more.open();
    until("the second part is written", || last_line(&pinfold, &id).as_deref() == Some("20000"));
    end.open();
    pinfold.wait_finished(&id);
    assert_eq!(last_line(&pinfold, &id).as_deref(), Some("20000"));
}

#[test]
fn an_owner_sees_the_last_lines_of_its_own_processes_only() {
    let pinfold = Pinfold::start(PINFOLD);
    let (mine, other) = (pinfold.client().acting_as("mine", None), pinfold.client().acting_as("other", None));
    for client in [&mine, &other] {
        let request = StartRequest { command: Some("echo secret of $PINFOLD_OWNER".into()), ..StartRequest::default() };
        let id = pinfold.block(client.start(&request)).expect("a start").record.id;
        pinfold.wait_finished(&id);
    }
    let list = pinfold.block(mine.list(&ListQuery::default())).expect("a list");
    let lines: Vec<_> = list.processes.iter().map(|record| record.output.last_line.as_deref()).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn lists_are_narrowed_to_a_period_of_time() {
    let pinfold = Pinfold::start(PINFOLD);
    let old = pinfold.run("true").0;
    let old = pinfold.wait_finished(&old.id);
    let live = pinfold.sh("exec sleep 600");
    let new = pinfold.run("false").0;
    let new = pinfold.wait_finished(&new.id);
    let list = |query: ListQuery| {
        let list = pinfold.list(&query);
        assert_eq!(list.total, list.processes.len() as u64);
        list
    };
    let created_after = |at: &str| ListQuery { created_after: Some(at.into()), ..ListQuery::default() };
    let created_before = |at: &str| ListQuery { created_before: Some(at.into()), ..ListQuery::default() };
    assert_eq!(ids(&list(created_after(&live.created_at))), [&*live.id, &*new.id], "live ones first");
    assert_eq!(ids(&list(created_before(&live.created_at))), [&*old.id]);
    let between = ListQuery { created_before: Some(new.created_at.clone()), ..created_after(&live.created_at) };
    assert_eq!(ids(&list(between)), [&*live.id]);
    let (ended, last) = (old.finished_at.expect("an end"), new.finished_at.expect("an end"));
    let finished = |after: &str, before: Option<&str>| ListQuery {
        finished_after: Some(after.into()),
        finished_before: before.map(str::to_owned),
        ..ListQuery::default()
    };
    assert_eq!(ids(&list(finished(&ended, None))), [&*new.id, &*old.id], "what lives has not finished");
    assert_eq!(ids(&list(finished(&ended, Some(&last)))), [&*old.id]);
    assert_eq!(ids(&list(finished("1h", None))).len(), 2, "within the last hour");
    assert_eq!(ids(&list(created_before("1h"))).len(), 0);
    pinfold.crash_and_restart();
    assert_eq!(ids(&list(finished(&ended, Some(&last)))), [&*old.id]);
    let refused =
        pinfold.block(pinfold.client().list(&created_after("yesterday"))).expect_err("not a time").to_string();
    assert!(refused.contains("created_after `yesterday`") && refused.contains("10m"), "{refused}");
    pinfold.stop(&live.id);
}

#[test]
fn a_list_by_several_labels_has_what_carries_all_of_them() {
    let pinfold = Pinfold::start(PINFOLD);
    let start = |labels: &[(&str, &str)], command: &str| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let request = StartRequest { command: Some(command.into()), labels, ..StartRequest::default() };
        pinfold.start_request(&request).record.id
    };
    let ended = start(&[("team", "ui"), ("note", "a,b=c & d")], "true");
    let live = start(&[("team", "ui"), ("note", "a,b=c & d")], "exec sleep 600");
    let other = start(&[("team", "ui"), ("note", "x")], "true");
    for id in [&ended, &other] {
        pinfold.wait_finished(id);
    }
    let list = |labels: &[&str]| {
        let label = labels.iter().map(|label| (*label).to_owned()).collect();
        pinfold.list(&ListQuery { label, ..ListQuery::default() })
    };
    assert_eq!(list(&["team=ui"]).total, 3);
    let both = until_some("both are indexed or in memory", || {
        Some(list(&["team=ui", "note=a,b=c & d"])).filter(|list| list.total == 2)
    });
    assert_eq!(ids(&both), [&*live, &*ended]);
    assert_eq!(list(&["team=ui", "team=server"]).total, 0);
    let shown = pinfold.cli(&["ps", "--label", "team=ui", "--label", "note=x", "--json"]);
    assert!(shown.stdout.contains(&other) && !shown.stdout.contains(&live), "{}", shown.stdout);
    pinfold.stop(&live);
}
