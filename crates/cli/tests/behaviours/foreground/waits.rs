//! Calls that wait: yields, timeouts, interrupted callers; the process is never lost.

use std::time::Duration;

use pinfold_api::input::Span;
use pinfold_api::types::{
    Cause, ListQuery, OnWaitTimeout, Outcome, OutputQuery, Record, StartRequest, Status, WaitReason,
};
use pinfold_testkit::{Pinfold, alive, until_some};

use crate::PINFOLD;
use crate::clients::Running;
use crate::requests::{Gate, both_ways, call, leave, post, ready, reason, request, said, until_said, until_sleepers};

/// Every process with this command.
fn all_with(pinfold: &Pinfold, command: &str) -> Vec<Record> {
    let listed = pinfold.list(&ListQuery { limit: Some(500), ..ListQuery::default() }).processes;
    listed.into_iter().filter(|record| record.command == command).collect()
}

/// The one process with this command, as soon as the list has it.
fn found(pinfold: &Pinfold, command: &str) -> Record {
    until_some("the process in the list", || all_with(pinfold, command).pop())
}

#[test]
fn yield_returns_id_then_completes() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "gate");
    let called = call(&pinfold, &format!("{}; echo done; exit 7", gate.wait()), "250ms");
    assert_eq!((reason(&called), called.record.status), (WaitReason::Timeout, Status::Running));
    assert_eq!((&called.record.outcome, &called.record.exited_at), (&None, &None));

    gate.open();
    let record = pinfold.wait_exit(&called.record.id);
    assert_eq!(record.outcome, Some(Outcome::Exited { code: 7 }));
    let page = pinfold.output(&record.id, &OutputQuery::default());
    assert_eq!((page.text.as_str(), page.exited), ("done\n", true));
    assert_eq!(page.outcome, Some(Outcome::Exited { code: 7 }));
}

#[test]
fn yield_clamped() {
    let pinfold = Pinfold::start(PINFOLD);
    let waited = |command: &str, wait: Span| {
        let asked = StartRequest { wait: Some(wait), ..request(command) };
        let waited = pinfold.start_request(&asked).waited.expect("a call that waited");
        (waited.reason, waited.limit_ms, waited.clamped)
    };
    let (min, max) = (10, 3_600_000);
    assert_eq!(waited("sleep 300", "1ms".into()), (WaitReason::Timeout, min, true));
    assert_eq!(waited("sleep 300", "10ms".into()), (WaitReason::Timeout, min, false));
    assert_eq!(waited("true", "1000000000ms".into()), (WaitReason::Exited, max, true));
    assert_eq!(waited("true", Span::Seconds(1e6)), (WaitReason::Exited, max, true));
    assert_eq!(waited("true", "1h".into()), (WaitReason::Exited, max, false));
    let unwaited = pinfold.start_request(&StartRequest { wait: Some("0".into()), ..request("sleep 300") });
    assert_eq!((unwaited.waited, unwaited.record.status), (None, Status::Running));
}

#[test]
fn early_exit_returns_before_yield() {
    let pinfold = Pinfold::start(PINFOLD);
    let clock = pinfold.sh("sleep 30");
    let called = call(&pinfold, "true", "60s");
    assert_eq!(pinfold.show(&clock.id).status, Status::Running, "the answer came only after half of the yield");
    assert_eq!((reason(&called), called.record.outcome), (WaitReason::Exited, Some(Outcome::Exited { code: 0 })));
}

#[test]
fn interrupted_request_keeps_job() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "gate");
    let command = format!("echo early; {}; echo late; exit 5", gate.wait());
    let open = post(&pinfold, "/v1/processes", &StartRequest { wait: Some("1h".into()), ..request(&command) });
    let id = found(&pinfold, &command).id;
    until_said(&pinfold, &id, "^early$");
    leave(open);

    let record = pinfold.show(&id);
    assert_eq!((record.status, all_with(&pinfold, &command).len()), (Status::Running, 1));
    assert!(alive(record.pid.expect("a leader")));
    assert_eq!(pinfold.text(&id), "early\n");
    gate.open();
    assert_eq!(pinfold.wait_exit(&id).outcome, Some(Outcome::Exited { code: 5 }));
    assert_eq!(pinfold.text(&id), "early\nlate\n");
}

#[test]
fn fg_timeout_default_keeps_job() {
    let pinfold = Pinfold::start(PINFOLD);
    let asked = StartRequest { idempotency_key: Some("k".into()), ..request("echo ready; exec sleep 300") };
    let record = ready(&pinfold, &asked);
    let called = pinfold.start_request(&StartRequest { wait: Some("50ms".into()), ..asked });
    assert_eq!((called.created, &called.record.id), (false, &record.id));
    assert_eq!((reason(&called), said(&called)), (WaitReason::Timeout, "ready\n"));
    assert_eq!((called.record.status, &called.record.outcome), (Status::Running, &None));
    assert_eq!((called.record.cause, called.record.stopped_by), (None, None));
    assert!(alive(record.pid.expect("a leader")));

    let cli = pinfold.cli(&["run", "--timeout", "100ms", "exec sleep 300"]);
    assert_eq!((cli.code, cli.stdout.as_str()), (Some(124), ""));
    let running = all_with(&pinfold, "exec sleep 300").remove(0);
    assert_eq!(running.status, Status::Running);
    assert!(cli.stderr.contains(&running.id), "{}", cli.stderr);
}

#[test]
fn fg_timeout_kill_policy() {
    both_ways(|pinfold| {
        let command = "sleep 300 & setsid sleep 300 & (sleep 300 &); echo ready; exec sleep 300";
        let asked = StartRequest {
            idempotency_key: Some("k".into()),
            on_wait_timeout: Some(OnWaitTimeout::Stop),
            ..request(command)
        };
        let record = ready(pinfold, &asked);
        let pids = until_sleepers(pinfold, &record.id, 4);
        let called = pinfold.start_request(&StartRequest { wait: Some("50ms".into()), ..asked });
        assert_eq!((reason(&called), said(&called)), (WaitReason::Timeout, "ready\n"));
        assert_eq!((called.record.status, called.record.cause), (Status::Finished, Some(Cause::TimeLimit)));
        assert_eq!(pids.iter().filter(|pid| alive(**pid)).count(), 0);

        let policy = StartRequest { on_wait_timeout: Some(OnWaitTimeout::Stop), ..request("sleep 300") };
        let called = pinfold.start_request(&StartRequest { wait: Some("10ms".into()), ..policy });
        assert_eq!((reason(&called), called.record.cause), (WaitReason::Timeout, Some(Cause::TimeLimit)));
        assert!(!alive(called.record.pid.expect("a leader")));
    });
}

/// A request that leaves a trace of each run in a file named after its key.
fn traced(pinfold: &Pinfold, key: &str) -> StartRequest {
    let command = format!("echo run >> {}/runs-{key}", pinfold.home().display());
    StartRequest { idempotency_key: Some(key.into()), ..request(&command) }
}

fn runs(pinfold: &Pinfold, key: &str) -> String {
    std::fs::read_to_string(pinfold.home().join(format!("runs-{key}"))).expect("it ran")
}

#[test]
fn id_never_lost() {
    let pinfold = Pinfold::start(PINFOLD);
    // The caller disconnects before the response: the list and the key find the process.
    let asked = StartRequest { idempotency_key: Some("k".into()), ..request("sleep 300") };
    let unread = post(&pinfold, "/v1/processes", &asked);
    let id = found(&pinfold, "sleep 300").id;
    drop(unread);
    let again = pinfold.start_request(&asked);
    assert_eq!((again.created, again.record.id), (false, id));

    // The caller disconnects at any moment: repeating the request finds the one process, or starts it.
    for number in 0..20 {
        let key = format!("gone-{number}");
        let asked = traced(&pinfold, &key);
        drop(post(&pinfold, "/v1/processes", &asked));
        let again = pinfold.start_request(&asked).record;
        assert_eq!(pinfold.wait_exit(&again.id).outcome, Some(Outcome::Exited { code: 0 }));
        let all: Vec<_> = all_with(&pinfold, &again.command).into_iter().map(|record| record.id).collect();
        assert_eq!((all, runs(&pinfold, &key).as_str()), (vec![again.id], "run\n"));
    }

    // A timeout that is too short for any response.
    for number in 0..20 {
        let key = format!("late-{number}");
        let asked = traced(&pinfold, &key);
        let deadline = Duration::from_millis(1);
        let _ = pinfold.block(async { tokio::time::timeout(deadline, pinfold.client().start(&asked)).await });
        let again = pinfold.start_request(&asked).record;
        pinfold.wait_exit(&again.id);
        assert_eq!((all_with(&pinfold, &again.command).len(), runs(&pinfold, &key).as_str()), (1, "run\n"));
    }
}

#[test]
fn foreground_adopted_without_loss() {
    let pinfold = Pinfold::start(PINFOLD);
    let everything: String = (1..=4000).map(|line| format!("{line}\n")).collect();
    let gate = Gate::new(&pinfold, "gate");
    let command = format!("seq 1 2000; {}; seq 2001 4000", gate.wait());

    // A call that yielded, and one whose client was killed.
    let called = call(&pinfold, &command, "10ms");
    let mut client = Running::start(&pinfold, &["run", "--name", "mine", &command]);
    assert_eq!(client.line(), "1");
    client.signal(9);
    assert_eq!(client.end().code, None);

    let ids = [called.record.id, pinfold.show("mine").id];
    assert_eq!(ids.each_ref().map(|id| pinfold.show(id).status), [Status::Running; 2]);
    gate.open();
    for id in ids {
        assert_eq!(pinfold.wait_exit(&id).outcome, Some(Outcome::Exited { code: 0 }));
        assert_eq!(pinfold.text(&id), everything);
    }
}
