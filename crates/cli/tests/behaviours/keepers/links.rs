//! A closed link between daemon and keeper says nothing about the process: only the kernel reports which program is
//! dead.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use pinfold_api::types::{EventKind, InputRequest, ListQuery, Outcome, StartRequest, Status, Stdin};
use pinfold_model::facts::Fact;
use pinfold_model::link::{Decoder, FromKeeper, ToKeeper, VERSION, encode};
use pinfold_testkit::{DEADLINE, Pidfd, Pinfold, alive, connections_of, cut_connections, until, until_some};

use crate::PINFOLD;
use crate::records::facts;
use crate::requests::{post, request};

const CONT: i32 = 18;
const STOP: i32 = 19;

/// A program that connects to a keeper and is not its daemon.
struct Stranger {
    stream: UnixStream,
    decoder: Decoder,
}

impl Stranger {
    fn new(pinfold: &Pinfold, keeper: u32) -> Self {
        let stream = UnixStream::connect(pinfold.home().join("keepers").join(keeper.to_string())).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        Self { stream, decoder: Decoder::default() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it is taken");
    }

    /// The next message of the keeper; `None` if it closed the connection.
    fn receive(&mut self) -> Option<FromKeeper> {
        loop {
            if let Some(message) = self.decoder.try_next().expect("messages") {
                return Some(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.decoder.extend(&bytes[..count]),
            }
        }
    }
}

fn framed(body: &str) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body.as_bytes()].concat()
}

/// Checks that the process still runs, that its daemon can signal it, and that its end is reported once with the true outcome.
fn assert_untouched(pinfold: &Pinfold, id: &str, tree: &[u32]) {
    let record = pinfold.show(id);
    assert_eq!((record.status, record.note), (Status::Running, None));
    assert!(tree.iter().all(|pid| alive(*pid)));
    pinfold.signal(id, "TERM").expect("it is reached");
    let record = pinfold.wait_finished(id);
    assert!(matches!(record.outcome, Some(Outcome::Signaled { signal: 15, .. })), "{record:?}");
    let events = pinfold.events(0).events;
    let kinds: Vec<_> = events.iter().filter(|event| event.process == id).map(|event| event.kind).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&EventKind::Started), Some(&EventKind::Finished)), "{kinds:?}");
    assert!(!kinds.contains(&EventKind::Lost));
    assert!(matches!(facts(pinfold, id).last(), Some(Fact::Finished(_))));
}

#[test]
fn a_foreign_connection_that_closes_changes_nothing() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh("sleep 300 & exec sleep 300");
    let tree = pinfold.until_tree(&job.id, 2);
    let keeper = pinfold.keeper_pid(&job.id);
    for _ in 0..20 {
        drop(Stranger::new(&pinfold, keeper));
    }
    let mut stranger = Stranger::new(&pinfold, keeper);
    let hello = stranger.receive().expect("a hello");
    assert!(matches!(hello, FromKeeper::Hello { version: VERSION, kept: None, .. }), "{hello:?}");
    assert_untouched(&pinfold, &job.id, &tree);
}

/// It cannot retire, stop or start anything: only the daemon can.
#[test]
fn a_foreign_connection_gets_answers_but_cannot_act() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh("exec sleep 300");
    let tree = pinfold.until_tree(&job.id, 1);
    let keeper = pinfold.keeper_pid(&job.id);
    let mut stranger = Stranger::new(&pinfold, keeper);
    stranger.receive().expect("a hello");
    let id = pinfold_model::id::ProcessId::parse(&job.id).expect("an id");
    stranger.send(&encode(&ToKeeper::Pause { request: 4, id }));
    assert!(matches!(stranger.receive(), Some(FromKeeper::Unknown { .. })));
    stranger.send(&framed(r#"{"do":"dance","request":5}"#));
    assert!(matches!(stranger.receive(), Some(FromKeeper::Unknown { request: Some(5), .. })));
    stranger.send(&framed("no JSON"));
    assert_eq!(stranger.receive(), None, "a frame that is not JSON closes this connection");
    let mut long = Stranger::new(&pinfold, keeper);
    long.receive().expect("a hello");
    long.send(&[0xff; 64]);
    assert_eq!(long.receive(), None);
    assert!(!pinfold.show(&job.id).paused);
    assert_untouched(&pinfold, &job.id, &tree);
}

#[test]
fn many_foreign_connections_use_up_no_descriptors_and_delay_nothing() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh("exec sleep 300");
    let tree = pinfold.until_tree(&job.id, 1);
    let keeper = pinfold.keeper_pid(&job.id);
    let descriptors = || std::fs::read_dir(format!("/proc/{keeper}/fd")).expect("it lives").count();
    let before = descriptors();
    // They stay connected, and send half a message.
    let mut crowd: Vec<Stranger> = (0..60).map(|_| Stranger::new(&pinfold, keeper)).collect();
    for stranger in &mut crowd {
        let _ = stranger.stream.write_all(&[200, 0, 0, 0, b'{']);
    }
    until("all are met", || crowd.last_mut().is_some_and(|last| last.receive().is_some()));
    assert!(descriptors() <= before + 8, "{} of {before}", descriptors());
    assert_eq!(pinfold.show(&job.id).status, Status::Running);
    drop(crowd);
    until("they are forgotten", || descriptors() == before);
    assert_untouched(&pinfold, &job.id, &tree);
}

#[test]
fn a_link_that_was_cut_is_reconnected_and_the_process_survives() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh("exec sleep 300");
    let tree = pinfold.until_tree(&job.id, 1);
    let keeper = pinfold.keeper_pid(&job.id);
    if let Err(error) = connections_of(keeper) {
        return println!("skipped: a link cannot be cut here: {error}");
    }
    for _ in 0..5 {
        // The link is shut down, as by a failed send; both ends only notice when they use it.
        until("a link is cut", || cut_connections(keeper).expect("it lives") > 0);
        until("it is reached again", || pinfold.signal(&job.id, "CONT").is_ok());
    }
    assert_untouched(&pinfold, &job.id, &tree);
}

/// However many daemons were killed meanwhile: the keeper sends its hello when it continues.
#[test]
fn a_stopped_keeper_is_never_considered_dead() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh("sleep 300 & exec sleep 300");
    let tree = pinfold.until_tree(&job.id, 2);
    let keeper = Pidfd::open(pinfold.keeper_pid(&job.id)).expect("a keeper");
    keeper.signal(STOP);
    for _ in 0..3 {
        pinfold.crash_and_restart();
        let listed = pinfold.list(&ListQuery::default()).processes;
        assert_eq!(listed.iter().map(|record| record.status).collect::<Vec<_>>(), [Status::Running]);
        assert!(tree.iter().all(|pid| alive(*pid)));
    }
    keeper.signal(CONT);
    until("it answers", || pinfold.show(&job.id).note.is_none());
    assert_untouched(&pinfold, &job.id, &tree);
}

/// The daemon reports the loss as it is in the record, which is there for the next daemon.
#[test]
fn a_loss_is_written_even_if_the_directory_was_deleted() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh("exec sleep 300");
    let keeper = Pidfd::open(pinfold.keeper_pid(&job.id)).expect("a keeper");
    std::fs::remove_dir_all(pinfold.directory(&job.id)).expect("a directory");
    keeper.kill();
    let record = pinfold.wait_finished(&job.id);
    let Some(Outcome::Lost { evidence }) = &record.outcome else { panic!("{record:?}") };
    let written = facts(&pinfold, &job.id);
    assert!(
        matches!(written.last(), Some(Fact::Lost { evidence: recorded, .. }) if recorded == evidence),
        "{written:?}"
    );
    pinfold.crash_and_restart();
    assert_eq!(pinfold.show(&job.id).outcome, record.outcome);
}

/// The directory was deleted while the process ran: its end is still reported, and its keeper runs the next process.
#[test]
fn an_end_is_known_even_if_the_directory_was_deleted() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = pinfold.home().join("gate");
    let job = pinfold.sh(&format!("while [ ! -e {} ]; do sleep 0.01; done; exit 6", gate.display()));
    let keeper = pinfold.keeper_pid(&job.id);
    std::fs::remove_dir_all(pinfold.directory(&job.id)).expect("a directory");
    std::fs::write(&gate, "").expect("an open gate");
    assert_eq!(pinfold.wait_finished(&job.id).outcome, Some(Outcome::Exited { code: 6 }));
    assert!(alive(keeper));
    assert_eq!(pinfold.run("exit 5").0.outcome, Some(Outcome::Exited { code: 5 }));
}

/// A `lost` that an older daemon wrote without the lock is final: the keeper adds nothing, and exits when its tree is
/// empty.
#[test]
fn a_keeper_whose_process_was_declared_lost_exits() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh("exec sleep 300");
    let (keeper, leader) = (pinfold.keeper_pid(&job.id), job.pid.expect("a leader"));
    pinfold.kill_daemon();
    let lost = Fact::Lost { evidence: "an older daemon said so".into(), at: pinfold_model::units::Moment(1) };
    crate::records::rewrite(&pinfold, &job.id, |facts| facts.push(lost.clone()));
    let before = facts(&pinfold, &job.id);
    Pidfd::open(leader).expect("it lives").kill();
    until("its keeper leaves", || !alive(keeper));
    assert_eq!(facts(&pinfold, &job.id), before);
    pinfold.start_daemon();
    let record = until_some("it is known", || pinfold.try_show(&job.id).ok());
    assert!(matches!(record.outcome, Some(Outcome::Lost { .. })), "{record:?}");
}

/// Keepers are killed and the daemon restarts while foreign connections come and go: the outcome that the daemon reports
/// is the one in the record, neither missing nor doubled.
#[test]
fn reported_outcomes_equal_the_records_despite_foreign_connections_and_deaths() {
    let pinfold = Pinfold::start(PINFOLD);
    for round in 0..6 {
        let jobs: Vec<_> = (0..3).map(|_| pinfold.sh("exec sleep 300")).collect();
        let keepers: Vec<u32> = jobs.iter().map(|job| pinfold.keeper_pid(&job.id)).collect();
        let strangers: Vec<_> = keepers.iter().map(|keeper| Stranger::new(&pinfold, *keeper)).collect();
        Pidfd::open(keepers[0]).expect("a keeper").kill();
        drop(strangers);
        pinfold.block(pinfold.client().pause(&jobs[1].id)).expect("paused");
        Pidfd::open(jobs[1].pid.expect("a leader")).expect("it lives").kill();
        if round % 2 == 0 {
            pinfold.crash_and_restart();
        }
        pinfold.stop(&jobs[2].id);
        for (job, lost) in jobs.iter().zip([true, false, false]) {
            let record = pinfold.wait_finished(&job.id);
            assert_eq!(matches!(record.outcome, Some(Outcome::Lost { .. })), lost, "{record:?}");
            let last = facts(&pinfold, &job.id).pop().expect("an end");
            assert_eq!(matches!(last, Fact::Lost { .. }), lost, "{last:?}");
        }
    }
}

/// More than fits into the socket buffer.
fn much_input() -> InputRequest {
    InputRequest { text: Some("x".repeat(900_000)), ..InputRequest::default() }
}

fn reading(pinfold: &Pinfold, command: &str) -> String {
    pinfold.start_request(&StartRequest { stdin: Some(Stdin::Pipe), ..request(command) }).record.id
}

/// After half a message the keeper would read everything that follows as its rest.
#[test]
fn clients_that_disconnect_while_their_input_is_sent_do_not_break_the_link() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = reading(&pinfold, "exec cat >/dev/null");
    for _ in 0..40 {
        drop(post(&pinfold, &format!("/v1/processes/{id}/input"), &much_input()));
    }
    pinfold.signal(&id, "WINCH").expect("it is reached");
    assert_eq!(pinfold.stop(&id).survivors, vec![]);
}

#[test]
fn a_stop_reaches_a_stopped_keeper_that_has_much_to_read() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = reading(&pinfold, "exec sleep 300");
    let keeper = Pidfd::open(pinfold.keeper_pid(&id)).expect("it lives");
    keeper.signal(STOP);
    let waiting: Vec<_> = (0..8).map(|_| post(&pinfold, &format!("/v1/processes/{id}/input"), &much_input())).collect();
    let stopped = pinfold.stop(&id);
    assert_eq!((stopped.survivors, stopped.record.status), (vec![], Status::Finished));
    drop(waiting);
}

/// A daemon without free descriptors cannot connect to all keepers; they are not considered dead.
#[test]
fn keepers_that_a_daemon_had_no_descriptor_for_are_connected_by_the_next() {
    let pinfold = Pinfold::start(PINFOLD);
    let jobs: Vec<String> = (0..40).map(|_| pinfold.sh("exec sleep 300").id).collect();
    pinfold.kill_daemon();
    let pinfold_ps = format!("ulimit -n 40; exec {} ps", pinfold.binary().display());
    let ps = std::process::Command::new("sh").args(["-c", &pinfold_ps]).env("PINFOLD_HOME", pinfold.home()).output();
    println!("{:?}", ps.expect("it runs"));
    // By the pid in the lock file: the daemon may have no descriptor left to answer with.
    let daemon = std::fs::read_to_string(pinfold.home().join("lock")).expect("a lock");
    let pid = daemon.trim().parse().expect("a pid");
    Pidfd::open(pid).expect("it lives").kill();
    until("it is gone", || !alive(pid));
    pinfold.start_daemon();
    for id in &jobs {
        assert_eq!(pinfold.stop(id).record.status, Status::Finished);
    }
}

#[test]
fn a_stopped_nursery_does_not_keep_the_daemon_from_ending() {
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh("exec sleep 300");
    let daemon = pinfold.daemon_pid();
    let nursery = until_some("a nursery", || pinfold_testkit::children_of(daemon).into_iter().find_map(Pidfd::open));
    nursery.signal(STOP);
    assert_eq!(pinfold.cli(&["daemon", "stop"]).code, Some(0));
    until("the daemon has ended", || !alive(daemon));
    pinfold.start_daemon();
    assert_eq!(pinfold.stop(&job.id).record.status, Status::Finished);
}
