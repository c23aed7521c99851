//! The workloads that lead to a crash: each a few requests, any of which may find the daemon dead.

use std::fmt::Write;

use pinfold_api::types::{
    EventsQuery, GcRequest, HandoverRequest, Notify, Outcome, ServerProcess, SessionRequest, StartRequest, StopRequest,
    Streams, TokenRequest,
};
use pinfold_testkit::{Pidfd, place_text, until};

use super::trial::Trial;
use crate::records::{files_in, intent};

/// A workload: runs until it is done or until the armed program is dead.
pub(super) type Work = fn(&mut Trial);

fn shell(command: impl Into<String>) -> StartRequest {
    StartRequest { command: Some(command.into()), ..StartRequest::default() }
}

fn lines(count: u32) -> String {
    (1..=count).fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{line}");
        text
    })
}

/// A process that prints 20 lines and exits with 7 while a stray prints line 21; then a second process, run by the same keeper.
pub(super) fn life(trial: &mut Trial) {
    trial.try_start_daemon();
    run_two_processes(trial);
}

fn run_two_processes(trial: &mut Trial) {
    let command = "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i; sleep 0.005; done; (sleep 0.3; echo 21) & exit 7";
    trial.start(shell(command), lines(21), Outcome::Exited { code: 7 });
    trial.look();
    trial.wait(0);
    trial.look();
    trial.start(shell("echo 1; exit 3"), lines(1), Outcome::Exited { code: 3 });
    trial.wait(1);
    trial.look();
}

/// A program that exists and cannot be executed.
pub(super) fn failed_start(trial: &mut Trial) {
    let program = trial.pinfold.home().with_extension("program");
    place_text(b"#!/no/such/interpreter\n", &program);
    trial.try_start_daemon();
    let request = StartRequest { argv: Some(vec![program.display().to_string()]), ..StartRequest::default() };
    trial.start(request, String::new(), Outcome::FailedToStart { step: "exec".into(), error: String::new() });
    let _ = std::fs::remove_file(program);
}

/// A consumer reads events and acks them.
pub(super) fn consume(trial: &mut Trial) {
    life(trial);
    let query = EventsQuery { consumer: Some("reader".into()), ..EventsQuery::default() };
    let Ok(page) = trial.pinfold.block(trial.pinfold.client().events(&query)) else { return };
    let acked = trial.pinfold.block(trial.pinfold.client().ack("reader", page.next));
    trial.acked = acked.ok().map(|consumer| consumer.cursor);
}

/// An end that is delivered to a command hook.
pub(super) fn announce(trial: &mut Trial) {
    let hook = trial.pinfold.home().with_extension("hook-log");
    trial.try_start_daemon();
    let notify = Notify { command: Some(format!("echo $PINFOLD_PROCESS >> {}", hook.display())), ..Notify::default() };
    let request = StartRequest { notify: Some(notify), ..shell("echo 1; exit 3") };
    trial.start(request, lines(1), Outcome::Exited { code: 3 });
    trial.hook = Some(hook);
}

/// A hook that cannot be run at first, because its working directory is missing.
pub(super) fn announce_in_vain(trial: &mut Trial) {
    let (hook, cwd) = (trial.pinfold.home().with_extension("hook-log"), trial.pinfold.home().with_extension("cwd"));
    std::fs::create_dir(&cwd).expect("a directory");
    trial.try_start_daemon();
    let notify = Notify { command: Some(format!("echo $PINFOLD_PROCESS >> {}", hook.display())), ..Notify::default() };
    let request = StartRequest {
        notify: Some(notify),
        cwd: Some(cwd.display().to_string()),
        ..shell(format!("echo 1; rmdir {}; exit 3", cwd.display()))
    };
    trial.start(request.clone(), lines(1), Outcome::Exited { code: 3 });
    until("the delivery fails, and the daemon dies", || trial.is_crashed());
    // A repeated request is compared with the first, and its directory must exist.
    std::fs::create_dir(&cwd).expect("a directory");
    trial.hook = Some(hook);
    trial.left_over.push(cwd);
}

/// A megabyte in lines of eight bytes, of which a tenth is stored.
pub(super) fn bulk(trial: &mut Trial) {
    trial.try_start_daemon();
    let request = StartRequest { output_limit: Some("64k".into()), ..shell("seq -f %07.0f 1 131072; exit 5") };
    let text = (1..=131_072).fold(String::with_capacity(1 << 20), |mut text, line| {
        let _ = writeln!(text, "{line:07}");
        text
    });
    trial.start(request, text, Outcome::Exited { code: 5 });
    trial.wait(0);
}

pub(super) fn two_streams(trial: &mut Trial) {
    trial.try_start_daemon();
    // Each is on disk before the next is written: otherwise the order of the two streams would be undefined.
    let kept = trial.pinfold.home().join("processes").join("$PINFOLD_ID").join("out.00000000000000000000");
    let kept = format!("until [ \"$( {{ wc -l < {}; }} 2>/dev/null)\" = $i ]; do sleep 0.01; done", kept.display());
    let command = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10; do if [ $i = 9 ] || [ $((i%2)) = 0 ]; then echo $i >&2; else echo $i; fi; \
         {kept}; [ $i != 9 ] || sleep 0.15; done"
    );
    let request = StartRequest { streams: Some(Streams::Separate), ..shell(command) };
    trial.start(request, lines(10), Outcome::Exited { code: 0 });
    trial.wait(0);
    trial.look();
}

/// A process that ignores TERM, and is killed.
pub(super) fn stop(trial: &mut Trial) {
    trial.try_start_daemon();
    let request = StartRequest {
        grace: Some("100ms".into()),
        ..shell("trap '' TERM; echo 1; (trap '' TERM; setsid sleep 300) & while :; do sleep 0.01; done")
    };
    trial.start(request, lines(1), Outcome::Signaled { signal: 9, name: "KILL".into(), core_dumped: false });
    trial.jobs[0].ended_by_request = true;
    let Some(id) = trial.jobs[0].id.clone() else { return };
    // Before the trap is set, TERM would end it and no KILL would be needed.
    until("it is deaf to TERM", || trial.pinfold.show(&id).output.bytes > 0);
    let _ = trial.pinfold.block(trial.pinfold.client().stop(&id, &StopRequest::default()));
}

pub(super) fn hand_over(trial: &mut Trial) {
    trial.try_start_daemon();
    let request = StartRequest { owner: Some("ann".into()), ..shell("echo 1; exec sleep 300") };
    trial.start(request, lines(1), Outcome::Signaled { signal: 15, name: "TERM".into(), core_dumped: false });
    trial.jobs[0].ended_by_request = true;
    let Some(id) = trial.jobs[0].id.clone() else { return };
    let request = HandoverRequest { to: Some("bob".into()), purpose: "look after it".into() };
    let handed = trial.pinfold.block(trial.pinfold.client().handover(&id, &request));
    trial.jobs[0].owner = handed.ok().map(|record| record.owner);
    trial.look();
}

/// A client replaces one session by another, and running processes move to it.
pub(super) fn change_session(trial: &mut Trial) {
    trial.try_start_daemon();
    let request = StartRequest { owner: Some("ann".into()), ..shell("echo 1; exec sleep 300") };
    trial.start(request, lines(1), Outcome::Signaled { signal: 15, name: "TERM".into(), core_dumped: false });
    trial.jobs[0].ended_by_request = true;
    let pid = std::process::id();
    let start_time = pinfold_os::proc::start_time(pid).expect("our own");
    let (client, directory) = ("tester".to_owned(), "/".to_owned());
    let mut request = SessionRequest { client, directory, server: ServerProcess { pid, start_time }, instead_of: None };
    for (owner, previous) in [("ann", None), ("bob", Some("ann"))] {
        request.instead_of = previous.map(str::to_owned);
        let registered = trial.pinfold.client().acting_as(owner, None);
        let Ok(answer) = trial.pinfold.block(registered.register_session(&request)) else { return };
        trial.jobs[0].owner = answer.moved.first().map(|_| owner.to_owned());
    }
    trial.look();
}

/// The keeper is killed from outside, and the daemon while it handles that.
pub(super) fn lose_keeper(trial: &mut Trial) {
    trial.try_start_daemon();
    trial.start(shell("setsid sleep 300 & echo 1; sleep 300"), lines(1), Outcome::Exited { code: 0 });
    let id = trial.jobs[0].id.clone().expect("nothing crashes before the keeper does");
    until("some output", || trial.pinfold.show(&id).output.bytes > 0);
    trial.look();
    trial.keeper_killed = true;
    Pidfd::open(intent(&trial.pinfold, &id).keeper.pid).expect("a keeper").kill();
}

pub(super) fn collect(trial: &mut Trial) {
    life(trial);
    trial.jobs.iter_mut().for_each(|job| job.removal = true);
    let request = GcRequest { older_than: Some("0s".into()), ..GcRequest::default() };
    let _ = trial.pinfold.block(trial.pinfold.client().gc(&request));
}

pub(super) fn token(trial: &mut Trial) {
    life(trial);
    let added = trial.pinfold.block(trial.pinfold.client().add_token(&TokenRequest::default()));
    trial.tokens.extend(added.ok().map(|added| added.shown.id));
}

pub(super) fn shut_down(trial: &mut Trial) {
    life(trial);
    let _ = trial.pinfold.cli(&["daemon", "stop"]);
}

/// A daemon is killed while one process runs and another ends; the crash point is armed in the next one.
pub(super) fn restart(trial: &mut Trial) {
    let end = begin_and_kill(trial);
    trial.arm();
    end(trial);
}

/// The same, and the index is removed or torn.
pub(super) fn rebuild(trial: &mut Trial) {
    let end = begin_and_kill(trial);
    trial.rebuilt = true;
    for path in files_in(trial.pinfold.home()) {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("index.db")) {
            std::fs::write(&path, [0xa5; 20_000]).expect("a torn index");
        }
    }
    trial.arm();
    end(trial);
}

/// A new daemon connects to keepers in which the crash point is armed.
pub(super) fn meet(trial: &mut Trial) {
    begin_and_kill(trial)(trial);
}

fn begin_and_kill(trial: &mut Trial) -> fn(&mut Trial) {
    life(trial);
    let gate = trial.pinfold.home().join("config.toml");
    let command = format!("echo 1; while [ ! -e {} ]; do sleep 0.01; done; echo 2; exit 4", gate.display());
    trial.start(shell(command), lines(2), Outcome::Exited { code: 4 });
    trial.start(shell("echo 1; sleep 0.1; echo 2"), lines(2), Outcome::Exited { code: 0 });
    trial.look();
    trial.pinfold.kill_daemon();
    |trial| {
        trial.try_start_daemon();
        trial.look();
        // The (empty) configuration file serves as the gate, because a home may contain it.
        std::fs::write(trial.pinfold.home().join("config.toml"), "").expect("an open gate");
    }
}
