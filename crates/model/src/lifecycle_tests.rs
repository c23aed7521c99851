//! The lifecycle cell by cell. No process is started.

#[path = "lifecycle_properties.rs"]
mod properties;

use super::*;
use crate::lifecycle_table::{
    AT_ONCE, GENTLE, INPUTS, PHASES, asked_by, exited, failed_to_start, inputs, killed, phases, signaled,
};
use EventKind as Event;

/// What a cell expects: nothing, or a next phase with effects.
type Cell = Option<(Phase, Vec<Shown>)>;

/// An effect, of a record only the kind: [`carries_its_facts`] checks the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    Record(Event),
    Act(Effect),
}

fn shown(effects: &[Effect]) -> Vec<Shown> {
    let show = |effect: &Effect| match effect {
        Effect::Record(milestone) => Shown::Record(milestone.event()),
        act => Shown::Act(act.clone()),
    };
    effects.iter().map(show).collect()
}

/// Whether what is to be recorded is what the phase after it says.
fn carries_its_facts(effect: &Effect, input: &Input, after: &Phase) -> bool {
    match effect {
        Effect::Record(Milestone::Started { pid, start_time }) => {
            *input == Input::LeaderStarted { pid: *pid, start_time: *start_time }
        }
        Effect::Record(Milestone::Exited(end)) => end_of(after) == Some(end),
        Effect::Record(Milestone::Finished { end, closed }) => {
            *after == Phase::Finished { end: end.clone(), closed: *closed }
        }
        Effect::Record(Milestone::Lost { evidence }) => is_keeper_death(input, evidence),
        _ => true,
    }
}

/// [`step`], with its effects as [`shown`].
fn stepped(phase: Phase, input: Input) -> (Phase, Vec<Shown>) {
    let (after, effects) = step(phase, input.clone());
    for effect in &effects {
        assert!(carries_its_facts(effect, &input, &after), "{effect:?} does not say what {after:?} says");
    }
    (after, shown(&effects))
}

fn to<const N: usize>(phase: Phase, effects: [Shown; N]) -> Cell {
    Some((phase, effects.to_vec()))
}

const fn record(kind: Event) -> Shown {
    Shown::Record(kind)
}

const SAME: Cell = None;
const EXITED: Shown = record(Event::Exited);
const CLOSED: Shown = record(Event::Closed);
const FINISHED: Shown = record(Event::Finished);
const DRAIN_1S: Shown = Shown::Act(Effect::ArmDrain(DRAIN));
const TERM: Shown = Shown::Act(Effect::SignalTree(Signal::TERM));
const GRACE: Shown = Shown::Act(Effect::ArmGrace(GENTLE.grace));
const KILL: Shown = Shown::Act(Effect::KillTree);
const AGAIN: Shown = Shown::Act(Effect::ArmGrace(KILL_AGAIN));
const STARTED: Input = Input::LeaderStarted { pid: 7, start_time: 1 };

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
/// started, start failed; leader gone: alone, alone with the output, alone by TERM, killed for memory, strays kept, stopped, stopped at once;
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
            to(finished(exited(), own(), true), [FINISHED]),
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
            to(finished(exited(), own(), true), [FINISHED]),
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
            to(finished(exited(), alice(), true), [FINISHED]),
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
            assert_eq!(stepped(phase.clone(), input), expected, "{phase_name} × {input_name}");
        }
    }
}

#[test]
fn a_signal_that_did_not_end_it_is_not_the_cause() {
    let hup = Input::SignalSent { signal: Signal::HUP, by: "bob".to_owned() };
    let life = live(vec![STARTED, hup, leader_exited(signaled(), false)]);
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
        let (policy, output_closed, strays_alive) = ((Strays::Keep, GENTLE), false, false);
        let outcome_seen = outcome.clone();
        let exit =
            Input::LeaderExited { outcome: outcome_seen, out_of_memory: true, output_closed, strays_alive, policy };
        assert_eq!(live(vec![STARTED, before, exit]).phase, draining(outcome, cause));
    }
    let unseen = live(vec![STARTED, leader_exited(killed(), false)]);
    assert_eq!(unseen.phase, draining(killed(), Cause::OnItsOwn));
}

#[test]
fn a_stop_with_kill_has_no_grace() {
    let manner = StopManner { signal: Signal::KILL, grace: GENTLE.grace };
    let (phase, effects) = stepped(running(unasked(), false), Input::Stop { cause: Cause::TimeLimit, manner });
    assert_eq!((phase, effects), (running(killing(Cause::TimeLimit), false), vec![KILL, AGAIN]));
}

/// A history and what came of it.
struct Life {
    phase: Phase,
    /// Before each input: the phase. After it: the effects.
    steps: Vec<(Phase, Input, Vec<Shown>)>,
}

impl Life {
    fn records(&self) -> Vec<Event> {
        let effects = self.steps.iter().flat_map(|(_, _, effects)| effects);
        let records = effects.filter_map(|effect| match effect {
            Shown::Record(kind) => Some(*kind),
            Shown::Act(_) => None,
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
        let (after, effects) = stepped(before.clone(), input.clone());
        life.phase = after;
        life.steps.push((before, input, effects));
    }
    life
}

fn leader_exited(outcome: Outcome, strays_alive: bool) -> Input {
    let (out_of_memory, output_closed, policy) = (false, false, (Strays::Keep, GENTLE));
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
