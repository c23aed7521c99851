//! Waits: what ends them, and the reason that they report.

use pinfold_api::types::{Outcome, Status, WaitManyAnswer, WaitManyRequest, WaitMode, WaitQuery, WaitReason};
use pinfold_testkit::Pinfold;

use super::{meanwhile, now, until, waiting};
use crate::PINFOLD;
use crate::output::gate::Gate;

#[test]
fn wait_exit() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "end");
    let id = pinfold.sh(&format!("{}; exit 3", gate.wait())).id;
    for timeout in ["0", "1ms"] {
        let answer = pinfold.wait(&id, &WaitQuery { timeout: Some(timeout.into()), ..until("exit") });
        assert_eq!((answer.reason, answer.record.status), (WaitReason::Timeout, Status::Running));
        assert_eq!(answer.record.outcome, None);
    }
    assert_eq!(pinfold.cli(&["wait", "--timeout", "0", &id]).code, Some(124));
    let [answer] = &meanwhile(&pinfold, [waiting(&pinfold, &id, until("exit"))], async || gate.open())[..] else {
        panic!("one answer")
    };
    assert_eq!((answer.reason, &answer.record.outcome), (WaitReason::Exited, &Some(Outcome::Exited { code: 3 })));
    let answer = pinfold.wait(&id, &now(until("exit")));
    assert_eq!((answer.reason, answer.record.outcome), (WaitReason::Exited, Some(Outcome::Exited { code: 3 })));
    assert_eq!(pinfold.cli(&["wait", "--timeout", "0", &id]).code, Some(3));
}

#[test]
fn wait_output() {
    let pinfold = Pinfold::start(PINFOLD);
    let (two, end) = (Gate::new(&pinfold, "two"), Gate::new(&pinfold, "end"));
    let id = pinfold.sh(&format!("echo one; {}; echo two; {}", two.wait(), end.wait())).id;
    let from = |cursor| WaitQuery { cursor: Some(cursor), ..until("output") };
    let answer = pinfold.wait(&id, &from(0));
    assert_eq!((answer.reason, answer.cursor), (WaitReason::Output, 4));
    assert_eq!(pinfold.wait(&id, &now(from(4))).reason, WaitReason::Timeout);
    assert_eq!(pinfold.wait(&id, &now(until("output"))).reason, WaitReason::Timeout, "from now on, if not said");
    for answer in meanwhile(&pinfold, [waiting(&pinfold, &id, from(4))], async || two.open()) {
        assert_eq!((answer.reason, answer.cursor, answer.record.status), (WaitReason::Output, 8, Status::Running));
    }
    for answer in meanwhile(&pinfold, [waiting(&pinfold, &id, from(8))], async || end.open()) {
        assert_eq!((answer.reason, answer.record.output.closed), (WaitReason::EndedBefore, true));
    }
    let ticking = pinfold.sh("while :; do echo tick; sleep 0.01; done").id;
    let first = pinfold.wait(&ticking, &until("output"));
    let second = pinfold.wait(&ticking, &until("output"));
    assert_eq!((first.reason, second.reason), (WaitReason::Output, WaitReason::Output));
    assert!(second.cursor > first.cursor && first.cursor > 0);
}

#[test]
fn wait_quiet() {
    let pinfold = Pinfold::start(PINFOLD);
    let quiet = |time: &str| WaitQuery { quiet: Some(time.into()), ..until("quiet") };
    let idle = pinfold.sh("echo working; exec sleep 300").id;
    let answer = pinfold.wait(&idle, &quiet("50ms"));
    assert_eq!((answer.reason, answer.record.status), (WaitReason::Quiet, Status::Running));
    // A process that keeps printing is not quiet: the timeout comes first.
    let busy = pinfold.sh("while :; do echo tick; sleep 0.01; done").id;
    let answer = pinfold.wait(&busy, &WaitQuery { timeout: Some("500ms".into()), ..quiet("20s") });
    assert_eq!((answer.reason, answer.record.status), (WaitReason::Timeout, Status::Running));
    let gate = Gate::new(&pinfold, "end");
    let short = pinfold.sh(&gate.wait()).id;
    for answer in meanwhile(&pinfold, [waiting(&pinfold, &short, quiet("60s"))], async || gate.open()) {
        assert_eq!(answer.reason, WaitReason::EndedBefore);
    }
}

#[test]
fn wait_any_all() {
    let pinfold = Pinfold::start(PINFOLD);
    let gates = ["a", "b"].map(|name| Gate::new(&pinfold, name));
    let ids: Vec<String> = gates.iter().map(|gate| pinfold.sh(&gate.wait()).id).collect();
    let ask = |mode, timeout: &str| WaitManyRequest {
        ids: ids.clone(),
        mode: Some(mode),
        until: None,
        timeout: Some(timeout.into()),
    };
    let wait = |mode, timeout| {
        let (client, request) = (pinfold.client().clone(), ask(mode, timeout));
        async move { client.wait_many(&request).await.expect("a wait") }
    };
    let names = |answer: &WaitManyAnswer| {
        let ids = |records: &[pinfold_api::types::Record]| records.iter().map(|record| record.id.clone()).collect();
        let lists: [Vec<String>; 2] = [ids(&answer.done), ids(&answer.pending)];
        (answer.reason, lists)
    };
    let none = pinfold.block(wait(WaitMode::Any, "0"));
    assert_eq!(names(&none), (WaitReason::Timeout, [vec![], ids.clone()]));
    let any = &meanwhile(&pinfold, [wait(WaitMode::Any, "60s")], async || gates[1].open())[0];
    assert_eq!(names(any), (WaitReason::Exited, [vec![ids[1].clone()], vec![ids[0].clone()]]));
    let part = pinfold.block(wait(WaitMode::All, "0"));
    assert_eq!(names(&part), (WaitReason::Timeout, [vec![ids[1].clone()], vec![ids[0].clone()]]));
    let all = &meanwhile(&pinfold, [wait(WaitMode::All, "60s")], async || gates[0].open())[0];
    assert_eq!(names(all), (WaitReason::Exited, [ids.clone(), vec![]]));
    assert_eq!(pinfold.cli(&["wait", &ids[0], &ids[1]]).code, Some(0));
}

#[test]
fn wait_reason_field() {
    let pinfold = Pinfold::start(PINFOLD);
    let live = pinfold.sh("echo hello; exec sleep 300").id;
    let ended = pinfold.run("exit 3").0.id;
    pinfold.wait(&live, &WaitQuery { cursor: Some(0), ..until("output") });
    let cases: [(&[&str], &str, &str, i32); 9] = [
        (&["--until", "exit"], &ended, "exited", 3),
        (&["--until", "closed"], &ended, "closed", 3),
        (&["--until", "finished"], &ended, "finished", 3),
        (&["--until", "output", "--cursor", "0"], &live, "output", 0),
        (&["--pattern", "^hel+o$"], &live, "matched", 0),
        (&["--quiet", "1ms"], &live, "quiet", 0),
        (&["--pattern", "never"], &ended, "ended_before", 1),
        (&["--timeout", "0"], &live, "timeout", 124),
        (&["--port", "1", "--timeout", "0"], &live, "timeout", 124),
    ];
    for (arguments, id, reason, code) in cases {
        let cli = pinfold.cli(&[&["wait", "--json"], arguments, &[id]].concat());
        let answer: serde_json::Value = serde_json::from_str(&cli.stdout).expect("an answer");
        assert_eq!((answer["reason"].as_str(), cli.code), (Some(reason), Some(code)), "{arguments:?}");
    }
}
