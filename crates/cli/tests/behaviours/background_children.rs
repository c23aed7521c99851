//! Background children (`&`) and pipes that they hold: what a command leaves running is captured, listed, and stopped
//! with it.

mod escapes;
mod facts;

use pinfold_api::types::{Cause, Outcome, OutputQuery, Record, StartRequest, Status, WaitReason};
use pinfold_testkit::{Pinfold, alive, until};

use crate::PINFOLD;
use crate::requests::{both_ways, call, ready, reason, request, said, send, until_said, until_sleepers};

/// A request for a bash command.
fn bash(command: &str) -> StartRequest {
    StartRequest { shell: Some("bash".into()), ..request(command) }
}

/// Stops a process whose leader has exited with 0, and checks that nothing of it is left.
fn stop_strays(pinfold: &Pinfold, id: &str, strays: &[u32]) -> Record {
    assert_eq!(strays.iter().filter(|pid| !alive(**pid)).count(), 0, "a stray died before the stop");
    let stopped = pinfold.stop(id);
    assert_eq!(strays.iter().filter(|pid| alive(**pid)).count(), 0, "a stray outlived the stop");
    assert_eq!((stopped.already_over, stopped.survivors.len()), (false, 0));
    assert_eq!((stopped.record.status, stopped.record.tree.len()), (Status::Finished, 0));
    // The leader had exited on its own before: stopping its strays does not change its outcome.
    assert_eq!(stopped.record.outcome, Some(Outcome::Exited { code: 0 }));
    assert_eq!(stopped.record.cause, Some(Cause::OnItsOwn));
    stopped.record
}

#[test]
fn amp_returns_fast() {
    both_ways(|pinfold| {
        let called = call(pinfold, "sleep 300 & echo x", "60s");
        assert_eq!((reason(&called), said(&called)), (WaitReason::Exited, "x\n"));
        assert_eq!(called.record.outcome, Some(Outcome::Exited { code: 0 }));
        assert_eq!(called.record.status, Status::Lingering);
        assert!(alive(until_sleepers(pinfold, &called.record.id, 1)[0]));

        let cli = pinfold.cli(&["run", "sleep 300 & echo y"]);
        assert_eq!((cli.code, cli.stdout.as_str()), (Some(0), "y\n"));
    });
}

#[test]
fn amp_leftover_tracked() {
    both_ways(|pinfold| {
        let called = call(pinfold, "sleep 300 & echo $!", "60s");
        let strays = until_sleepers(pinfold, &called.record.id, 1);
        assert_eq!(said(&called), format!("{}\n", strays[0]));
        stop_strays(pinfold, &called.record.id, &strays);
    });
}

#[test]
fn amp_noisy_leftover_lives() {
    both_ways(|pinfold| {
        let called = call(pinfold, "(while :; do echo t; sleep .01; done) & echo done", "60s");
        assert_eq!((reason(&called), called.record.status), (WaitReason::Exited, Status::Lingering));
        assert_eq!(called.record.outcome, Some(Outcome::Exited { code: 0 }));
        let id = &called.record.id;
        let mut cursor = 0;
        for _ in 0..20 {
            let wait = OutputQuery { cursor: Some(cursor), wait: Some("60s".into()), ..OutputQuery::default() };
            let page = pinfold.output(id, &wait);
            assert!(page.next_cursor > cursor && page.exited && !page.closed, "{page:?}");
            cursor = page.next_cursor;
        }
        let text = pinfold.text(id);
        let (done, ticks): (Vec<_>, Vec<_>) = text.lines().partition(|line| *line == "done");
        assert_eq!(done.len(), 1);
        assert!(ticks.len() >= 10 && ticks.iter().all(|line| *line == "t"), "{text}");
        assert_eq!(pinfold.show(id).status, Status::Lingering);
        let loops = pinfold.tree(id);
        pinfold.stop(id);
        assert_eq!(loops.iter().filter(|pid| alive(**pid)).count(), 0);
    });
}

#[test]
fn amp_redirected_child() {
    both_ways(|pinfold| {
        let called = call(pinfold, "sleep 300 >/dev/null 2>&1 & echo started", "60s");
        let id = &called.record.id;
        assert_eq!((reason(&called), said(&called)), (WaitReason::Exited, "started\n"));
        let strays = until_sleepers(pinfold, id, 1);
        // No process holds the output any more, and still the process is not finished.
        until("its output closes", || pinfold.show(id).output.closed);
        assert_eq!(pinfold.show(id).status, Status::Lingering);
        let sent = send(pinfold, id, "TERM");
        assert_eq!((sent.reached, sent.refused), (1, vec![]));
        assert_eq!(pinfold.wait_finished(id).status, Status::Finished);
        assert!(!alive(strays[0]));
    });
}

#[test]
fn amp_forms() {
    both_ways(|pinfold| {
        let forms = [
            (request("sleep 300 & # c"), 1),
            (request("(sleep 300 &)"), 1),
            (request("sleep 300 & echo $!"), 1),
            (bash("sleep 300 & disown"), 1),
            (request("sleep 300 & sleep 300 &"), 2),
            (request("nohup sleep 300 > log 2>&1 & sleep 0.1; true"), 1),
            // sh reads this as `sleep 300 & > log`.
            (request("sleep 300 &> log"), 1),
            (bash("sleep 300 &> log & true"), 1),
            (request("{ sleep 300 & } ; true"), 1),
            (request("sh -c 'sleep 300 &'"), 1),
        ];
        for (form, count) in forms {
            let cwd = Some(pinfold.home().display().to_string());
            let called = pinfold.start_request(&StartRequest { cwd, wait: Some("60s".into()), ..form });
            let command = &called.record.command;
            assert_eq!((reason(&called), called.record.status), (WaitReason::Exited, Status::Lingering), "{command}");
            let strays = until_sleepers(pinfold, &called.record.id, count);
            stop_strays(pinfold, &called.record.id, &strays);
        }
    });
}

#[test]
fn amp_text_not_rewritten() {
    let pinfold = Pinfold::start(PINFOLD);
    for (command, output) in [
        (r"echo a \&", "a &\n"),
        ("echo hi #&", "hi\n"),
        (r#"echo "a &""#, "a &\n"),
        ("echo 'a' '&'", "a &\n"),
        ("echo a 2>&1", "a\n"),
        ("cat <<X\na &\nX", "a &\n"),
    ] {
        let called = call(&pinfold, command, "60s");
        assert_eq!((called.record.command.as_str(), said(&called)), (command, output));
        assert_eq!(pinfold.wait_finished(&called.record.id).outcome, Some(Outcome::Exited { code: 0 }), "{command}");
    }
}

#[test]
fn amp_chain() {
    both_ways(|pinfold| {
        let directory = pinfold.home().join("served");
        std::fs::create_dir(&directory).expect("a directory");
        let command = format!("cd {} && COLOUR=red sh -c 'echo $PWD $COLOUR; exec sleep 300' &", directory.display());
        let called = call(pinfold, &command, "60s");
        assert_eq!((reason(&called), called.record.status), (WaitReason::Exited, Status::Lingering));
        let record = until_said(pinfold, &called.record.id, "red");
        assert_eq!(pinfold.text(&record.id), format!("{} red\n", directory.display()));

        // The shell may wait for its server, or may have called exec for it.
        let server = || pinfold.show(&record.id).tree.into_iter().find(|member| member.command == "sleep 300");
        until("the server", || server().is_some());
        let server = server().expect("the server").pid;
        assert_eq!(std::fs::read_link(format!("/proc/{server}/cwd")).expect("its cwd"), directory);
        let environ = std::fs::read(format!("/proc/{server}/environ")).expect("its environment");
        assert!(environ.split(|byte| *byte == 0).any(|entry| entry == b"COLOUR=red"));
        stop_strays(pinfold, &record.id, &pinfold.tree(&record.id));
    });
}

#[test]
fn process_substitution() {
    let pinfold = Pinfold::start(PINFOLD);
    let copy = pinfold.home().join("copy");
    let command = format!("exec > >(tee {}) 2>&1; echo hi", copy.display());
    let called = pinfold.start_request(&StartRequest { wait: Some("60s".into()), ..bash(&command) });
    assert_eq!((reason(&called), &called.record.outcome), (WaitReason::Exited, &Some(Outcome::Exited { code: 0 })));
    pinfold.wait_finished(&called.record.id);
    assert_eq!(pinfold.text(&called.record.id), "hi\n");
    assert_eq!(std::fs::read_to_string(copy).expect("a copy"), "hi\n");
}

#[test]
fn nohup_disown_survives_return() {
    both_ways(|pinfold| {
        let command = "nohup sleep 300 >/dev/null 2>&1 & disown; echo up";
        let cli = pinfold.cli(&["run", "--shell", "bash", "--name", "kept", command]);
        assert_eq!((cli.code, cli.stdout.as_str()), (Some(0), "up\n"));
        let record = pinfold.show("kept");
        assert_eq!(record.status, Status::Lingering);
        let strays = until_sleepers(pinfold, &record.id, 1);
        // SIGHUP does not end it: it is still there to be stopped.
        assert_eq!(send(pinfold, &record.id, "HUP").reached, 1);
        assert_eq!(send(pinfold, &record.id, "STOP").reached, 1);
        until("it is stopped", || pinfold.show(&record.id).tree.iter().any(|member| member.state == "T"));
        stop_strays(pinfold, &record.id, &strays);
    });
}

#[test]
fn held_pipe_never_blocks() {
    both_ways(|pinfold| {
        let called = call(pinfold, "sleep 300 & exit 0", "60s");
        let id = &called.record.id;
        assert_eq!(pinfold.wait_exit(id).outcome, Some(Outcome::Exited { code: 0 }));
        let strays = until_sleepers(pinfold, id, 1);
        // The stray holds the pipe during all of these, and none of them waits for it.
        let listed = pinfold.list(&Default::default()).processes;
        assert_eq!((listed.len(), listed[0].status), (1, Status::Lingering));
        let page = pinfold.output(id, &OutputQuery::default());
        assert_eq!((page.text.as_str(), page.exited, page.closed), ("", true, false));
        stop_strays(pinfold, id, &strays);
    });
}

#[test]
fn exec_and_own_trap() {
    let pinfold = Pinfold::start(PINFOLD);
    for (command, code, output) in [
        ("exec sh -c 'echo x; exit 7'", 7, "x\n"),
        ("exec false", 1, ""),
        ("trap 'echo bye' EXIT; exit 5", 5, "bye\n"),
        ("trap 'echo bye; exit 9' EXIT; exit 1", 9, "bye\n"),
        ("sleep 300 & exit 6", 6, ""),
        ("sleep 300 & false", 1, ""),
        ("true & wait $!; exit 8", 8, ""),
        ("set -e; false; echo never", 1, ""),
        ("definitely-not-a-command 2>/dev/null", 127, ""),
    ] {
        let called = call(&pinfold, command, "60s");
        assert_eq!(
            (called.record.outcome.clone(), said(&called)),
            (Some(Outcome::Exited { code }), output),
            "{command}"
        );
    }
    let called = call(&pinfold, "trap 'echo bye' EXIT; kill -KILL $$", "60s");
    let killed = Outcome::Signaled { signal: 9, name: "KILL".into(), core_dumped: false };
    assert_eq!((called.record.outcome.as_ref(), said(&called)), (Some(&killed), ""));
}

#[test]
fn strays_can_be_refused() {
    both_ways(|pinfold| {
        let strays = Some(pinfold_api::types::Strays::Stop);
        let command = "sleep 300 & setsid sleep 300 & echo ready; echo $!";
        let record = ready(pinfold, &StartRequest { strays, ..request(command) });
        let record = pinfold.wait_finished(&record.id);
        assert_eq!((record.outcome, record.cause), (Some(Outcome::Exited { code: 0 }), Some(Cause::OnItsOwn)));
        let last = pinfold.text(&record.id).lines().last().and_then(|pid| pid.parse().ok());
        assert!(!alive(last.expect("a pid")));
    });
}
