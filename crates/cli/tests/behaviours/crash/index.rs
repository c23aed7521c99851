//! The index is a view: if it is lost or damaged, it is rebuilt from the process directories.

use std::collections::BTreeSet;
use std::path::Path;

use pinfold_api::types::{Event, EventKind, ListQuery, Record, Status};
use pinfold_testkit::{Pidfd, Pinfold};

use super::damage::fold_log_into_index;
use super::events_of;
use crate::PINFOLD;

fn ended(pinfold: &Pinfold) -> Vec<Record> {
    pinfold.list(&ListQuery { status: Some("ended".into()), ..ListQuery::default() }).processes
}

/// The events without their numbers.
fn without_numbers(events: &[Event]) -> BTreeSet<String> {
    let without_number = |event: &Event| format!("{:?}", Event { seq: 0, ..event.clone() });
    let texts: BTreeSet<_> = events.iter().map(without_number).collect();
    assert_eq!(texts.len(), events.len(), "an event is there twice");
    texts
}

/// What happens to the index and its log file.
type Damage<'a> = &'a dyn Fn(&Path, &Path);

fn overwrite(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn a_lost_or_damaged_index_is_rebuilt() {
    let pinfold = Pinfold::start(PINFOLD);
    for code in [0, 3] {
        pinfold.wait_finished(&pinfold.sh(&format!("echo {code}; exit {code}")).id);
    }
    pinfold.wait_finished(&pinfold.sh("kill -9 $$").id);
    let lost = pinfold.sh("sleep 300");
    Pidfd::open(pinfold.keeper_pid(&lost.id)).expect("a keeper").kill();
    pinfold.wait_finished(&lost.id);
    let running = pinfold.sh("sleep 300");

    let damages: [Damage<'_>; 4] = [
        &|index, log| [index, log].into_iter().for_each(|path| std::fs::remove_file(path).expect("removed")),
        &|index, log| [index, log].into_iter().for_each(|path| overwrite(path, &[0xa5; 20_000])),
        &|index, _| overwrite(index, b""),
        &|index, _| {
            fold_log_into_index(pinfold.home());
            let bytes = std::fs::read(index).expect("an index");
            overwrite(index, &bytes[..bytes.len() / 2]);
        },
    ];
    for (number, damage) in damages.iter().enumerate() {
        let (records, events) = (ended(&pinfold), pinfold.events(0));
        pinfold.kill_daemon();
        damage(&pinfold.home().join("index.db"), &pinfold.home().join("index.db-wal"));
        pinfold.start_daemon();
        assert_eq!(ended(&pinfold), records, "damage {number}");
        assert_eq!(pinfold.show(&running.id).status, Status::Running, "damage {number}");
        let anew = pinfold.events(0);
        assert_eq!(without_numbers(&anew.events), without_numbers(&events.events), "damage {number}");
        assert!(anew.events[0].seq > events.next, "damage {number}: numbers ran backwards");
    }

    let last = pinfold.events(0).next;
    let after = pinfold.wait_finished(&pinfold.sh("exit 0").id);
    let news = pinfold.events(last).events;
    assert_eq!(events_of(&pinfold, &after.id), [EventKind::Started, EventKind::Finished]);
    assert!(news.len() >= 2 && news.iter().all(|event| event.process == after.id && event.seq > last));
}
