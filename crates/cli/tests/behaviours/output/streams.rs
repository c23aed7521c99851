//! Streams: stdout and stderr separately, together in order, and the time of each line.

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{OutputPage, OutputQuery, StartRequest, Streams};
use pinfold_testkit::Pinfold;

use super::gate::Gate;
use super::read_next;
use crate::PINFOLD;

fn start_separate(pinfold: &Pinfold, command: &str) -> String {
    let request =
        StartRequest { command: Some(command.into()), streams: Some(Streams::Separate), ..StartRequest::default() };
    pinfold.start_request(&request).record.id
}

fn stream(pinfold: &Pinfold, id: &str, stream: &str) -> OutputPage {
    pinfold.output(id, &OutputQuery { stream: Some(stream.into()), ..OutputQuery::default() })
}

/// Time and text of each line.
fn timed(pinfold: &Pinfold, id: &str, stream: Option<&str>) -> Vec<(String, String)> {
    let stream = stream.map(str::to_owned);
    let page = pinfold.output(id, &OutputQuery { stream, times: Some(true), ..OutputQuery::default() });
    let pair = |line: &str| line.split_once(' ').map(|(time, text)| (time.to_owned(), text.to_owned()));
    page.text.lines().map(|line| pair(line).expect("a time and a text")).collect()
}

#[test]
fn streams_separable() {
    let pinfold = Pinfold::start(PINFOLD);
    let gates = ["one", "two", "three"].map(|name| Gate::new(&pinfold, name));
    let [one, two, three] = gates.each_ref().map(Gate::wait);
    let id = start_separate(
        &pinfold,
        &format!("echo out 1; {one}; echo err 1 >&2; {two}; echo out 2; {three}; echo err 2 >&2"),
    );
    let mut cursor = 0;
    for gate in &gates {
        cursor = read_next(&pinfold, &id, cursor).next_cursor;
        gate.open();
    }
    let record = pinfold.wait_finished(&id);
    assert_eq!(pinfold.text(&id), "out 1\nerr 1\nout 2\nerr 2\n");
    let (out, err) = (stream(&pinfold, &id, "stdout"), stream(&pinfold, &id, "stderr"));
    assert_eq!((out.text.as_str(), out.original_bytes, out.next_cursor), ("out 1\nout 2\n", 12, 24));
    assert_eq!((err.text.as_str(), err.original_bytes, err.next_cursor), ("err 1\nerr 2\n", 12, 24));
    let from_middle = OutputQuery { cursor: Some(14), stream: Some("stderr".into()), ..OutputQuery::default() };
    assert_eq!(pinfold.output(&id, &from_middle).text, "err 2\n");
    assert_eq!(pinfold.cli(&["logs", "--stderr", &id]).stdout, "err 1\nerr 2\n");

    let lines = timed(&pinfold, &id, None);
    let texts: Vec<&str> = lines.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["out 1", "err 1", "out 2", "err 2"]);
    let times: Vec<&str> = lines.iter().map(|(time, _)| time.as_str()).collect();
    assert!(times.is_sorted() && times[0] >= record.started_at.as_deref().expect("a start"), "{times:?}");
    assert!(times[3] <= record.exited_at.as_deref().expect("an exit"), "{times:?}");
}

/// A line has the same time, whichever way it is read.
#[test]
fn times_are_the_same_in_every_read() {
    let pinfold = Pinfold::start(PINFOLD);
    // Each is read before the next is written, some time later.
    let gates = ["one", "two"].map(|name| Gate::new(&pinfold, name));
    let [one, two] = gates.each_ref().map(|gate| format!("{}; sleep 0.3", gate.wait()));
    let id = start_separate(
        &pinfold,
        &format!(r"printf 'gone\rout 1\n'; {one}; printf 'a long line of errors \351\n' >&2; {two}; echo out 2"),
    );
    let mut cursor = 0;
    for gate in &gates {
        cursor = read_next(&pinfold, &id, cursor).next_cursor;
        gate.open();
    }
    pinfold.wait_finished(&id);
    let all = timed(&pinfold, &id, None);
    assert!(all.len() == 3 && all[0].0 < all[1].0 && all[1].0 < all[2].0, "{all:?}");
    assert_eq!(all[2].1, "out 2");
    assert_eq!(timed(&pinfold, &id, Some("stdout")), [all[0].clone(), all[2].clone()]);
    assert_eq!(timed(&pinfold, &id, Some("stderr")), [all[1].clone()]);
    let from = OutputQuery { cursor: Some(11), times: Some(true), ..OutputQuery::default() };
    let later = pinfold.output(&id, &from).text;
    assert_eq!(later, all[1..].iter().map(|(time, text)| format!("{time} {text}\n")).collect::<String>());
}

/// Times count towards the budget.
#[test]
fn times_fit_into_the_budget() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, _) = pinfold.run("seq 1 2000");
    let (mut cursor, mut lines) = (0, Vec::new());
    while cursor < record.output.bytes {
        let (budget, times) = (Some("1k".into()), Some(true));
        let query = OutputQuery { cursor: Some(cursor), budget, times, ..OutputQuery::default() };
        let page = pinfold.output(&record.id, &query);
        assert!(page.next_cursor > cursor && page.text.len() <= 1024, "{} bytes", page.text.len());
        assert_eq!((page.cursor, page.shown_bytes), (cursor, page.next_cursor - cursor));
        // A page may end inside a line; the next page continues it, with its own time.
        lines.extend(page.text.split_inclusive('\n').map(|line| line.split_once(' ').expect("a time").1.to_owned()));
        cursor = page.next_cursor;
    }
    assert_eq!(lines.concat(), (1..=2000).map(|line| format!("{line}\n")).collect::<String>());
}

/// A filter on one stream ignores the lines of the other.
#[test]
fn one_stream_can_be_filtered() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "err");
    let id = start_separate(&pinfold, &format!("echo hit out; {}; echo hit err >&2", gate.wait()));
    read_next(&pinfold, &id, 0);
    gate.open();
    pinfold.wait_finished(&id);
    let query = OutputQuery { stream: Some("stderr".into()), grep: Some("hit".into()), ..OutputQuery::default() };
    let found = pinfold.output(&id, &query).matches.expect("matches");
    assert_eq!(found.iter().map(|line| (line.cursor, line.text.as_str())).collect::<Vec<_>>(), [(8, "hit err")]);
}

/// Neither a small read nor the other stream splits a character.
#[test]
fn utf8_whole_in_one_stream() {
    let pinfold = Pinfold::start(PINFOLD);
    let (one, two) = (Gate::new(&pinfold, "one"), Gate::new(&pinfold, "two"));
    let id = start_separate(
        &pinfold,
        &format!(r"printf 'a\303'; {}; printf 'err\n' >&2; {}; printf '\251\n'", one.wait(), two.wait()),
    );
    let first = read_next(&pinfold, &id, 0);
    one.open();
    read_next(&pinfold, &id, first.end);
    let part = stream(&pinfold, &id, "stdout");
    assert_eq!(part.text, "a");
    two.open();
    pinfold.wait_finished(&id);
    let (stream, cursor) = (Some("stdout".to_owned()), Some(part.next_cursor));
    let rest = pinfold.output(&id, &OutputQuery { stream, cursor, ..OutputQuery::default() });
    assert_eq!((rest.text.as_str(), rest.next_cursor), ("é\n", 8));
}

#[test]
fn merged_streams_cannot_be_read_apart() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, text) = pinfold.run("for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done");
    assert_eq!(text, (1..=9).map(|i| format!("out {i}\nerr {i}\n")).collect::<String>(), "in exact order");
    let query = OutputQuery { stream: Some("stdout".into()), ..OutputQuery::default() };
    let refusal = pinfold.try_output(&record.id, &query).expect_err("merged");
    assert_eq!(refusal.code, ErrorCode::InvalidRequest);
    assert!(refusal.message.contains("separate"), "{refusal}");
}
