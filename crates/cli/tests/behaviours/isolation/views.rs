//! The view of a parent includes children that were created later, also for streams and waits that are already open.

use std::collections::BTreeSet;

use pinfold_api::client::Client;
use pinfold_api::types::{EventKind, EventsQuery, StartRequest};
use pinfold_testkit::{DEADLINE, Pinfold};

use crate::PINFOLD;

fn brief(name: &str) -> StartRequest {
    StartRequest { command: Some("true".into()), name: Some(name.into()), ..StartRequest::default() }
}

fn run(pinfold: &Pinfold, client: &Client, name: &str) -> String {
    let id = pinfold.block(client.start(&brief(name))).expect("a start").record.id;
    pinfold.wait_finished(&id);
    id
}

#[test]
fn an_open_stream_has_events_of_children_created_later() {
    let pinfold = Pinfold::start(PINFOLD);
    let boss = pinfold.client().acting_as("boss", None);
    let mut stream = pinfold.block(boss.events_stream(&EventsQuery::default())).expect("a stream");
    let own = run(&pinfold, &boss, "own");
    let child = run(&pinfold, &pinfold.client().acting_as("child", Some("boss")), "child");
    let grandchild = run(&pinfold, &pinfold.client().acting_as("grandchild", Some("child")), "grandchild");
    run(&pinfold, &pinfold.client().acting_as("stranger", None), "stranger");
    let last = run(&pinfold, &boss, "last");
    let mut seen = BTreeSet::new();
    pinfold.block(async {
        while !seen.contains(&last) {
            let event = tokio::time::timeout(DEADLINE, stream.next()).await.expect("in time");
            seen.insert(event.expect("the stream stays open").expect("an event").process);
        }
    });
    assert_eq!(seen, BTreeSet::from([own, child, grandchild, last]));
}

#[test]
fn an_open_long_poll_ends_with_an_event_of_a_child_created_later() {
    let pinfold = Pinfold::start(PINFOLD);
    let boss = pinfold.client().acting_as("boss", None);
    let only_child = EventsQuery { owner: Some("child".into()), wait: Some("60s".into()), ..EventsQuery::default() };
    for query in [EventsQuery { owner: None, ..only_child.clone() }, only_child] {
        let query = EventsQuery { after: Some("latest".into()), kinds: Some("finished".into()), ..query };
        let pinfold = &pinfold;
        let (page, id) = pinfold.block(async {
            let poll = boss.events(&query);
            let start = async {
                // The poll is open: its owner is in contact, and therefore listed.
                loop {
                    let owners = pinfold.client().owners().await.expect("owners").owners;
                    if owners.iter().any(|owner| owner.owner == "boss") {
                        break;
                    }
                }
                let child = pinfold.client().acting_as("child", Some("boss"));
                child.start(&brief("child")).await.expect("a start").record.id
            };
            tokio::join!(poll, start)
        });
        let page = page.expect("a page");
        assert_eq!(page.events.iter().map(|event| &event.process).collect::<Vec<_>>(), [&id]);
    }
}

/// Children are created while the consumer reads and acks: each of their ends is delivered exactly once.
#[test]
fn a_consumer_that_acks_loses_no_event_of_new_children() {
    let pinfold = Pinfold::start(PINFOLD);
    let boss = pinfold.client().acting_as("boss", None);
    let reading = EventsQuery {
        consumer: Some("news".into()),
        kinds: Some("finished".into()),
        limit: Some(2),
        wait: Some("200ms".into()),
        ..EventsQuery::default()
    };
    let (mut delivered, started) = pinfold.block(async {
        let starting = async {
            let mut started = BTreeSet::new();
            for number in 0..24 {
                let child = pinfold.client().acting_as(&format!("child-{number}"), Some("boss"));
                started.insert(child.start(&brief("child")).await.expect("a start").record.id);
                started.insert(boss.start(&brief("own")).await.expect("a start").record.id);
            }
            started
        };
        let reading = async {
            let mut delivered = Vec::new();
            while delivered.len() < 48 {
                let page = boss.events(&reading).await.expect("a page");
                let last = page.events.last().map(|event| event.seq);
                assert!(page.events.iter().all(|event| event.kind == EventKind::Finished));
                delivered.extend(page.events.into_iter().map(|event| event.process));
                if let Some(last) = last {
                    boss.ack("news", last).await.expect("an ack");
                }
            }
            delivered
        };
        let both = async { tokio::join!(reading, starting) };
        tokio::time::timeout(DEADLINE, both).await.expect("none is lost")
    });
    delivered.sort();
    assert_eq!(delivered, started.into_iter().collect::<Vec<_>>());
}
