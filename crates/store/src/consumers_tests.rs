//! Consumers: independent cursors, leases, acks.

use pinfold_model::event::EventKind;

use super::*;
use crate::Durability;
use crate::index::{Change, Opened};
use crate::layout::Home;
use crate::testing::{Scratch, event};

const NOW: Moment = Moment(1_700_000_000_000_000);

fn ready(home: &Home) -> Index {
    match Index::open(home, Durability::Programs, NOW).expect("open") {
        Opened::Ready(index) => index,
        Opened::Rebuild { reason, .. } => panic!("rebuild: {reason}"),
    }
}

fn key(scope: &str, name: &str) -> ConsumerKey {
    ConsumerKey { scope: scope.into(), name: name.into() }
}

fn fetch(index: &mut Index, key: &ConsumerKey, now: Moment) -> Vec<u64> {
    fetch_as(index, key, None, now)
}

fn fetch_as(index: &mut Index, key: &ConsumerKey, reader: Option<&str>, now: Moment) -> Vec<u64> {
    let (filter, reader) = (EventFilter::default(), reader.map(str::to_owned));
    let fetch = Fetch { key: key.clone(), reader, begin: 0, filter, limit: 2, lease: Duration::from_secs(30), now };
    let events = index.fetch(&fetch).expect("a fetch").expect("not too many").events;
    events.iter().map(|event| event.seq).collect()
}

fn five_events(home: &Home) -> Index {
    let mut index = ready(home);
    let changes: Vec<_> = (1..=5).map(|n| Change::Event(Box::new(event(n, EventKind::Started)))).collect();
    assert_eq!(index.apply(&changes).expect("applied").len(), 5);
    index
}

#[test]
fn s6_an_event_that_was_not_acked_is_given_again() {
    let home = Scratch::home();
    let mut index = five_events(&home);
    let me = key("", "me");
    assert_eq!(fetch(&mut index, &me, NOW), [1, 2]);
    assert_eq!(fetch(&mut index, &me, NOW), [3, 4], "what is leased is not given to another reader");
    drop(index);
    let mut index = ready(&home);
    let later = Moment(NOW.0 + 31_000_000);
    assert_eq!(fetch(&mut index, &me, later), [1, 2], "the lease ended without an ack");
    let acked = index.ack(&me, 2).expect("an ack").expect("it is known");
    assert_eq!((acked.cursor, acked.lease), (2, None));
    assert_eq!(fetch(&mut index, &me, later), [3, 4]);
    assert_eq!(index.ack(&me, 99).expect("an ack").map(|consumer| consumer.cursor), Some(5), "never beyond the log");
    assert_eq!(index.ack(&me, 1).expect("an ack").map(|consumer| consumer.cursor), Some(5), "never back");
}

/// A reader that died has not processed the events it fetched: another reader's ack must not cover them.
#[test]
fn nobody_is_given_what_follows_the_lease_of_another_reader() {
    let home = Scratch::home();
    let mut index = five_events(&home);
    let me = key("", "me");
    assert_eq!(fetch_as(&mut index, &me, Some("one"), NOW), [1, 2]);
    for other in [Some("two"), None] {
        assert_eq!(fetch_as(&mut index, &me, other, NOW), [0; 0], "{other:?}");
    }
    assert_eq!(fetch_as(&mut index, &me, Some("one"), NOW), [3, 4], "the holder goes on");
    let later = Moment(NOW.0 + 31_000_000);
    assert_eq!(fetch_as(&mut index, &me, Some("two"), later), [1, 2], "it ran out");
    index.ack(&me, 2).expect("an ack");
    assert_eq!(fetch_as(&mut index, &me, Some("one"), later), [3, 4], "it was acked");
    // Who holds it is forgotten with the daemon; that it is held is not.
    drop(index);
    let mut index = ready(&home);
    assert_eq!(fetch_as(&mut index, &me, Some("one"), later), [0; 0]);
    index.ack(&me, 4).expect("an ack");
    assert_eq!(fetch_as(&mut index, &me, Some("one"), later), [5]);
}

#[test]
fn consumers_of_one_name_and_different_owners_are_apart() {
    let home = Scratch::home();
    let mut index = five_events(&home);
    assert_eq!(fetch(&mut index, &key("ann", "agent"), NOW), [1, 2]);
    assert_eq!(fetch(&mut index, &key("bob", "agent"), NOW), [1, 2]);
    index.ack(&key("ann", "agent"), 4).expect("an ack");
    assert_eq!(index.consumers("bob").expect("a list")[0].cursor, 0);
    assert_eq!(index.ack(&key("eve", "agent"), 4).expect("an ack"), None);
    assert!(index.forget_consumer(&key("ann", "agent")).expect("forgotten").is_some());
    assert_eq!(index.consumers("ann").expect("a list"), []);
}
