//! Searching the output of many processes.

use std::io::Write;

use pinfold_api::types::{Hit, SearchBound, SearchPage, SearchQuery, StartRequest, Status};
use pinfold_testkit::{Pinfold, until};

use crate::output::gate::Gate;
use crate::requests::{leave, request};
use crate::{PINFOLD, wire};

fn query(pattern: &str) -> SearchQuery {
    SearchQuery { pattern: pattern.into(), timeout: Some("30s".into()), ..SearchQuery::default() }
}

fn search(pinfold: &Pinfold, query: &SearchQuery) -> SearchPage {
    pinfold.block(pinfold.client().search(query)).expect("a page")
}

fn texts(page: &SearchPage) -> Vec<&str> {
    page.hits.iter().map(|hit| hit.text.as_str()).collect()
}

/// All hits, page by page.
fn all(pinfold: &Pinfold, query: &SearchQuery) -> (Vec<Hit>, usize) {
    let (mut hits, mut pages, mut next) = (Vec::new(), 0, None);
    loop {
        let page = search(pinfold, &SearchQuery { page: next, ..query.clone() });
        assert_eq!(page.next.is_some(), page.stopped_by.is_some());
        pages += 1;
        hits.extend(page.hits);
        next = page.next;
        if next.is_none() {
            return (hits, pages);
        }
    }
}

#[test]
fn a_search_finds_lines_of_live_and_ended_processes_with_their_cursors() {
    let pinfold = Pinfold::start(PINFOLD);
    let ended = pinfold.run("echo first; printf '\\033[31mERROR\\033[0m: one\\n'; echo error: two").0.id;
    pinfold.wait_finished(&ended);
    let gate = Gate::new(&pinfold, "live");
    let named =
        StartRequest { name: Some("web".into()), ..request(&format!("printf 'last ERROR: '; {}", gate.wait())) };
    let live = pinfold.start_request(&named).record.id;
    let reached = gate.reached();
    until("the unfinished line is written", || search(&pinfold, &query("ERROR")).hits.len() == 2);
    let page = search(&pinfold, &query("ERROR"));
    assert_eq!(texts(&page), ["last ERROR: ", "ERROR: one"], "the newest process first");
    let [newest, oldest] = &page.hits[..] else { panic!("{page:?}") };
    assert_eq!((&newest.process, newest.name.as_deref(), newest.status), (&live, Some("web"), Status::Running));
    assert_eq!((&oldest.process, oldest.cursor, oldest.status), (&ended, 6, Status::Finished));
    assert_eq!((page.next, page.stopped_by, page.searched_processes), (None, None, 2));
    assert!(page.searched_bytes > 20);
    let loose = SearchQuery { ignore_case: Some(true), ..query("^error") };
    assert_eq!(
        texts(&search(&pinfold, &loose)),
        ["ERROR: one", "error: two"],
        "lines are searched without their colours"
    );
    let literal = SearchQuery { literal: Some(true), ..query("t.*o") };
    assert_eq!(search(&pinfold, &literal).hits, []);
    assert_eq!(texts(&search(&pinfold, &query("t.*o"))), ["first", "error: two"][1..]);
    reached.open();
    pinfold.wait_finished(&live);
    pinfold.crash_and_restart();
    assert_eq!(search(&pinfold, &query("ERROR")).hits.len(), 2, "after a restart of the daemon too");
}

#[test]
fn a_search_is_narrowed_by_process_owner_status_label_and_time() {
    let pinfold = Pinfold::start(PINFOLD);
    let start = |owner: &str, team: &str| {
        let labels = [("team".to_owned(), team.to_owned())].into();
        let started = StartRequest { owner: Some(owner.into()), labels, ..request("echo needle $PINFOLD_PROCESS") };
        let id = pinfold.start_request(&started).record.id;
        pinfold.wait_finished(&id)
    };
    let (one, two) = (start("ann", "ui"), start("bob", "ui"));
    let found = |query: SearchQuery| -> Vec<String> {
        search(&pinfold, &query).hits.into_iter().map(|hit| hit.process).collect()
    };
    let needle = || query("needle");
    assert_eq!(found(needle()), [&*two.id, &*one.id]);
    assert_eq!(found(SearchQuery { owner: Some("ann".into()), ..needle() }), [&*one.id]);
    assert_eq!(found(SearchQuery { process: Some(two.id.clone()), ..needle() }), [&*two.id]);
    assert_eq!(found(SearchQuery { status: Some("live".into()), ..needle() }).len(), 0);
    assert_eq!(found(SearchQuery { label: vec!["team=ui".into()], ..needle() }).len(), 2);
    assert_eq!(found(SearchQuery { label: vec!["team=ui".into(), "team=x".into()], ..needle() }).len(), 0);
    assert_eq!(found(SearchQuery { created_before: Some(two.created_at.clone()), ..needle() }), [&*one.id]);
    assert_eq!(found(SearchQuery { finished_after: two.finished_at.clone(), ..needle() }), [&*two.id]);
}

#[test]
fn pages_of_a_search_neither_skip_nor_repeat_a_line() {
    let pinfold = Pinfold::start(PINFOLD);
    let ids: Vec<String> = (0..7)
        .map(|number| {
            let id = pinfold.sh(&format!("seq -f 'hit {number}-%g' 1 10; printf 'hit {number}-end'")).id;
            pinfold.wait_finished(&id);
            id
        })
        .collect();
    let whole = search(&pinfold, &query("^hit"));
    assert_eq!((whole.hits.len(), whole.next.is_none()), (77, true));
    for limit in [1, 3, 11, 76, 77] {
        let limited = SearchQuery { limit: Some(limit), ..query("^hit") };
        let (hits, pages) = all(&pinfold, &limited);
        assert_eq!(hits, whole.hits, "{limit}");
        assert_eq!(pages, 77usize.div_ceil(limit as usize), "{limit}");
        let first = search(&pinfold, &limited);
        assert_eq!(first.stopped_by, (limit < 77).then_some(SearchBound::Limit));
    }
    // A page may start in a process that was removed.
    let page = search(&pinfold, &SearchQuery { limit: Some(5), ..query("^hit") });
    pinfold.block(pinfold.client().remove(&ids[6])).expect("it is removed");
    let rest = search(&pinfold, &SearchQuery { page: page.next, ..query("^hit") });
    assert_eq!(rest.hits, whole.hits[11..]);
}

#[test]
fn a_search_that_times_out_says_so_and_continues_on_the_next_page() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.sh("seq 1 1000").id;
    pinfold.wait_finished(&id);
    let page = search(&pinfold, &SearchQuery { timeout: Some("0".into()), ..query("^1000$") });
    assert_eq!((page.stopped_by, page.hits.len(), page.searched_bytes), (Some(SearchBound::Time), 0, 0));
    let rest = search(&pinfold, &SearchQuery { page: page.next, ..query("^1000$") });
    assert_eq!((texts(&rest), rest.next.is_none()), (vec!["1000"], true));
}

#[test]
fn an_owner_finds_nothing_in_the_output_of_others() {
    let pinfold = Pinfold::start(PINFOLD);
    let (mine, other) = (pinfold.client().acting_as("mine", None), pinfold.client().acting_as("other", None));
    let id = pinfold.block(mine.start(&request("echo needle"))).expect("a start").record.id;
    pinfold.wait_finished(&id);
    let page = pinfold.block(mine.search(&SearchQuery { limit: Some(1), ..query(".") })).expect("a page");
    assert_eq!(page.hits.len(), 1);
    let others = pinfold.block(other.search(&query("needle"))).expect("a page");
    assert_eq!((others.hits, others.searched_processes), (vec![], 0));
    let named = SearchQuery { process: Some(id.clone()), ..query("needle") };
    assert!(pinfold.block(other.search(&named)).is_err(), "not in view");
    let asked = SearchQuery { owner: Some("mine".into()), ..query("needle") };
    assert_eq!(pinfold.block(other.search(&asked)).expect("a page").hits, []);
    // Not even with a page that starts in it.
    let created = pinfold.show(&id).created_at.parse::<jiff::Timestamp>().expect("a time").as_microsecond();
    let inside = SearchQuery { page: Some(format!("{created}-{id}-0")), ..query("needle") };
    assert_eq!(pinfold.block(other.search(&inside)).expect("a page").hits, []);
    assert_eq!(pinfold.block(mine.search(&inside)).expect("a page").hits.len(), 1);
}

#[test]
fn bad_searches_are_refused_with_advice() {
    let pinfold = Pinfold::start(PINFOLD);
    let refused =
        |query: SearchQuery| pinfold.block(pinfold.client().search(&query)).expect_err("it is refused").to_string();
    assert!(refused(query("(")).contains("not a regular expression"));
    assert!(refused(query("")).contains("pattern: give a regular expression"));
    assert!(refused(SearchQuery { page: Some("1".into()), ..query("x") }).contains("the `next` of the previous page"));
    assert!(refused(SearchQuery { label: vec!["x".into()], ..query("x") }).contains("`key=value`"));
}

/// The value of a metric.
fn metric(pinfold: &Pinfold, name: &str) -> u64 {
    let text = pinfold.block(pinfold.client().metrics()).expect("metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn a_search_ends_when_its_client_disconnects() {
    let pinfold = Pinfold::start(PINFOLD);
    // Very many lines, each of which is matched.
    const BYTES: u64 = 60_000_000;
    let id = pinfold.sh(&format!("yes | head -c {BYTES}")).id;
    pinfold.wait_finished(&id);
    let mut stream = wire::connect(&pinfold);
    let target = "/v1/search?pattern=(q|z)(w|x)%2B%5Cd&timeout=30s";
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: p\r\n\r\n").as_bytes()).expect("a request");
    until("the search runs", || metric(&pinfold, "pinfold_search_bytes_total") > 0);
    leave(stream);
    until("it is over", || metric(&pinfold, "pinfold_searches_running") == 0);
    let searched = metric(&pinfold, "pinfold_search_bytes_total");
    assert!(searched < BYTES, "all of it was searched: {searched}");
}
