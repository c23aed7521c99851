//! A keeper that runs its next process keeps nothing of the previous one.

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Outcome, StartRequest, Status};
use pinfold_testkit::{Pidfd, Pinfold, alive, until};

use crate::PINFOLD;
use crate::records::intent;

/// However a paused process was killed, its cgroup is still frozen when it is empty.
#[test]
fn a_paused_process_that_was_killed_does_not_freeze_the_next() {
    for pinfold in [Pinfold::start(PINFOLD), Pinfold::start_without_cgroup(PINFOLD)] {
        for round in 0..8 {
            let paused = pinfold.sh("exec sleep 300");
            pinfold.block(pinfold.client().pause(&paused.id)).expect("paused");
            match round % 2 {
                0 => pinfold.signal(&paused.id, "KILL").expect("killed"),
                _ => Pidfd::open(paused.pid.expect("a leader")).expect("it lives").kill(),
            }
            let ended = pinfold.wait_finished(&paused.id);
            assert!(matches!(ended.outcome, Some(Outcome::Signaled { signal: 9, .. })), "{ended:?}");
            let (next, text) = pinfold.run("echo next; exit 3");
            assert_eq!((next.outcome, text.as_str()), (Some(Outcome::Exited { code: 3 }), "next\n"), "round {round}");
        }
    }
}

#[test]
fn a_leader_that_never_runs_is_a_failed_start_and_its_keeper_is_not_reused() {
    let pinfold = Pinfold::start(PINFOLD);
    let Some(cgroup) = intent(&pinfold, &pinfold.run("true").0.id).keeper.cgroup else {
        return println!("skipped: keepers have no cgroups here");
    };
    // The cgroup in which all keepers create theirs.
    let base = cgroup.parent().expect("a base");
    let freeze = |on: &str| std::fs::write(base.join("cgroup.freeze"), on).expect("a freezer");
    freeze("1");
    let refused = pinfold
        .try_start(&StartRequest { command: Some("true".into()), ..StartRequest::default() })
        .expect_err("it never ran");
    freeze("0");
    assert_eq!(refused.code, ErrorCode::FailedToStart, "{refused:?}");
    assert!(refused.message.contains("frozen"), "{refused:?}");
    let id = refused.id.expect("the process that failed");
    let record = pinfold.show(&id);
    assert_eq!((record.status, record.pid), (Status::Finished, None), "{record:?}");
    assert!(matches!(record.outcome, Some(Outcome::FailedToStart { .. })), "{record:?}");
    let keeper = intent(&pinfold, &id).keeper;
    until("its keeper is gone", || !alive(keeper.pid));
    until("its cgroup is gone", || !keeper.cgroup.as_ref().is_some_and(|cgroup| cgroup.exists()));
    assert_eq!(pinfold.run("exit 4").0.outcome, Some(Outcome::Exited { code: 4 }));
}
