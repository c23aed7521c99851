//! Limits of an owner: each refuses with an explanation, and affects neither other owners nor live processes.

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{GcRequest, HandoverRequest, StartRequest, Status};
use pinfold_testkit::{Pinfold, Setup};

use crate::PINFOLD;
use crate::requests::request;

fn start(config: &str) -> Pinfold {
    Pinfold::start_with(PINFOLD, Setup { config: config.to_owned(), ..Setup::default() })
}

fn of(owner: &str, command: &str) -> StartRequest {
    StartRequest { owner: Some(owner.into()), ..request(command) }
}

#[test]
fn the_number_of_live_processes_of_an_owner_is_limited() {
    let pinfold = start("[limits.owner]\nprocesses = 2\n");
    let live: Vec<_> = (0..2).map(|_| pinfold.start_request(&of("ann", "sleep 300")).record.id).collect();
    let refusal = pinfold.try_start(&of("ann", "sleep 300")).expect_err("refused");
    assert_eq!(refusal.code, ErrorCode::LimitReached);
    for part in ["`ann` has 2", "limits.owner.processes", "pinfold stop"] {
        assert!(refusal.message.contains(part), "{refusal:?}");
    }
    assert!(live.iter().all(|id| pinfold.show(id).status == Status::Running), "no process is evicted");
    pinfold.start_request(&of("bob", "sleep 300"));
    pinfold.stop(&live[0]);
    pinfold.start_request(&of("ann", "sleep 300"));
}

#[test]
fn an_owners_memory_is_the_sum_of_what_its_processes_may_use() {
    let pinfold = start("[limits.owner]\nmemory = \"100M\"\n");
    let asks = |owner: &str, size: &str| StartRequest { memory_limit: Some(size.into()), ..of(owner, "sleep 300") };
    let refuse = |request: StartRequest| pinfold.try_start(&request).expect_err("refused");
    let first = pinfold.start_request(&asks("ann", "60M")).record.id;
    let beyond = refuse(asks("ann", "41M"));
    assert!(beyond.code == ErrorCode::LimitReached && beyond.message.contains("limits.owner.memory"), "{beyond:?}");
    let unbounded = refuse(of("ann", "sleep 300"));
    assert!(unbounded.message.contains("memory_limit"), "{unbounded:?}");
    pinfold.start_request(&asks("ann", "40M"));
    pinfold.start_request(&asks("bob", "100M"));
    pinfold.stop(&first);
    pinfold.start_request(&asks("ann", "60M"));
}

#[test]
fn the_store_limit_of_an_owner_removes_only_its_own_processes() {
    let pinfold = start("[limits.owner]\nstore = \"250k\"\n");
    let write = "head -c 100000 /dev/zero";
    let ended = |owner: &str| pinfold.wait_finished(&pinfold.start_request(&of(owner, write)).record.id).id;
    let (bob, ann) = (ended("bob"), [ended("ann"), ended("ann"), ended("ann")]);
    let removed = pinfold.block(pinfold.client().gc(&GcRequest::default())).expect("a collection").removed;
    assert_eq!(removed, [ann[0].clone()], "the oldest of ann's, and no process of another owner");
    assert!([&bob, &ann[1], &ann[2]].iter().all(|id| pinfold.try_show(id).is_ok()));

    // Live processes count towards the limit and are never removed, so no further one is admitted.
    let live = pinfold.start_request(&of("ann", "head -c 300000 /dev/zero; sleep 300")).record.id;
    pinfold_testkit::until("it has written", || pinfold.show(&live).output.bytes == 300_000);
    let refusal = pinfold.try_start(&of("ann", "true")).expect_err("refused");
    assert!(refusal.code == ErrorCode::LimitReached && refusal.message.contains("limits.owner.store"), "{refusal:?}");
    pinfold.start_request(&of("bob", "true"));
    assert_eq!(pinfold.show(&live).status, Status::Running);
}

/// Each handover is kept in the record and in memory, so their number is limited.
#[test]
fn the_number_of_handovers_of_a_process_is_limited() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.start_request(&of("ann", "sleep 300")).record.id;
    let hand_over = |number: usize| {
        let to = Some(if number.is_multiple_of(2) { "bob" } else { "ann" }.to_owned());
        pinfold.block(pinfold.client().handover(&id, &HandoverRequest { to, purpose: format!("round {number}") }))
    };
    (0..1000).for_each(|number| drop(hand_over(number).expect("handed over")));
    let refusal = hand_over(1000).expect_err("refused").to_string();
    assert!(refusal.contains("1000 times"), "{refusal}");
    assert!(pinfold.stop(&id).survivors.is_empty());
}
