//! The lifecycle cell by cell, and its invariants against random histories. No process is started.

use proptest::prelude::*;

use super::*;
use crate::lifecycle_table::{
    AT_ONCE, GENTLE, INPUTS, PHASES, asked_by, exited, failed_to_start, inputs, killed, phases, signaled,
};
use EventKind as Event;

/// What a cell expects: nothing, or a next phase with effects.
type Cell = Option<(Phase, Vec<Effect>)>;

fn to<const N: usize>(phase: Phase, effects: [Effect; N]) -> Cell {
    Some((phase, effects.to_vec()))
}

const fn record(kind: Event) -> Effect {
    Effect::Record(kind)
}

const SAME: Cell = None;
const EXITED: Effect = record(Event::Exited);
const CLOSED: Effect = record(Event::Closed);
const FINISHED: Effect = record(Event::Finished);
const DRAIN_1S: Effect = Effect::ArmDrain(DRAIN);
const TERM: Effect = Effect::SignalTree(Signal::TERM);
const GRACE: Effect = Effect::ArmGrace(GENTLE.grace);
const KILL: Effect = Effect::KillTree;
const AGAIN: Effect = Effect::ArmGrace(KILL_AGAIN);

fn unasked() -> Stop {
    Stop::Unasked { sent: None }
}

fn sent_by(who: &str) -> Stop {
    Stop::Unasked { sent: Some((Signal::TERM, who.to_owned())) }
}

fn asking(cause: Cause) -> Stop {
    Stop::Asking { cause }
}

fn killing(cause: Cause) -> Stop {
    Stop::Killing { cause }
}

fn running(stop: Stop, closed: bool) -> Phase {
    Phase::Running { stop, closed }
}

fn lingering(cause: Cause, stop: Stop, closed: bool) -> Phase {
    Phase::Lingering { end: End { outcome: exited(), cause }, stop, closed }
}

fn draining(outcome: Outcome, cause: Cause) -> Phase {
    Phase::Draining { end: End { outcome, cause } }
}

fn finished(outcome: Outcome, cause: Cause, closed: bool) -> Phase {
    Phase::Finished { end: End { outcome, cause }, closed }
}

fn lost() -> Cell {
    to(Phase::Lost { evidence: "its lock is free".to_owned() }, [record(Event::Lost)])
}

/// One row for each phase, one cell for each input, both in the order of `lifecycle_table`:
/// started, start failed; leader gone: alone, alone by TERM, killed for memory, strays kept, stopped, stopped at once;
/// emptied, closed; TERM sent, stop, stop at once; grace, drain; keeper died.
fn expectations() -> [[Cell; INPUTS]; PHASES] {
    let own = || Cause::OnItsOwn;
    let (alice, bob) = (|| asked_by("alice"), || asked_by("bob"));
    [
        // starting
        {
            let mut cells = [const { SAME }; INPUTS];
            cells[0] = to(running(unasked(), false), [record(Event::Started)]);
            cells[1] = to(finished(failed_to_start(), own(), true), [FINISHED]);
            cells[INPUTS - 1] = lost();
            cells
        },
        // running
        [
            SAME,
            SAME,
            to(draining(exited(), own()), [EXITED, DRAIN_1S]),
            to(draining(signaled(), own()), [EXITED, DRAIN_1S]),
            to(draining(killed(), Cause::OutOfMemory), [EXITED, DRAIN_1S]),
            to(lingering(own(), unasked(), false), [EXITED]),
            to(lingering(own(), asking(own()), false), [EXITED, TERM, GRACE]),
            to(lingering(own(), killing(own()), false), [EXITED, KILL, AGAIN]),
            SAME,
            to(running(unasked(), true), [CLOSED]),
            to(running(sent_by("bob"), false), []),
            to(running(asking(bob()), false), [TERM, GRACE]),
            to(running(killing(bob()), false), [KILL, AGAIN]),
            SAME,
            SAME,
            lost(),
        ],
        // running, closed
        [
            SAME,
            SAME,
            to(finished(exited(), own(), true), [FINISHED]),
            to(finished(signaled(), own(), true), [FINISHED]),
            to(finished(killed(), Cause::OutOfMemory, true), [FINISHED]),
            to(lingering(own(), unasked(), true), [EXITED]),
            to(lingering(own(), asking(own()), true), [EXITED, TERM, GRACE]),
            to(lingering(own(), killing(own()), true), [EXITED, KILL, AGAIN]),
            SAME,
            SAME,
            to(running(sent_by("bob"), true), []),
            to(running(asking(bob()), true), [TERM, GRACE]),
            to(running(killing(bob()), true), [KILL, AGAIN]),
            SAME,
            SAME,
            lost(),
        ],
        // running, signal sent
        [
            SAME,
            SAME,
            to(draining(exited(), own()), [EXITED, DRAIN_1S]),
            to(draining(signaled(), alice()), [EXITED, DRAIN_1S]),
            to(draining(killed(), Cause::OutOfMemory), [EXITED, DRAIN_1S]),
            to(lingering(own(), sent_by("alice"), false), [EXITED]),
            to(lingering(own(), asking(own()), false), [EXITED, TERM, GRACE]),
            to(lingering(own(), killing(own()), false), [EXITED, KILL, AGAIN]),
            SAME,
            to(running(sent_by("alice"), true), [CLOSED]),
            to(running(sent_by("bob"), false), []),
            to(running(asking(bob()), false), [TERM, GRACE]),
            to(running(killing(bob()), false), [KILL, AGAIN]),
            SAME,
            SAME,
            lost(),
        ],
        // running, asking
        [
            SAME,
            SAME,
            to(draining(exited(), alice()), [EXITED, DRAIN_1S]),
            to(draining(signaled(), alice()), [EXITED, DRAIN_1S]),
            to(draining(killed(), alice()), [EXITED, DRAIN_1S]),
            to(lingering(alice(), asking(alice()), false), [EXITED]),
            to(lingering(alice(), asking(alice()), false), [EXITED]),
            to(lingering(alice(), asking(alice()), false), [EXITED]),
            SAME,
            to(running(asking(alice()), true), [CLOSED]),
            SAME,
            SAME,
            to(running(killing(alice()), false), [KILL, AGAIN]),
            to(running(killing(alice()), false), [KILL, AGAIN]),
            SAME,
            lost(),
        ],
        // running, killing
        [
            SAME,
            SAME,
            to(finished(exited(), alice(), true), [FINISHED]),
            to(finished(signaled(), alice(), true), [FINISHED]),
            to(finished(killed(), alice(), true), [FINISHED]),
            to(lingering(alice(), killing(alice()), true), [EXITED]),
            to(lingering(alice(), killing(alice()), true), [EXITED]),
            to(lingering(alice(), killing(alice()), true), [EXITED]),
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            to(running(killing(alice()), true), [KILL, AGAIN]),
            SAME,
            lost(),
        ],
        // lingering
        [
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            to(draining(exited(), own()), [DRAIN_1S]),
            to(lingering(own(), unasked(), true), [CLOSED]),
            to(lingering(own(), sent_by("bob"), false), []),
            to(lingering(own(), asking(bob()), false), [TERM, GRACE]),
            to(lingering(own(), killing(bob()), false), [KILL, AGAIN]),
            SAME,
            SAME,
            lost(),
        ],
        // lingering, closed
        [
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            to(finished(exited(), own(), true), [FINISHED]),
            SAME,
            to(lingering(own(), sent_by("bob"), true), []),
            to(lingering(own(), asking(bob()), true), [TERM, GRACE]),
            to(lingering(own(), killing(bob()), true), [KILL, AGAIN]),
            SAME,
            SAME,
            lost(),
        ],
        // lingering, asking
        [
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            to(draining(exited(), own()), [DRAIN_1S]),
            to(lingering(own(), asking(alice()), true), [CLOSED]),
            SAME,
            SAME,
            to(lingering(own(), killing(alice()), false), [KILL, AGAIN]),
            to(lingering(own(), killing(alice()), false), [KILL, AGAIN]),
            SAME,
            lost(),
        ],
        // lingering, killing
        [
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            to(finished(exited(), own(), true), [FINISHED]),
            SAME,
            SAME,
            SAME,
            SAME,
            to(lingering(own(), killing(alice()), true), [KILL, AGAIN]),
            SAME,
            lost(),
        ],
        // draining
        [
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            SAME,
            to(finished(exited(), own(), true), [FINISHED]),
            SAME,
            SAME,
            SAME,
            SAME,
            to(finished(exited(), own(), false), [FINISHED]),
            lost(),
        ],
        // finished
        [const { SAME }; INPUTS],
        // lost
        [const { SAME }; INPUTS],
    ]
}

#[test]
fn every_phase_answers_every_input_as_the_table_says() {
    for ((phase_name, phase), row) in phases().into_iter().zip(expectations()) {
        for ((input_name, input), cell) in inputs().into_iter().zip(row) {
            let expected = cell.unwrap_or_else(|| (phase.clone(), vec![]));
            assert_eq!(step(phase.clone(), input), expected, "{phase_name} × {input_name}");
        }
    }
}

#[test]
fn a_signal_that_did_not_end_it_is_not_the_cause() {
    let hup = Input::SignalSent { signal: Signal::HUP, by: "bob".to_owned() };
    let life = live(vec![Input::LeaderStarted, hup, leader_exited(signaled(), false)]);
    assert_eq!(life.phase, draining(signaled(), Cause::OnItsOwn));
}

/// The same KILL, told apart by what else is known.
#[test]
fn only_a_kill_by_the_kernel_that_nobody_asked_for_is_out_of_memory() {
    let sent = |signal| Input::SignalSent { signal, by: "bob".to_owned() };
    for (before, outcome, cause) in [
        (Input::TreeEmptied, killed(), Cause::OutOfMemory),
        (sent(Signal::HUP), killed(), Cause::OutOfMemory),
        (sent(Signal::KILL), killed(), asked_by("bob")),
        (Input::TreeEmptied, exited(), Cause::OnItsOwn),
        (Input::TreeEmptied, signaled(), Cause::OnItsOwn),
    ] {
        let (policy, strays_alive) = ((Strays::Keep, GENTLE), false);
        let exit = Input::LeaderExited { outcome: outcome.clone(), out_of_memory: true, strays_alive, policy };
        assert_eq!(live(vec![Input::LeaderStarted, before, exit]).phase, draining(outcome, cause));
    }
    let unseen = live(vec![Input::LeaderStarted, leader_exited(killed(), false)]);
    assert_eq!(unseen.phase, draining(killed(), Cause::OnItsOwn));
}

#[test]
fn a_stop_with_kill_has_no_grace() {
    let manner = StopManner { signal: Signal::KILL, grace: GENTLE.grace };
    let (phase, effects) = step(running(unasked(), false), Input::Stop { cause: Cause::TimeLimit, manner });
    assert_eq!((phase, effects), (running(killing(Cause::TimeLimit), false), vec![KILL, AGAIN]));
}

/// A history and what came of it.
struct Life {
    phase: Phase,
    /// Before each input: the phase. After it: the effects.
    steps: Vec<(Phase, Input, Vec<Effect>)>,
}

impl Life {
    fn records(&self) -> Vec<Event> {
        let effects = self.steps.iter().flat_map(|(_, _, effects)| effects);
        let records = effects.filter_map(|effect| match effect {
            Effect::Record(kind) => Some(*kind),
            _ => None,
        });
        records.collect()
    }

    /// Every phase, the last included.
    fn phases(&self) -> impl Iterator<Item = &Phase> {
        self.steps.iter().map(|(phase, _, _)| phase).chain([&self.phase])
    }
}

fn live(inputs: Vec<Input>) -> Life {
    let mut life = Life { phase: Phase::Starting, steps: vec![] };
    for input in inputs {
        let before = life.phase;
        let (after, effects) = step(before.clone(), input.clone());
        life.phase = after;
        life.steps.push((before, input, effects));
    }
    life
}

fn leader_exited(outcome: Outcome, strays_alive: bool) -> Input {
    Input::LeaderExited { outcome, out_of_memory: false, strays_alive, policy: (Strays::Keep, GENTLE) }
}

fn end_of(phase: &Phase) -> Option<&End> {
    match phase {
        Phase::Lingering { end, .. } | Phase::Draining { end } | Phase::Finished { end, .. } => Some(end),
        _ => None,
    }
}

fn stop_of(phase: &Phase) -> Option<&Stop> {
    match phase {
        Phase::Running { stop, .. } | Phase::Lingering { stop, .. } => Some(stop),
        _ => None,
    }
}

/// Whether the outcome came in with this input.
fn brings(input: &Input, end: &Outcome) -> bool {
    match input {
        Input::LeaderExited { outcome, .. } => outcome == end,
        Input::StartFailed { step, error } => *end == Outcome::FailedToStart { step: *step, error: error.clone() },
        _ => false,
    }
}

fn is_keeper_death(input: &Input, seen: &str) -> bool {
    matches!(input, Input::KeeperDied { evidence } if evidence == seen)
}

fn is_killing(phase: &Phase) -> bool {
    matches!(stop_of(phase), Some(Stop::Killing { .. }))
}

fn is_over(phase: &Phase) -> bool {
    matches!(phase, Phase::Finished { .. } | Phase::Lost { .. })
}

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
        2 => Just(Input::LeaderStarted),
        1 => "[a-z]{0,9}".prop_map(|error| Input::StartFailed { step: StartStep::Exec, error }),
        3 => (outcome(), any::<bool>(), any::<bool>(), policy).prop_map(|(outcome, out_of_memory, strays_alive, policy)| {
            Input::LeaderExited { outcome, out_of_memory, strays_alive, policy }
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
            inputs.insert(0, Input::LeaderStarted);
        }
        inputs
    })
}

/// The history of a process that runs and is not lost, so that stops have time to work.
fn history_of_a_run() -> impl Strategy<Value = Vec<Input>> {
    history().prop_map(|mut inputs| {
        inputs.insert(0, Input::LeaderStarted);
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
                let (after, effects) = step(before.clone(), Input::GraceElapsed);
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
                let (after, effects) = step(life.phase, Input::GraceElapsed);
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
            let acts = effects.iter().any(|effect| matches!(effect, Effect::SignalTree(_) | Effect::KillTree));
            let armed = effects.iter().any(|effect| matches!(effect, Effect::ArmGrace(_)));
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
