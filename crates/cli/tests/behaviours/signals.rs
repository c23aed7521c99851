//! Stopping and signals: a stop is bounded, reaches the whole tree, and reports what it could not end.

mod causes;
mod load;
mod reused_pid;
mod signalling;
mod traces;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pinfold_api::types::{Cause, ListQuery, Outcome, StartRequest, Status, StopAnswer, StopRequest, WaitReason};
use pinfold_testkit::{Pidfd, Pinfold, alive, place_copy, until};

use crate::PINFOLD;
use crate::requests::{
    Gate, both_ways, call, is_root, leave, ordinary_user, post, ready, reason, request, send, until_said,
    until_sleepers,
};

pub(crate) fn killed() -> Option<Outcome> {
    Some(Outcome::Signaled { signal: 9, name: "KILL".into(), core_dumped: false })
}

fn terminated() -> Option<Outcome> {
    Some(Outcome::Signaled { signal: 15, name: "TERM".into(), core_dumped: false })
}

/// A command that handles TERM like this, and otherwise sleeps.
///
/// The sleeper prints `ready`: a child that has not called exec yet has the shell's handlers and would lose the signal.
fn on_term(handler: &str) -> StartRequest {
    request(&format!("trap '{handler}' TERM; sh -c 'echo ready; exec sleep 300' & wait"))
}

/// A stop that gives this much grace.
fn with_grace(grace: &str) -> StopRequest {
    StopRequest { grace: Some(grace.into()), ..StopRequest::default() }
}

fn assert_verified_empty(answer: &StopAnswer, pids: &[u32]) {
    assert_eq!(pids.iter().filter(|pid| alive(**pid)).count(), 0, "alive after the stop: {:?}", answer.survivors);
    assert_eq!((answer.already_over, answer.survivors.len()), (false, 0));
    assert_eq!((answer.record.status, answer.record.tree.len()), (Status::Finished, 0));
}

fn stop_is_term_then_kill(pinfold: &Pinfold) {
    let polite = ready(pinfold, &on_term("echo cleaning; exit 3"));
    let tree = pinfold.tree(&polite.id);
    let answer = pinfold.stop_request(&polite.id, &with_grace("60s"));
    assert_verified_empty(&answer, &tree);
    assert_eq!(answer.record.outcome, Some(Outcome::Exited { code: 3 }));
    assert_eq!(answer.record.cause, Some(Cause::StopRequested));
    assert_eq!(pinfold.text(&polite.id), "ready\ncleaning\n");

    let stubborn = ready(pinfold, &request("trap '' TERM; sleep 300 & setsid sleep 300 & echo ready; exec sleep 300"));
    let tree = until_sleepers(pinfold, &stubborn.id, 3);
    let answer = pinfold.stop_request(&stubborn.id, &with_grace("200ms"));
    assert_verified_empty(&answer, &tree);
    assert_eq!((answer.record.outcome, answer.record.cause), (killed(), Some(Cause::StopRequested)));
}

#[test]
fn stop_term_then_kill() {
    both_ways(stop_is_term_then_kill);
}

#[test]
fn stop_term_then_kill_for_an_ordinary_user() {
    stop_is_term_then_kill(&ordinary_user());
}

#[test]
fn stop_returns_when_dead() {
    both_ways(|pinfold| {
        let command = "trap '' TERM; (setsid sleep 300 &); sleep 300 & echo ready; \
                       while :; do setsid sh -c 'sleep 0.05'; done";
        let record = ready(pinfold, &request(command));
        let tree = pinfold.tree(&record.id);
        assert!(tree.len() >= 3, "{tree:?}");
        let answer = pinfold.stop_request(&record.id, &with_grace("100ms"));
        assert_verified_empty(&answer, &tree);
        assert_eq!(pinfold.tree(&record.id), Vec::<u32>::new());
    });
}

/// Only root can set up a program that an ordinary user can start but not kill.
#[test]
fn stop_names_survivors_and_keeps_the_entry() {
    if !is_root() {
        return;
    }
    let pinfold = ordinary_user();
    let setpriv = pinfold.home().join("setpriv");
    place_copy(Path::new("/usr/bin/setpriv"), &setpriv);
    std::fs::set_permissions(&setpriv, PermissionsExt::from_mode(0o4755)).expect("set-uid root");
    let become_root = format!("{} --reuid=0 --regid=0 --clear-groups", setpriv.display());
    let called = call(&pinfold, &format!("{become_root} sleep 300 & echo $!"), "60s");
    let id = &called.record.id;
    let root = until_sleepers(&pinfold, id, 1)[0];

    let answer = pinfold.stop_request(id, &with_grace("0"));
    assert_eq!(answer.survivors.len(), 1);
    assert_eq!((answer.survivors[0].pid, answer.survivors[0].command.as_str()), (root, "sleep 300"));
    assert!(answer.survivors[0].reason.contains("another user's"), "{}", answer.survivors[0].reason);
    assert_eq!((answer.record.status, answer.already_over), (Status::Lingering, false));
    assert!(alive(root));
    assert_eq!(pinfold.list(&ListQuery { status: Some("live".into()), ..ListQuery::default() }).total, 1);
    let refused = send(&pinfold, id, "TERM");
    assert_eq!((refused.reached, refused.refused.len()), (0, 1));

    Pidfd::open(root).expect("a survivor").kill();
    assert_eq!(pinfold.wait_finished(id).outcome, Some(Outcome::Exited { code: 0 }));
}

/// Linux kills every process that is started in a cgroup after `cgroup.kill`: no keeper may start a process in one.
#[test]
fn a_kill_does_not_reach_the_next_process() {
    both_ways(|pinfold| {
        for _ in 0..10 {
            let record = pinfold.sh("sleep 300");
            assert_eq!(pinfold.stop_request(&record.id, &with_grace("0")).record.outcome, killed());
            let (next, output) = pinfold.run("echo alive");
            assert_eq!((next.outcome, output.as_str()), (Some(Outcome::Exited { code: 0 }), "alive\n"));
        }
    });
}

#[test]
fn stop_grace_honoured() {
    both_ways(|pinfold| {
        // A cleanup that runs other programs, and an exit trap after it.
        let cleanup = "sleep 0.3 && echo cleaned || echo cut short";
        let asked = on_term(&format!("{cleanup}; exit 0"));
        let command = format!("trap 'echo bye' EXIT; {}", asked.command.expect("a command"));
        for _ in 0..10 {
            let record = ready(pinfold, &request(&command));
            let answer = pinfold.stop_request(&record.id, &with_grace("60s"));
            assert_eq!(pinfold.text(&record.id), "ready\ncleaned\nbye\n");
            assert_eq!(answer.record.outcome, Some(Outcome::Exited { code: 0 }));
        }
    });
}

#[test]
fn stop_exit_zero_handler() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = ready(&pinfold, &on_term("exit 0"));
    let request = StopRequest { by: Some("chat-7".into()), ..StopRequest::default() };
    let record = pinfold.stop_request(&record.id, &request).record;
    assert_eq!((record.outcome, record.cause), (Some(Outcome::Exited { code: 0 }), Some(Cause::StopRequested)));
    assert_eq!(record.stopped_by.as_deref(), Some("chat-7"));
}

#[test]
fn stop_idempotent() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = pinfold.sh("sleep 300");
    let first = pinfold.stop(&record.id);
    let second = pinfold.stop(&record.id);
    assert_eq!((first.already_over, second.already_over), (false, true));
    assert_eq!((&second.record, second.survivors.len()), (&first.record, 0));
    assert_eq!(first.record.outcome, terminated());

    let (record, _) = pinfold.run("exit 3");
    let stopped = pinfold.stop(&record.id);
    assert!(stopped.already_over);
    assert_eq!(stopped.record.outcome, Some(Outcome::Exited { code: 3 }));
    assert_eq!((stopped.record.cause, stopped.record.stopped_by), (Some(Cause::OnItsOwn), None));

    // Two concurrent stops: both report the same end.
    let record = ready(&pinfold, &on_term("exit 4"));
    let (client, request) = (pinfold.client(), StopRequest::default());
    let (one, other) =
        pinfold.block(async { tokio::join!(client.stop(&record.id, &request), client.stop(&record.id, &request)) });
    for answer in [one.expect("a stop"), other.expect("a stop")] {
        assert_eq!(answer.record.outcome, Some(Outcome::Exited { code: 4 }));
    }
}

#[test]
fn stop_bounded() {
    both_ways(|pinfold| {
        let deaf = "trap '' TERM INT HUP QUIT USR1 USR2 CONT";
        let long_grace = with_grace("1h");
        let short_grace = with_grace("100ms");
        for (command, stop) in [
            // A plain sleep ends at TERM, whatever its grace.
            ("echo ready; exec sleep 300".to_owned(), &long_grace),
            (format!("{deaf}; echo ready; while :; do sleep 0.01; done"), &short_grace),
            // It forks all the time, in sessions of its own, and stops itself.
            (
                format!("{deaf}; echo ready; while :; do setsid sh -c 'sleep 0.01 & sleep 0.02' & sleep 0.01; done"),
                &short_grace,
            ),
            (format!("{deaf}; for i in $(seq 100); do setsid sleep 300 & done; echo ready; wait"), &short_grace),
            ("sleep 300 & echo ready; kill -STOP $$".to_owned(), &long_grace),
        ] {
            let record = ready(pinfold, &request(&command));
            let tree = pinfold.tree(&record.id);
            assert_verified_empty(&pinfold.stop_request(&record.id, stop), &tree);
        }
    });
}

#[test]
fn stop_all_parallel() {
    const COUNT: usize = 50;
    let pinfold = Pinfold::start(PINFOLD);
    let (asked, all_asked) = (pinfold.home().join("asked"), pinfold.home().join("all-asked"));
    std::fs::create_dir(&asked).expect("a directory");
    // Each exits only when all have got TERM: if they were stopped one by one, the first would be killed after its
    // grace.
    let handler = format!(
        ": > {}/$PINFOLD_ID; until [ -e {} ]; do sleep 0.2; done; exit 0",
        asked.display(),
        all_asked.display()
    );
    let request = StartRequest { grace: Some("60s".into()), ..on_term(&handler) };
    let ids: Vec<_> = (0..COUNT).map(|_| pinfold.start_request(&request).record.id).collect();
    ids.iter().for_each(|id| drop(until_said(&pinfold, id, "^ready$")));
    let cli = std::thread::scope(|scope| {
        scope.spawn(|| {
            until("all are asked", || std::fs::read_dir(&asked).expect("a directory").count() == COUNT);
            std::fs::write(&all_asked, "").expect("a file");
        });
        pinfold.cli(&["stop", "--all"])
    });
    assert_eq!(cli.code, Some(0), "{}{}", cli.stdout, cli.stderr);
    for id in ids {
        let record = pinfold.show(&id);
        assert_eq!((record.status, record.outcome), (Status::Finished, Some(Outcome::Exited { code: 0 })));
    }
}

#[test]
fn stop_converted_job() {
    both_ways(|pinfold| {
        let called = call(pinfold, "sleep 300 & setsid sleep 300 & exec sleep 300", "10ms");
        assert_eq!((reason(&called), called.record.status), (WaitReason::Timeout, Status::Running));
        let tree = until_sleepers(pinfold, &called.record.id, 3);
        let answer = pinfold.stop(&called.record.id);
        assert_verified_empty(&answer, &tree);
        assert_eq!(answer.record.outcome, terminated());
    });
}

#[test]
fn cancelled_stop_keeps_entry() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "gate");
    let record = ready(&pinfold, &on_term(&format!("echo asked; {}; exit 6", gate.wait())));
    let by = Some("who left".into());
    let open = post(&pinfold, &format!("/v1/processes/{}/stop", record.id), &StopRequest { by, ..with_grace("1h") });
    until_said(&pinfold, &record.id, "^asked$");
    leave(open);

    let live = pinfold.list(&ListQuery { status: Some("live".into()), ..ListQuery::default() }).processes;
    assert_eq!(live.iter().map(|record| &record.id).collect::<Vec<_>>(), [&record.id]);
    gate.open();
    let record = pinfold.wait_finished(&record.id);
    assert_eq!((record.outcome, record.cause), (Some(Outcome::Exited { code: 6 }), Some(Cause::StopRequested)));
    assert_eq!(record.stopped_by.as_deref(), Some("who left"));
}
