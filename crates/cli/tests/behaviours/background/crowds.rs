//! Many waits at once, and waits that are cancelled.

use std::time::Duration;

use pinfold_api::types::{ListQuery, OutputQuery, Status, StopRequest, WaitQuery, WaitReason};
use pinfold_testkit::Pinfold;
use tokio::task::JoinSet;

use super::{meanwhile, requests_taken, until, waiting};
use crate::PINFOLD;
use crate::output::gate::Gate;

#[test]
fn many_waiters() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "end");
    let id = pinfold.sh(&format!("{}; exit 3", gate.wait())).id;
    let waits: Vec<_> = (0..100).map(|_| waiting(&pinfold, &id, until("exit"))).collect();
    let answers = meanwhile(&pinfold, waits, async || gate.open());
    assert_eq!(answers.len(), 100);
    assert!(answers.iter().all(|answer| answer.reason == WaitReason::Exited));
}

/// One keeper notifies all clients that wait for its output, whatever their cursors.
#[test]
fn many_waiters_for_output() {
    let pinfold = Pinfold::start(PINFOLD);
    let (gate, end) = (Gate::new(&pinfold, "go"), Gate::new(&pinfold, "end"));
    let command = format!("{}; for i in 1 2 3 4 5 6 7 8 9; do echo $i; done; {}", gate.wait(), end.wait());
    let id = pinfold.sh(&command).id;
    let waits: Vec<_> = (0..90_u64)
        .map(|one| match one % 2 {
            0 => waiting(&pinfold, &id, WaitQuery { cursor: Some(one / 6), ..until("output") }),
            _ => waiting(&pinfold, &id, WaitQuery { pattern: Some((one / 10 + 1).to_string()), ..until("match") }),
        })
        .collect();
    let answers = meanwhile(&pinfold, waits, async || gate.open());
    for (one, answer) in answers.iter().enumerate() {
        assert!(matches!(answer.reason, WaitReason::Output | WaitReason::Matched), "{one}: {answer:?}");
    }
    assert_eq!(answers.len(), 90);
    assert_eq!(pinfold.show(&id).status, Status::Running);
    end.open();
}

#[test]
fn control_live_during_wait() {
    let pinfold = Pinfold::start(PINFOLD);
    let (gate, other) = (Gate::new(&pinfold, "end"), pinfold.sh("echo other; exec sleep 300").id);
    let id = pinfold.sh(&gate.wait()).id;
    let waits: Vec<_> = ["exit", "closed", "finished", "output", "match", "port", "quiet"]
        .iter()
        .cycle()
        .take(98)
        .map(|what| {
            let (pattern, quiet) = (Some("never".into()), Some("60s".into()));
            waiting(&pinfold, &id, WaitQuery { pattern, quiet, ..until(what) })
        })
        .collect();
    let client = pinfold.client();
    let answers = meanwhile(&pinfold, waits, async || {
        let list = client.list(&ListQuery::default()).await.expect("a list");
        assert_eq!(list.total, 2);
        let query = OutputQuery { wait: Some("60s".into()), ..OutputQuery::default() };
        assert_eq!(client.output(&other, &query).await.expect("output").text, "other\n");
        let stopped = client.stop(&other, &StopRequest::default()).await.expect("a stop");
        assert_eq!((stopped.record.status, stopped.survivors), (Status::Finished, vec![]));
        assert_eq!(client.show(&id).await.expect("a record").status, Status::Running);
        gate.open();
    });
    assert!(answers.len() == 98 && answers.iter().all(|answer| answer.reason != WaitReason::Timeout));
}

#[test]
fn wait_cancelled() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "end");
    let id = pinfold.sh(&format!("echo one; {}; echo two", gate.wait())).id;
    let fds = format!("/proc/{}/fd", pinfold.daemon_pid());
    let open = || std::fs::read_dir(&fds).expect("the daemon lives").count();
    let before = open();
    pinfold.block(async {
        let taken = requests_taken(pinfold.client()).await;
        let beyond = WaitQuery { cursor: Some(4), ..until("output") };
        let never = WaitQuery { pattern: Some("never".into()), ..until("match") };
        let kinds = [until("exit"), beyond, never, until("port")];
        let mut waits: JoinSet<_> =
            kinds.iter().cycle().take(40).map(|kind| waiting(&pinfold, &id, kind.clone())).collect();
        let all = async { while requests_taken(pinfold.client()).await < taken + 40 {} };
        tokio::time::timeout(Duration::from_secs(60), all).await.expect("all are taken up");
        assert!(open() >= before + 40);
        waits.abort_all();
        // The daemon drops them; a few descriptors may belong to idle keepers.
        let forgotten = async {
            while open() >= before + 10 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), forgotten).await.expect("the connections are closed");
    });
    assert_eq!(pinfold.show(&id).status, Status::Running);
    gate.open();
    pinfold.wait_exit(&id);
    assert_eq!(pinfold.text(&id), "one\ntwo\n");
}
