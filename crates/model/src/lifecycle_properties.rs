//! Property tests of the lifecycle's invariants.

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
    prop_oneof![Just(WITH_GRACE), Just(IMMEDIATE), any_manner]
}

fn input() -> impl Strategy<Value = Input> {
    let policy = (prop::sample::select(vec![Strays::Keep, Strays::Stop]), manner());
    let cause = prop_oneof!["[a-z]{1,3}".prop_map(|who| stop_requested_by(&who)), Just(Cause::TimeLimit)];
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
    ]
}

/// Random inputs, usually after a start.
fn history() -> impl Strategy<Value = Vec<Input>> {
    (prop::bool::weighted(0.8), prop::collection::vec(input(), 0..30)).prop_map(|(started, mut inputs)| {
        if started {
            inputs.insert(0, STARTED);
        }
        inputs
    })
}

/// A history that starts, so that stops can complete.
fn history_of_a_run() -> impl Strategy<Value = Vec<Input>> {
    history().prop_map(|mut inputs| {
        inputs.insert(0, STARTED);
        inputs
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// L1
    #[test]
    fn no_outcome_is_invented(inputs in history()) {
        let run = run_inputs(inputs);
        for (index, phase) in run.phases().enumerate() {
            let mut came_in = run.steps[..index].iter().map(|(_, input, _)| input);
            let is_true = end_of(phase).is_none_or(|end| came_in.any(|input| brings_outcome(input, &end.outcome)));
            prop_assert!(is_true, "{:?}", phase);
        }
    }

    /// L1 as well: an end is never rewritten.
    #[test]
    fn the_leaders_end_never_changes(inputs in history()) {
        let run = run_inputs(inputs);
        let ends: Vec<&End> = run.phases().filter_map(end_of).collect();
        prop_assert!(ends.windows(2).all(|pair| pair[0] == pair[1]));
    }

    /// L2
    #[test]
    fn at_most_one_end_is_recorded_and_never_replaced(inputs in history()) {
        let run = run_inputs(inputs);
        let records = run.records();
        let ends = records.iter().filter(|kind| matches!(kind, Event::Finished)).count();
        prop_assert_eq!(ends, usize::from(is_over(&run.phase)));
        for (before, _, effects) in run.steps.iter().filter(|(before, _, _)| is_over(before)) {
            prop_assert_eq!(before, &run.phase);
            prop_assert_eq!(effects, &vec![]);
        }
        if ends == 1 {
            prop_assert!(matches!(records.last(), Some(Event::Finished)));
        }
    }

    /// L3
    #[test]
    fn the_leaders_end_is_recorded_before_finished_or_with_it(inputs in history()) {
        let run = run_inputs(inputs);
        let mut exit_recorded = false;
        for (index, (before, input, effects)) in run.steps.iter().enumerate() {
            let after = run.phases().nth(index + 1).expect("a phase after each step");
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
        let mut run = run_inputs(inputs);
        for (before, _, _) in &run.steps {
            if let Some(Stop::Requested { .. }) = stop_of(before) {
                let (after, effects) = step_kinds(before.clone(), Input::GraceElapsed);
                prop_assert_eq!(effects, vec![KILL, KILL_TIMER]);
                prop_assert!(is_killing(&after));
            }
        }
        for pair in run.phases().collect::<Vec<_>>().windows(2) {
            let bounded = match (stop_of(pair[0]), stop_of(pair[1])) {
                (Some(Stop::Requested { .. }), stop) => !matches!(stop, Some(Stop::NotRequested { .. })),
                (Some(Stop::Killing { .. }), stop) => matches!(stop, Some(Stop::Killing { .. }) | None),
                _ => true,
            };
            prop_assert!(bounded, "{:?} became {:?}", pair[0], pair[1]);
        }
        if stop_of(&run.phase).is_some_and(|stop| !matches!(stop, Stop::NotRequested { .. })) {
            for _ in 0..repeats {
                let (after, effects) = step_kinds(run.phase, Input::GraceElapsed);
                prop_assert_eq!(effects, vec![KILL, KILL_TIMER]);
                run.phase = after;
            }
            let (after, _) = step(run.phase, leader_exited(exited(), false));
            let (after, _) = step(after, Input::TreeEmptied);
            let (after, _) = step(after, Input::DrainElapsed);
            prop_assert!(is_over(&after));
        }
    }

    #[test]
    fn a_grace_timer_is_armed_whenever_a_signal_or_kill_is_sent(inputs in history()) {
        for (before, _, effects) in &run_inputs(inputs).steps {
            let acts = effects.iter().any(|effect| matches!(effect, EffectKind::Act(Effect::SignalTree(_) | Effect::KillTree)));
            let armed = effects.iter().any(|effect| matches!(effect, EffectKind::Act(Effect::ArmGrace(_))));
            prop_assert_eq!(acts, armed, "{:?}", before);
        }
    }

    #[test]
    fn each_event_kind_is_recorded_at_most_once(inputs in history()) {
        let mut records = run_inputs(inputs).records();
        let all = records.len();
        records.sort();
        records.dedup();
        prop_assert_eq!(records.len(), all);
    }

    #[test]
    fn started_is_recorded_before_any_other_record_except_a_failed_start(inputs in history()) {
        let run = run_inputs(inputs);
        let never_ran = match &run.phase {
            Phase::Finished { end, .. } => matches!(end.outcome, Outcome::FailedToStart { .. }),
            _ => false,
        };
        match run.records().as_slice() {
            [] => {}
            [only] if never_ran => prop_assert!(matches!(only, Event::Finished)),
            [first, ..] => prop_assert_eq!(*first, Event::Started),
        }
    }

    #[test]
    fn the_cause_is_that_of_the_first_stop_requested(inputs in history_of_a_run()) {
        let run = run_inputs(inputs);
        let mut first = None;
        for (before, input, _) in &run.steps {
            match input {
                Input::Stop { cause, .. } if matches!(before, Phase::Running { .. }) => {
                    first.get_or_insert(cause.clone());
                }
                _ => {}
            }
        }
        let end = run.phases().find_map(end_of);
        if let (Some(cause), Some(end)) = (first, end) {
            prop_assert_eq!(&end.cause, &cause);
        }
    }
}
