//! Deliveries: noted once with their event, tried again later, taken away.

use pinfold_model::event::EventKind;

use super::*;
use crate::Durability;
use crate::index::{Change, NewEvent, Opened};
use crate::testing::{Scratch, event};

const NOW: Moment = Moment(1_700_000_000_000_000);

#[test]
fn a_delivery_is_noted_once_with_its_event_and_survives_until_it_is_done() {
    let home = Scratch::home();
    let open = || match Index::open(&home, Durability::Programs, NOW).expect("open") {
        Opened::Ready(index) => index,
        Opened::Rebuild { reason, .. } => panic!("rebuild: {reason}"),
    };
    let mut index = open();
    let targets = vec![Target::Webhook, Target::Command];
    let told = Change::Event(Box::new(NewEvent { targets, ..event(1, EventKind::Finished) }));
    index.apply(&[told.clone(), told]).expect("applied");
    drop(index);
    let mut index = open();
    let found = index.deliveries(10).expect("deliveries");
    assert_eq!(found.len(), 2);
    let later = Moment(NOW.0 + 5);
    let webhook = found.iter().find(|found| found.target == Target::Webhook).expect("a webhook");
    index.deliver_later(webhook, later).expect("later");
    let command = found.iter().find(|found| found.target == Target::Command).expect("a command");
    index.delivered(command).expect("done");
    let left = index.deliveries(10).expect("deliveries");
    assert_eq!(left, [Delivery { event: 1, target: Target::Webhook, attempts: 1, due: later }]);
    assert_eq!(index.payload(1).expect("a payload").as_deref(), Some("{}"));
}
