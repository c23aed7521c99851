//! The lifecycle table, cell by cell.

#[path = "lifecycle_properties.rs"]
mod properties;

use super::*;
use crate::lifecycle_table::{
    IMMEDIATE, INPUTS, PHASES, WITH_GRACE, exited, failed_to_start, inputs, killed, phases, signaled, stop_requested_by,
};
use EventKind as Event;

/// The expected result of one cell; `None` means unchanged, without effects.
type Cell = Option<(Phase, Vec<EffectKind>)>;

/// An effect; of a record only its kind. [`matches_phase`] checks its content.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EffectKind {
    Record(Event),
    Act(Effect),
}

fn effect_kinds(effects: &[Effect]) -> Vec<EffectKind> {
    let show = |effect: &Effect| match effect {
        Effect::Record(milestone) => EffectKind::Record(milestone.event()),
        act => EffectKind::Act(act.clone()),
    };
    effects.iter().map(show).collect()
}

/// Whether a recorded milestone agrees with the phase that follows.
fn matches_phase(effect: &Effect, input: &Input, after: &Phase) -> bool {
    match effect {
        Effect::Record(Milestone::Started { pid, start_time }) => {
            *input == Input::LeaderStarted { pid: *pid, start_time: *start_time }
        }
        Effect::Record(Milestone::Exited(end)) => end_of(after) == Some(end),
        Effect::Record(Milestone::Finished { end, closed }) => {
            *after == Phase::Finished { end: end.clone(), closed: *closed }
        }
        _ => true,
    }
}

/// [`step`], with its effects as [`EffectKind`]s.
fn step_kinds(phase: Phase, input: Input) -> (Phase, Vec<EffectKind>) {
    let (after, effects) = step(phase, input.clone());
    for effect in &effects {
        assert!(matches_phase(effect, &input, &after), "{effect:?} does not say what {after:?} says");
    }
    (after, effect_kinds(&effects))
}

fn next<const N: usize>(phase: Phase, effects: [EffectKind; N]) -> Cell {
    Some((phase, effects.to_vec()))
}

const fn record(kind: Event) -> EffectKind {
    EffectKind::Record(kind)
}

const UNCHANGED: Cell = None;
const EXITED: EffectKind = record(Event::Exited);
const CLOSED: EffectKind = record(Event::Closed);
const FINISHED: EffectKind = record(Event::Finished);
const ARM_DRAIN: EffectKind = EffectKind::Act(Effect::ArmDrain(DRAIN_TIMEOUT));
const TERM: EffectKind = EffectKind::Act(Effect::SignalTree(Signal::TERM));
const GRACE: EffectKind = EffectKind::Act(Effect::ArmGrace(WITH_GRACE.grace));
const KILL: EffectKind = EffectKind::Act(Effect::KillTree);
const KILL_TIMER: EffectKind = EffectKind::Act(Effect::ArmGrace(KILL_INTERVAL));
const STARTED: Input = Input::LeaderStarted { pid: 7, start_time: 1 };

fn not_requested() -> Stop {
    Stop::NotRequested { last_signal: None }
}

fn sent_by(who: &str) -> Stop {
    Stop::NotRequested { last_signal: Some((Signal::TERM, who.to_owned())) }
}

fn requested(cause: Cause) -> Stop {
    Stop::Requested { cause }
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

/// One row for each phase, one cell for each input, both in the order of `lifecycle_table`:
/// started, start failed; leader gone: alone, alone with the output, alone by TERM, killed for memory, strays kept, stopped, stopped at once;
/// emptied, closed; TERM sent, stop, stop at once; grace, drain.
fn expectations() -> [[Cell; INPUTS]; PHASES] {
    let own = || Cause::OnItsOwn;
    let (alice, bob) = (|| stop_requested_by("alice"), || stop_requested_by("bob"));
    [
        // starting
        {
            let mut cells = [const { UNCHANGED }; INPUTS];
            cells[0] = next(running(not_requested(), false), [record(Event::Started)]);
            cells[1] = next(finished(failed_to_start(), own(), true), [FINISHED]);
            cells
        },
        // running
        [
            UNCHANGED,
            UNCHANGED,
            next(draining(exited(), own()), [EXITED, ARM_DRAIN]),
            next(finished(exited(), own(), true), [FINISHED]),
            next(draining(signaled(), own()), [EXITED, ARM_DRAIN]),
            next(draining(killed(), Cause::OutOfMemory), [EXITED, ARM_DRAIN]),
            next(lingering(own(), not_requested(), false), [EXITED]),
            next(lingering(own(), requested(own()), false), [EXITED, TERM, GRACE]),
            next(lingering(own(), killing(own()), false), [EXITED, KILL, KILL_TIMER]),
            UNCHANGED,
            next(running(not_requested(), true), [CLOSED]),
            next(running(sent_by("bob"), false), []),
            next(running(requested(bob()), false), [TERM, GRACE]),
            next(running(killing(bob()), false), [KILL, KILL_TIMER]),
            UNCHANGED,
            UNCHANGED,
        ],
        // running, closed
        [
            UNCHANGED,
            UNCHANGED,
            next(finished(exited(), own(), true), [FINISHED]),
            next(finished(exited(), own(), true), [FINISHED]),
            next(finished(signaled(), own(), true), [FINISHED]),
            next(finished(killed(), Cause::OutOfMemory, true), [FINISHED]),
            next(lingering(own(), not_requested(), true), [EXITED]),
            next(lingering(own(), requested(own()), true), [EXITED, TERM, GRACE]),
            next(lingering(own(), killing(own()), true), [EXITED, KILL, KILL_TIMER]),
            UNCHANGED,
            UNCHANGED,
            next(running(sent_by("bob"), true), []),
            next(running(requested(bob()), true), [TERM, GRACE]),
            next(running(killing(bob()), true), [KILL, KILL_TIMER]),
            UNCHANGED,
            UNCHANGED,
        ],
        // running, signal sent
        [
            UNCHANGED,
            UNCHANGED,
            next(draining(exited(), own()), [EXITED, ARM_DRAIN]),
            next(finished(exited(), own(), true), [FINISHED]),
            next(draining(signaled(), alice()), [EXITED, ARM_DRAIN]),
            next(draining(killed(), Cause::OutOfMemory), [EXITED, ARM_DRAIN]),
            next(lingering(own(), sent_by("alice"), false), [EXITED]),
            next(lingering(own(), requested(own()), false), [EXITED, TERM, GRACE]),
            next(lingering(own(), killing(own()), false), [EXITED, KILL, KILL_TIMER]),
            UNCHANGED,
            next(running(sent_by("alice"), true), [CLOSED]),
            next(running(sent_by("bob"), false), []),
            next(running(requested(bob()), false), [TERM, GRACE]),
            next(running(killing(bob()), false), [KILL, KILL_TIMER]),
            UNCHANGED,
            UNCHANGED,
        ],
        // running, stop requested
        [
            UNCHANGED,
            UNCHANGED,
            next(draining(exited(), alice()), [EXITED, ARM_DRAIN]),
            next(finished(exited(), alice(), true), [FINISHED]),
            next(draining(signaled(), alice()), [EXITED, ARM_DRAIN]),
            next(draining(killed(), alice()), [EXITED, ARM_DRAIN]),
            next(lingering(alice(), requested(alice()), false), [EXITED]),
            next(lingering(alice(), requested(alice()), false), [EXITED]),
            next(lingering(alice(), requested(alice()), false), [EXITED]),
            UNCHANGED,
            next(running(requested(alice()), true), [CLOSED]),
            UNCHANGED,
            UNCHANGED,
            next(running(killing(alice()), false), [KILL, KILL_TIMER]),
            next(running(killing(alice()), false), [KILL, KILL_TIMER]),
            UNCHANGED,
        ],
        // running, killing
        [
            UNCHANGED,
            UNCHANGED,
            next(finished(exited(), alice(), true), [FINISHED]),
            next(finished(exited(), alice(), true), [FINISHED]),
            next(finished(signaled(), alice(), true), [FINISHED]),
            next(finished(killed(), alice(), true), [FINISHED]),
            next(lingering(alice(), killing(alice()), true), [EXITED]),
            next(lingering(alice(), killing(alice()), true), [EXITED]),
            next(lingering(alice(), killing(alice()), true), [EXITED]),
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            next(running(killing(alice()), true), [KILL, KILL_TIMER]),
            UNCHANGED,
        ],
        // lingering
        [
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            next(draining(exited(), own()), [ARM_DRAIN]),
            next(lingering(own(), not_requested(), true), [CLOSED]),
            next(lingering(own(), sent_by("bob"), false), []),
            next(lingering(own(), requested(bob()), false), [TERM, GRACE]),
            next(lingering(own(), killing(bob()), false), [KILL, KILL_TIMER]),
            UNCHANGED,
            UNCHANGED,
        ],
        // lingering, closed
        [
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            next(finished(exited(), own(), true), [FINISHED]),
            UNCHANGED,
            next(lingering(own(), sent_by("bob"), true), []),
            next(lingering(own(), requested(bob()), true), [TERM, GRACE]),
            next(lingering(own(), killing(bob()), true), [KILL, KILL_TIMER]),
            UNCHANGED,
            UNCHANGED,
        ],
        // lingering, stop requested
        [
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            next(draining(exited(), own()), [ARM_DRAIN]),
            next(lingering(own(), requested(alice()), true), [CLOSED]),
            UNCHANGED,
            UNCHANGED,
            next(lingering(own(), killing(alice()), false), [KILL, KILL_TIMER]),
            next(lingering(own(), killing(alice()), false), [KILL, KILL_TIMER]),
            UNCHANGED,
        ],
        // lingering, killing
        [
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            next(finished(exited(), own(), true), [FINISHED]),
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            next(lingering(own(), killing(alice()), true), [KILL, KILL_TIMER]),
            UNCHANGED,
        ],
        // draining
        [
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            next(finished(exited(), own(), true), [FINISHED]),
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            UNCHANGED,
            next(finished(exited(), own(), false), [FINISHED]),
        ],
        // finished
        [const { UNCHANGED }; INPUTS],
    ]
}

#[test]
fn every_cell_is_as_the_table_says() {
    for ((phase_name, phase), row) in phases().into_iter().zip(expectations()) {
        for ((input_name, input), cell) in inputs().into_iter().zip(row) {
            let expected = cell.unwrap_or_else(|| (phase.clone(), vec![]));
            assert_eq!(step_kinds(phase.clone(), input), expected, "{phase_name} × {input_name}");
        }
    }
}

#[test]
fn a_signal_that_did_not_end_it_is_not_the_cause() {
    let hup = Input::SignalSent { signal: Signal::HUP, by: "bob".to_owned() };
    let run = run_inputs(vec![STARTED, hup, leader_exited(signaled(), false)]);
    assert_eq!(run.phase, draining(signaled(), Cause::OnItsOwn));
}

/// The same KILL with different evidence.
#[test]
fn only_a_kill_that_no_client_requested_counts_as_out_of_memory() {
    let sent = |signal| Input::SignalSent { signal, by: "bob".to_owned() };
    for (before, outcome, cause) in [
        (Input::TreeEmptied, killed(), Cause::OutOfMemory),
        (sent(Signal::HUP), killed(), Cause::OutOfMemory),
        (sent(Signal::KILL), killed(), stop_requested_by("bob")),
        (Input::TreeEmptied, exited(), Cause::OnItsOwn),
        (Input::TreeEmptied, signaled(), Cause::OnItsOwn),
    ] {
        let (policy, output_closed, strays_alive) = ((Strays::Keep, WITH_GRACE), false, false);
        let outcome_seen = outcome.clone();
        let exit =
            Input::LeaderExited { outcome: outcome_seen, out_of_memory: true, output_closed, strays_alive, policy };
        assert_eq!(run_inputs(vec![STARTED, before, exit]).phase, draining(outcome, cause));
    }
    let unseen = run_inputs(vec![STARTED, leader_exited(killed(), false)]);
    assert_eq!(unseen.phase, draining(killed(), Cause::OnItsOwn));
}

#[test]
fn a_stop_with_kill_has_no_grace() {
    let manner = StopManner { signal: Signal::KILL, grace: WITH_GRACE.grace };
    let (phase, effects) = step_kinds(running(not_requested(), false), Input::Stop { cause: Cause::TimeLimit, manner });
    assert_eq!((phase, effects), (running(killing(Cause::TimeLimit), false), vec![KILL, KILL_TIMER]));
}

/// A history and its results.
struct Run {
    phase: Phase,
    /// The phase before each input, and the effects after it.
    steps: Vec<(Phase, Input, Vec<EffectKind>)>,
}

impl Run {
    fn records(&self) -> Vec<Event> {
        let effects = self.steps.iter().flat_map(|(_, _, effects)| effects);
        let records = effects.filter_map(|effect| match effect {
            EffectKind::Record(kind) => Some(*kind),
            EffectKind::Act(_) => None,
        });
        records.collect()
    }

    /// Every phase, including the last.
    fn phases(&self) -> impl Iterator<Item = &Phase> {
        self.steps.iter().map(|(phase, _, _)| phase).chain([&self.phase])
    }
}

fn run_inputs(inputs: Vec<Input>) -> Run {
    let mut run = Run { phase: Phase::Starting, steps: vec![] };
    for input in inputs {
        let before = run.phase;
        let (after, effects) = step_kinds(before.clone(), input.clone());
        run.phase = after;
        run.steps.push((before, input, effects));
    }
    run
}

fn leader_exited(outcome: Outcome, strays_alive: bool) -> Input {
    let (out_of_memory, output_closed, policy) = (false, false, (Strays::Keep, WITH_GRACE));
    Input::LeaderExited { outcome, out_of_memory, output_closed, strays_alive, policy }
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

/// Whether this input carried the outcome.
fn brings_outcome(input: &Input, end: &Outcome) -> bool {
    match input {
        Input::LeaderExited { outcome, .. } => outcome == end,
        Input::StartFailed { step, error } => *end == Outcome::FailedToStart { step: *step, error: error.clone() },
        _ => false,
    }
}

fn is_killing(phase: &Phase) -> bool {
    matches!(stop_of(phase), Some(Stop::Killing { .. }))
}

fn is_over(phase: &Phase) -> bool {
    matches!(phase, Phase::Finished { .. })
}
