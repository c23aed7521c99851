//! Notices: the event log, each consumer with its own cursor.

use std::collections::BTreeMap;

use pinfold_api::types::{
    Event, EventKind, EventPage, EventsQuery, Outcome, Record, StartRequest, Status, StopRequest,
};
use pinfold_testkit::{Pidfd, Pinfold, until};
use tokio::task::JoinSet;

use crate::PINFOLD;
use crate::output::gate::Gate;

/// The log after a number, one event at a time.
fn page_by_page(pinfold: &Pinfold, mut after: u64) -> Vec<Event> {
    let mut all = Vec::new();
    loop {
        let query = EventsQuery { after: Some(after.to_string()), limit: Some(1), ..EventsQuery::default() };
        let page = pinfold.block(pinfold.client().events(&query)).expect("events");
        let Some(event) = page.events.into_iter().next() else {
            assert_eq!(page.next, after);
            return all;
        };
        assert!(event.seq > after && page.next == event.seq);
        after = page.next;
        all.push(event);
    }
}

/// The first events after a number, as a stream gives them.
fn streamed(pinfold: &Pinfold, after: u64, count: usize) -> Vec<Event> {
    pinfold.block(async {
        let query = EventsQuery { after: Some(after.to_string()), ..EventsQuery::default() };
        let mut stream = pinfold.client().events_stream(&query).await.expect("a stream");
        let mut all = Vec::new();
        while all.len() < count {
            all.push(stream.next().await.expect("no end").expect("an event"));
        }
        all
    })
}

/// Checks that each process ends once in the log, as its record says.
fn assert_each_ends_once(events: &[Event], records: &[Record]) {
    let mut ends: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in events.iter().filter(|event| matches!(event.kind, EventKind::Finished | EventKind::Lost)) {
        ends.entry(&event.process).or_default().push(event);
    }
    assert_eq!(ends.len(), records.len());
    for record in records {
        let [end] = ends[record.id.as_str()][..] else { panic!("{} ends more than once", record.id) };
        assert_eq!((&end.outcome, end.cause), (&record.outcome, record.cause), "{}", record.id);
        assert_eq!(end.kind == EventKind::Lost, record.status == Status::Lost);
    }
}

#[test]
fn notify_exactly_once() {
    let pinfold = Pinfold::start(PINFOLD);
    let lost = pinfold.sh("exec sleep 300").id;
    Pidfd::open(pinfold.keeper_pid(&lost)).expect("a keeper").kill();
    let others = ["exit 0", "exit 3", "kill -9 $$", "sleep 0 & exit 4"].map(|command| pinfold.sh(command).id);
    let records: Vec<Record> = [lost].iter().chain(&others).map(|id| pinfold.wait_finished(id)).collect();
    let outcomes: Vec<_> = records[1..4].iter().map(|record| record.outcome.clone().expect("an outcome")).collect();
    let killed = Outcome::Signaled { signal: 9, name: "KILL".into(), core_dumped: false };
    assert_eq!(outcomes, [Outcome::Exited { code: 0 }, Outcome::Exited { code: 3 }, killed]);
    assert_eq!(records[0].status, Status::Lost);
    let log = page_by_page(&pinfold, 0);
    assert_each_ends_once(&log, &records);
    assert_eq!(pinfold.events(0).events, log, "one page is the same");
    assert_eq!(streamed(&pinfold, 0, log.len()), log, "a stream is the same");
    let started = log.iter().filter(|event| event.kind == EventKind::Started).count();
    assert_eq!(started, records.len());
}

/// Whether the stop or the exit came first: one event, and the record agrees.
#[test]
fn notify_exactly_once_when_stop_and_exit_race() {
    let pinfold = Pinfold::start(PINFOLD);
    let one = |number: u32| {
        let client = pinfold.client().clone();
        async move {
            let command = Some(format!("{} exit 7", "true;".repeat(number as usize * 40)));
            let started = client.start(&StartRequest { command, ..StartRequest::default() }).await.expect("it starts");
            let request = StopRequest { grace: Some("0s".into()), ..StopRequest::default() };
            client.stop(&started.record.id, &request).await.expect("a stop").record
        }
    };
    let records = pinfold.block(async { (0..60).map(one).collect::<JoinSet<_>>().join_all().await });
    let records: Vec<Record> = records.iter().map(|record| pinfold.wait_finished(&record.id)).collect();
    assert_each_ends_once(&pinfold.events(0).events, &records);
}

#[test]
fn notify_durable() {
    let pinfold = Pinfold::start(PINFOLD);
    let seen = {
        pinfold.wait_finished(&pinfold.sh("true").id);
        pinfold.events(0).next
    };
    let gate = Gate::new(&pinfold, "end");
    let ended = pinfold.sh("exit 3").id;
    let ends_later = pinfold.sh(&format!("{}; exit 4", gate.wait())).id;
    let records = vec![pinfold.wait_finished(&ended)];
    // That event was not read yet. The next process ends while no daemon runs.
    pinfold.kill_daemon();
    gate.open();
    until("all keepers end", || pinfold.keepers().is_empty());
    pinfold.start_daemon();
    let records = [records, vec![pinfold.show(&ends_later)]].concat();
    assert_eq!(records[1].outcome, Some(Outcome::Exited { code: 4 }));
    let events = pinfold.events(seen).events;
    assert_each_ends_once(&events, &records);
    assert!(events.iter().all(|event| event.seq > seen) && events.is_sorted_by_key(|event| event.seq));
    pinfold.crash_and_restart();
    assert_eq!(pinfold.events(seen).events, events, "the same events under the same numbers");
}

#[test]
fn notify_per_consumer_cursor() {
    let pinfold = Pinfold::start(PINFOLD);
    let ids: Vec<String> = (0..3).map(|code| pinfold.sh(&format!("exit {code}")).id).collect();
    ids.iter().for_each(|id| drop(pinfold.wait_finished(id)));
    let first = pinfold.events(0);
    assert_eq!(pinfold.events(0), first, "reading takes nothing away");
    assert_eq!(pinfold.events(first.next).events, vec![]);
    assert_eq!(page_by_page(&pinfold, 0), first.events, "not from another either");
    // A waiting consumer gets new events only; one that lags behind still gets everything.
    let (next, gate) = (first.next, Gate::new(&pinfold, "end"));
    let id = pinfold.sh(&format!("{}; exit 9", gate.wait())).id;
    let events = pinfold.block(async {
        let query = |after: u64| EventsQuery {
            after: Some(after.to_string()),
            wait: Some("60s".into()),
            ..EventsQuery::default()
        };
        let mut page = pinfold.client().events(&query(next)).await.expect("events");
        assert_eq!((page.events.len(), page.events[0].kind), (1, EventKind::Started));
        gate.open();
        // Its output may close just before it ends; then `closed` is an event of its own.
        while page.events.last().is_some_and(|event| event.kind != EventKind::Finished) {
            let more = pinfold.client().events(&query(page.next)).await.expect("events");
            assert!(!more.events.is_empty() && more.next > page.next);
            page = EventPage { events: [page.events, more.events].concat(), ..more };
        }
        page.events
    });
    assert!(events.iter().all(|event| event.process == id));
    assert_eq!(events.last().and_then(|event| event.outcome.clone()), Some(Outcome::Exited { code: 9 }));
    assert_eq!(pinfold.events(0).events, [first.events, events].concat());
}

/// A stream that is not read for a while loses nothing and delays no other reader.
#[test]
fn notify_slow_stream() {
    let pinfold = Pinfold::start(PINFOLD);
    let streamed = pinfold.block(async {
        let client = pinfold.client();
        let mut stream = client.events_stream(&EventsQuery::default()).await.expect("a stream");
        let one = |number: u32| {
            let (client, command) = (client.clone(), Some(format!("exit {}", number % 2)));
            let request = StartRequest { command, wait: Some("60s".into()), ..StartRequest::default() };
            async move { client.start(&request).await.expect("it starts").record.id }
        };
        for batch in 0..10 {
            (0..30).map(|number| one(batch * 30 + number)).collect::<JoinSet<_>>().join_all().await;
        }
        let last =
            client.events(&EventsQuery { limit: Some(1000), ..EventsQuery::default() }).await.expect("events").next;
        let mut all: Vec<Event> = Vec::new();
        while all.last().is_none_or(|event| event.seq < last) {
            all.push(stream.next().await.expect("no end").expect("an event"));
        }
        all
    });
    assert!(streamed.is_sorted_by(|a, b| a.seq < b.seq));
    assert!(streamed == pinfold.events(0).events, "a stream is the log");
    assert_eq!(streamed.iter().filter(|event| event.kind == EventKind::Finished).count(), 300);
}
