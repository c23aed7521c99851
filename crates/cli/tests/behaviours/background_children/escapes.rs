//! Strays that leave the session, the process group or the parent that they started with.

use pinfold_api::types::{Outcome, StartRequest, Status, WaitReason};
use pinfold_testkit::{Pinfold, alive, parent_of, until};

use super::{bash, stop_strays};
use crate::requests::{both_ways, call, ordinary_user, reason, request, said, send, until_sleepers};

/// Process group and session, as /proc shows them.
fn group_and_session(pid: u32) -> (u32, u32) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a living process");
    let (_, rest) = stat.rsplit_once(')').expect("a name in parentheses");
    let field = |place: usize| rest.split(' ').nth(place).and_then(|word| word.parse().ok()).expect("a number");
    (field(3), field(4))
}

fn escapees_are_listed_and_killed(pinfold: &Pinfold) {
    for command in [
        "setsid sleep 300 &",
        "(setsid sleep 300 &)",
        "setsid -f sleep 300",
        "env -i setsid -f sleep 300",
        "nohup setsid -f sleep 300 >/dev/null 2>&1",
        // Daemonizes as a server does: fork, setsid, fork, other directory and output.
        "setsid -f sh -c 'cd /; exec >/dev/null 2>&1; sleep 300 & exit 0'",
        "setsid -f sh -c 'setsid -f sh -c \"setsid -f sleep 300\"'",
    ] {
        let called = call(pinfold, command, "60s");
        assert_eq!(reason(&called), WaitReason::Exited, "{command}");
        let strays = until_sleepers(pinfold, &called.record.id, 1);
        assert_ne!(Some(group_and_session(strays[0]).1), called.record.pid, "it did not leave the session: {command}");
        stop_strays(pinfold, &called.record.id, &strays);
    }
}

#[test]
fn setsid_escapees_killed() {
    both_ways(escapees_are_listed_and_killed);
}

#[test]
fn setsid_escapees_killed_for_an_ordinary_user() {
    escapees_are_listed_and_killed(&ordinary_user());
}

#[test]
fn set_m_job_groups() {
    both_ways(|pinfold| {
        let called = pinfold.start_request(&StartRequest { wait: Some("60s".into()), ..bash("set -m; sleep 300 &") });
        let strays = until_sleepers(pinfold, &called.record.id, 1);
        assert_eq!(group_and_session(strays[0]).0, strays[0], "it has no group of its own");
        stop_strays(pinfold, &called.record.id, &strays);

        // bash ends its job; dash reports that there is none. Either way no process is alive and unlisted.
        for shell in ["bash", "/bin/sh"] {
            let asked = StartRequest { shell: Some(shell.into()), ..request("sleep 300 & echo $!; kill %1; true") };
            let called = pinfold.start_request(&StartRequest { wait: Some("60s".into()), ..asked });
            let id = &called.record.id;
            let job: u32 = said(&called).lines().next().and_then(|pid| pid.parse().ok()).expect("a pid");
            until("the job is dead or listed", || !alive(job) || pinfold.tree(id) == [job]);
            if shell == "bash" {
                assert_eq!(pinfold.wait_finished(id).status, Status::Finished);
            }
            pinfold.stop(id);
            assert!(!alive(job));
        }
    });
}

#[test]
fn signal_after_root_exit() {
    both_ways(|pinfold| {
        let called = call(pinfold, "setsid sleep 300 & sleep 300 & exit 4", "60s");
        let id = &called.record.id;
        let strays = until_sleepers(pinfold, id, 2);
        let leader = called.record.pid.expect("a leader");
        // The leader is dead but not reaped, so its pid and group id cannot have been reused.
        assert!(!alive(leader) && parent_of(leader) == Some(pinfold.keeper_pid(id)));

        let sent = send(pinfold, id, "TERM");
        assert_eq!((sent.reached, sent.refused), (2, vec![]));
        let record = pinfold.wait_finished(id);
        assert_eq!(record.outcome, Some(Outcome::Exited { code: 4 }));
        assert_eq!(strays.iter().filter(|pid| alive(**pid)).count(), 0);
        assert_eq!(pinfold.signal(id, "TERM").expect_err("refused").code, pinfold_api::error::ErrorCode::AlreadyOver);
    });
}
