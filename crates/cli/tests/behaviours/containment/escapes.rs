//! Every escape attempt in every environment: no process survives a stop, or it is named with the kernel's reason.

use std::time::{Duration, Instant};

use pinfold_api::types::{Outcome, StartRequest};
use pinfold_testkit::environments::{Containment, Environment, User};
use pinfold_testkit::escapes::{WAYS, attempt};
use pinfold_testkit::{Pinfold, alive, cpu_ms, until};

use crate::PINFOLD;

fn nobody_gets_away(user: User, containment: Containment) {
    let ground = Environment { user, containment };
    let grounded = match ground.try_start(PINFOLD) {
        Ok(grounded) => grounded,
        Err(reason) => return println!("skipped: {ground}: {reason}"),
    };
    let mut wrong = Vec::new();
    for way in WAYS {
        let result = attempt(way, &grounded);
        println!("{ground}: {}: {result:?}", way.name);
        if !result.is_right(way, ground) {
            wrong.push((way.name, result));
        }
    }
    assert!(wrong.is_empty(), "{ground}: {wrong:#?}");
}

#[test]
fn no_escape_from_root_with_a_cgroup() {
    nobody_gets_away(User::Root, Containment::Cgroup);
}

#[test]
fn no_escape_from_root_without_a_cgroup() {
    nobody_gets_away(User::Root, Containment::Walk);
}

#[test]
fn no_escape_from_an_ordinary_user_with_a_cgroup() {
    nobody_gets_away(User::Ordinary, Containment::Cgroup);
}

#[test]
fn no_escape_from_an_ordinary_user_without_a_cgroup() {
    nobody_gets_away(User::Ordinary, Containment::Walk);
}

/// A tracer that does not wait hides the leader's exit from its parent; the keeper must sleep meanwhile.
#[test]
fn a_leader_hidden_by_a_tracer_costs_its_keeper_no_cpu() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return println!("skipped: no python3");
    }
    let pinfold = Pinfold::start(PINFOLD);
    let script = "import ctypes, os, time\nleader = os.getpid()\nread, write = os.pipe()\nif os.fork():\n    os.read(read, 1)\n    \
                  os._exit(5)\nctypes.CDLL(None).ptrace(0x4206, leader, 0, 0); os.write(write, b'.'); time.sleep(300)";
    let argv = ["/usr/bin/python3", "-c", script].map(str::to_owned).to_vec();
    let record = pinfold.start_request(&StartRequest { argv: Some(argv), ..StartRequest::default() }).record;
    let (id, leader) = (record.id, record.pid.expect("a leader"));
    until("the leader is dead", || !alive(leader));
    let keeper = pinfold.keeper_pid(&id);
    let before = cpu_ms(keeper);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(1) {
        pinfold.run("true");
    }
    let spent = cpu_ms(keeper) - before;
    assert!(spent < 100, "the keeper spent {spent} ms of processor time");
    let stopped = pinfold.stop(&id);
    // The tracer ends first, and then the exit becomes visible.
    assert_eq!((stopped.survivors.len(), stopped.record.outcome), (0, Some(Outcome::Exited { code: 5 })));
}
