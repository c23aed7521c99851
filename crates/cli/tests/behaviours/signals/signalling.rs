//! Single signals: which are supported, which processes they reach, what the record shows.

use std::process::Command;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Cause, ListQuery, Outcome, Status, StopRequest, WaitQuery, WaitReason};
use pinfold_testkit::{Pinfold, alive, until};

use super::{assert_verified_empty, killed, terminated, with_grace};
use crate::PINFOLD;
use crate::clients::Running;
use crate::requests::{both_ways, ready, request, send, until_said, until_sleepers};

/// A command that prints which of these signals it got, and continues to run.
fn printing(signals: &str) -> String {
    // The sleep ignores them, so that the shell has something to wait for.
    format!(
        "trap '' {signals}; sleep 300 & for s in {signals}; do trap \"echo got $s\" $s; done; \
         echo ready; while :; do wait; done"
    )
}

#[test]
fn sigint_nontty() {
    both_ways(|pinfold| {
        let interrupted = Some(Outcome::Signaled { signal: 2, name: "INT".into(), core_dumped: false });
        for (command, outcome, output) in [
            ("echo ready; exec sleep 300", interrupted.clone(), "ready\n"),
            ("echo ready; sleep 300; echo never", interrupted, "ready\n"),
            ("trap 'exit 130' INT; echo ready; sleep 300; echo never", Some(Outcome::Exited { code: 130 }), "ready\n"),
        ] {
            let record = ready(pinfold, &request(command));
            until_sleepers_below(pinfold, &record.id);
            send(pinfold, &record.id, "INT");
            let record = pinfold.wait_finished(&record.id);
            assert_eq!((record.outcome, pinfold.text(&record.id).as_str()), (outcome, output), "{command}");
        }
    });
}

/// Waits until the tree has its `sleep 300`, with or without a shell above it.
fn until_sleepers_below(pinfold: &Pinfold, id: &str) {
    until("a sleeper", || pinfold.show(id).tree.iter().any(|member| member.command == "sleep 300"));
}

#[test]
fn signal_set() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = ready(&pinfold, &request(&printing("INT TERM HUP USR1 USR2"))).id;
    for (word, name) in [("INT", "INT"), ("SIGTERM", "TERM"), ("1", "HUP"), ("usr1", "USR1"), ("SigUsr2", "USR2")] {
        let sent = send(&pinfold, &id, word);
        assert_eq!((sent.reached, sent.refused), (2, vec![]), "{word}");
        until_said(&pinfold, &id, &format!("^got {name}$"));
    }
    assert_eq!(pinfold.text(&id), "ready\ngot INT\ngot TERM\ngot HUP\ngot USR1\ngot USR2\n");
    for word in ["STOP", "CONT"] {
        assert_eq!(send(&pinfold, &id, word).record.paused, word == "STOP");
    }

    for word in ["FOO", "SIGFOO", "", "0", "-9", "99", "TERM KILL"] {
        let error = pinfold.signal(&id, word).expect_err("refused");
        assert_eq!(error.code, ErrorCode::BadSignal, "{word}");
        for name in ["INT", "TERM", "HUP", "USR1", "USR2", "STOP", "CONT", "KILL"] {
            assert!(error.message.contains(name), "{}", error.message);
        }
        let request = StopRequest { signal: Some(word.into()), ..StopRequest::default() };
        assert!(pinfold.block(pinfold.client().stop(&id, &request)).is_err(), "{word}");
    }
    assert_eq!(pinfold.show(&id).status, Status::Running);

    assert_eq!(send(&pinfold, &id, "KILL").reached, 2);
    let record = pinfold.wait_finished(&id);
    assert_eq!((record.outcome, record.cause), (killed(), Some(Cause::StopRequested)));
    assert_eq!(pinfold.signal(&id, "TERM").expect_err("refused").code, ErrorCode::AlreadyOver);
    assert_eq!(pinfold.signal("zzzzzz", "TERM").expect_err("refused").code, ErrorCode::NotFound);
}

#[test]
fn stopped_state_visible() {
    both_ways(|pinfold| {
        let states = |id: &str| pinfold.show(id).tree.into_iter().map(|member| member.state).collect::<Vec<_>>();
        let stopped = ready(pinfold, &request("setsid sleep 300 & echo ready; exec sleep 300"));
        until_sleepers(pinfold, &stopped.id, 2);
        assert!(!pinfold.show(&stopped.id).paused);
        send(pinfold, &stopped.id, "STOP");
        until("both are stopped", || states(&stopped.id) == ["T", "T"]);
        let record = pinfold.show(&stopped.id);
        assert_eq!((record.status, record.paused), (Status::Running, true));
        assert!(pinfold.list(&ListQuery::default()).processes.iter().all(|record| record.paused));

        send(pinfold, &stopped.id, "CONT");
        until("both run on", || states(&stopped.id) == ["S", "S"]);
        assert!(!pinfold.show(&stopped.id).paused);

        // A stop continues it so that it can end by the signal; KILL needs no continue.
        send(pinfold, &stopped.id, "STOP");
        let tree = pinfold.tree(&stopped.id);
        let answer = pinfold.stop_request(&stopped.id, &with_grace("1h"));
        assert_verified_empty(&answer, &tree);
        assert_eq!((answer.record.outcome, answer.record.paused), (terminated(), false));

        // It can also stop itself.
        let itself = pinfold.sh("kill -STOP $$");
        until("it shows as stopped", || pinfold.show(&itself.id).paused);
        assert_eq!(pinfold.stop_request(&itself.id, &with_grace("0")).record.outcome, killed());
        assert!(!alive(itself.pid.expect("a leader")));
    });
}

#[test]
fn interrupt_ladder() {
    let pinfold = Pinfold::start(PINFOLD);
    // Each has time to print what it got, and is then killed.
    let grace = "3s";
    // As single requests …
    let id = ready(&pinfold, &request(&printing("INT TERM"))).id;
    send(&pinfold, &id, "INT");
    until_said(&pinfold, &id, "^got INT$");
    assert_eq!(pinfold.show(&id).status, Status::Running);
    let answer = pinfold.stop_request(&id, &with_grace(grace));
    assert_eq!((answer.record.outcome, answer.record.cause), (killed(), Some(Cause::StopRequested)));
    assert_eq!(pinfold.text(&id), "ready\ngot INT\ngot TERM\n");

    // … with INT as the stop signal …
    let id = ready(&pinfold, &request(&printing("INT TERM"))).id;
    let answer = pinfold.stop_request(&id, &StopRequest { signal: Some("INT".into()), ..with_grace(grace) });
    assert_eq!(answer.record.outcome, killed());
    assert_eq!(pinfold.text(&id), "ready\ngot INT\n");

    // … and by a person at the keyboard; tests that run in the background of a script ignore INT, a person does not.
    let mut keyboard = Command::new("env");
    keyboard.args(["--default-signal=INT", PINFOLD, "run", "--grace", grace, "--name", "ladder"]);
    keyboard.arg(printing("INT TERM")).env("PINFOLD_HOME", pinfold.home());
    let mut client = Running::spawn(keyboard);
    assert_eq!(client.line(), "ready");
    client.signal(2);
    assert_eq!(client.line(), "got INT");
    // A second press too soon is ignored.
    let (until, quiet) = (Some("quiet".into()), Some("300ms".into()));
    let answer = pinfold.wait("ladder", &WaitQuery { until, quiet, ..WaitQuery::default() });
    assert_eq!((answer.reason, answer.record.status), (WaitReason::Quiet, Status::Running));
    client.signal(2);
    assert_eq!(client.line(), "got TERM");
    assert_eq!(client.end().code, Some(137));
    assert_eq!(pinfold.wait_finished(&answer.record.id).outcome, killed());
}
