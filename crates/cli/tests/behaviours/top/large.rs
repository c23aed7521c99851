//! `pinfold top` with a large log, and with many processes.

use pinfold_api::input::Size;
use pinfold_api::types::{EventKind, Notify, StartRequest, Status};
use pinfold_testkit::{Pinfold, until, until_some};

use super::{Looker, named};
use crate::PINFOLD;
use crate::requests::request;

/// A log of 64 MiB: numbered lines, each longer than 190 bytes.
const LAST: u64 = 350_000;

#[test]
fn a_log_of_64_mib_is_opened_at_its_end_and_in_the_middle_and_searched_from_end_to_end() {
    let pinfold = Pinfold::start(PINFOLD);
    let notify = Notify { patterns: vec!["^line 160000 ".into()], ..Notify::default() };
    let numbers = StartRequest {
        name: Some("numbers".into()),
        notify: Some(notify),
        output_limit: Some(Size::from("256m")),
        ..request(&format!("exec seq -f \"line %.0f $(printf %0180d 0)\" 1 {LAST}"))
    };
    let id = pinfold.start_request(&numbers).record.id;
    until("it has written all", || pinfold.show(&id).status == Status::Finished);
    let output = pinfold.show(&id).output;
    assert!(output.bytes > 64 << 20 && output.dropped == 0, "{output:?}");
    until_some("its middle was matched", || {
        pinfold.events(0).events.into_iter().find(|event| event.kind == EventKind::Matched)
    });
    let looker = Looker::open(&pinfold, 200, 12);
    // At its end.
    looker.select("numbers");
    looker.keys("\r");
    looker.until(&format!("line {LAST} "));
    // At matches far away, above and below.
    looker.keys("/^line (1000|340000) \r");
    looker.until("line 340000 ");
    looker.keys("N");
    looker.until("line 1000 ");
    looker.until_gone("line 340000 ");
    looker.keys("n");
    looker.until("line 340000 ");
    looker.until_gone("line 1000 ");
    // In the middle: where an event is.
    looker.keys("q4/matched\r");
    looker.until("events with matched");
    looker.keys("\r");
    looker.until("line 160000 ");
    looker.until("45% of 64M");
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
    // Below the row of its owner.
    looker.keys("G\r");
    looker.until("it wrote nothing");
}
