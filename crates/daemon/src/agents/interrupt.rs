//! Interrupting a turn: through the agent's own protocol, then with INT, then TERM, then KILL, each with a time limit.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::input::Span;
use pinfold_api::types::{InterruptAnswer, InterruptRequest, Rung, Tried, TurnStatus};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::spec::{MAX_GRACE, StopManner};
use pinfold_model::units::parse_duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::handle::{AgentHandle, Command};
use super::host::Host;
use super::leftovers;
use super::requests::read_turn;
use crate::mutex::lock;
use crate::request_error::RequestError;

/// How long the driver may take to record the end of the turn after the process was stopped.
const RECORD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long each step may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
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
    pub(super) fn parse(request: &InterruptRequest) -> Result<Self, RequestError> {
        let or = |span: &Option<Span>, default: Duration| match span {
            Some(span) => parse_duration(&span.text()).map(|wait| wait.min(MAX_GRACE)),
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

/// Interrupts the running turn, stops the commands that it left running, and returns which step worked. Takes at most
/// the sum of `waits`, the waits of [`leftovers`], and the time that KILL takes.
pub(super) async fn interrupt_turn(
    host: &Arc<dyn Host>,
    handle: &AgentHandle,
    by: String,
    waits: Waits,
) -> InterruptAnswer {
    let mut tried = Vec::new();
    *lock(&handle.interrupt_step) = Some(Rung::Protocol);
    let (answer, number) = oneshot::channel();
    let sent = handle.commands.send(Command::Interrupt(by.clone(), answer)).await;
    let number = match sent {
        Ok(()) => number.await.ok().flatten(),
        Err(_) => None,
    };
    let Some(number) = number else {
        *lock(&handle.interrupt_step) = None;
        return InterruptAnswer::default();
    };
    if !wait_step(handle, number, waits.protocol, Rung::Protocol, &mut tried).await {
        by_signals(&**host, handle, number, (by, waits), &mut tried).await;
    }
    let turn = read_turn(handle, number).await.ok();
    *lock(&handle.interrupt_step) = None;
    let interrupted = turn.as_ref().filter(|turn| turn.status == TurnStatus::Interrupted);
    let rung = interrupted.and_then(|turn| turn.rung);
    let stopped = match interrupted {
        Some(turn) => leftovers::stop(host, handle, turn).await,
        None => vec![],
    };
    InterruptAnswer { turn, rung, tried, stopped }
}

async fn by_signals(
    host: &dyn Host,
    handle: &AgentHandle,
    number: u64,
    (by, waits): (String, Waits),
    tried: &mut Vec<Tried>,
) {
    let id = handle.view.borrow().agent.process.clone();
    let process = id.and_then(|id| host.recent(&ProcessId::parse(&id).ok()?));
    let Some(process) = process else { return };
    if !waits.int.is_zero() {
        *lock(&handle.interrupt_step) = Some(Rung::Int);
        // If it cannot be signalled, the next step follows.
        let _ = host.signal(&process, Signal::INT, by.clone()).await;
        if wait_step(handle, number, waits.int, Rung::Int, tried).await {
            return;
        }
    }
    *lock(&handle.interrupt_step) = Some(Rung::Term);
    let started = Instant::now();
    let manner = StopManner { signal: Signal::TERM, grace: waits.term };
    if let Err(error) = host.stop(&process, Cause::StopRequested { by }, Some(manner)).await {
        tracing::warn!(agent = %handle.id, error = %error.0, "cannot stop the process of an agent");
    }
    until_turn_over(handle, number, RECORD_TIMEOUT).await;
    let waited = started.elapsed();
    tried.push(Tried { rung: Rung::Term, waited_ms: waited.min(waits.term).as_millis() as u64 });
    if waited > waits.term {
        tried.push(Tried { rung: Rung::Kill, waited_ms: (waited - waits.term).as_millis() as u64 });
    }
}

/// Waits for the end of the turn after this step, and records how long that took.
async fn wait_step(handle: &AgentHandle, number: u64, within: Duration, rung: Rung, tried: &mut Vec<Tried>) -> bool {
    let started = Instant::now();
    let done = until_turn_over(handle, number, within).await;
    tried.push(Tried { rung, waited_ms: started.elapsed().as_millis() as u64 });
    done
}

async fn until_turn_over(handle: &AgentHandle, number: u64, within: Duration) -> bool {
    let mut view = handle.view.subscribe();
    let over = view.wait_for(|view| view.over_through >= number);
    matches!(tokio::time::timeout(within, over).await, Ok(Ok(_)))
}
