//! `pinfold top` with a large log, and with many processes.

use pinfold_api::input::Size;
use pinfold_api::types::{EventKind, Notify, OutputQuery, StartRequest, Status};
use pinfold_testkit::{Pinfold, until, until_some};

use super::{Looker, named};
use crate::PINFOLD;
use crate::requests::request;

/// A log of numbers, one in a line, of 64 MiB.
const LAST: u64 = 8_550_000;

#[test]
fn a_log_of_64_mib_is_opened_at_its_end_and_in_the_middle_and_searched_from_end_to_end() {
    let pinfold = Pinfold::start(PINFOLD);
    let notify = Notify { patterns: vec!["^4000000$".into()], ..Notify::default() };
    let numbers = StartRequest {
        name: Some("numbers".into()),
        notify: Some(notify),
        output_limit: Some(Size::from("256m")),
        ..request(&format!("exec seq 1 {LAST}"))
    };
    let id = pinfold.start_request(&numbers).record.id;
    until("it has written all", || pinfold.show(&id).status == Status::Finished);
    let output = pinfold.show(&id).output;
    assert!(output.bytes > 64 << 20 && output.dropped == 0, "{output:?}");
    until_some("its middle was matched", || {
        pinfold.events(0).events.into_iter().find(|event| event.kind == EventKind::Matched)
    });
    let looker = Looker::open(&pinfold, 80, 12);
    // At its end.
    looker.select("numbers");
    looker.keys("\r");
    looker.until(&LAST.to_string());
    // At a match far away, above and below.
    looker.keys("/^(1000|8000000)$\r");
    looker.until("8000000");
    looker.keys("N");
    let shown = looker.until("1001").lines;
    assert!(shown.iter().any(|line| line.trim() == "1000"), "{shown:?}");
    looker.keys("n");
    let shown = looker.until("8000001").lines;
    assert!(shown.iter().any(|line| line.trim() == "8000000"), "{shown:?}");
    // In the middle: where an event is.
    looker.keys("q4/matched\r");
    looker.until("events with matched");
    looker.keys("\r");
    let shown = looker.until("4000001").lines;
    assert!(shown.iter().any(|line| line.trim() == "4000000"), "{shown:?}");
    looker.until("% of 6");
}

#[test]
fn hundreds_of_processes_are_scrolled_filtered_and_read_as_a_few_are() {
    const ENDED: usize = 300;
    let pinfold = Pinfold::start(PINFOLD);
    for number in 0..ENDED {
        named(&pinfold, &format!("ended-{number}"), "exit 0");
    }
    for number in 0..10 {
        named(&pinfold, &format!("live-{number}"), "exec sleep 300");
    }
    until("the others have ended", || {
        let live = pinfold.list(&Default::default()).processes;
        live.iter().filter(|record| !record.status.is_over()).count() == 10
    });
    let looker = Looker::open(&pinfold, 100, 24);
    let shown = looker.until("10 live  300 ended").lines.join("\n");
    assert!(shown.contains("live-9"), "{shown}");
    // At first a hundred of them are read; the rest when the end of the list is reached.
    until("the oldest one is on the screen", || {
        looker.keys("G");
        looker.shows("ended-0 ")
    });
    looker.keys("g");
    looker.until("live-9");
    looker.select("ended-137");
    looker.until("ended-137");
    looker.keys("\r");
    looker.until("it wrote nothing");
}

#[test]
fn selected_lines_reach_the_terminals_clipboard() {
    let pinfold = Pinfold::start(PINFOLD);
    named(&pinfold, "said", "echo one; echo take me; exec sleep 300");
    let looker = Looker::open(&pinfold, 80, 12);
    looker.select("said");
    looker.keys("\r");
    looker.until("following, 12B");
    looker.until("take me");
    looker.keys("vky");
    looker.until("copied 2 lines");
    // OSC 52 with `one\ntake me`, in the bytes that the terminal got.
    let sequence = b"\x1b]52;c;b25lCnRha2UgbWU=\x07";
    until("it is sent to the terminal", || {
        let query = OutputQuery { max_bytes: Some("16m".into()), ..OutputQuery::default() };
        let raw = looker.host.block(looker.host.client().output_raw(&looker.top.id, &query)).expect("its output");
        raw.bytes.windows(sequence.len()).any(|bytes| bytes == sequence)
    });
}
