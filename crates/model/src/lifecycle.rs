//! The life of a process as one pure, total function: `step(phase, input) -> (phase, effects)`.
//!
//! Invariants that live here, each with a test of its name:
//! - L1 no outcome is invented: every `End` holds the outcome that came in with `LeaderExited`,
//!   `StartFailed` or `KeeperDied`.
//! - L2 at most one end is recorded, and never replaced: `Finished` and `Lost` absorb every input.
//! - L3 the leader's end is recorded before `Finished`, or with it.
//! - L4 a stop is bounded: from `Asking` the only ways are the end and `Killing`.
//!
//! A milestone is recorded by one function of the driver: written to the store first, sent to the daemon after. Only
//! [`step`] makes a [`Phase`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::EventKind;
use crate::outcome::{Cause, Outcome, StartStep};
use crate::signal::Signal;
use crate::spec::{StopManner, Strays};

/// How long somebody outside the tree may hold the output open after the tree is empty.
pub const DRAIN: Duration = Duration::from_secs(1);
/// How long after a KILL the tree is looked at, and killed, again.
pub const KILL_AGAIN: Duration = Duration::from_millis(500);

/// Where a process is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// Asked for; no leader yet.
    Starting,
    /// The leader runs.
    Running { stop: Stop, closed: bool },
    /// The leader ended; strays live.
    Lingering { end: End, stop: Stop, closed: bool },
    /// The tree is empty; somebody outside it still holds the output.
    Draining { end: End },
    /// Over: recorded for ever.
    Finished { end: End, closed: bool },
    /// The keeper died; nobody saw the end.
    Lost { evidence: String },
}

/// How a leader ended, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub outcome: Outcome,
    pub cause: Cause,
}

/// How far a stop has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stop", rename_all = "snake_case")]
pub enum Stop {
    /// Nobody asked; `sent` is the last signal that a client had sent.
    Unasked { sent: Option<(Signal, String)> },
    /// The signal was sent, the grace runs.
    Asking { cause: Cause },
    /// KILL was sent and is repeated until the tree is empty.
    Killing { cause: Cause },
}

/// What happened to the process, or what is asked of it.
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
    /// `out_of_memory`: since it was last asked, the kernel killed somebody of the tree for want of memory.
    /// `output_closed`: all output ends are closed by now. Without strays that is part of the end; with strays,
    /// [`Input::OutputClosed`] follows.
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
    KeeperDied {
        evidence: String,
    },
}

/// What the driver must do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write it to the record, then send it to the daemon.
    Record(Milestone),
    /// Send this signal, then CONT, to the whole tree.
    SignalTree(Signal),
    /// Send KILL to the whole tree, whatever it does.
    KillTree,
    /// Feed `GraceElapsed` after this time, unless armed anew.
    ArmGrace(Duration),
    /// Feed `DrainElapsed` after this time.
    ArmDrain(Duration),
}

/// What is recorded of a life. The driver adds the times and, to the end, what was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Milestone {
    Started { pid: u32, start_time: u64 },
    Exited(End),
    Closed,
    Finished { end: End, closed: bool },
    Lost { evidence: String },
}

impl Milestone {
    /// The event that reports it.
    pub fn event(&self) -> EventKind {
        match self {
            Milestone::Started { .. } => EventKind::Started,
            Milestone::Exited(_) => EventKind::Exited,
            Milestone::Closed => EventKind::Closed,
            Milestone::Finished { .. } => EventKind::Finished,
            Milestone::Lost { .. } => EventKind::Lost,
        }
    }
}

/// The whole life. Total: every phase answers every input.
pub fn step(phase: Phase, input: Input) -> (Phase, Vec<Effect>) {
    use Effect::Record;
    match (phase, input) {
        (phase @ (Phase::Finished { .. } | Phase::Lost { .. }), _) => (phase, vec![]),
        (_, Input::KeeperDied { evidence }) => {
            (Phase::Lost { evidence: evidence.clone() }, vec![Record(Milestone::Lost { evidence })])
        }

        (Phase::Starting, Input::LeaderStarted { pid, start_time }) => {
            let stop = Stop::Unasked { sent: None };
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
            let (stop, effects) = stopping(stop, input);
            (Phase::Running { stop, closed }, effects)
        }
        (Phase::Lingering { end, stop, closed }, input) => {
            let (stop, effects) = stopping(stop, input);
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
        (Stop::Unasked { .. }, Strays::Stop) => {
            let (stop, more) = ask(Cause::OnItsOwn, manner);
            effects.extend(more);
            stop
        }
        (stop, _) => stop,
    };
    (Phase::Lingering { end, stop, closed }, effects)
}

fn tree_emptied(end: End, closed: bool) -> (Phase, Vec<Effect>) {
    if closed { finish(end, closed) } else { (Phase::Draining { end }, vec![Effect::ArmDrain(DRAIN)]) }
}

fn finish(end: End, closed: bool) -> (Phase, Vec<Effect>) {
    let milestone = Milestone::Finished { end: end.clone(), closed };
    (Phase::Finished { end, closed }, vec![Effect::Record(milestone)])
}

/// Why the leader ended: a stop under way, or the very signal a client had sent, or the KILL by which the kernel
/// makes room, or nothing of ours.
fn cause_of(stop: &Stop, outcome: &Outcome, out_of_memory: bool) -> Cause {
    match (stop, outcome) {
        (Stop::Asking { cause } | Stop::Killing { cause }, _) => cause.clone(),
        (Stop::Unasked { sent: Some((sent, by)) }, Outcome::Signaled { signal, .. }) if sent == signal => {
            Cause::StopRequested { by: by.clone() }
        }
        (Stop::Unasked { .. }, Outcome::Signaled { signal: Signal::KILL, .. }) if out_of_memory => Cause::OutOfMemory,
        (Stop::Unasked { .. }, _) => Cause::OnItsOwn,
    }
}

/// What an input does to a stop while the tree lives.
fn stopping(stop: Stop, input: Input) -> (Stop, Vec<Effect>) {
    match (stop, input) {
        (Stop::Unasked { .. }, Input::SignalSent { signal, by }) => {
            (Stop::Unasked { sent: Some((signal, by)) }, vec![])
        }
        (Stop::Unasked { .. }, Input::Stop { cause, manner }) => ask(cause, manner),
        (Stop::Asking { cause }, Input::Stop { manner, .. }) if is_immediate(manner) => kill(cause),
        (Stop::Asking { cause } | Stop::Killing { cause }, Input::GraceElapsed) => kill(cause),
        (stop, _) => (stop, vec![]),
    }
}

fn is_immediate(manner: StopManner) -> bool {
    manner.grace.is_zero() || manner.signal == Signal::KILL
}

fn ask(cause: Cause, manner: StopManner) -> (Stop, Vec<Effect>) {
    if is_immediate(manner) {
        return kill(cause);
    }
    (Stop::Asking { cause }, vec![Effect::SignalTree(manner.signal), Effect::ArmGrace(manner.grace)])
}

fn kill(cause: Cause) -> (Stop, Vec<Effect>) {
    (Stop::Killing { cause }, vec![Effect::KillTree, Effect::ArmGrace(KILL_AGAIN)])
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
