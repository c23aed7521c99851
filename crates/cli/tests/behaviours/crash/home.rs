//! A home that is removed, moved or replaced while its daemon runs: no process is left running without a daemon that
//! lists it.

use std::path::PathBuf;

use pinfold_api::types::{ListQuery, Status};
use pinfold_store::layout::Home;
use pinfold_testkit::{Pidfd, Pinfold, alive, until};

use crate::PINFOLD;

const COUNTING: &str = "while :; do echo x; sleep 0.05; done";

fn named(pinfold: &Pinfold) -> Vec<String> {
    pinfold.list(&ListQuery::default()).processes.into_iter().map(|record| record.id).collect()
}

fn remove_home(pinfold: &Pinfold) {
    // A daemon that notices the removal halfway creates the home again.
    let _ = std::fs::remove_dir_all(pinfold.home());
}

#[test]
fn a_process_stays_reachable_when_its_home_is_removed() {
    let pinfold = Pinfold::start(PINFOLD);
    let (job, daemon) = (pinfold.sh(COUNTING), pinfold.daemon_pid());
    let events = pinfold.events(0).events;
    remove_home(&pinfold);
    // A client that finds no socket starts a daemon, which exits because the first one still owns the home.
    let listed = pinfold.cli(&["ps"]);
    assert!(listed.stdout.contains(&job.id), "{}{}", listed.stdout, listed.stderr);
    assert_eq!((pinfold.daemon_pid(), named(&pinfold)), (daemon, vec![job.id.clone()]));
    let health = pinfold.health();
    assert!(health.status == "degraded" && health.troubles[0].contains("was removed"), "{health:?}");
    let shown = pinfold.show(&job.id);
    assert!(shown.status == Status::Running && shown.note.is_some_and(|note| note.contains("removed")));
    let log = std::fs::read_to_string(pinfold.home().join("daemon.log")).expect("a log");
    assert!(log.contains("was removed while 1 process ran"), "{log}");

    let (_, text) = pinfold.run("echo usable");
    assert_eq!(text, "usable\n");
    let last = events.last().expect("an event").seq;
    assert!(pinfold.events(0).events.iter().all(|event| event.seq > last), "numbers never run backwards");
    assert!(pinfold.events(0).events.iter().all(|event| event.process != job.id), "no event is repeated");
    // A later daemon could not find the process, so it is stopped with this one.
    let other = pinfold.sh("exec sleep 300");
    assert_eq!(pinfold.cli(&["daemon", "stop"]).code, Some(0));
    until("it ends with its daemon", || !job.pid.is_some_and(alive));
    pinfold.start_daemon();
    assert_eq!(pinfold.show(&other.id).status, Status::Running, "one that was started later is found");
}

#[test]
fn a_home_that_lost_only_its_lock_file_is_locked_again_and_its_processes_keep_running() {
    let pinfold = Pinfold::start(PINFOLD);
    let (job, daemon) = (pinfold.sh(COUNTING), pinfold.daemon_pid());
    std::fs::remove_file(pinfold.home().join("lock")).expect("removed");
    until("it is locked again", || pinfold.home().join("lock").exists());
    assert_eq!((pinfold.daemon_pid(), named(&pinfold)), (daemon, vec![job.id.clone()]));
    assert_eq!((pinfold.show(&job.id).note, pinfold.health().status.as_str()), (None, "ok"));
    assert_eq!(pinfold.cli(&["daemon", "stop"]).code, Some(0));
    pinfold.start_daemon();
    assert_eq!(pinfold.show(&job.id).status, Status::Running);
    pinfold.stop(&job.id);
}

#[test]
fn a_process_is_stopped_by_its_daemon_after_the_home_was_removed() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh("exec sleep 300");
    remove_home(&pinfold);
    until("it is listed", || pinfold.cli(&["ps"]).stdout.contains(&job.id));
    assert_eq!(pinfold.stop(&job.id).survivors, vec![]);
    assert_eq!(pinfold.show(&job.id).status, Status::Finished);
    assert!(!job.pid.is_some_and(alive));
}

#[test]
fn a_home_that_was_moved_is_found_through_a_link_and_nothing_is_lost() {
    let pinfold = Pinfold::start(PINFOLD);
    let (job, daemon) = (pinfold.sh(COUNTING), pinfold.daemon_pid());
    let elsewhere = pinfold.home().with_extension("moved");
    std::fs::rename(pinfold.home(), &elsewhere).expect("moved");
    let listed = pinfold.cli(&["ps"]);
    assert!(listed.stdout.contains(&job.id), "{}{}", listed.stdout, listed.stderr);
    assert_eq!(pinfold.daemon_pid(), daemon);
    assert_eq!(std::fs::read_link(pinfold.home()).ok(), Some(elsewhere.clone()));
    let before = pinfold.show(&job.id).output.bytes;
    until("its output goes on", || pinfold.show(&job.id).output.bytes > before);
    assert_eq!(pinfold.show(&job.id).note, None);
    std::fs::remove_file(pinfold.home()).and_then(|()| std::fs::rename(&elsewhere, pinfold.home())).expect("back");
    pinfold.crash_and_restart();
    assert_eq!(pinfold.stop(&job.id).record.status, Status::Finished);
}

#[test]
fn a_daemon_without_processes_exits_when_its_home_is_removed() {
    let pinfold = Pinfold::start(PINFOLD);
    let daemon = pinfold.daemon_pid();
    remove_home(&pinfold);
    until("it ends", || !alive(daemon));
}

/// Stops the daemon with SIGSTOP for a while, so that it notices nothing.
fn while_stopped(pinfold: &Pinfold, scene: impl FnOnce(u32)) {
    let pid = pinfold.daemon_pid();
    let daemon = Pidfd::open(pid).expect("the daemon");
    daemon.signal(19);
    scene(pid);
    daemon.signal(18);
}

#[test]
fn a_second_daemon_detects_the_first_although_the_home_is_gone() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh("exec sleep 300");
    while_stopped(&pinfold, |pid| {
        remove_home(&pinfold);
        let second = pinfold.cli(&["daemon", "run"]);
        assert!(second.code != Some(0) && second.stderr.contains(&format!("pid {pid}")), "{}", second.stderr);
    });
    until("the first makes its home again", || pinfold.cli(&["ps"]).stdout.contains(&job.id));
}

#[test]
fn a_daemon_whose_home_was_replaced_stops_its_processes_and_says_so() {
    let pinfold = Pinfold::start(PINFOLD);
    let (job, daemon) = (pinfold.sh("exec sleep 300"), pinfold.daemon_pid());
    let mut taken = None;
    while_stopped(&pinfold, |_| {
        remove_home(&pinfold);
        let home = Home::open(pinfold.home()).expect("a new home");
        std::fs::write(home.log(), "").expect("a log");
        taken = Some(home.try_lock().expect("its lock"));
    });
    until("its process is ended", || !job.pid.is_some_and(alive));
    until("it ends", || !alive(daemon));
    let log: PathBuf = pinfold.home().join("daemon.log");
    assert!(std::fs::read_to_string(log).expect("a log").contains("another daemon has taken"));
}
