//! Restart decisions for each kind of end, and their bounds.

use proptest::prelude::*;

use super::*;
use crate::facts::{Exit, Fact, Finish, Intent, Start, Usage};
use crate::lifecycle::End;
use crate::link::KeeperIdentity;
use crate::service::Service;
use crate::signal::Signal;
use crate::spec::{Defaults, Program, Spec};

const SECOND: u64 = 1_000_000;

fn id(number: u64) -> ProcessId {
    ProcessId::from_number(number, 1)
}

fn started_run(number: u64, service: Service, at: u64) -> History {
    let program = Program::Argv { argv: vec!["serve".into()] };
    let defaults = Defaults { output_limit: 1 << 20, ..Defaults::default() };
    let spec = Spec { service, ..Spec::new(program, "/".into(), &defaults) }.check().expect("valid");
    let keeper = KeeperIdentity { pid: 1, start_time: 1, cgroup: None };
    let (mark, boot_id) = ("m".into(), "boot".into());
    let mut history = History::new(Intent { format: 1, id: id(number), spec, mark, at: Moment(at), boot_id, keeper });
    history.add(Fact::Started(Start { pid: 2, start_time: 2, at: Moment(at) }));
    history
}

fn ended(mut history: History, outcome: Outcome, cause: Cause, at: u64) -> History {
    let (end, at) = (End { outcome, cause }, Moment(at));
    history.add(Fact::Exited(Exit { end: end.clone(), at, told_apart: true }));
    let usage = Usage::default();
    history.add(Fact::Finished(Finish {
        end,
        exited_at: at,
        at,
        closed: true,
        output_bytes: 0,
        output_lost: 0,
        usage,
    }));
    history
}

fn policy(when: When) -> Service {
    Service { restart: Some(Restart::new(when)), ..Service::default() }
}

fn exit(code: u8) -> Outcome {
    Outcome::Exited { code }
}

/// L6
#[test]
fn each_end_is_restarted_as_the_policy_says() {
    use When::{AfterTurn, Always, OnFailure};
    let killed = || Outcome::Signaled { signal: Signal::KILL, core_dumped: false };
    let stop = || Cause::StopRequested { by: "ann".into() };
    let cases = [
        (exit(0), Cause::OnItsOwn, [false, true, true]),
        (exit(1), Cause::OnItsOwn, [true, true, true]),
        (killed(), Cause::OnItsOwn, [true, true, true]),
        (exit(0), stop(), [false; 3]),
        (killed(), stop(), [false; 3]),
        (exit(1), stop(), [false; 3]),
        (killed(), Cause::OwnerEnded, [false; 3]),
        (killed(), Cause::TimeLimit, [false, true, true]),
        (killed(), Cause::IdleLimit, [true, true, true]),
        (killed(), Cause::OutOfMemory, [true, true, true]),
        (killed(), Cause::PidsLimit, [true, true, true]),
        (killed(), Cause::CpuTimeLimit, [true, true, true]),
    ];
    for (outcome, cause, restarted) in cases {
        for (when, restarted) in [OnFailure, Always, AfterTurn].into_iter().zip(restarted) {
            let history = ended(started_run(1, policy(when), 0), outcome.clone(), cause.clone(), SECOND);
            let decision = after_end(&history, "boot");
            let is_restarted = match decision {
                RestartDecision::Over => false,
                RestartDecision::Restart { .. } => when != AfterTurn,
                RestartDecision::AwaitTurn { .. } => when == AfterTurn,
                RestartDecision::GiveUp { .. } => panic!("it was never restarted"),
            };
            assert_eq!(is_restarted, restarted, "{outcome:?} by {cause:?} with {when:?}");
        }
    }
    let never = ended(started_run(1, Service::default(), 0), exit(1), Cause::OnItsOwn, SECOND);
    assert_eq!(after_end(&never, "boot"), RestartDecision::Over);
    assert_eq!(after_end(&started_run(1, policy(Always), 0), "boot"), RestartDecision::Over, "it is running");
}

#[test]
fn a_lost_process_is_restarted_but_not_after_a_reboot() {
    let mut history = started_run(1, policy(When::OnFailure), 0);
    history.add(Fact::Lost { evidence: "keeper killed".into(), at: Moment(SECOND) });
    assert!(matches!(after_end(&history, "boot"), RestartDecision::Restart { .. }));
    assert_eq!(after_end(&history, "another boot"), RestartDecision::Over);
}

#[test]
fn delays_grow_to_the_maximum_and_a_stable_run_resets_them() {
    let restart = Restart::new(When::OnFailure);
    let waits: Vec<u64> = (0..9).map(|streak| restart.wait(streak).as_secs()).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    let position = |streak: &[u64]| ChainPosition {
        number: 4,
        previous: id(3),
        first: id(1),
        streak: streak.iter().map(|at| Moment(at * SECOND)).collect(),
    };
    let after = |streak, lasted: u64| {
        let service = Service { life: Some(position(streak)), ..policy(When::OnFailure) };
        let history = ended(started_run(4, service, 1000 * SECOND), exit(1), Cause::OnItsOwn, (1000 + lasted) * SECOND);
        after_end(&history, "boot")
    };
    let RestartDecision::Restart { at, next } = after(&[990, 995], 5) else { panic!("restarted") };
    assert_eq!((at, next.number), (Moment(1009 * SECOND), 5));
    assert_eq!((next.previous, next.first, next.streak.len()), (id(4), id(1), 3));
    let RestartDecision::Restart { at, next } = after(&[990, 995], 30) else { panic!("restarted") };
    assert_eq!((at, next.streak.len()), (Moment(1031 * SECOND), 1), "it was stable");
    let RestartDecision::Restart { next, .. } = after(&[1, 2, 3, 4, 990], 5) else { panic!("restarted") };
    assert_eq!(next.streak.len(), 2, "ends before the window do not count");
    assert_eq!(after(&[990, 991, 992, 993, 994], 5), RestartDecision::GiveUp { restarts: 5 });
}

#[test]
fn a_failed_first_start_is_not_retried_but_a_failed_restart_is() {
    let failed = || Outcome::FailedToStart { step: crate::outcome::StartStep::Exec, error: "gone".into() };
    let first = ended(started_run(1, policy(When::Always), 0), failed(), Cause::OnItsOwn, SECOND);
    assert_eq!(after_end(&first, "boot"), RestartDecision::Over);
    let life = Some(ChainPosition { number: 2, previous: id(1), first: id(1), streak: vec![] });
    let later = ended(started_run(2, Service { life, ..policy(When::Always) }, 0), failed(), Cause::OnItsOwn, SECOND);
    assert!(matches!(after_end(&later, "boot"), RestartDecision::Restart { .. }));
}

#[test]
fn invalid_policies_are_refused_by_name() {
    let refuse = |change: fn(&mut Restart)| {
        let mut restart = Restart::new(When::Always);
        change(&mut restart);
        restart.check().expect_err("refused").to_string()
    };
    assert_eq!(Restart::new(When::Always).check(), Ok(()));
    assert!(refuse(|restart| restart.factor_percent = 99).contains("factor"));
    assert!(refuse(|restart| restart.initial = Duration::from_secs(61)).contains("initial"));
    assert!(refuse(|restart| restart.max = Duration::from_secs(90_000)).contains("24h"));
    assert!(refuse(|restart| restart.limit = 0).contains("limit"));
    assert!(refuse(|restart| restart.limit = 101).contains("limit"));
    assert!(refuse(|restart| restart.window = Duration::ZERO).contains("window"));
    assert!(refuse(|restart| restart.stable = Duration::ZERO).contains("stable"));
}

proptest! {
    /// L7: for any policy and run times, no window has more than `limit` restarts of unstable runs, and no delay is
    /// outside of its bounds.
    #[test]
    fn l7_restarts_are_bounded(
        (limit, initial, factor) in (1u32..8, 0u64..2000, 100u32..400),
        lasted in prop::collection::vec(0u64..40_000, 1..60),
    ) {
        let restart = Restart {
            limit,
            initial: Duration::from_millis(initial),
            factor_percent: factor,
            max: Duration::from_secs(20),
            window: Duration::from_secs(300),
            ..Restart::new(When::Always)
        };
        prop_assert_eq!(restart.check(), Ok(()));
        let (mut now, mut position, mut unstable) = (0u64, None, Vec::new());
        for (number, millis) in lasted.into_iter().enumerate() {
            let service = Service { restart: Some(restart.clone()), life: position.take(), ..Service::default() };
            let history = started_run(number as u64 + 1, service, now);
            now += millis * 1000;
            if millis >= 30_000 {
                unstable.clear();
            }
            let history = ended(history, exit(1), Cause::OnItsOwn, now);
            match after_end(&history, "boot") {
                RestartDecision::Restart { at, next } => {
                    let wait = at.since(Moment(now));
                    prop_assert!(wait <= restart.max && wait >= restart.initial);
                    unstable.push(now);
                    let recent = unstable.iter().filter(|end| now - **end < 300 * SECOND).count();
                    prop_assert!(recent <= limit as usize);
                    prop_assert_eq!(next.number, number as u32 + 2);
                    (now, position) = (at.0, Some(next));
                }
                RestartDecision::GiveUp { restarts } => {
                    prop_assert_eq!(restarts, limit);
                    return Ok(());
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
