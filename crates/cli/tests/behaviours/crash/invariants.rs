//! Invariants of the headers of `keeper` and `daemon` that can be checked from outside.

use std::collections::{HashMap, HashSet};

use pinfold_api::types::{EventKind, ListQuery, Outcome, StartRequest, Status};
use pinfold_model::facts::Fact;
use pinfold_testkit::{Pinfold, alive};

use crate::PINFOLD;
use crate::records::{facts, intent};

/// The state letter of a process in `/proc`, if it exists.
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

#[test]
fn k1_a_fact_is_written_before_it_is_sent() {
    let pinfold = Pinfold::start(PINFOLD);
    for _ in 0..50 {
        let record = pinfold.sh("exit 5");
        let written = facts(&pinfold, &record.id);
        assert!(matches!(&written[1], Fact::Started(start) if Some(start.pid) == record.pid), "{written:?}");
        pinfold.wait_finished(&record.id);
        assert!(matches!(facts(&pinfold, &record.id).last(), Some(Fact::Finished(_))));
    }
}

#[test]
fn k2_the_leader_is_reaped_last() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, _) = pinfold.run("setsid sleep 300 & exit 3");
    let leader = record.pid.expect("a leader");
    assert_eq!((record.status, state_of(leader)), (Status::Lingering, Some('Z')));
    let stray = pinfold.until_tree(&record.id, 1)[0];
    assert!(pinfold.stop(&record.id).survivors.is_empty());
    assert!(!alive(stray));
    assert_eq!(pinfold.show(&record.id).outcome, Some(Outcome::Exited { code: 3 }));
    assert_ne!(state_of(leader), Some('Z'), "the leader was never reaped");
}

#[test]
fn k4_a_keeper_runs_one_process_at_a_time() {
    let pinfold = Pinfold::start(PINFOLD);
    let keeper = |id: &str| intent(&pinfold, id).keeper.pid;
    let live: Vec<_> = (0..6).map(|_| pinfold.sh("sleep 300").id).collect();
    assert_eq!(live.iter().map(|id| keeper(id)).collect::<HashSet<_>>().len(), live.len());

    let mut kept: HashMap<u32, Vec<(String, String)>> = HashMap::new();
    for _ in 0..40 {
        let record = pinfold.wait_finished(&pinfold.sh("exit 0").id);
        let (from, to) = (record.started_at.expect("a start"), record.finished_at.expect("an end"));
        kept.entry(keeper(&record.id)).or_default().push((from, to));
    }
    assert!(kept.values().any(|lives| lives.len() > 1), "no keeper was used again");
    assert!(live.iter().all(|id| !kept.contains_key(&keeper(id))), "a keeper had two processes");
    let in_turn = |lives: &[(String, String)]| lives.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    assert!(kept.values().all(|lives| in_turn(lives)), "{kept:?}");
}

#[test]
fn d1_an_acknowledged_start_survives_the_daemon() {
    let pinfold = Pinfold::start(PINFOLD);
    for round in 0..5 {
        let acknowledged = pinfold.sh(&format!("sleep 300; exit {round}"));
        pinfold.crash_and_restart();
        let record = pinfold.show(&acknowledged.id);
        assert_eq!((record.status, record.pid), (Status::Running, acknowledged.pid));
    }
    assert_eq!(pinfold.list(&ListQuery::default()).total, 5);
}

#[test]
fn d2_one_idempotency_key_one_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let request = |owner: &str| StartRequest {
        command: Some("exit 2".into()),
        owner: Some(owner.into()),
        idempotency_key: Some("key".into()),
        ..StartRequest::default()
    };
    let first = pinfold.start_request(&request("ann"));
    assert!(first.created);
    let same = |when: &str| {
        let again = pinfold.start_request(&request("ann"));
        assert_eq!((again.record.id.as_str(), again.created), (first.record.id.as_str(), false), "{when}");
    };
    same("at once");
    pinfold.wait_finished(&first.record.id);
    same("when it is over");
    pinfold.crash_and_restart();
    same("with another daemon");
    let other = pinfold.start_request(&request("bob"));
    assert!(other.created, "keys are an owner's own");
    pinfold.wait_finished(&other.record.id);
    assert_eq!(pinfold.list(&ListQuery::default()).total, 2);
}

#[test]
fn d3_nothing_is_announced_before_it_is_durable() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut after = 0;
    for _ in 0..30 {
        pinfold.sh("exit 0");
        for event in pinfold.events(after).events {
            after = event.seq;
            let written = facts(&pinfold, &event.process);
            let is_written = match event.kind {
                EventKind::Started => matches!(written.get(1), Some(Fact::Started(_))),
                EventKind::Closed => written.iter().any(|fact| matches!(fact, Fact::Closed { .. })),
                EventKind::Finished => matches!(written.last(), Some(Fact::Finished(_))),
                other => panic!("{other:?} of `exit 0`"),
            };
            assert!(is_written, "{event:?}: {written:?}");
        }
    }
    let seen = pinfold.events(0);
    pinfold.crash_and_restart();
    let kept = pinfold.events(0).events;
    assert_eq!(kept[..seen.events.len()], seen.events[..], "an event that was shown is gone");
}
