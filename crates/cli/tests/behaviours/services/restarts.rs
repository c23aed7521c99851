//! Restarts: the runs of a chain, also when the daemon crashes.

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{
    Cause, EventKind, Lifetime, ListQuery, Outcome, Record, Restart, RestartPolicy, StartRequest, Status, StopRequest,
};
use pinfold_testkit::{Pinfold, until, until_some};
use serde_json::json;

use super::{leased, until_ready};
use crate::PINFOLD;
use crate::mcp::agent::Agent;
use crate::output::gate::Gate;
use crate::requests::request;

/// A process named `web` with this restart policy and initial delay.
fn restarted(command: &str, when: &str, initial: &str) -> StartRequest {
    let policy = RestartPolicy { when: when.into(), initial: Some(initial.into()), ..RestartPolicy::default() };
    StartRequest { restart: Some(Restart::Policy(policy)), name: Some("web".into()), ..request(command) }
}

/// Every run of the name, oldest first.
fn lives(pinfold: &Pinfold) -> Vec<Record> {
    let mut all = pinfold.list(&ListQuery { name: Some("web".into()), ..ListQuery::default() }).processes;
    all.sort_by_key(|record| record.life.as_ref().map(|life| life.number));
    all
}

fn number(record: &Record) -> u32 {
    record.life.as_ref().expect("a life").number
}

/// The run after this one.
fn next(pinfold: &Pinfold, id: &str) -> Record {
    let id = until_some("the next life", || pinfold.show(id).life.and_then(|life| life.next));
    pinfold.show(&id)
}

/// A command that counts its runs in a file, and fails until there were this many.
fn fails_until(pinfold: &Pinfold, runs: usize) -> String {
    let file = pinfold.home().join("runs");
    let file = file.display();
    format!("echo x >> {file}; [ $(wc -l < {file}) -ge {runs} ] || exit 3; echo up; exec sleep 300")
}

#[test]
fn restart_with_backoff() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut request = restarted(&fails_until(&pinfold, 3), "on_failure", "10ms");
    request.labels = [("team".to_owned(), "ui".to_owned())].into();
    request.env = [("TOKEN".to_owned(), Some("s3cret".to_owned()))].into();
    let first = pinfold.start_request(&request).record;
    let third = until_some("a life that stays", || {
        pinfold.try_show("web").ok().filter(|record| number(record) == 3 && record.status == Status::Running)
    });
    let all = lives(&pinfold);
    assert_eq!(all.iter().map(number).collect::<Vec<_>>(), [1, 2, 3]);
    for (before, after) in all.iter().zip(&all[1..]) {
        assert_eq!(before.outcome, Some(Outcome::Exited { code: 3 }));
        let life = after.life.as_ref().expect("a life");
        assert_eq!((life.previous.as_ref(), life.first.as_ref()), (Some(&before.id), Some(&first.id)));
        assert_eq!((&after.command, &after.owner, &after.labels), (&before.command, &before.owner, &before.labels));
        assert_eq!(pinfold.show(&before.id).life.and_then(|life| life.next).as_ref(), Some(&after.id));
    }
    // A requested stop is final.
    let stopped = pinfold.stop("web");
    assert_eq!((stopped.record.id.as_str(), stopped.record.cause), (third.id.as_str(), Some(Cause::StopRequested)));
    assert_eq!(stopped.record.life.map(|life| (life.next, life.restarting_at)), Some((None, None)));
    pinfold.crash_and_restart();
    assert_eq!(lives(&pinfold).len(), 3);
    assert!(std::fs::read_dir(pinfold.home().join("chains")).expect("chains").next().is_none());
}

/// A process that fails repeatedly is given up, and its owner gets an event with the reason.
#[test]
fn restart_limit_gives_up() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let owner = pinfold.show(&agent.background("exec sleep 300")).owner;
    let mut request = restarted("exit 9", "on_failure", "1ms");
    if let Some(Restart::Policy(policy)) = &mut request.restart {
        policy.limit = Some(3);
    }
    pinfold.start_request(&StartRequest { owner: Some(owner), ..request });
    let gave_up = until_some("giving up", || {
        let events = pinfold.events(0).events;
        events.into_iter().find(|event| event.kind == EventKind::GaveUp)
    });
    assert_eq!(gave_up.text.as_deref(), Some("restarted 3 times, gave up"));
    let all = lives(&pinfold);
    assert_eq!(all.len(), 4);
    let last = pinfold.show(&all[3].id).life.expect("a life");
    assert_eq!(last.gave_up, gave_up.text);
    let mut news = Vec::new();
    until("an event for the owner", || {
        news.extend(agent.call("process_list", json!({ "status": "lost" })).news());
        news.iter().any(|item| item["event"] == "gave_up" && item["why"] == "restarted 3 times, gave up")
    });
    assert_eq!(news.iter().filter(|item| item["event"] == "restarted").count(), 3, "{news:?}");
    assert_eq!(news.iter().filter(|item| item["event"] == "ended").count(), 1, "only the last end: {news:?}");
}

/// D7: killed at each stage, the daemon neither loses a restart nor makes one twice.
#[test]
fn restart_over_daemon_crashes() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "end");
    let env = [("TOKEN".to_owned(), Some("s3cret".to_owned()))].into();
    let command = format!("echo $TOKEN; {}; exit 1", gate.wait());
    let request = StartRequest { env, ..restarted(&command, "always", "300ms") };
    let mut id = pinfold.start_request(&request).record.id;
    for stage in ["while it runs", "and it ends meanwhile", "while its restart waits"] {
        let reached = gate.reached();
        match stage {
            "while it runs" => {
                pinfold.crash_and_restart();
                reached.open();
            }
            "and it ends meanwhile" => {
                pinfold.kill_daemon();
                reached.open();
                until("all keepers end", || pinfold.keepers().is_empty());
                pinfold.start_daemon();
            }
            _ => {
                reached.open();
                pinfold.wait_finished(&id);
                pinfold.crash_and_restart();
            }
        }
        let after = next(&pinfold, &id);
        until("the next life has its environment", || pinfold.text(&after.id) == "s3cret\n");
        id = after.id;
    }
    let all = lives(&pinfold);
    assert_eq!(all.iter().map(number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(all.iter().filter(|record| record.status == Status::Running).count(), 1);
    // The secret is only in the file of the chain, and is removed with it.
    pinfold.stop("web");
    assert!(std::fs::read_dir(pinfold.home().join("chains")).expect("chains").next().is_none());
}

/// A pending restart is listed, found by name, and cancelled by a stop.
#[test]
fn restart_that_waits_is_cancelled_by_stop() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.start_request(&restarted("exit 1", "always", "60s")).record.id;
    let waiting = |pinfold: &Pinfold| {
        until_some("a restart that waits", || pinfold.show(&id).life.and_then(|life| life.restarting_at))
    };
    let at = waiting(&pinfold);
    pinfold.crash_and_restart();
    assert_eq!(waiting(&pinfold), at, "it waits on");
    assert_eq!(pinfold.show("web").id, id);
    let stopped = pinfold.stop("web");
    assert!(!stopped.already_over);
    assert_eq!(stopped.record.life.map(|life| (life.next, life.restarting_at)), Some((None, None)));
    assert!(pinfold.stop(&id).already_over);
    let other = pinfold.start_request(&restarted("exit 1", "always", "60s")).record.id;
    let waits = || pinfold.show(&other).life.is_some_and(|life| life.restarting_at.is_some());
    until("another that waits", waits);
    assert_eq!(pinfold.cli(&["stop", "--all"]).code, Some(0));
    assert!(!waits());
    pinfold.crash_and_restart();
    assert_eq!(lives(&pinfold).len(), 2);
}

#[test]
fn restart_keeps_the_leased_port() {
    let pinfold = Pinfold::start(PINFOLD);
    let server = "exec python3 -m http.server --bind 127.0.0.1 $PORT";
    let service = StartRequest { restart: restarted(server, "always", "1ms").restart, ..leased(server) };
    let first = pinfold.start_request(&service).record;
    pinfold.wait(&first.id, &until_ready());
    // Killed from outside: a signal sent by a client would count as a stop.
    pinfold_testkit::Pidfd::open(first.pid.expect("a pid")).expect("it lives").kill();
    let second = next(&pinfold, &first.id);
    assert_eq!(second.ports, first.ports);
    let answer = pinfold.wait(&second.id, &until_ready());
    assert_eq!(answer.port, first.ports.get("PORT").copied());
}

/// A program that gives turns to an agent restarts its process after each; a person does the same with `pinfold
/// restart`.
#[test]
fn restart_after_each_turn() {
    let pinfold = Pinfold::start(PINFOLD);
    let first = pinfold.start_request(&restarted("echo turn; exit 0", "after_turn", "1s")).record;
    until("it waits for its turn", || pinfold.show(&first.id).life.is_some_and(|life| life.awaits_turn));
    pinfold.crash_and_restart();
    let ask = |id: &str| pinfold.block(pinfold.client().restart(id, &StopRequest::default()));
    let second = ask("web").expect("the next life");
    assert_eq!((number(&second), second.life.and_then(|life| life.previous)), (2, Some(first.id)));
    until("it waits again", || pinfold.show(&second.id).life.is_some_and(|life| life.awaits_turn));
    let third = pinfold.cli(&["restart", "web"]);
    assert_eq!(third.code, Some(0), "{}", third.stderr);
    assert_eq!(number(&pinfold.show(third.stdout.trim())), 3);
    // A live process is stopped first.
    pinfold.stop("web");
    let server = pinfold.start_request(&restarted("exec sleep 300", "on_failure", "1s")).record;
    let again = ask(&server.id).expect("the next life");
    assert_eq!((again.status, number(&again)), (Status::Running, 2));
    assert_eq!(pinfold.show(&server.id).cause, Some(Cause::StopRequested));
    let plain = pinfold.sh("exec sleep 300").id;
    assert!(ask(&plain).expect_err("refused").to_string().contains("without `restart`"));
}

/// When the owner ends, its processes are not restarted.
#[test]
fn restart_ends_with_its_owner() {
    let pinfold = Pinfold::start(PINFOLD);
    let of = |command: &str| StartRequest {
        owner: Some("chat".into()),
        lifetime: Some(Lifetime::Owner),
        ..restarted(command, "always", "60s")
    };
    let (running, waiting) = (pinfold.start_request(&of("exec sleep 300")), pinfold.start_request(&of("exit 1")));
    until("a restart that waits", || {
        pinfold.show(&waiting.record.id).life.is_some_and(|life| life.restarting_at.is_some())
    });
    pinfold.cli(&["owner", "end", "chat"]);
    for id in [running.record.id, waiting.record.id] {
        let life = pinfold.show(&id).life.expect("a life");
        assert_eq!((life.restarting_at, life.next), (None, None));
    }
}

#[test]
fn restart_that_makes_no_sense_is_refused() {
    let pinfold = Pinfold::start(PINFOLD);
    let refuse = |policy: RestartPolicy| {
        let restart = Some(Restart::Policy(policy));
        pinfold.try_start(&StartRequest { restart, ..request("true") }).expect_err("refused").message
    };
    let always = || RestartPolicy { when: "always".into(), ..RestartPolicy::default() };
    assert!(refuse(RestartPolicy { when: "sometimes".into(), ..always() }).contains("on_failure"));
    assert!(refuse(RestartPolicy { limit: Some(0), ..always() }).contains("limit"));
    assert!(refuse(RestartPolicy { factor: Some(0.5), ..always() }).contains("factor"));
    assert!(refuse(RestartPolicy { initial: Some("2m".into()), ..always() }).contains("initial"));
}

#[test]
fn restart_of_what_does_not_exist_leaves_nothing() {
    let pinfold = Pinfold::start(PINFOLD);
    let asked = StartRequest { cwd: Some("/no/such/directory".into()), ..restarted("true", "always", "1ms") };
    assert_eq!(pinfold.try_start(&asked).expect_err("refused").code, ErrorCode::BadCwd);
    let chains = std::fs::read_dir(pinfold.home().join("chains")).into_iter().flatten().count();
    assert_eq!((chains, lives(&pinfold).len()), (0, 0));
}

/// What lists show, to people and to programs, of processes that will and will not be restarted.
#[test]
fn restart_with_backoff_is_shown_in_lists() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut request = restarted("exit 1", "on_failure", "1ms");
    if let Some(Restart::Policy(policy)) = &mut request.restart {
        policy.limit = Some(1);
    }
    pinfold.start_request(&request);
    let listed =
        |number| lives(&pinfold).into_iter().find_map(|record| record.life.filter(|life| life.number == number));
    until("it was given up", || listed(2).is_some_and(|life| life.gave_up.is_some()));
    assert_eq!(listed(1).and_then(|life| life.gave_up), None, "that one was followed");
    assert!(pinfold.cli(&["ps"]).stdout.contains("finished, gave up"));
    pinfold.start_request(&StartRequest { name: None, ..restarted("exit 1", "always", "60s") });
    until("another waits", || pinfold.cli(&["ps"]).stdout.contains("finished, restarting in "));
}
