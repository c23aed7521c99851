//! The keeper alone, on the simulated machine: scripted histories.

use std::time::Duration;

use pinfold_model::facts::{Fact, Status};
use pinfold_model::lifecycle::{DRAIN_TIMEOUT, KILL_INTERVAL};
use pinfold_model::link::{FromKeeper, ToKeeper, encode};
use pinfold_model::outcome::{Cause, Outcome};
use pinfold_model::signal::Signal;
use pinfold_model::spec::Strays;
use pinfold_simulation::harness::{Harness, IMMEDIATE, WITH_GRACE, order};
use pinfold_simulation::machine::{LaunchKind, Role, SIGKILL};

/// The keeper's interval between retries of a failed write.
const WRITE_RETRY_INTERVAL: Duration = Duration::from_millis(500);

fn requested() -> Cause {
    Cause::StopRequested { by: "test".to_owned() }
}

fn stopped(harness: &Harness) -> usize {
    harness.messages.iter().filter(|message| matches!(message, FromKeeper::Stopped { .. })).count()
}

fn assert_no_violation(harness: &Harness) {
    assert_eq!(harness.machine.state().violation, None);
}

#[test]
fn a_run_is_recorded_sent_and_finished() {
    let mut harness = Harness::new(1);
    let id = harness.start(|_| {});
    let leader = harness.leader(&id);
    harness.write(&id, 100);
    harness.run_until_idle();
    harness.exit(leader, 3);
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "finished"]);
    assert_eq!(harness.facts_sent(), ["started", "finished"]);
    let history = harness.record(&id).and_then(|record| record.history()).expect("a history");
    assert_eq!(history.outcome(), Some(Outcome::Exited { code: 3 }));
    assert_eq!(history.finish.map(|finish| (finish.output_bytes, finish.closed)), Some((100, true)));
    assert!(harness.is_idle());
    assert_no_violation(&harness);
}

#[test]
fn an_exit_during_a_stop_has_its_own_code_and_the_stop_as_cause() {
    let mut harness = Harness::new(1);
    let id = harness.start(|_| {});
    let leader = harness.leader(&id);
    harness.stop(&id, WITH_GRACE);
    assert_eq!(stopped(&harness), 0);
    harness.exit(leader, 3);
    let history = harness.record(&id).and_then(|record| record.history()).expect("a history");
    assert_eq!((history.outcome(), history.cause()), (Some(Outcome::Exited { code: 3 }), Some(requested())));
    assert_eq!(stopped(&harness), 1);
    // The grace timer finds nothing to kill.
    harness.advance(WITH_GRACE.grace * 2);
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "finished"]);
    assert_no_violation(&harness);
}

#[test]
fn a_tree_that_ignores_term_is_killed_after_the_grace_period_until_it_ends() {
    let mut harness = Harness::new(1);
    let id = harness.start(|_| {});
    let leader = harness.leader(&id);
    {
        let mut state = harness.machine.state();
        let process = state.processes.get_mut(&leader).expect("alive");
        (process.ignores_term, process.stuck) = (true, true);
    }
    harness.stop(&id, WITH_GRACE);
    harness.advance(WITH_GRACE.grace);
    for _ in 0..5 {
        harness.deliver_deaths();
        harness.advance(KILL_INTERVAL);
    }
    // It is in an uninterruptible wait: the stop is answered with its name, and killing continues.
    let survivors = harness.messages.iter().find_map(|message| match message {
        FromKeeper::Stopped { survivors, .. } => Some(survivors.len()),
        _ => None,
    });
    assert_eq!(survivors, Some(1));
    harness.machine.state().processes.get_mut(&leader).expect("alive").stuck = false;
    harness.deliver_deaths();
    let history = harness.record(&id).and_then(|record| record.history()).expect("a history");
    assert_eq!(history.outcome(), Some(Outcome::Signaled { signal: Signal::KILL, core_dumped: false }));
    assert_eq!(stopped(&harness), 1);
    assert_no_violation(&harness);
}

#[test]
fn on_a_full_disk_the_end_is_sent_only_after_it_is_written() {
    let mut harness = Harness::new(1);
    let id = harness.start(|_| {});
    let leader = harness.leader(&id);
    harness.machine.state().faults.refused_write = 1000;
    harness.stop(&id, WITH_GRACE);
    harness.deliver_deaths();
    for _ in 0..5 {
        harness.advance(WRITE_RETRY_INTERVAL);
        assert_eq!((harness.record_kinds(&id), harness.facts_sent()), (vec!["intended", "started"], vec!["started"]));
        assert!(!harness.is_idle(), "not over until it is written");
    }
    assert!(!harness.machine.state().processes.contains_key(&leader), "the leader is reaped anyway");
    harness.machine.state().faults.refused_write = 0;
    harness.advance(WRITE_RETRY_INTERVAL);
    assert_eq!(harness.facts_sent(), ["started", "finished"]);
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "finished"]);
    assert!(harness.is_idle());
    assert_no_violation(&harness);
}

#[test]
fn a_torn_write_leaves_no_line_and_is_retried() {
    let mut harness = Harness::new(7);
    let id = harness.start(|_| {});
    let leader = harness.leader(&id);
    harness.machine.state().faults.torn_write = 1000;
    harness.exit(leader, 0);
    for _ in 0..20 {
        harness.advance(WRITE_RETRY_INTERVAL);
    }
    let record = harness.record(&id).expect("complete lines are readable");
    assert!(!record.is_over());
    harness.machine.state().faults.torn_write = 0;
    harness.advance(WRITE_RETRY_INTERVAL);
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "finished"]);
    assert_eq!(harness.record(&id).map(|record| record.torn), Some(false));
    assert_no_violation(&harness);
}

/// K3
#[test]
fn losing_the_link_at_any_message_does_not_affect_the_process() {
    for cut in 0..6 {
        let mut harness = Harness::new(1);
        let id = harness.start(|spec| spec.strays = Strays::Keep);
        let leader = harness.leader(&id);
        let stray = harness.fork(leader);
        let steps: [&dyn Fn(&mut Harness); 5] = [
            &|harness| harness.write(&id, 10),
            &|harness| harness.send_message(&ToKeeper::Pause { request: 2, id: id.clone() }),
            &|harness| harness.send_message(&ToKeeper::Resume { request: 3, id: id.clone() }),
            &|harness| harness.exit(leader, 5),
            &|harness| harness.exit(stray, 0),
        ];
        for (number, step) in steps.iter().enumerate() {
            if number == cut {
                harness.disconnect();
            }
            step(&mut harness);
            harness.run_until_idle();
        }
        harness.advance(DRAIN_TIMEOUT * 2);
        assert_eq!(
            harness.record_kinds(&id),
            ["intended", "started", "exited", "closed", "finished"],
            "cut before step {cut}"
        );
        let outcome = harness.record(&id).and_then(|record| record.history()).and_then(|history| history.outcome());
        assert_eq!(outcome, Some(Outcome::Exited { code: 5 }));
        assert_eq!(harness.keeper.is_none(), cut < steps.len(), "without a daemon the keeper ends");
        assert_no_violation(&harness);
    }
}

#[test]
fn an_incomplete_order_is_not_executed() {
    let stop = |id| ToKeeper::Stop { request: 1, id, cause: requested(), manner: IMMEDIATE };
    let length = {
        let mut harness = Harness::new(1);
        encode(&stop(harness.start(|_| {}))).len()
    };
    for sent in 0..length {
        let mut harness = Harness::new(1);
        let id = harness.start(|_| {});
        harness.send(&encode(&stop(id.clone()))[..sent]);
        harness.run_until_idle();
        harness.disconnect();
        harness.run_until_idle();
        harness.deliver_deaths();
        assert_eq!(harness.record_kinds(&id), ["intended", "started"], "{sent} of {length} bytes");
        harness.connect();
        let kept = harness.messages.iter().rev().find_map(|message| match message {
            FromKeeper::Hello { kept, .. } => Some(kept.as_ref().map(|kept| kept.history.status())),
            _ => None,
        });
        assert_eq!(kept, Some(Some(Status::Running)));
        harness.stop(&id, IMMEDIATE);
        harness.deliver_deaths();
        assert_eq!(harness.record_kinds(&id), ["intended", "started", "finished"]);
        assert_no_violation(&harness);
    }
}

#[test]
fn orders_of_the_last_daemon_are_executed_before_the_hello_to_the_next() {
    let mut harness = Harness::new(1);
    let id = harness.start(|_| {});
    harness.send(&encode(&ToKeeper::Stop { request: 1, id: id.clone(), cause: requested(), manner: IMMEDIATE }));
    harness.connect();
    assert!(matches!(harness.messages.last(), Some(FromKeeper::Hello { kept: Some(_), .. })));
    harness.deliver_deaths();
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "finished"]);
    assert_eq!(stopped(&harness), 0, "the daemon that asked is gone");
    assert_no_violation(&harness);
}

#[test]
fn a_stray_forked_at_the_end_is_waited_for() {
    let mut harness = Harness::new(1);
    let id = harness.start(|spec| spec.strays = Strays::Keep);
    let leader = harness.leader(&id);
    let child = harness.fork(leader);
    harness.exit(leader, 0);
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "exited"]);
    // The child forks and exits at once, so the tree never has more than one process.
    let mut last = child;
    for _ in 0..20 {
        let next = harness.fork(last);
        harness.exit(last, 0);
        assert_eq!(harness.record_kinds(&id).len(), 3, "somebody lives");
        last = next;
    }
    harness.exit(last, 0);
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "exited", "closed", "finished"]);
    assert!(harness.machine.state().tree_of(&id).is_empty());
    assert_no_violation(&harness);
}

#[test]
fn strays_are_stopped_if_the_policy_says_so() {
    let mut harness = Harness::new(1);
    let id = harness.start(|spec| spec.strays = Strays::Stop);
    let leader = harness.leader(&id);
    harness.fork(leader);
    harness.exit(leader, 4);
    harness.deliver_deaths();
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "exited", "closed", "finished"]);
    let cause = harness.record(&id).and_then(|record| record.history()).and_then(|history| history.cause());
    assert_eq!(cause, Some(Cause::OnItsOwn));
    assert_no_violation(&harness);
}

#[test]
fn output_held_open_by_another_process_is_waited_for_until_the_drain_timeout() {
    let mut harness = Harness::new(1);
    let id = harness.start(|_| {});
    let leader = harness.leader(&id);
    let outsider = harness.machine.state().fork(1, Role::Outsider);
    {
        let mut state = harness.machine.state();
        let process = state.processes.get_mut(&outsider).expect("alive");
        (process.member_of, process.holds_output) = (Some(id.clone()), true);
    }
    harness.exit(leader, 0);
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "exited"]);
    harness.advance(DRAIN_TIMEOUT);
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "exited", "finished"]);
    let finish = harness.record(&id).and_then(|record| record.history()).and_then(|history| history.finish);
    assert_eq!(finish.map(|finish| finish.closed), Some(false));
    assert_no_violation(&harness);
}

#[test]
fn a_stop_sent_right_after_the_start_stops_the_process() {
    let mut harness = Harness::new(1);
    let intent = harness.intent(|_| {});
    let id = intent.id.clone();
    harness.send(&encode(&order(intent)));
    harness.stop(&id, IMMEDIATE);
    harness.deliver_deaths();
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "finished"]);
    assert_eq!(stopped(&harness), 1);
    assert_no_violation(&harness);
}

#[test]
fn a_stop_of_a_finished_process_is_answered_and_does_nothing() {
    let mut harness = Harness::new(1);
    let first = harness.start(|_| {});
    let leader = harness.leader(&first);
    harness.exit(leader, 0);
    let second = harness.start(|_| {});
    harness.stop(&first, IMMEDIATE);
    assert_eq!(stopped(&harness), 1);
    harness.deliver_deaths();
    assert_eq!(harness.record_kinds(&second), ["intended", "started"], "the stop is not about the next process");
    assert_no_violation(&harness);
}

/// K4
#[test]
fn a_keeper_runs_one_process_at_a_time() {
    let mut harness = Harness::new(1);
    let first = harness.start(|_| {});
    let second = harness.start(|_| {});
    let refused = |message: &FromKeeper| matches!(message, FromKeeper::Refused { id, .. } if *id == second);
    assert!(harness.messages.iter().any(refused));
    assert_eq!(harness.record(&second), None);
    assert_eq!(harness.machine.state().tree_of(&first).len(), 1);
    assert_eq!(harness.machine.state().tree_of(&second).len(), 0);
    assert_no_violation(&harness);
}

#[test]
fn a_frozen_cgroup_is_thawed_before_the_next_process() {
    let mut harness = Harness::new(1);
    let id = harness.start(|_| {});
    let leader = harness.leader(&id);
    harness.send_message(&ToKeeper::Pause { request: 2, id: id.clone() });
    harness.machine.state().signal(leader, SIGKILL);
    harness.deliver_deaths();
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "finished"]);
    assert!(harness.is_idle());
    let next = harness.start(|_| {});
    assert_eq!(harness.record_kinds(&next), ["intended", "started"]);
    assert_no_violation(&harness);
}

#[test]
fn a_keeper_whose_cgroup_stays_frozen_ends() {
    let mut harness = Harness::new(1);
    let id = harness.start(|_| {});
    let leader = harness.leader(&id);
    harness.send_message(&ToKeeper::Pause { request: 2, id: id.clone() });
    harness.machine.state().faults.stuck_frozen = 1000;
    harness.machine.state().signal(leader, SIGKILL);
    harness.deliver_deaths();
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "finished"]);
    assert!(harness.keeper.is_none() && !harness.is_idle());
    assert_no_violation(&harness);
}

#[test]
fn a_keeper_ends_after_it_used_cgroup_kill() {
    let mut harness = Harness::new(1);
    let id = harness.start(|_| {});
    harness.stop(&id, IMMEDIATE);
    harness.deliver_deaths();
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "finished"]);
    assert!(harness.keeper.is_none(), "Linux kills new members of that cgroup");
    assert_no_violation(&harness);
}

#[test]
fn wall_clock_steps_do_not_affect_timers() {
    for step in [-3_600_000_000_i64, 86_400_000_000 * 365] {
        let mut harness = Harness::new(1);
        let id = harness.start(|spec| spec.time_limit = Some(Duration::from_secs(60)));
        let leader = harness.leader(&id);
        harness.machine.state().processes.get_mut(&leader).expect("alive").ignores_term = true;
        let wall = harness.machine.state().wall;
        harness.machine.state().wall = wall.saturating_add_signed(step);
        harness.advance(Duration::from_secs(59));
        harness.deliver_deaths();
        assert!(harness.machine.state().is_alive(leader), "before its time limit");
        harness.advance(Duration::from_secs(1));
        harness.advance(WITH_GRACE.grace);
        harness.deliver_deaths();
        let history = harness.record(&id).and_then(|record| record.history()).expect("a history");
        assert_eq!((history.status(), history.cause()), (Status::Finished, Some(Cause::TimeLimit)));
        assert_no_violation(&harness);
    }
}

#[test]
fn the_idle_limit_counts_from_the_last_output_and_not_while_paused() {
    let mut harness = Harness::new(1);
    let id = harness.start(|spec| spec.idle_limit = Some(Duration::from_secs(10)));
    harness.advance(Duration::from_secs(9));
    harness.write(&id, 1);
    harness.run_until_idle();
    harness.advance(Duration::from_secs(9));
    harness.send_message(&ToKeeper::Pause { request: 2, id: id.clone() });
    harness.advance(Duration::from_secs(60));
    assert_eq!(harness.record_kinds(&id), ["intended", "started"]);
    harness.send_message(&ToKeeper::Resume { request: 3, id: id.clone() });
    harness.advance(Duration::from_secs(10));
    harness.deliver_deaths();
    let cause = harness.record(&id).and_then(|record| record.history()).and_then(|history| history.cause());
    assert_eq!(cause, Some(Cause::IdleLimit));
    assert_no_violation(&harness);
}

#[test]
fn a_failed_start_is_recorded_or_refused() {
    for (launch, refused_write, lines) in [
        (LaunchKind::Fails, 0, vec!["intended", "finished"]),
        (LaunchKind::Hangs, 0, vec!["intended", "finished"]),
        (LaunchKind::Missing, 0, vec![]),
    ] {
        let mut harness = Harness::new(1);
        harness.machine.state().next_launch = Some(launch);
        harness.machine.state().faults.refused_write = refused_write;
        let id = harness.start(|_| {});
        assert_eq!(harness.record_kinds(&id), lines, "{launch:?}");
        let refused = harness.messages.iter().any(|message| matches!(message, FromKeeper::Refused { .. }));
        assert_eq!(refused, lines.is_empty());
        assert_eq!(harness.is_idle(), launch != LaunchKind::Hangs);
        assert_no_violation(&harness);
    }
}

/// K1
#[test]
fn a_failed_start_that_cannot_be_recorded_is_refused_and_leaves_nothing() {
    let mut refusals = 0;
    // Writes fail half of the time: in some seeds the intent is written and the end is not.
    for seed in 0..40 {
        let mut harness = Harness::new(seed);
        harness.machine.state().next_launch = Some(LaunchKind::Fails);
        harness.machine.state().faults.refused_write = 500;
        let id = harness.start(|_| {});
        let sent = harness.messages.iter().any(|message| matches!(message, FromKeeper::Fact { .. }));
        assert_eq!(sent, harness.record(&id).is_some_and(|record| record.is_over()));
        assert!(sent || !harness.machine.state().records.contains_key(&id), "refused, so no record is left");
        refusals += usize::from(!sent);
        assert!(harness.is_idle());
        assert_no_violation(&harness);
    }
    assert!(refusals > 5, "{refusals}");
}

#[test]
fn an_end_written_by_another_program_is_kept_and_ends_the_keeper() {
    let mut harness = Harness::new(1);
    let id = harness.start(|_| {});
    let leader = harness.leader(&id);
    let lost = Fact::Lost { evidence: "an older pinfold wrote it".to_owned(), at: harness.machine.moment() };
    let json = serde_json::to_string(&lost).expect("JSON");
    let line = format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
    let inode = harness.machine.state().records[&id].clone();
    inode.borrow_mut().bytes.extend_from_slice(line.as_bytes());
    harness.exit(leader, 0);
    assert_eq!(harness.record_kinds(&id), ["intended", "started", "lost"]);
    assert_eq!(harness.facts_sent(), ["started"]);
    assert!(harness.keeper.is_none());
    assert_no_violation(&harness);
}

#[test]
fn a_killed_keeper_leaves_an_unlocked_record_without_an_end() {
    let mut harness = Harness::new(1);
    let id = harness.start(|_| {});
    let inode = harness.machine.state().records[&id].clone();
    assert!(inode.borrow().lock.is_some());
    harness.kill_keeper();
    assert_eq!(inode.borrow().lock, None);
    assert_eq!(harness.record_kinds(&id), ["intended", "started"]);
    assert_eq!(harness.machine.state().tree_of(&id).len(), 1, "its process keeps running");
}
