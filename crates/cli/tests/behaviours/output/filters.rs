//! Filtered reads: matching lines, found without losing others and within bounds.

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{OutputPage, OutputQuery};
use pinfold_testkit::Pinfold;

use super::gate::Gate;
use super::{answer_of, read_next, start_limited, wait_beyond};
use crate::PINFOLD;
use crate::background::meanwhile;

fn grep(pinfold: &Pinfold, id: &str, cursor: u64, pattern: &str) -> OutputPage {
    let query = OutputQuery { cursor: Some(cursor), grep: Some(pattern.into()), ..OutputQuery::default() };
    pinfold.output(id, &query)
}

/// Cursor and text of each line that was found; `-` before context.
fn lines(page: &OutputPage) -> Vec<(u64, String)> {
    let found = page.matches.as_ref().expect("matches").iter();
    found.map(|line| (line.cursor, format!("{}{}", if line.context { "-" } else { "" }, line.text))).collect()
}

fn found(lines: &[(u64, &str)]) -> Vec<(u64, String)> {
    lines.iter().map(|(cursor, text)| (*cursor, (*text).to_owned())).collect()
}

#[test]
fn filter_safe() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, all) = pinfold.run("echo one; echo two; echo three; printf two");
    let page = grep(&pinfold, &record.id, 0, "^tw");
    assert_eq!(lines(&page), found(&[(4, "two"), (14, "two")]));
    assert_eq!((page.text.as_str(), page.next_cursor), ("two\ntwo\n", all.len() as u64));
    assert_eq!(pinfold.text(&record.id), "one\ntwo\nthree\ntwo", "what did not match is still there");
    let context = OutputQuery { grep: Some("three".into()), context: Some(1), ..OutputQuery::default() };
    let page = pinfold.output(&record.id, &context);
    assert_eq!(lines(&page), found(&[(4, "-two"), (8, "three"), (14, "-two")]));
    assert_eq!(grep(&pinfold, &record.id, 5, "two").matches.expect("matches")[0].cursor, 14);

    for bad in ["a(b", r"(\w{500}){500}"] {
        let query = OutputQuery { grep: Some(bad.into()), ..OutputQuery::default() };
        let refusal = pinfold.try_output(&record.id, &query).expect_err("no pattern");
        assert_eq!(refusal.code, ErrorCode::BadPattern);
        assert!(refusal.message.contains(bad), "{refusal}");
    }
    let cli = pinfold.cli(&["logs", "--grep", "a(b", &record.id]);
    assert!(cli.code != Some(0) && cli.stderr.contains("unclosed group"), "{cli:?}");
}

/// A pattern on which backtracking engines never finish.
#[test]
fn filter_safe_against_pathological_patterns() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, _) = pinfold.run("head -c 60000 /dev/zero | tr '\\0' a; echo; echo aaab");
    assert_eq!(lines(&grep(&pinfold, &record.id, 0, "^(a+)+b$")), found(&[(60_001, "aaab")]));
}

/// A line longer than the budget does not block the lines after it.
#[test]
fn filter_passes_lines_longer_than_its_budget() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, _) = pinfold.run("echo x1; head -c 40000 /dev/zero | tr '\\0' x; echo; echo x2");
    let (mut cursor, mut found) = (0, Vec::new());
    while cursor < record.output.bytes {
        let page = grep(&pinfold, &record.id, cursor, "x");
        assert!(page.next_cursor > cursor, "a filtered read does not advance at {cursor}");
        assert!(page.text.len() <= 32 * 1024);
        found.extend(lines(&page).into_iter().map(|(cursor, text)| (cursor, text.len())));
        cursor = page.next_cursor;
    }
    assert_eq!(found.first(), Some(&(0, 2)));
    assert_eq!(found.last(), Some(&(40_004, 2)));
}

/// A filtered read ends although the output does not.
#[test]
fn filter_ends_on_endless_output() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = start_limited(&pinfold, "echo needle; exec yes 0123456", "64M").id;
    wait_beyond(&pinfold, &id, 10_000_000);
    let query = OutputQuery { grep: Some("needle".into()), ..OutputQuery::default() };
    let page = answer_of(&pinfold, pinfold.client().output(&id, &query)).expect("a page");
    assert_eq!(lines(&page), found(&[(0, "needle")]));
    assert!(page.next_cursor > 10_000_000 && !page.exited);
}

/// A reader that follows does not get an unfinished line in two parts.
#[test]
fn filter_finds_a_line_that_is_completed_later() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "world");
    let id = pinfold.sh(&format!("printf 'hello '; {}; echo world", gate.wait())).id;
    read_next(&pinfold, &id, 0);
    let page = grep(&pinfold, &id, 0, "hello world");
    assert_eq!(lines(&page), vec![]);
    gate.open();
    pinfold.wait_exit(&id);
    assert_eq!(lines(&grep(&pinfold, &id, page.next_cursor, "hello world")), found(&[(0, "hello world")]));
}

/// A prompt that already matches is returned at once; one that may still match is waited for.
#[test]
fn filter_waits_for_the_rest_of_a_line() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "world");
    let id = pinfold.sh(&format!("printf 'hello '; {}; echo world", gate.wait())).id;
    read_next(&pinfold, &id, 0);
    assert_eq!(lines(&grep(&pinfold, &id, 0, "hello")), found(&[(0, "hello ")]));
    let wait = Some("60s".into());
    let query = OutputQuery { grep: Some("hello world".into()), wait, ..OutputQuery::default() };
    let client = pinfold.client().clone();
    let read = async move { client.output(&id, &query).await.expect("a page") };
    let [page] = &meanwhile(&pinfold, [read], async || gate.open())[..] else { panic!("one answer") };
    assert_eq!(lines(page), found(&[(0, "hello world")]));
}
