//! Parts of pinfold that are stopped (SIGSTOP), not dead: everything else continues, and nothing is lost.

use pinfold_api::types::{ListQuery, Outcome, StartRequest, Status};
use pinfold_model::facts::Fact;
use pinfold_testkit::{Pidfd, Pinfold, alive, children_of, command_line, until, until_some};

use super::{assert_counted_to_the_end, counting, gate, open, until_more_output};
use crate::PINFOLD;
use crate::records::facts;

const CONT: i32 = 18;
const STOP: i32 = 19;

/// Stops a process until this is dropped.
struct Stopped(Pidfd);

impl Stopped {
    fn new(pid: u32) -> Self {
        let pidfd = Pidfd::open(pid).expect("it lives");
        pidfd.signal(STOP);
        until("it stands still", || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        });
        Self(pidfd)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.signal(CONT);
    }
}

#[test]
fn a_stopped_keeper_delays_no_other_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh(&counting(&gate(&pinfold)));
    until_more_output(&pinfold, &job);
    let stopped = Stopped::new(pinfold.keeper_pid(&job.id));
    assert_eq!(pinfold.list(&ListQuery::default()).processes[0].status, Status::Running);
    assert_eq!(pinfold.show(&job.id).pid, job.pid);
    assert_eq!(pinfold.run("echo other; exit 4").0.outcome, Some(Outcome::Exited { code: 4 }));
    // A request to the keeper continues it, and it carries the request out; the outcome is what the kernel reported.
    pinfold.signal(&job.id, "TERM").expect("it is reached");
    drop(stopped);
    let record = pinfold.wait_finished(&job.id);
    assert_eq!(record.outcome.map(|outcome| matches!(outcome, Outcome::Signaled { signal: 15, .. })), Some(true));
}

#[test]
fn a_daemon_reconnects_to_a_stopped_keeper_when_it_continues() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh(&counting(&gate(&pinfold)));
    let keeper = pinfold.keeper_pid(&job.id);
    let stopped = Stopped::new(keeper);
    pinfold.crash_and_restart();
    let record = pinfold.show(&job.id);
    assert_eq!((record.status, record.pid), (Status::Running, job.pid));
    assert!(record.note.is_some_and(|note| note.contains(&format!("pid {keeper}"))));
    drop(stopped);
    until("the keeper answers", || pinfold.show(&job.id).note.is_none());
    assert_counted_to_the_end(&pinfold, &job.id);
}

/// A keeper whose socket file was removed cannot be reached; its process is unaffected.
#[test]
fn a_process_survives_an_unreachable_keeper() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh(&counting(&gate(&pinfold)));
    let keeper = pinfold.keeper_pid(&job.id);
    pinfold.kill_daemon();
    std::fs::remove_file(pinfold.home().join("keepers").join(keeper.to_string())).expect("a socket");
    pinfold.start_daemon();
    let record = pinfold.show(&job.id);
    assert_eq!((record.status, record.pid), (Status::Running, job.pid));
    assert!(record.note.as_deref().is_some_and(|note| note.contains("cannot be reached")), "{record:?}");
    until_more_output(&pinfold, &record);
    assert_counted_to_the_end(&pinfold, &job.id);
}

/// K3: nothing the daemon does or fails to do reaches the process.
#[test]
fn k3_a_stopped_daemon_delays_no_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh(&counting(&gate(&pinfold)));
    let stopped = Stopped::new(pinfold.daemon_pid());
    let directory = pinfold.directory(&job.id);
    let written = || std::fs::metadata(directory.join("out.00000000000000000000")).map_or(0, |file| file.len());
    let before = written();
    until("it writes on", || written() > before + 100);
    open(&gate(&pinfold));
    until("its end is on disk", || matches!(facts(&pinfold, &job.id).last(), Some(Fact::Finished(_))));
    drop(stopped);
    assert_counted_to_the_end(&pinfold, &job.id);
}

/// A daemon without free descriptors can neither search for the remains of a process nor read its record. Until it can,
/// it reports neither that the process is lost nor that its tree is empty.
#[test]
fn a_daemon_without_descriptors_reports_no_loss() {
    let pinfold = Pinfold::start(PINFOLD);
    // Without a cgroup, and with its keeper dead, only its environment shows to which process it belongs.
    let wiped = if pinfold.health().containment == "cgroup" { "env -i" } else { "" };
    let lost = pinfold.sh(&format!("{wiped} setsid sleep 300 & exec sleep 300"));
    let ended = pinfold.sh("sleep 300");
    let tree = pinfold.until_tree(&lost.id, 2);
    let (daemon, keeper) = (pinfold.daemon_pid(), Pidfd::open(pinfold.keeper_pid(&lost.id)).expect("a keeper"));
    let descriptors = |max: &str| {
        let limit = ["--pid", &daemon.to_string(), &format!("--nofile={max}:")];
        std::process::Command::new("prlimit").args(limit).status().is_ok_and(|status| status.success())
    };
    if !descriptors("4") {
        return println!("skipped: there is no prlimit here");
    }
    keeper.kill();
    let log = pinfold.home().join("daemon.log");
    until("it says that it cannot look", || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains("cannot be reached"))
    });
    assert!(!facts(&pinfold, &lost.id).iter().any(|fact| matches!(fact, Fact::Lost { .. })));
    assert!(descriptors("1024"));
    let record = pinfold.wait_finished(&lost.id);
    let Some(Outcome::Lost { evidence }) = &record.outcome else { panic!("{record:?}") };
    assert!(evidence.contains("none is left") && !tree.into_iter().any(alive), "{evidence}");
    assert_eq!(pinfold.show(&ended.id).status, Status::Running);
}

fn kill_nursery(daemon: u32) {
    let nursery = until_some("a nursery", || {
        children_of(daemon).into_iter().find(|pid| alive(*pid) && command_line(*pid).ends_with(" nursery"))
    });
    if let Some(nursery) = Pidfd::open(nursery) {
        nursery.kill();
    }
}

#[test]
fn a_killed_nursery_does_not_prevent_starts() {
    let pinfold = Pinfold::start(PINFOLD);
    let daemon = pinfold.daemon_pid();
    let mut ids = vec![];
    for round in 0..3 {
        kill_nursery(daemon);
        let command = format!("while [ ! -e {} ]; do sleep 0.05; done; exit {round}", gate(&pinfold).display());
        // More than there are idle keepers, so that new ones are forked.
        ids.extend((0..5).map(|_| pinfold.sh(&command).id));
    }
    assert!(ids.iter().all(|id| pinfold.show(id).status == Status::Running));
    open(&gate(&pinfold));
    for (place, id) in ids.iter().enumerate() {
        assert_eq!(pinfold.wait_finished(id).outcome, Some(Outcome::Exited { code: place as u8 / 5 }));
    }
}

/// The nursery dies at the very moment when it is asked for a keeper.
#[test]
fn a_nursery_that_dies_under_a_start_does_not_fail_it() {
    let pinfold = Pinfold::start(PINFOLD);
    let daemon = pinfold.daemon_pid();
    let request = StartRequest { command: Some("sleep 300".into()), ..StartRequest::default() };
    for round in 0..20 {
        std::thread::scope(|scope| {
            scope.spawn(|| kill_nursery(daemon));
            // More than there are idle keepers, so that the nursery is asked.
            let refused = (0..4).find_map(|_| pinfold.try_start(&request).err());
            assert_eq!(refused, None, "round {round}");
        });
    }
}
