//! A daemon that recovers many processes answers at once, and correctly.

use std::collections::BTreeSet;

use pinfold_api::input::Size;
use pinfold_api::types::{EventKind, GcRequest, ListQuery, Outcome, StartRequest, Status};
use pinfold_testkit::{Pidfd, Pinfold, Setup, until};

use crate::PINFOLD;
use crate::clients::carriers_of;
use crate::records::intent;
use crate::requests::request;

const MANY: usize = 200;

fn keyed(number: usize) -> StartRequest {
    StartRequest {
        idempotency_key: Some(format!("key-{number}")),
        name: Some(format!("name-{number}")),
        // It outlives its keeper, so that the daemon has to search for it.
        ..request("setsid sleep 300 & exec sleep 300")
    }
}

/// Kills the daemon and every keeper with SIGKILL.
fn kill_all(pinfold: &Pinfold) {
    let keepers: Vec<_> = pinfold.keepers().into_iter().filter_map(Pidfd::open).collect();
    pinfold.kill_daemon();
    keepers.iter().for_each(Pidfd::kill);
}

#[test]
fn many_dead_keepers_delay_no_request_and_no_key_or_name_is_used_twice() {
    let pinfold = Pinfold::start_without_cgroup(PINFOLD);
    let ids: Vec<String> = (0..MANY).map(|number| pinfold.start_request(&keyed(number)).record.id).collect();
    let marks: Vec<String> = ids.iter().map(|id| intent(&pinfold, id).mark).collect();
    kill_all(&pinfold);

    pinfold.start_daemon();
    // All are known from the first response on, whether their ends are already recorded or not.
    assert_eq!(pinfold.list(&ListQuery::default()).total, MANY as u64);
    for number in [0, MANY / 2, MANY - 1] {
        let again = pinfold.start_request(&keyed(number));
        assert_eq!((&again.record.id, again.created), (&ids[number], false), "one key, one process");
        let shown = pinfold.show(&ids[number]);
        assert!(matches!(shown.status, Status::Running | Status::Lost), "{shown:?}");
        // A stop waits for the recovery of its process, and reports that it has ended.
        assert_eq!(pinfold.stop(&ids[number]).record.status, Status::Lost);
    }
    assert_eq!(pinfold.run("echo usable").1, "usable\n");

    for id in &ids {
        let lost = pinfold.wait_finished(id);
        let Some(Outcome::Lost { evidence }) = lost.outcome else { panic!("{lost:?}") };
        assert!(evidence.contains("1 processes of its tree were killed, none is left"), "{evidence}");
        assert_eq!(lost.note, None);
    }
    until("recovery is done", || !pinfold.health().recovering);
    assert_eq!(pinfold.list(&ListQuery::default()).notes, Vec::<String>::new());
    assert!(marks.iter().all(|mark| carriers_of(mark).is_empty()));
    let events = pinfold.events(0).events;
    let lost: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Lost).collect();
    assert_eq!(lost.len(), MANY);
    assert_eq!(lost.iter().map(|event| &event.process).collect::<BTreeSet<_>>().len(), MANY, "each is reported once");
}

/// Its record does not say how much it wrote. Only the bytes on disk count towards the quota.
#[test]
fn a_lost_process_counts_towards_the_quota_only_with_its_bytes_on_disk() {
    let config = "[limits]\nstore = \"1M\"\n".to_owned();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    let (finished, _) = pinfold.run("echo kept");
    let lost = pinfold.sh("exec sleep 300");
    Pidfd::open(pinfold.keeper_pid(&lost.id)).expect("its keeper").kill();
    assert_eq!(pinfold.wait_finished(&lost.id).status, Status::Lost);
    let removed = pinfold.block(pinfold.client().gc(&GcRequest::default())).expect("an answer").removed;
    assert_eq!(removed, Vec::<String>::new());
    assert_eq!(pinfold.text(&finished.id), "kept\n");
}

/// Output beyond its limit was dropped, and does not count against the ended processes of others.
#[test]
fn a_live_process_counts_towards_the_quota_at_most_with_its_output_limit() {
    let config = "[limits]\nstore = \"1M\"\n".to_owned();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    let (finished, _) = pinfold.run("echo kept");
    let request = StartRequest {
        command: Some("head -c 4000000 /dev/zero; exec sleep 300".into()),
        output_limit: Some(Size::Text("128k".into())),
        ..StartRequest::default()
    };
    let chatty = pinfold.start_request(&request).record.id;
    until("all is written", || pinfold.show(&chatty).output.bytes == 4_000_000);
    // The next daemon learns from the keeper how many bytes were ever written.
    pinfold.crash_and_restart();
    let removed = pinfold.block(pinfold.client().gc(&GcRequest::default())).expect("an answer").removed;
    assert_eq!(removed, Vec::<String>::new());
    assert_eq!(pinfold.text(&finished.id), "kept\n");
}
