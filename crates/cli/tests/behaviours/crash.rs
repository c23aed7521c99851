//! Crash and restart of the daemon, keepers and clients. `upgrade_under_load` is in `upgrade`.

pub(crate) mod damage;
mod home;
mod index;
mod invariants;
#[cfg(debug_assertions)] // an optimised build has no crash points
mod points;
mod recovering;
mod silence;
mod storm;

use std::path::{Path, PathBuf};

use pinfold_api::types::{Cause, EventKind, ListQuery, Outcome, OutputQuery, Record, StartRequest, Status, Streams};
use pinfold_testkit::{Cli, Pidfd, Pinfold, Setup, alive, command_line, parent_of, until};

use crate::PINFOLD;
use crate::clients::{Running, carriers_of};

/// A file that a command waits for until the test creates it.
fn gate(pinfold: &Pinfold) -> PathBuf {
    pinfold.home().join("gate")
}

fn open(gate: &Path) {
    std::fs::write(gate, "").expect("an open gate");
}

/// A command that writes 1, 2, 3 … until the gate is open, then exits with 7.
fn counting(gate: &Path) -> String {
    format!("i=0; while [ ! -e {} ]; do i=$((i+1)); echo $i; sleep 0.01; done; exit 7", gate.display())
}

/// Opens the gate of a counting process and checks its end: every line, the exact code, each event once.
fn assert_counted_to_the_end(pinfold: &Pinfold, id: &str) {
    open(&gate(pinfold));
    let record = pinfold.wait_finished(id);
    assert_eq!((record.outcome, record.cause), (Some(Outcome::Exited { code: 7 }), Some(Cause::OnItsOwn)));
    let text = pinfold.text(id);
    assert_eq!(text.len() as u64, record.output.bytes);
    let count = text.lines().count();
    assert!(count > 0 && text == (1..=count).map(|line| format!("{line}\n")).collect::<String>(), "{text}");
    assert_eq!(events_of(pinfold, id), [EventKind::Started, EventKind::Finished]);
}

/// The kinds of a process's events, in order; without `closed`, which may or may not coincide with the end.
fn events_of(pinfold: &Pinfold, id: &str) -> Vec<EventKind> {
    let events = pinfold.events(0).events;
    let kinds = events.into_iter().filter(|event| event.process == id).map(|event| event.kind);
    kinds.filter(|kind| *kind != EventKind::Closed).collect()
}

/// Waits until a process has written something.
fn until_output(pinfold: &Pinfold, id: &str) {
    until("some output", || pinfold.show(id).output.bytes > 0);
}

/// Waits until a counting process has written more than this record knew.
fn until_more_output(pinfold: &Pinfold, than: &Record) {
    until("more output", || pinfold.show(&than.id).output.bytes > than.output.bytes);
}

#[test]
fn daemon_kill9_job_survives() {
    let pinfold = Pinfold::start(PINFOLD);
    let started = pinfold.sh(&counting(&gate(&pinfold)));
    for _ in 0..3 {
        let before = pinfold.show(&started.id);
        pinfold.crash_and_restart();
        let after = pinfold.show(&started.id);
        assert_eq!((after.status, after.pid), (Status::Running, started.pid));
        until_more_output(&pinfold, &before);
    }
    assert_counted_to_the_end(&pinfold, &started.id);
}

/// A process whose end only its keeper observes.
fn end_without_daemon(end_daemon: impl Fn(&Pinfold)) {
    let pinfold = Pinfold::start(PINFOLD);
    let started = pinfold.sh(&counting(&gate(&pinfold)));
    until_more_output(&pinfold, &started);
    end_daemon(&pinfold);
    open(&gate(&pinfold));
    until("all keepers end", || pinfold.keepers().is_empty());
    pinfold.start_daemon();
    assert_eq!(pinfold.show(&started.id).status, Status::Finished);
    assert_counted_to_the_end(&pinfold, &started.id);
}

#[test]
fn daemon_down_exit_known() {
    end_without_daemon(Pinfold::kill_daemon);
}

#[test]
fn daemon_graceful_equals_crash() {
    end_without_daemon(|pinfold| {
        let stop = pinfold.cli(&["daemon", "stop"]);
        assert_eq!(stop.code, Some(0), "{}", stop.stderr);
        assert!(stop.stdout.contains("1 process keeps running"), "{}", stop.stdout);
    });
    end_without_daemon(|pinfold| {
        let daemon = pinfold.daemon_pid();
        Pidfd::open(daemon).expect("it lives").signal(15);
        until("it ends when asked to", || !alive(daemon));
    });
}

#[test]
fn flags_survive_crash() {
    let pinfold = Pinfold::start(PINFOLD);
    let request = StartRequest {
        command: Some("trap 'echo out; echo err >&2; exit 3' INT; while :; do sleep 0.01; done".into()),
        owner: Some("chat-7".into()),
        name: Some("patient".into()),
        labels: [("team".to_owned(), "ui".to_owned())].into(),
        streams: Some(Streams::Separate),
        stop_signal: Some("INT".into()),
        idempotency_key: Some("once".into()),
        ..StartRequest::default()
    };
    let limited = StartRequest {
        command: Some("sleep 300".into()),
        time_limit: Some("1s".into()),
        owner: Some("chat-7".into()),
        ..StartRequest::default()
    };
    let (record, limited) = (pinfold.start_request(&request).record, pinfold.start_request(&limited).record);
    pinfold.crash_and_restart();

    let limited = pinfold.wait_finished(&limited.id);
    assert_eq!((limited.cause, limited.owner.as_str()), (Some(Cause::TimeLimit), "chat-7"));
    assert_eq!(pinfold.show("patient").id, record.id);
    assert_eq!(pinfold.list(&ListQuery { label: vec!["team=ui".into()], ..ListQuery::default() }).total, 1);
    let again = pinfold.start_request(&request);
    assert_eq!((again.record.id.as_str(), again.created), (record.id.as_str(), false));
    let stopped = pinfold.stop(&record.id).record;
    assert_eq!((stopped.outcome, stopped.owner.as_str()), (Some(Outcome::Exited { code: 3 }), "chat-7"));
    let stderr = OutputQuery { stream: Some("stderr".into()), ..OutputQuery::default() };
    assert_eq!(pinfold.output(&record.id, &stderr).text, "err\n");
}

/// TERM and HUP to `pinfold run` stop the tree; INT is passed on; KILL leaves it to the daemon.
#[test]
fn client_death_policy() {
    let pinfold = Pinfold::start(PINFOLD);
    let help = pinfold.cli(&["run", "--help"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["Ctrl-C is passed on", "so does TERM or", "the process keeps running"] {
        assert!(help.contains(part), "{help}");
    }
    for (signal, code) in [(15, 143), (1, 143), (2, 9)] {
        let mut client =
            Running::start(&pinfold, &["run", "trap 'exit 9' INT; echo $PINFOLD_ID; setsid sleep 300 & sleep 300; :"]);
        let id = client.line();
        let tree = pinfold.until_tree(&id, 3);
        // A child of the shell that has not called exec yet would lose an INT to the shell's own trap.
        until("both sleep", || tree.iter().filter(|pid| command_line(**pid).starts_with("sleep")).count() == 2);
        client.signal(signal);
        let stopped = signal != 2;
        assert_eq!(client.end().code, Some(code), "signal {signal}");
        if stopped {
            assert_eq!(pinfold.show(&id).cause, Some(Cause::StopRequested));
            assert!(!tree.into_iter().any(alive), "signal {signal} left something");
        }
    }

    let mut client = Running::start(&pinfold, &["run", &format!("echo $PINFOLD_ID; {}", counting(&gate(&pinfold)))]);
    let id = client.line();
    client.signal(9);
    assert_eq!(client.end().code, None);
    until_more_output(&pinfold, &pinfold.show(&id));
    assert_eq!(pinfold.show(&id).status, Status::Running);
}

/// The same holds while `pinfold run` still waits for the response to its start.
#[test]
fn an_interrupt_before_the_start_is_answered_is_passed_on() {
    let pinfold = Pinfold::start(PINFOLD);
    for (signal, code) in [(2, 9), (15, 143)] {
        let running = pinfold.home().join(format!("running-{signal}"));
        let script = format!("trap 'exit 9' INT; : > {}; while :; do sleep 0.01; done", running.display());
        let client = Running::start(&pinfold, &["run", &script]);
        until("the command runs", || running.exists());
        client.signal(signal);
        assert_eq!(client.end().code, Some(code), "signal {signal}");
        std::fs::remove_file(running).expect("its file");
    }
    assert_eq!(pinfold.list(&ListQuery { status: Some("running".into()), ..ListQuery::default() }).total, 0);
}

#[test]
fn shim_group_killed() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let shim = Running::start(&pinfold, &["events", "-f"]);
    until("the shim's daemon answers", || pinfold.block(pinfold.client().health()).is_ok());
    let (daemon, job) = (pinfold.daemon_pid(), pinfold.sh(&counting(&gate(&pinfold))));
    shim.signal_group(15);
    shim.signal_group(9);
    shim.end();
    until_more_output(&pinfold, &pinfold.show(&job.id));
    assert_eq!(pinfold.daemon_pid(), daemon);
    assert_counted_to_the_end(&pinfold, &job.id);
}

#[test]
fn keeper_kill9() {
    for pinfold in [Pinfold::start(PINFOLD), Pinfold::start_without_cgroup(PINFOLD)] {
        let id = pinfold.sh("setsid sleep 300 & echo up; sleep 300; :").id;
        until_output(&pinfold, &id);
        let (tree, keeper) = (pinfold.until_tree(&id, 3), pinfold.keeper_pid(&id));
        Pidfd::open(keeper).expect("the keeper lives").kill();

        let record = pinfold.wait_finished(&id);
        assert_eq!((record.status, record.cause), (Status::Lost, None));
        let Some(Outcome::Lost { evidence }) = &record.outcome else { panic!("{record:?}") };
        assert!(evidence.contains(&format!("keeper {keeper}")) && evidence.contains("none is left"), "{evidence}");
        assert!(!tree.into_iter().any(alive), "{evidence}");
        assert_eq!(events_of(&pinfold, &id), [EventKind::Started, EventKind::Lost]);

        let shown = pinfold.show(&id);
        pinfold.crash_and_restart();
        assert_eq!(pinfold.show(&id), shown);
        assert_eq!(pinfold.text(&id), "up\n");
        assert!(pinfold.stop(&id).already_over);
    }
}

/// A reported exit is final, even if the keeper dies after it.
#[test]
fn a_known_exit_survives_its_keeper() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, _) = pinfold.run("setsid sleep 300 & exit 3");
    let stray = pinfold.until_tree(&record.id, 1)[0];
    Pidfd::open(pinfold.keeper_pid(&record.id)).expect("the keeper lives").kill();
    let record = pinfold.wait_finished(&record.id);
    assert_eq!((record.status, record.outcome), (Status::Lost, Some(Outcome::Exited { code: 3 })));
    assert!(!alive(stray));
    assert_eq!(events_of(&pinfold, &record.id), [EventKind::Started, EventKind::Exited, EventKind::Lost]);
}

#[test]
fn two_daemons_one_wins() {
    let one_in_a_fresh_home = |_| {
        let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
        let racing: Vec<_> = (0..8).map(|_| Running::start(&pinfold, &["daemon", "start", "--json"])).collect();
        let pids: Vec<_> = racing.into_iter().map(|client| json(&client.end())["pid"].clone()).collect();
        assert!(pids.iter().all(|pid| *pid == pids[0] && pid.is_u64()), "{pids:?}");
        let daemon = pinfold.daemon_pid();
        let mut here = carriers_of(&format!("PINFOLD_HOME={}", pinfold.home().display()));
        // A child of the daemon has its command line until it has called exec.
        here.retain(|pid| command_line(*pid).contains("daemon run") && parent_of(*pid) != Some(daemon));
        assert_eq!(here, [daemon], "one that lost is still on its way");
        pinfold
    };
    let pinfold = (0..3).map(one_in_a_fresh_home).collect::<Vec<_>>().pop().expect("a home");

    let job = pinfold.sh(&counting(&gate(&pinfold)));
    pinfold.kill_daemon();
    let racing: Vec<_> = (0..8).map(|_| Running::start(&pinfold, &["show", &job.id, "--json"])).collect();
    for client in racing {
        let shown = json(&client.end());
        assert_eq!((&shown["status"], shown["pid"].as_u64()), (&"running".into(), job.pid.map(u64::from)));
    }

    let second = pinfold.cli(&["daemon", "run"]);
    let owner = format!("another daemon owns this home (pid {})", pinfold.daemon_pid());
    assert!(second.code == Some(1) && second.stderr.contains(&owner), "{second:?}");
    assert_counted_to_the_end(&pinfold, &job.id);
}

fn json(cli: &Cli) -> serde_json::Value {
    serde_json::from_str(&cli.stdout).unwrap_or_else(|error| panic!("{error}: {cli:?}"))
}

#[test]
fn stop_daemon_whole_trees() {
    let pinfold = Pinfold::start(PINFOLD);
    let commands = ["sleep 300; :", "setsid sleep 300 & exit 0", "trap '' TERM; while :; do sleep 0.01; done"];
    let mut pids = vec![pinfold.daemon_pid()];
    for command in commands {
        let request =
            StartRequest { command: Some(command.into()), grace: Some("300ms".into()), ..StartRequest::default() };
        let id = pinfold.start_request(&request).record.id;
        until("a living tree", || !pinfold.tree(&id).is_empty());
        pids.extend(pinfold.tree(&id));
    }
    pids.extend(pinfold.keepers());
    let stop = pinfold.cli(&["daemon", "stop", "--all"]);
    assert_eq!((stop.code, stop.stdout.as_str()), (Some(0), "daemon stopped; 3 processes stopped\n"));
    until("daemon, keepers and trees are gone", || !pids.iter().copied().any(alive));
}

/// Cost is measured in bytes that the daemon reads and writes, not in time.
#[test]
fn state_cost_flat() {
    let pinfold = Pinfold::start(PINFOLD);
    let before = cost_of_starts(&pinfold);
    (0..30).for_each(|_| drop(pinfold.sh("sleep 300")));
    (0..200).for_each(|_| drop(pinfold.sh("exit 0")));
    let after = cost_of_starts(&pinfold);
    assert!(after < 3 * before, "ten starts took {before} bytes at first and {after} bytes with 230 processes");
}

/// The cheapest of several batches of ten: a checkpoint of the index falls into some of them.
fn cost_of_starts(pinfold: &Pinfold) -> u64 {
    let daemon = pinfold.daemon_pid();
    let bytes = || {
        let text = std::fs::read_to_string(format!("/proc/{daemon}/io")).expect("the daemon's own count");
        let number = |line: &str| line.split_once(": ").and_then(|(_, number)| number.parse::<u64>().ok());
        text.lines().take(2).map(|line| number(line).expect("rchar and wchar")).sum::<u64>()
    };
    let batch = |_| {
        let before = bytes();
        (0..10).for_each(|_| drop(pinfold.wait_finished(&pinfold.sh("exit 0").id)));
        bytes() - before
    };
    (0..5).map(batch).min().expect("batches")
}
