//! The lifecycle of a process as one pure, total function: `step(phase, input) -> (phase, effects)`.
//!
//! Invariants, each with a test of its name:
//! - L1 no outcome is invented: every `End` holds the outcome that came in with `LeaderExited` or `StartFailed`.
//! - L2 at most one end is recorded, and never replaced: `Finished` absorbs every input.
//! - L3 the leader's end is recorded before `Finished`, or with it.
//! - L4 a stop is bounded: `Requested` is followed only by the end or by `Killing`.
//!
//! This is the keeper's view. If the keeper dies, the daemon records the process as lost (`loss`).
//!
//! The driver records a milestone by writing it to the store first and sending it to the daemon afterwards. Only
//! [`step`] creates a [`Phase`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::EventKind;
use crate::outcome::{Cause, Outcome, StartStep};
use crate::signal::Signal;
use crate::spec::{StopManner, Strays};

/// How long a process outside of the tree may hold the output open after the tree is empty.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long after a KILL the tree is checked and killed again.
pub const KILL_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// Requested; no leader yet.
    Starting,
    /// The leader runs.
    Running { stop: Stop, closed: bool },
    /// The leader ended; strays are running.
    Lingering { end: End, stop: Stop, closed: bool },
    /// The tree is empty; a process outside of it still holds the output open.
    Draining { end: End },
    /// Over.
    Finished { end: End, closed: bool },
}

/// How a leader ended, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub outcome: Outcome,
    pub cause: Cause,
}

/// The state of a stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stop", rename_all = "snake_case")]
pub enum Stop {
    /// No stop was requested; `last_signal` is the last signal a client sent, with the client's name.
    NotRequested { last_signal: Option<(Signal, String)> },
    /// The signal was sent; the grace period is running.
    Requested { cause: Cause },
    /// KILL was sent and is repeated until the tree is empty.
    Killing { cause: Cause },
}

/// An event of the process, or a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    LeaderStarted {
        pid: u32,
        start_time: u64,
    },
    StartFailed {
        step: StartStep,
        error: String,
    },
    /// `out_of_memory`: the OOM killer killed a member of the tree since the last check. `output_closed`: all writers
    /// have closed the output. Without strays this is part of the end; with strays, [`Input::OutputClosed`] follows.
    LeaderExited {
        outcome: Outcome,
        out_of_memory: bool,
        output_closed: bool,
        strays_alive: bool,
        policy: (Strays, StopManner),
    },
    TreeEmptied,
    OutputClosed,
    SignalSent {
        signal: Signal,
        by: String,
    },
    Stop {
        cause: Cause,
        manner: StopManner,
    },
    GraceElapsed,
    DrainElapsed,
}

/// What the driver must do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write it to the record, then send it to the daemon.
    Record(Milestone),
    /// Send this signal, then CONT, to the whole tree.
    SignalTree(Signal),
    /// Send KILL to the whole tree.
    KillTree,
    /// Give `GraceElapsed` as input after this time; replaces an earlier timer.
    ArmGrace(Duration),
    /// Give `DrainElapsed` as input after this time.
    ArmDrain(Duration),
}

/// A step of the lifecycle that is recorded. The driver adds times and, at the end, resource use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Milestone {
    Started { pid: u32, start_time: u64 },
    Exited(End),
    Closed,
    Finished { end: End, closed: bool },
}

impl Milestone {
    /// The event that reports it.
    pub fn event(&self) -> EventKind {
        match self {
            Milestone::Started { .. } => EventKind::Started,
            Milestone::Exited(_) => EventKind::Exited,
            Milestone::Closed => EventKind::Closed,
            Milestone::Finished { .. } => EventKind::Finished,
        }
    }
}

/// The whole lifecycle. Total: every phase handles every input.
pub fn step(phase: Phase, input: Input) -> (Phase, Vec<Effect>) {
    use Effect::Record;
    match (phase, input) {
        (phase @ Phase::Finished { .. }, _) => (phase, vec![]),

        (Phase::Starting, Input::LeaderStarted { pid, start_time }) => {
            let stop = Stop::NotRequested { last_signal: None };
            (Phase::Running { stop, closed: false }, vec![Record(Milestone::Started { pid, start_time })])
        }
        (Phase::Starting, Input::StartFailed { step, error }) => {
            finish(End { outcome: Outcome::FailedToStart { step, error }, cause: Cause::OnItsOwn }, true)
        }
        (Phase::Starting, _) => (Phase::Starting, vec![]),

        (
            Phase::Running { stop, closed },
            Input::LeaderExited { outcome, out_of_memory, output_closed, strays_alive, policy },
        ) => {
            let cause = cause_of(&stop, &outcome, out_of_memory);
            let closed = closed || output_closed && !strays_alive;
            leader_exited(stop, closed, End { outcome, cause }, strays_alive, policy)
        }
        (Phase::Lingering { end, closed, .. }, Input::TreeEmptied) => tree_emptied(end, closed),

        (Phase::Running { stop, closed: false }, Input::OutputClosed) => {
            (Phase::Running { stop, closed: true }, vec![Record(Milestone::Closed)])
        }
        (Phase::Lingering { end, stop, closed: false }, Input::OutputClosed) => {
            (Phase::Lingering { end, stop, closed: true }, vec![Record(Milestone::Closed)])
        }
        (Phase::Draining { end }, Input::OutputClosed) => finish(end, true),
        (Phase::Draining { end }, Input::DrainElapsed) => finish(end, false),

        (Phase::Running { stop, closed }, input) => {
            let (stop, effects) = apply_to_stop(stop, input);
            (Phase::Running { stop, closed }, effects)
        }
        (Phase::Lingering { end, stop, closed }, input) => {
            let (stop, effects) = apply_to_stop(stop, input);
            (Phase::Lingering { end, stop, closed }, effects)
        }
        (Phase::Draining { end }, _) => (Phase::Draining { end }, vec![]),
    }
}

fn leader_exited(
    stop: Stop,
    closed: bool,
    end: End,
    strays_alive: bool,
    (strays, manner): (Strays, StopManner),
) -> (Phase, Vec<Effect>) {
    if !strays_alive && closed {
        return finish(end, closed);
    }
    let mut effects = vec![Effect::Record(Milestone::Exited(end.clone()))];
    if !strays_alive {
        let (phase, more) = tree_emptied(end, closed);
        effects.extend(more);
        return (phase, effects);
    }
    let stop = match (stop, strays) {
        (Stop::NotRequested { .. }, Strays::Stop) => {
            let (stop, more) = request(Cause::OnItsOwn, manner);
            effects.extend(more);
            stop
        }
        (stop, _) => stop,
    };
    (Phase::Lingering { end, stop, closed }, effects)
}

fn tree_emptied(end: End, closed: bool) -> (Phase, Vec<Effect>) {
    if closed { finish(end, closed) } else { (Phase::Draining { end }, vec![Effect::ArmDrain(DRAIN_TIMEOUT)]) }
}

fn finish(end: End, closed: bool) -> (Phase, Vec<Effect>) {
    let milestone = Milestone::Finished { end: end.clone(), closed };
    (Phase::Finished { end, closed }, vec![Effect::Record(milestone)])
}

/// Why the leader ended: a stop, the signal that a client sent last, the OOM killer, or by itself.
fn cause_of(stop: &Stop, outcome: &Outcome, out_of_memory: bool) -> Cause {
    match (stop, outcome) {
        (Stop::Requested { cause } | Stop::Killing { cause }, _) => cause.clone(),
        (Stop::NotRequested { last_signal: Some((sent, by)) }, Outcome::Signaled { signal, .. }) if sent == signal => {
            Cause::StopRequested { by: by.clone() }
        }
        (Stop::NotRequested { .. }, Outcome::Signaled { signal: Signal::KILL, .. }) if out_of_memory => {
            Cause::OutOfMemory
        }
        (Stop::NotRequested { .. }, _) => Cause::OnItsOwn,
    }
}

/// Applies an input to a stop while the tree is running.
fn apply_to_stop(stop: Stop, input: Input) -> (Stop, Vec<Effect>) {
    match (stop, input) {
        (Stop::NotRequested { .. }, Input::SignalSent { signal, by }) => {
            (Stop::NotRequested { last_signal: Some((signal, by)) }, vec![])
        }
        (Stop::NotRequested { .. }, Input::Stop { cause, manner }) => request(cause, manner),
        (Stop::Requested { cause }, Input::Stop { manner, .. }) if is_immediate(manner) => kill(cause),
        (Stop::Requested { cause } | Stop::Killing { cause }, Input::GraceElapsed) => kill(cause),
        (stop, _) => (stop, vec![]),
    }
}

fn is_immediate(manner: StopManner) -> bool {
    manner.grace.is_zero() || manner.signal == Signal::KILL
}

fn request(cause: Cause, manner: StopManner) -> (Stop, Vec<Effect>) {
    if is_immediate(manner) {
        return kill(cause);
    }
    (Stop::Requested { cause }, vec![Effect::SignalTree(manner.signal), Effect::ArmGrace(manner.grace)])
}

fn kill(cause: Cause) -> (Stop, Vec<Effect>) {
    (Stop::Killing { cause }, vec![Effect::KillTree, Effect::ArmGrace(KILL_INTERVAL)])
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
