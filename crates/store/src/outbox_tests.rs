//! Deliveries: added once with their event, retried later, deleted.

use pinfold_model::event::EventKind;

use super::*;
use crate::Durability;
use crate::index::{Change, NewEvent, Opened};
use crate::testing::{Scratch, event};

const NOW: Moment = Moment(1_700_000_000_000_000);

#[test]
fn a_delivery_is_added_once_with_its_event_and_survives_until_it_is_done() {
    let home = Scratch::home();
    let open = || match Index::open(&home, Durability::Programs, NOW).expect("open") {
        Opened::Ready(index) => index,
        Opened::Rebuild { reason, .. } => panic!("rebuild: {reason}"),
    };
    let mut index = open();
    let targets = vec![Target::Webhook, Target::Command];
    let change = Change::Event(Box::new(NewEvent { targets, ..event(1, EventKind::Finished) }));
    index.apply(&[change.clone(), change]).expect("applied");
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
    assert_eq!(left, [Delivery { attempts: 1, due: later, ..webhook.clone() }]);
    assert_eq!(index.payload(1).expect("a payload").as_deref(), Some("{}"));
}

/// S7
#[test]
fn deliveries_of_one_process_to_one_target_keep_the_order_of_its_events() {
    let home = Scratch::home();
    let Opened::Ready(mut index) = Index::open(&home, Durability::Programs, NOW).expect("open") else {
        panic!("a new index is ready");
    };
    let event_with_targets = |number, kind, targets: &[Target]| {
        Change::Event(Box::new(NewEvent { targets: targets.to_vec(), ..event(number, kind) }))
    };
    let both = [Target::Webhook, Target::Command];
    let first = event_with_targets(1, EventKind::Exited, &both);
    let second = event_with_targets(1, EventKind::Finished, &both);
    let other = event_with_targets(2, EventKind::Finished, &both[..1]);
    index.apply(&[first, second, other]).expect("applied");
    let given = |index: &Index| {
        let found = index.deliveries(10).expect("deliveries").into_iter();
        let mut found: Vec<_> = found.map(|found| (found.event, found.target.name())).collect();
        found.sort();
        found
    };
    assert_eq!(given(&index), [(1, "command"), (1, "webhook"), (3, "webhook")]);
    // One that failed holds up what comes behind it, and nothing else.
    let found = index.deliveries(10).expect("deliveries");
    let webhook = found.iter().find(|one| one.event == 1 && one.target == Target::Webhook).expect("a webhook");
    index.deliver_later(webhook, Moment(NOW.0 + 1_000_000)).expect("later");
    let command = found.iter().find(|one| one.target == Target::Command).expect("a command");
    index.delivered(command).expect("done");
    assert_eq!(given(&index), [(1, "webhook"), (2, "command"), (3, "webhook")]);
    index.delivered(webhook).expect("done");
    assert_eq!(given(&index), [(2, "command"), (2, "webhook"), (3, "webhook")]);
}
