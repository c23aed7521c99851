//! Stopping what an interrupted turn left running, but neither the agent's own servers nor what earlier turns started.
//!
//! These belong to the turn, if they were started while it was running:
//! - commands in the agent's own tree, and everything below them: the agent sets a variable for commands
//!   ([`Kind::command_variable`]) that its servers and helpers do not have.
//! - processes that the agent started through `pinfold mcp` with this daemon: their owner is named after the session, and
//!   must be in the view of the agent's owner (D5).
//!
//! Not found: a command with an empty environment whose parent exited, and processes of another home.
//!
//! [`Kind::command_variable`]: pinfold_agents::Kind::command_variable

use std::ops::RangeInclusive;
use std::sync::Arc;

use pinfold_api::types::Turn;
use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;

use super::handle::AgentHandle;
use super::host::Host;

/// The period in which a turn was running.
fn period_of(turn: &Turn) -> Option<RangeInclusive<Moment>> {
    let moment = |text: &Option<String>| {
        let time: jiff::Timestamp = text.as_deref()?.parse().ok()?;
        u64::try_from(time.as_microsecond()).ok().map(Moment)
    };
    Some(moment(&turn.started_at)?..=moment(&turn.ended_at)?)
}

/// Stops what an interrupted turn left running; returns the ids and command lines.
pub(super) async fn stop(host: &Arc<dyn Host>, handle: &AgentHandle, turn: &Turn) -> Vec<String> {
    let Some(period) = period_of(turn) else { return vec![] };
    let by = format!("the interrupt of turn {} of agent {}", turn.number, handle.id);
    let (mut stopped, commands) =
        tokio::join!(stop_processes(&**host, handle, period.clone(), by), stop_commands(&**host, handle, turn, period));
    stopped.extend(commands);
    stopped
}

/// Stops what it started through pinfold's tools.
async fn stop_processes(
    host: &dyn Host,
    handle: &AgentHandle,
    period: RangeInclusive<Moment>,
    by: String,
) -> Vec<String> {
    let Some(session) = handle.view.borrow().agent.session.clone() else { return vec![] };
    let owner = handle.spec.kind.owner_in(&session);
    host.stop_started_in(&handle.owner(), &owner, period, by).await
}

/// Stops commands in its own tree.
async fn stop_commands(
    host: &dyn Host,
    handle: &AgentHandle,
    turn: &Turn,
    period: RangeInclusive<Moment>,
) -> Vec<String> {
    let id = turn.process.as_deref().and_then(|id| ProcessId::parse(id).ok());
    let Some(process) = id.and_then(|id| host.recent(&id)) else { return vec![] };
    host.stop_commands(&process, handle.spec.kind.command_variable(), period).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_turn_that_has_not_ended_has_no_period() {
        let turn = Turn { started_at: Some("2026-01-01T00:00:00.000000Z".into()), ..Turn::default() };
        assert!(period_of(&turn).is_none());
        let turn = Turn { ended_at: Some("2026-01-01T00:00:09.500000Z".into()), ..turn };
        let period = period_of(&turn).expect("a period");
        assert_eq!(period.end().since(*period.start()), Duration::from_millis(9500));
    }
}
