//! Interrupting a turn: the agent's own protocol, then INT, then TERM, then KILL, each with its time.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::input::Span;
use pinfold_api::types::{InterruptAnswer, InterruptRequest, Rung, Tried, TurnStatus};
use pinfold_model::link::ToKeeper;
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::spec::{GRACE_MOST, StopManner};
use pinfold_model::units::parse_duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::leftovers;
use super::seat::{Command, Seat};
use super::service::read_turn;
use crate::core::Core;
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::Entry;
use crate::registry::keeper_link::ANSWER;

/// How long a turn may take to be seen over once its process is gone.
const SEEN: Duration = Duration::from_secs(10);

/// How long each rung has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    protocol: Duration,
    int: Duration,
    term: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { protocol: seconds(5), int: seconds(2), term: seconds(3) }
    }
}

impl Waits {
    pub(crate) fn parse(request: &InterruptRequest) -> Result<Self, Refusal> {
        let or = |span: &Option<Span>, default: Duration| match span {
            Some(span) => parse_duration(&span.text()).map(|wait| wait.min(GRACE_MOST)),
            None => Ok(default),
        };
        let default = Self::default();
        Ok(Self {
            protocol: or(&request.protocol_wait, default.protocol)?,
            int: or(&request.int_wait, default.int)?,
            term: or(&request.term_wait, default.term)?,
        })
    }
}

/// Interrupts the turn that runs, stops what the turn left running, and says which rung worked. The whole is bounded by the
/// sum of its waits, those of [`leftovers`], and the time that KILL takes.
pub(crate) async fn climb(core: &Arc<Core>, seat: &Arc<Seat>, by: String, waits: Waits) -> InterruptAnswer {
    let mut tried = Vec::new();
    *lock(&seat.rung) = Some(Rung::Protocol);
    let (answer, number) = oneshot::channel();
    let sent = seat.commands.send(Command::Interrupt(by.clone(), answer)).await;
    let number = match sent {
        Ok(()) => number.await.ok().flatten(),
        Err(_) => None,
    };
    let Some(number) = number else {
        *lock(&seat.rung) = None;
        return InterruptAnswer::default();
    };
    if !wait(seat, number, waits.protocol, Rung::Protocol, &mut tried).await {
        by_signals(core, seat, number, (by, waits), &mut tried).await;
    }
    let turn = read_turn(seat, number).await.ok();
    *lock(&seat.rung) = None;
    let interrupted = turn.as_ref().filter(|turn| turn.status == TurnStatus::Interrupted);
    let rung = interrupted.and_then(|turn| turn.rung);
    let stopped = match interrupted {
        Some(turn) => leftovers::stop(core, seat, turn).await,
        None => vec![],
    };
    InterruptAnswer { turn, rung, tried, stopped }
}

async fn by_signals(core: &Core, seat: &Seat, number: u64, (by, waits): (String, Waits), tried: &mut Vec<Tried>) {
    let process = seat.view.borrow().agent.process.clone();
    let entry =
        process.and_then(|id| pinfold_model::id::ProcessId::parse(&id).ok()).and_then(|id| core.registry.get(&id));
    let Some(entry) = entry else { return };
    if !waits.int.is_zero() {
        *lock(&seat.rung) = Some(Rung::Int);
        signal(&entry, Signal::INT, by.clone()).await;
        if wait(seat, number, waits.int, Rung::Int, tried).await {
            return;
        }
    }
    *lock(&seat.rung) = Some(Rung::Term);
    let begun = Instant::now();
    let manner = StopManner { signal: Signal::TERM, grace: waits.term };
    if let Err(refusal) = core.stop_entry(&entry, Cause::StopRequested { by }, manner).await {
        tracing::warn!(agent = %seat.id, error = %refusal.0, "an agent's process cannot be stopped");
    }
    over(seat, number, SEEN).await;
    let waited = begun.elapsed();
    tried.push(Tried { rung: Rung::Term, waited_ms: waited.min(waits.term).as_millis() as u64 });
    if waited > waits.term {
        tried.push(Tried { rung: Rung::Kill, waited_ms: (waited - waits.term).as_millis() as u64 });
    }
}

async fn signal(entry: &Entry, signal: Signal, by: String) {
    let Some(link) = entry.link() else { return };
    let id = entry.id.clone();
    let _ = link.ask(ANSWER, |request| ToKeeper::Signal { request, id, signal, by }).await;
}

/// Waits for the end of the turn on this rung.
async fn wait(seat: &Seat, number: u64, within: Duration, rung: Rung, tried: &mut Vec<Tried>) -> bool {
    let begun = Instant::now();
    let done = over(seat, number, within).await;
    tried.push(Tried { rung, waited_ms: begun.elapsed().as_millis() as u64 });
    done
}

async fn over(seat: &Seat, number: u64, within: Duration) -> bool {
    let mut view = seat.view.subscribe();
    let over = view.wait_for(|view| view.over_through >= number);
    matches!(tokio::time::timeout(within, over).await, Ok(Ok(_)))
}
