//! The invariants of the lifecycle against random histories.

use proptest::prelude::*;

use super::*;

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        any::<u8>().prop_map(|code| Outcome::Exited { code }),
        (signal(), any::<bool>()).prop_map(|(signal, core_dumped)| Outcome::Signaled { signal, core_dumped }),
    ]
}

fn signal() -> impl Strategy<Value = Signal> {
    prop::sample::select(vec![Signal::HUP, Signal::INT, Signal::TERM, Signal::KILL])
}

fn manner() -> impl Strategy<Value = StopManner> {
    let any_manner =
        (signal(), 0u64..10).prop_map(|(signal, grace)| StopManner { signal, grace: Duration::from_secs(grace) });
    prop_oneof![Just(GENTLE), Just(AT_ONCE), any_manner]
}

fn input() -> impl Strategy<Value = Input> {
    let policy = (prop::sample::select(vec![Strays::Keep, Strays::Stop]), manner());
    let cause = prop_oneof!["[a-z]{1,3}".prop_map(|who| asked_by(&who)), Just(Cause::TimeLimit)];
    prop_oneof![
        2 => (any::<u32>(), any::<u64>()).prop_map(|(pid, start_time)| Input::LeaderStarted { pid, start_time }),
        1 => "[a-z]{0,9}".prop_map(|error| Input::StartFailed { step: StartStep::Exec, error }),
        3 => (outcome(), any::<[bool; 3]>(), policy).prop_map(|(outcome, flags, policy)| {
            let [out_of_memory, output_closed, strays_alive] = flags;
            Input::LeaderExited { outcome, out_of_memory, output_closed, strays_alive, policy }
        }),
        2 => Just(Input::TreeEmptied),
        2 => Just(Input::OutputClosed),
        2 => (signal(), "[a-z]{1,3}").prop_map(|(signal, by)| Input::SignalSent { signal, by }),
        3 => (cause, manner()).prop_map(|(cause, manner)| Input::Stop { cause, manner }),
        3 => Just(Input::GraceElapsed),
        1 => Just(Input::DrainElapsed),
        1 => "[a-z]{0,9}".prop_map(|evidence| Input::KeeperDied { evidence }),
    ]
}

/// Inputs in any order, most often after a start.
fn history() -> impl Strategy<Value = Vec<Input>> {
    (prop::bool::weighted(0.8), prop::collection::vec(input(), 0..30)).prop_map(|(started, mut inputs)| {
        if started {
            inputs.insert(0, STARTED);
        }
        inputs
    })
}

/// The history of a process that runs and is not lost, so that stops have time to work.
fn history_of_a_run() -> impl Strategy<Value = Vec<Input>> {
    history().prop_map(|mut inputs| {
        inputs.insert(0, STARTED);
        inputs.retain(|input| !matches!(input, Input::KeeperDied { .. }));
        inputs
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// L1
    #[test]
    fn no_outcome_is_invented(inputs in history()) {
        let life = live(inputs);
        for (index, phase) in life.phases().enumerate() {
            let mut came_in = life.steps[..index].iter().map(|(_, input, _)| input);
            let is_true = match phase {
                Phase::Lost { evidence } => came_in.any(|input| is_keeper_death(input, evidence)),
                phase => end_of(phase).is_none_or(|end| came_in.any(|input| brings(input, &end.outcome))),
            };
            prop_assert!(is_true, "{:?}", phase);
        }
    }

    /// L1, the other half: an end, once there, is never rewritten.
    #[test]
    fn the_first_end_of_the_leader_stands(inputs in history()) {
        let life = live(inputs);
        let ends: Vec<&End> = life.phases().filter_map(end_of).collect();
        prop_assert!(ends.windows(2).all(|pair| pair[0] == pair[1]));
    }

    /// L2
    #[test]
    fn at_most_one_end_is_recorded_and_never_replaced(inputs in history()) {
        let life = live(inputs);
        let records = life.records();
        let ends = records.iter().filter(|kind| matches!(kind, Event::Finished | Event::Lost)).count();
        prop_assert_eq!(ends, usize::from(is_over(&life.phase)));
        for (before, _, effects) in life.steps.iter().filter(|(before, _, _)| is_over(before)) {
            prop_assert_eq!(before, &life.phase);
            prop_assert_eq!(effects, &vec![]);
        }
        if ends == 1 {
            prop_assert!(matches!(records.last(), Some(Event::Finished | Event::Lost)));
        }
    }

    /// L3
    #[test]
    fn the_leaders_end_is_recorded_before_finished_or_with_it(inputs in history()) {
        let life = live(inputs);
        let mut exit_recorded = false;
        for (index, (before, input, effects)) in life.steps.iter().enumerate() {
            let after = life.phases().nth(index + 1).expect("a phase after each step");
            exit_recorded |= effects.contains(&EXITED);
            if effects.contains(&FINISHED) {
                let with_it = matches!(input, Input::LeaderExited { .. } | Input::StartFailed { .. });
                prop_assert!(exit_recorded != with_it, "{before:?}");
            }
            if end_of(before).is_none() && end_of(after).is_some() {
                prop_assert!(matches!(effects[0], EXITED | FINISHED));
            }
        }
    }

    /// L4
    #[test]
    fn stop_is_bounded(inputs in history_of_a_run(), repeats in 1usize..5) {
        let mut life = live(inputs);
        for (before, _, _) in &life.steps {
            if let Some(Stop::Asking { .. }) = stop_of(before) {
                let (after, effects) = stepped(before.clone(), Input::GraceElapsed);
                prop_assert_eq!(effects, vec![KILL, AGAIN]);
                prop_assert!(is_killing(&after));
            }
        }
        for pair in life.phases().collect::<Vec<_>>().windows(2) {
            let bounded = match (stop_of(pair[0]), stop_of(pair[1])) {
                (Some(Stop::Asking { .. }), stop) => !matches!(stop, Some(Stop::Unasked { .. })),
                (Some(Stop::Killing { .. }), stop) => matches!(stop, Some(Stop::Killing { .. }) | None),
                _ => true,
            };
            prop_assert!(bounded, "{:?} became {:?}", pair[0], pair[1]);
        }
        if stop_of(&life.phase).is_some_and(|stop| !matches!(stop, Stop::Unasked { .. })) {
            for _ in 0..repeats {
                let (after, effects) = stepped(life.phase, Input::GraceElapsed);
                prop_assert_eq!(effects, vec![KILL, AGAIN]);
                life.phase = after;
            }
            let (after, _) = step(life.phase, leader_exited(exited(), false));
            let (after, _) = step(after, Input::TreeEmptied);
            let (after, _) = step(after, Input::DrainElapsed);
            prop_assert!(is_over(&after));
        }
    }

    #[test]
    fn a_grace_is_armed_whenever_a_stop_begins_or_kills(inputs in history()) {
        for (before, _, effects) in &live(inputs).steps {
            let acts = effects.iter().any(|effect| matches!(effect, Shown::Act(Effect::SignalTree(_) | Effect::KillTree)));
            let armed = effects.iter().any(|effect| matches!(effect, Shown::Act(Effect::ArmGrace(_))));
            prop_assert_eq!(acts, armed, "{:?}", before);
        }
    }

    #[test]
    fn each_event_kind_is_recorded_at_most_once(inputs in history()) {
        let mut records = live(inputs).records();
        let all = records.len();
        records.sort();
        records.dedup();
        prop_assert_eq!(records.len(), all);
    }

    #[test]
    fn started_is_recorded_before_any_other_record_except_a_failed_start(inputs in history()) {
        let life = live(inputs);
        let never_ran = match &life.phase {
            Phase::Finished { end, .. } => matches!(end.outcome, Outcome::FailedToStart { .. }),
            Phase::Lost { .. } => !life.phases().any(|phase| matches!(phase, Phase::Running { .. })),
            _ => false,
        };
        match life.records().as_slice() {
            [] => {}
            [only] if never_ran => prop_assert!(matches!(only, Event::Finished | Event::Lost)),
            [first, ..] => prop_assert_eq!(*first, Event::Started),
        }
    }

    #[test]
    fn the_cause_comes_from_the_first_stop_asked(inputs in history_of_a_run()) {
        let life = live(inputs);
        let mut first = None;
        for (before, input, _) in &life.steps {
            match input {
                Input::Stop { cause, .. } if matches!(before, Phase::Running { .. }) => {
                    first.get_or_insert(cause.clone());
                }
                _ => {}
            }
        }
        let end = life.phases().find_map(end_of);
        if let (Some(cause), Some(end)) = (first, end) {
            prop_assert_eq!(&end.cause, &cause);
        }
    }
}
