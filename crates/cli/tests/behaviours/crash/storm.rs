//! The daemon is killed repeatedly while processes start, write and end: every process and byte is accounted for.

use std::collections::HashMap;
use std::path::PathBuf;

use pinfold_api::client::Client;
use pinfold_api::types::{EventKind, ListQuery, Outcome, StartRequest, Status};
use pinfold_testkit::{Pinfold, until_some};

use crate::PINFOLD;

const PROCESSES: u32 = 50;
const KILLS: usize = 10;

fn lines_of(number: u32) -> u32 {
    10 + number % 30
}

/// Every fifth leaves a stray that writes the last line.
fn request(number: u32) -> StartRequest {
    let stray = if number.is_multiple_of(5) { "(sleep 0.2; echo stray) & " } else { "" };
    let lines =
        format!("i=0; while [ $i -lt {} ]; do echo {number} $i; i=$((i+1)); sleep 0.01; done", lines_of(number));
    StartRequest {
        command: Some(format!("{stray}{lines}; exit {number}")),
        idempotency_key: Some(format!("storm-{number}")),
        ..StartRequest::default()
    }
}

fn expected_output(number: u32) -> Vec<String> {
    let mut lines: Vec<_> = (0..lines_of(number)).map(|line| format!("{number} {line}")).collect();
    lines.extend((number.is_multiple_of(5)).then(|| "stray".to_owned()));
    lines
}

/// Starts them all; when the daemon dies during a request, repeats the request to the next daemon.
fn start_all(socket: PathBuf) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = Client::new(socket);
    let start = |number| until_some("a start", || runtime.block_on(client.start(&request(number))).ok());
    (0..PROCESSES).map(|number| start(number).record.id).collect()
}

#[test]
fn nothing_is_lost_while_the_daemon_is_killed_ten_times() {
    let pinfold = Pinfold::start(PINFOLD);
    let socket = pinfold.client().socket().to_owned();
    let starting = std::thread::spawn(|| start_all(socket));
    for _ in 0..KILLS {
        // The new daemon serves for a while before it is killed.
        let served = pinfold.list(&ListQuery::default()).total;
        until_some("some more starts, or all of them", || {
            let total = pinfold.list(&ListQuery::default()).total;
            (total > served || total == u64::from(PROCESSES)).then_some(())
        });
        pinfold.crash_and_restart();
    }
    let ids = starting.join().expect("all start");

    for (number, id) in ids.iter().enumerate() {
        let record = pinfold.wait_finished(id);
        assert_eq!((record.status, record.outcome), (Status::Finished, Some(Outcome::Exited { code: number as u8 })));
        let text = pinfold.text(id);
        let (mut lines, mut expected): (Vec<_>, _) = (text.lines().collect(), expected_output(number as u32));
        lines.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lines, expected, "process {number}");
    }
    assert_eq!(pinfold.list(&ListQuery::default()).total, u64::from(PROCESSES), "one process for each key");

    let events = pinfold.events(0).events;
    assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let mut count: HashMap<(&str, EventKind), u32> = HashMap::new();
    events.iter().for_each(|event| *count.entry((&event.process, event.kind)).or_default() += 1);
    assert!(count.values().all(|count| *count == 1), "{count:?}");
    for id in &ids {
        assert!(count.contains_key(&(id, EventKind::Started)) && count.contains_key(&(id, EventKind::Finished)));
        assert!(!count.contains_key(&(id, EventKind::Lost)));
    }
}
