//! A refused start leaves nothing behind: no keeper, no descriptor, no directory, whatever the reason.

use std::fs::read_dir;
use std::io::Read;
use std::os::unix::net::UnixStream;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{ListQuery, Port, Ready, Restart, RestartPolicy, StartRequest};
use pinfold_testkit::{Pinfold, Setup, until};

use crate::PINFOLD;
use crate::requests::{post, request};

/// Many more than the daemon keeps idle.
const REFUSALS: usize = 200;
/// How many idle keepers may be left, including those that are being forked or exiting.
const KEEPERS: usize = 20;

fn count(pinfold: &Pinfold, directory: &str) -> usize {
    read_dir(pinfold.home().join(directory)).map_or(0, |entries| entries.count())
}

/// What the daemon and its home hold now: keepers, descriptors, directories of processes, restart files.
fn held(pinfold: &Pinfold, daemon: u32) -> [usize; 4] {
    let descriptors = read_dir(format!("/proc/{daemon}/fd")).map_or(0, |entries| entries.count());
    [count(pinfold, "keepers"), descriptors, count(pinfold, "processes"), count(pinfold, "chains")]
}

/// Repeats this start, which is refused each time; then checks that the daemon holds little more than before.
fn refused_only(pinfold: &Pinfold, code: ErrorCode, asked: &StartRequest) {
    let daemon = pinfold.daemon_pid();
    let before = held(pinfold, daemon);
    for _ in 0..REFUSALS {
        let refusal = pinfold.try_start(asked).expect_err("a refused start");
        assert_eq!(refusal.code, code, "{refusal}");
    }
    until(&format!("little more than {before:?}"), || {
        held(pinfold, daemon).iter().zip(before).all(|(after, before)| *after <= before + KEEPERS)
    });
}

fn refused(pinfold: &Pinfold, code: ErrorCode, asked: &StartRequest) {
    refused_only(pinfold, code, asked);
    assert_eq!(pinfold.run("echo usable").1, "usable\n");
}

fn restarted(command: &str) -> StartRequest {
    let policy = RestartPolicy { when: "on_failure".into(), initial: Some("1ms".into()), ..RestartPolicy::default() };
    StartRequest { restart: Some(Restart::Policy(policy)), ..request(command) }
}

#[test]
fn starts_refused_for_a_leased_port_leave_nothing() {
    let pinfold = Pinfold::start(PINFOLD);
    let ports = [("PORT".to_owned(), "lease".into())].into();
    let holder = pinfold.start_request(&StartRequest { ports, ..request("exec sleep 300") }).record;
    let ports = [("PORT".to_owned(), Port::Number(holder.ports["PORT"].into()))].into();
    refused(&pinfold, ErrorCode::LimitReached, &StartRequest { ports, ..request("true") });
}

#[test]
fn starts_refused_for_a_socket_or_a_file_that_cannot_be_made_leave_nothing() {
    let pinfold = Pinfold::start(PINFOLD);
    // Files where directories should be, so that neither the readiness socket nor the restart file can be created.
    for name in ["ready", "chains"] {
        std::fs::write(pinfold.home().join(name), "").expect("a file in the way");
    }
    let ready = Some(Ready { peer: Some(true), ..Ready::default() });
    refused(&pinfold, ErrorCode::StoreUnwritable, &StartRequest { ready, ..request("true") });
    refused(&pinfold, ErrorCode::StoreUnwritable, &restarted("true"));
    for name in ["ready", "chains"] {
        std::fs::remove_file(pinfold.home().join(name)).expect("out of the way");
    }
}

/// Sends many starts at once, disconnects after the given function, and waits until few keepers and descriptors are
/// left.
fn abandoned(pinfold: &Pinfold, asked: &StartRequest, before_leaving: impl FnOnce(&mut Vec<UnixStream>)) {
    let daemon = pinfold.daemon_pid();
    let before = held(pinfold, daemon);
    let mut streams = (0..REFUSALS).map(|_| post(pinfold, "/v1/processes", asked)).collect();
    before_leaving(&mut streams);
    drop(streams);
    until("few keepers and descriptors", || {
        let after = held(pinfold, daemon);
        after[0] <= before[0] + KEEPERS && after[1] <= before[1] + KEEPERS
    });
}

#[test]
fn starts_refused_by_admission_leave_nothing() {
    let config = "[limits]\nprocesses = 2\n".to_owned();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    pinfold.sh("exec sleep 300");
    // Many at once for one free slot: most are refused after a keeper was taken for them.
    abandoned(&pinfold, &request("exec sleep 300"), |streams| {
        let answered = streams.iter_mut().map(|stream| stream.read_exact(&mut [0; 1]));
        answered.for_each(|answer| answer.expect("an answer to each"));
    });
    refused_only(&pinfold, ErrorCode::LimitReached, &request("true"));
}

#[test]
fn clients_that_go_away_in_the_middle_of_a_start_leave_nothing_but_their_processes() {
    let pinfold = Pinfold::start(PINFOLD);
    abandoned(&pinfold, &request("true"), |_| {
        until("some have started", || pinfold.list(&ListQuery::default()).total > 0);
    });
    assert_eq!(pinfold.run("echo usable").1, "usable\n");
}

/// The port of the service was taken by another program while the service was down.
#[test]
fn refused_restarts_leave_no_keeper() {
    let pinfold = Pinfold::start(PINFOLD);
    let daemon = pinfold.daemon_pid();
    let before = held(&pinfold, daemon);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its number").port();
    drop(listener);
    let gate = crate::requests::Gate::new(&pinfold, "gate");
    let ports = [("PORT".to_owned(), Port::Number(port.into()))].into();
    let asked = StartRequest { ports, ..restarted(&format!("{}; exit 3", gate.wait())) };
    let first = pinfold_testkit::until_some("the port is free", || pinfold.try_start(&asked).ok()).record;
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).expect("the process does not use it");
    gate.open();
    until("a restart that was refused and given up or tried again", || {
        let log = std::fs::read_to_string(pinfold.home().join("daemon.log")).unwrap_or_default();
        log.matches("a restart was refused").count() >= 2
    });
    until("no more keepers than before", || held(&pinfold, daemon)[0] <= before[0] + 4);
    assert_eq!(pinfold.keepers().len(), count(&pinfold, "keepers"));
    pinfold.stop(&first.id);
}
