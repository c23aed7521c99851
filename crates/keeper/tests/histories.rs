//! The keeper by itself: histories written down step by step, on a machine in memory.

use std::time::Duration;

use pinfold_model::facts::{Fact, Status};
use pinfold_model::lifecycle::{DRAIN, KILL_AGAIN};
use pinfold_model::link::{FromKeeper, ToKeeper, encode};
use pinfold_model::outcome::{Cause, Outcome};
use pinfold_model::signal::Signal;
use pinfold_model::spec::Strays;
use pinfold_simulation::machine::{LaunchKind, Role, SIGKILL};
use pinfold_simulation::scene::{AT_ONCE, GENTLE, Scene, order};

/// How often a refused write is tried again.
const WRITE_AGAIN: Duration = Duration::from_millis(500);

fn asked() -> Cause {
    Cause::StopRequested { by: "test".to_owned() }
}

fn stopped(scene: &Scene) -> usize {
    scene.said.iter().filter(|said| matches!(said, FromKeeper::Stopped { .. })).count()
}

fn sound(scene: &Scene) {
    assert_eq!(scene.machine.state().broken, None);
}

#[test]
fn a_life_is_written_sent_and_over() {
    let mut scene = Scene::new(1);
    let id = scene.start(|_| {});
    let leader = scene.leader(&id);
    scene.write(&id, 100);
    scene.settle();
    scene.exit(leader, 3);
    assert_eq!(scene.lines(&id), ["intended", "started", "finished"]);
    assert_eq!(scene.told(), ["started", "finished"]);
    let history = scene.record(&id).and_then(|record| record.history()).expect("a history");
    assert_eq!(history.outcome(), Some(Outcome::Exited { code: 3 }));
    assert_eq!(history.finish.map(|finish| (finish.output_bytes, finish.closed)), Some((100, true)));
    assert!(scene.is_idle());
    sound(&scene);
}

#[test]
fn an_exit_while_stopping_keeps_its_own_code_and_the_stops_cause() {
    let mut scene = Scene::new(1);
    let id = scene.start(|_| {});
    let leader = scene.leader(&id);
    scene.stop(&id, GENTLE);
    assert_eq!(stopped(&scene), 0);
    scene.exit(leader, 3);
    let history = scene.record(&id).and_then(|record| record.history()).expect("a history");
    assert_eq!((history.outcome(), history.cause()), (Some(Outcome::Exited { code: 3 }), Some(asked())));
    assert_eq!(stopped(&scene), 1);
    // The grace that was armed for the one that is gone has nothing to kill.
    scene.pass(GENTLE.grace * 2);
    assert_eq!(scene.lines(&id), ["intended", "started", "finished"]);
    sound(&scene);
}

#[test]
fn a_deaf_tree_is_killed_after_its_grace_and_again_until_it_is_gone() {
    let mut scene = Scene::new(1);
    let id = scene.start(|_| {});
    let leader = scene.leader(&id);
    {
        let mut state = scene.machine.state();
        let process = state.processes.get_mut(&leader).expect("alive");
        (process.ignores_term, process.stuck) = (true, true);
    }
    scene.stop(&id, GENTLE);
    scene.pass(GENTLE.grace);
    for _ in 0..5 {
        scene.let_die();
        scene.pass(KILL_AGAIN);
    }
    // It waits inside the kernel: the stop is answered with its name, and goes on.
    let survivors = scene.said.iter().find_map(|said| match said {
        FromKeeper::Stopped { survivors, .. } => Some(survivors.len()),
        _ => None,
    });
    assert_eq!(survivors, Some(1));
    scene.machine.state().processes.get_mut(&leader).expect("alive").stuck = false;
    scene.let_die();
    let history = scene.record(&id).and_then(|record| record.history()).expect("a history");
    assert_eq!(history.outcome(), Some(Outcome::Signaled { signal: Signal::KILL, core_dumped: false }));
    assert_eq!(stopped(&scene), 1);
    sound(&scene);
}

#[test]
fn a_full_disk_holds_back_the_end_until_it_can_be_written() {
    let mut scene = Scene::new(1);
    let id = scene.start(|_| {});
    let leader = scene.leader(&id);
    scene.machine.state().faults.refused_write = 1000;
    scene.stop(&id, GENTLE);
    scene.let_die();
    for _ in 0..5 {
        scene.pass(WRITE_AGAIN);
        assert_eq!((scene.lines(&id), scene.told()), (vec!["intended", "started"], vec!["started"]));
        assert!(!scene.is_idle(), "what is not written is not over");
    }
    assert!(!scene.machine.state().processes.contains_key(&leader), "its leader is reaped all the same");
    scene.machine.state().faults.refused_write = 0;
    scene.pass(WRITE_AGAIN);
    assert_eq!(scene.told(), ["started", "finished"]);
    assert_eq!(scene.lines(&id), ["intended", "started", "finished"]);
    assert!(scene.is_idle());
    sound(&scene);
}

#[test]
fn a_torn_write_leaves_no_line_and_is_repeated() {
    let mut scene = Scene::new(7);
    let id = scene.start(|_| {});
    let leader = scene.leader(&id);
    scene.machine.state().faults.torn_write = 1000;
    scene.exit(leader, 0);
    for _ in 0..20 {
        scene.pass(WRITE_AGAIN);
    }
    let record = scene.record(&id).expect("whole lines are read");
    assert!(!record.is_over());
    scene.machine.state().faults.torn_write = 0;
    scene.pass(WRITE_AGAIN);
    assert_eq!(scene.lines(&id), ["intended", "started", "finished"]);
    assert_eq!(scene.record(&id).map(|record| record.torn), Some(false));
    sound(&scene);
}

/// K3
#[test]
fn a_link_lost_at_any_message_changes_nothing_of_the_life() {
    for cut in 0..6 {
        let mut scene = Scene::new(1);
        let id = scene.start(|draft| draft.strays = Strays::Keep);
        let leader = scene.leader(&id);
        let stray = scene.fork(leader);
        let steps: [&dyn Fn(&mut Scene); 5] = [
            &|scene| scene.write(&id, 10),
            &|scene| scene.tell(&ToKeeper::Pause { request: 2, id: id.clone() }),
            &|scene| scene.tell(&ToKeeper::Resume { request: 3, id: id.clone() }),
            &|scene| scene.exit(leader, 5),
            &|scene| scene.exit(stray, 0),
        ];
        for (number, step) in steps.iter().enumerate() {
            if number == cut {
                scene.disconnect();
            }
            step(&mut scene);
            scene.settle();
        }
        scene.pass(DRAIN * 2);
        assert_eq!(scene.lines(&id), ["intended", "started", "exited", "closed", "finished"], "cut before step {cut}");
        let outcome = scene.record(&id).and_then(|record| record.history()).and_then(|history| history.outcome());
        assert_eq!(outcome, Some(Outcome::Exited { code: 5 }));
        assert_eq!(scene.keeper.is_none(), cut < steps.len(), "without a daemon it ends");
        sound(&scene);
    }
}

#[test]
fn half_an_order_is_not_obeyed() {
    let stop = |id| ToKeeper::Stop { request: 1, id, cause: asked(), manner: AT_ONCE };
    let length = {
        let mut scene = Scene::new(1);
        encode(&stop(scene.start(|_| {}))).len()
    };
    for sent in 0..length {
        let mut scene = Scene::new(1);
        let id = scene.start(|_| {});
        scene.send(&encode(&stop(id.clone()))[..sent]);
        scene.settle();
        scene.disconnect();
        scene.settle();
        scene.let_die();
        assert_eq!(scene.lines(&id), ["intended", "started"], "{sent} of {length} bytes");
        scene.connect();
        let kept = scene.said.iter().rev().find_map(|said| match said {
            FromKeeper::Hello { kept, .. } => Some(kept.as_ref().map(|kept| kept.history.status())),
            _ => None,
        });
        assert_eq!(kept, Some(Some(Status::Running)));
        scene.stop(&id, AT_ONCE);
        scene.let_die();
        assert_eq!(scene.lines(&id), ["intended", "started", "finished"]);
        sound(&scene);
    }
}

#[test]
fn what_the_last_daemon_sent_is_done_before_the_next_is_greeted() {
    let mut scene = Scene::new(1);
    let id = scene.start(|_| {});
    scene.send(&encode(&ToKeeper::Stop { request: 1, id: id.clone(), cause: asked(), manner: AT_ONCE }));
    scene.connect();
    assert!(matches!(scene.said.last(), Some(FromKeeper::Hello { kept: Some(_), .. })));
    scene.let_die();
    assert_eq!(scene.lines(&id), ["intended", "started", "finished"]);
    assert_eq!(stopped(&scene), 0, "whoever asked is gone");
    sound(&scene);
}

#[test]
fn a_stray_that_appears_at_the_end_is_waited_for() {
    let mut scene = Scene::new(1);
    let id = scene.start(|draft| draft.strays = Strays::Keep);
    let leader = scene.leader(&id);
    let child = scene.fork(leader);
    scene.exit(leader, 0);
    assert_eq!(scene.lines(&id), ["intended", "started", "exited"]);
    // It forks and ends, so that the tree is never seen with more than one.
    let mut last = child;
    for _ in 0..20 {
        let next = scene.fork(last);
        scene.exit(last, 0);
        assert_eq!(scene.lines(&id).len(), 3, "somebody lives");
        last = next;
    }
    scene.exit(last, 0);
    assert_eq!(scene.lines(&id), ["intended", "started", "exited", "closed", "finished"]);
    assert!(scene.machine.state().tree_of(&id).is_empty());
    sound(&scene);
}

#[test]
fn strays_are_stopped_where_that_is_the_policy() {
    let mut scene = Scene::new(1);
    let id = scene.start(|draft| draft.strays = Strays::Stop);
    let leader = scene.leader(&id);
    scene.fork(leader);
    scene.exit(leader, 4);
    scene.let_die();
    assert_eq!(scene.lines(&id), ["intended", "started", "exited", "closed", "finished"]);
    let cause = scene.record(&id).and_then(|record| record.history()).and_then(|history| history.cause());
    assert_eq!(cause, Some(Cause::OnItsOwn));
    sound(&scene);
}

#[test]
fn output_held_by_an_outsider_is_waited_for_and_then_left() {
    let mut scene = Scene::new(1);
    let id = scene.start(|_| {});
    let leader = scene.leader(&id);
    let outsider = scene.machine.state().fork(1, Role::Outsider);
    {
        let mut state = scene.machine.state();
        let process = state.processes.get_mut(&outsider).expect("alive");
        (process.of, process.holds_output) = (Some(id.clone()), true);
    }
    scene.exit(leader, 0);
    assert_eq!(scene.lines(&id), ["intended", "started", "exited"]);
    scene.pass(DRAIN);
    assert_eq!(scene.lines(&id), ["intended", "started", "exited", "finished"]);
    let finish = scene.record(&id).and_then(|record| record.history()).and_then(|history| history.finish);
    assert_eq!(finish.map(|finish| finish.closed), Some(false));
    sound(&scene);
}

#[test]
fn a_stop_sent_with_the_start_finds_the_process() {
    let mut scene = Scene::new(1);
    let intent = scene.intent(|_| {});
    let id = intent.id.clone();
    scene.send(&encode(&order(intent)));
    scene.stop(&id, AT_ONCE);
    scene.let_die();
    assert_eq!(scene.lines(&id), ["intended", "started", "finished"]);
    assert_eq!(stopped(&scene), 1);
    sound(&scene);
}

#[test]
fn a_stop_of_what_is_over_is_answered_and_does_nothing() {
    let mut scene = Scene::new(1);
    let first = scene.start(|_| {});
    let leader = scene.leader(&first);
    scene.exit(leader, 0);
    let second = scene.start(|_| {});
    scene.stop(&first, AT_ONCE);
    assert_eq!(stopped(&scene), 1);
    scene.let_die();
    assert_eq!(scene.lines(&second), ["intended", "started"], "the next one is not meant");
    sound(&scene);
}

/// K4
#[test]
fn a_keeper_keeps_one_process_at_a_time() {
    let mut scene = Scene::new(1);
    let first = scene.start(|_| {});
    let second = scene.start(|_| {});
    let refused = |said: &FromKeeper| matches!(said, FromKeeper::Refused { id, .. } if *id == second);
    assert!(scene.said.iter().any(refused));
    assert_eq!(scene.record(&second), None);
    assert_eq!(scene.machine.state().tree_of(&first).len(), 1);
    assert_eq!(scene.machine.state().tree_of(&second).len(), 0);
    sound(&scene);
}

#[test]
fn a_cgroup_that_is_left_frozen_is_thawed_before_the_next_process() {
    let mut scene = Scene::new(1);
    let id = scene.start(|_| {});
    let leader = scene.leader(&id);
    scene.tell(&ToKeeper::Pause { request: 2, id: id.clone() });
    scene.machine.state().signal(leader, SIGKILL);
    scene.let_die();
    assert_eq!(scene.lines(&id), ["intended", "started", "finished"]);
    assert!(scene.is_idle());
    let next = scene.start(|_| {});
    assert_eq!(scene.lines(&next), ["intended", "started"]);
    sound(&scene);
}

#[test]
fn a_keeper_whose_cgroup_stays_frozen_ends() {
    let mut scene = Scene::new(1);
    let id = scene.start(|_| {});
    let leader = scene.leader(&id);
    scene.tell(&ToKeeper::Pause { request: 2, id: id.clone() });
    scene.machine.state().faults.stuck_frozen = 1000;
    scene.machine.state().signal(leader, SIGKILL);
    scene.let_die();
    assert_eq!(scene.lines(&id), ["intended", "started", "finished"]);
    assert!(scene.keeper.is_none() && !scene.is_idle());
    sound(&scene);
}

#[test]
fn a_keeper_that_killed_by_its_cgroup_ends() {
    let mut scene = Scene::new(1);
    let id = scene.start(|_| {});
    scene.stop(&id, AT_ONCE);
    scene.let_die();
    assert_eq!(scene.lines(&id), ["intended", "started", "finished"]);
    assert!(scene.keeper.is_none(), "Linux kills whatever is born there next");
    sound(&scene);
}

#[test]
fn steps_of_the_wall_clock_move_no_timer() {
    for step in [-3_600_000_000_i64, 86_400_000_000 * 365] {
        let mut scene = Scene::new(1);
        let id = scene.start(|draft| draft.time_limit = Some(Duration::from_secs(60)));
        let leader = scene.leader(&id);
        scene.machine.state().processes.get_mut(&leader).expect("alive").ignores_term = true;
        let wall = scene.machine.state().wall;
        scene.machine.state().wall = wall.saturating_add_signed(step);
        scene.pass(Duration::from_secs(59));
        scene.let_die();
        assert!(scene.machine.state().is_alive(leader), "its minute is not over");
        scene.pass(Duration::from_secs(1));
        scene.pass(GENTLE.grace);
        scene.let_die();
        let history = scene.record(&id).and_then(|record| record.history()).expect("a history");
        assert_eq!((history.status(), history.cause()), (Status::Finished, Some(Cause::TimeLimit)));
        sound(&scene);
    }
}

#[test]
fn silence_is_counted_from_the_last_output_and_not_while_paused() {
    let mut scene = Scene::new(1);
    let id = scene.start(|draft| draft.idle_limit = Some(Duration::from_secs(10)));
    scene.pass(Duration::from_secs(9));
    scene.write(&id, 1);
    scene.settle();
    scene.pass(Duration::from_secs(9));
    scene.tell(&ToKeeper::Pause { request: 2, id: id.clone() });
    scene.pass(Duration::from_secs(60));
    assert_eq!(scene.lines(&id), ["intended", "started"]);
    scene.tell(&ToKeeper::Resume { request: 3, id: id.clone() });
    scene.pass(Duration::from_secs(10));
    scene.let_die();
    let cause = scene.record(&id).and_then(|record| record.history()).and_then(|history| history.cause());
    assert_eq!(cause, Some(Cause::IdleLimit));
    sound(&scene);
}

#[test]
fn a_start_that_fails_is_recorded_refused_or_both_told_and_gone() {
    for (launch, refused_write, lines) in [
        (LaunchKind::Fails, 0, vec!["intended", "finished"]),
        (LaunchKind::Hangs, 0, vec!["intended", "finished"]),
        (LaunchKind::Missing, 0, vec![]),
    ] {
        let mut scene = Scene::new(1);
        scene.machine.state().next_launch = Some(launch);
        scene.machine.state().faults.refused_write = refused_write;
        let id = scene.start(|_| {});
        assert_eq!(scene.lines(&id), lines, "{launch:?}");
        let refused = scene.said.iter().any(|said| matches!(said, FromKeeper::Refused { .. }));
        assert_eq!(refused, lines.is_empty());
        assert_eq!(scene.is_idle(), launch != LaunchKind::Hangs);
        sound(&scene);
    }
}

/// K1
#[test]
fn a_failed_start_that_cannot_be_written_leaves_nothing() {
    let mut refusals = 0;
    // The intent must be written and the end refused: half of the seeds do that.
    for seed in 0..40 {
        let mut scene = Scene::new(seed);
        scene.machine.state().next_launch = Some(LaunchKind::Fails);
        scene.machine.state().faults.refused_write = 500;
        let id = scene.start(|_| {});
        let told = scene.said.iter().any(|said| matches!(said, FromKeeper::Fact { .. }));
        assert_eq!(told, scene.record(&id).is_some_and(|record| record.is_over()));
        assert!(told || !scene.machine.state().records.contains_key(&id), "refused, so nothing is left");
        refusals += usize::from(!told);
        assert!(scene.is_idle());
        sound(&scene);
    }
    assert!(refusals > 5, "{refusals}");
}

#[test]
fn an_end_that_somebody_else_wrote_stands_and_ends_the_keeper() {
    let mut scene = Scene::new(1);
    let id = scene.start(|_| {});
    let leader = scene.leader(&id);
    let lost = Fact::Lost { evidence: "an older pinfold wrote it".to_owned(), at: scene.machine.moment() };
    let json = serde_json::to_string(&lost).expect("JSON");
    let line = format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
    let inode = scene.machine.state().records[&id].clone();
    inode.borrow_mut().bytes.extend_from_slice(line.as_bytes());
    scene.exit(leader, 0);
    assert_eq!(scene.lines(&id), ["intended", "started", "lost"]);
    assert_eq!(scene.told(), ["started"]);
    assert!(scene.keeper.is_none());
    sound(&scene);
}

#[test]
fn a_keeper_that_is_killed_leaves_a_free_lock_and_no_end() {
    let mut scene = Scene::new(1);
    let id = scene.start(|_| {});
    let inode = scene.machine.state().records[&id].clone();
    assert!(inode.borrow().lock.is_some());
    scene.kill_keeper();
    assert_eq!(inode.borrow().lock, None);
    assert_eq!(scene.lines(&id), ["intended", "started"]);
    assert_eq!(scene.machine.state().tree_of(&id).len(), 1, "what it kept lives on");
}
