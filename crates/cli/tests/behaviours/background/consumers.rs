//! Consumers: named readers of events, each with its own cursor, a lease on what it was given, and acks.

use std::collections::BTreeMap;

use pinfold_api::types::{Event, EventPage, EventsQuery, NewsState, StartRequest};
use pinfold_testkit::{Pinfold, until};
use tokio::task::JoinSet;

use crate::PINFOLD;
use crate::requests::Gate;

fn query(consumer: &str) -> EventsQuery {
    let (kinds, consumer) = (Some("announce".into()), Some(consumer.into()));
    EventsQuery { kinds, consumer, limit: Some(1000), lease: Some("1h".into()), ..EventsQuery::default() }
}

fn read(pinfold: &Pinfold, query: &EventsQuery) -> EventPage {
    pinfold.block(pinfold.client().events(query)).expect("events")
}

/// The ends in order, by process.
fn processes(page: &EventPage) -> Vec<&str> {
    page.events.iter().map(|event| event.process.as_str()).collect()
}

#[test]
fn notify_per_consumer_cursor_leased_and_acked() {
    let pinfold = Pinfold::start(PINFOLD);
    let ids: Vec<String> = (0..3).map(|code| pinfold.sh(&format!("exit {code}")).id).collect();
    ids.iter().for_each(|id| drop(pinfold.wait_finished(id)));
    let first = read(&pinfold, &EventsQuery { limit: Some(2), ..query("a") });
    assert!(first.leased_until.is_some() && first.events.iter().all(|event| event.completion && event.announce));
    // Another reader of the same consumer gets what follows; another consumer gets everything.
    let rest = read(&pinfold, &query("a"));
    assert_eq!((processes(&first).len(), processes(&rest).len()), (2, 1));
    assert_eq!(read(&pinfold, &query("a")).events, vec![]);
    let other = read(&pinfold, &query("b"));
    let all: Vec<Event> = [first.events.clone(), rest.events].concat();
    assert_eq!(other.events, all);
    // Acked events are not sent again; leased ones are, when the lease has expired.
    let consumer = pinfold.block(pinfold.client().ack("a", first.events[0].seq)).expect("an ack");
    assert_eq!((consumer.cursor, consumer.leased_through), (first.events[0].seq, Some(all[2].seq)));
    pinfold.crash_and_restart();
    assert_eq!(read(&pinfold, &query("a")).events, vec![], "a lease survives the daemon");
    pinfold.block(pinfold.client().ack("b", other.next)).expect("an ack");
    assert_eq!(read(&pinfold, &query("b")).events, vec![]);
    let brief = EventsQuery { lease: Some("1ms".into()), ..query("c") };
    assert_eq!(read(&pinfold, &brief).events, all);
    until("the lease is over", || read(&pinfold, &brief).events == all);
    let consumers = pinfold.block(pinfold.client().consumers()).expect("consumers").consumers;
    let cursors: BTreeMap<_, _> = consumers.iter().map(|one| (one.name.as_str(), one.cursor)).collect();
    assert_eq!(cursors, BTreeMap::from([("a", all[0].seq), ("b", all[2].seq), ("c", 0)]));
    // A waiting reader is woken by new events only.
    let new = pinfold.block(async {
        let (client, waiting) = (pinfold.client().clone(), EventsQuery { wait: Some("60s".into()), ..query("b") });
        let wait = tokio::spawn(async move { client.events(&waiting).await.expect("events") });
        let command = Some("exit 9".into());
        let started =
            pinfold.client().start(&StartRequest { command, ..StartRequest::default() }).await.expect("it starts");
        (started.record.id, wait.await.expect("an answer"))
    });
    assert_eq!(processes(&new.1), [new.0.as_str()]);
}

/// Two hundred processes end at once: each end is there once, for each consumer.
#[test]
fn fast_jobs_none_lost_for_a_consumer() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut ids = pinfold.block(async {
        let one = |_| {
            let client = pinfold.client().clone();
            let request = StartRequest { command: Some("true".into()), ..StartRequest::default() };
            async move { client.start(&request).await.expect("it starts").record.id }
        };
        (0..200).map(one).collect::<JoinSet<_>>().join_all().await
    });
    ids.sort();
    for name in ["one", "two"] {
        let mut seen: Vec<String> = Vec::new();
        until("all completions", || {
            let page = read(&pinfold, &EventsQuery { limit: Some(7), ..query(name) });
            seen.extend(page.events.iter().map(|event| event.process.clone()));
            if let Some(last) = page.events.last() {
                pinfold.block(pinfold.client().ack(name, last.seq)).expect("an ack");
            }
            seen.len() >= ids.len()
        });
        assert_eq!(read(&pinfold, &query(name)).events, vec![]);
        seen.sort();
        assert_eq!(seen, ids);
    }
}

/// A stream of a consumer starts at its cursor, and continues with new events.
#[test]
fn stream_begins_at_a_consumers_cursor() {
    let pinfold = Pinfold::start(PINFOLD);
    let ids: Vec<String> = (0..2).map(|code| pinfold.sh(&format!("exit {code}")).id).collect();
    ids.iter().for_each(|id| drop(pinfold.wait_finished(id)));
    let page = read(&pinfold, &query("a"));
    pinfold.block(pinfold.client().ack("a", page.events[0].seq)).expect("an ack");
    let streamed = pinfold.block(async {
        let asked = EventsQuery { limit: None, lease: None, ..query("a") };
        let mut stream = pinfold.client().events_stream(&asked).await.expect("a stream");
        let first = stream.next().await.expect("no end").expect("an event");
        let command = Some("exit 7".into());
        let request = StartRequest { command, wait: Some("60s".into()), ..StartRequest::default() };
        let id = pinfold.client().start(&request).await.expect("it starts").record.id;
        let second = stream.next().await.expect("no end").expect("an event");
        assert_eq!(second.process, id);
        first
    });
    assert_eq!(streamed, page.events[1]);
}

/// The answer to a start says whether other processes of the owner have news, without a look at the log.
#[test]
fn a_start_says_whether_there_is_other_news() {
    let pinfold = Pinfold::start(PINFOLD);
    let start = |owner: &str, command: &str, news_after: u64| {
        let request = StartRequest {
            command: Some(command.into()),
            owner: Some(owner.into()),
            wait: Some("60s".into()),
            news_after: Some(news_after),
            ..StartRequest::default()
        };
        pinfold.start_request(&request).news.expect("news")
    };
    let mut last = start("chat", "true", 0);
    assert!(last.pending, "nothing is known about the time before");
    // Its own end is in the answer, and another owner's is not its news. More than once, because the end of the tree may be
    // noted after the answer.
    let settle = |last: &mut NewsState| {
        until("no other news", || {
            start("another", "true", 0);
            *last = start("chat", "exit 3", last.last);
            !last.pending
        });
    };
    settle(&mut last);
    let gate = Gate::new(&pinfold, "end");
    let other = StartRequest { owner: Some("chat".into()), command: Some(gate.wait()), ..StartRequest::default() };
    let other = pinfold.start_request(&other).record.id;
    last = start("chat", "true", last.last);
    assert!(last.pending, "another process has started");
    settle(&mut last);
    gate.open();
    pinfold.wait_finished(&other);
    assert!(start("chat", "true", last.last).pending, "another process has ended");
    // A number of an earlier daemon says nothing.
    let last = start("chat", "true", 0).last;
    pinfold.crash_and_restart();
    assert!(start("chat", "true", last).pending);
}
