//! What an interrupted turn left running, and how it is stopped. The agent's own servers and what earlier turns started
//! are left alone.
//!
//! Of the turn are, if they began while it ran:
//! - commands in the agent's own tree: the agent sets a variable for those ([`Kind::command_variable`]) that its servers
//!   and helpers do not have. Whatever runs below such a command belongs to it.
//! - processes that the agent started through `pinfold mcp` with this daemon: their owner is named after the session, and
//!   must be in the view of the agent's owner (D5).
//!
//! Not found: a command that was given an empty environment and left its parent, and processes of another home.
//!
//! [`Kind::command_variable`]: pinfold_agents::Kind::command_variable

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_api::types::Turn;
use pinfold_model::facts::{History, Status};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::units::Moment;
use pinfold_os::{proc, tree};

use super::seat::Seat;
use crate::clock::now;
use crate::core::{Core, blocking};

/// How long the agent has to end its commands itself, how long they have after TERM, and after KILL.
const OWN: Duration = Duration::from_secs(1);
const TERM: Duration = Duration::from_secs(2);
const KILL: Duration = Duration::from_secs(2);
/// How often they are looked for meanwhile.
const LOOK: Duration = Duration::from_millis(20);
/// The kernel tells when a process began in ticks of this length.
const TICK: Duration = Duration::from_millis(20);

/// When a turn ran.
#[derive(Clone, Copy, Debug)]
struct Window {
    began: Moment,
    ended: Moment,
}

impl Window {
    fn of(turn: &Turn) -> Option<Self> {
        let moment = |text: &Option<String>| {
            let time: jiff::Timestamp = text.as_deref()?.parse().ok()?;
            u64::try_from(time.as_microsecond()).ok().map(Moment)
        };
        Some(Self { began: moment(&turn.started_at)?, ended: moment(&turn.ended_at)? })
    }

    fn holds(self, at: Moment) -> bool {
        (self.began..=self.ended).contains(&at)
    }

    /// Whether what is this old now began in it.
    fn holds_age(self, age: Duration) -> bool {
        let now = now();
        age <= now.since(self.began) + TICK && age + TICK >= now.since(self.ended)
    }
}

/// Stops what a turn that was interrupted left running; says what that was.
pub(crate) async fn stop(core: &Arc<Core>, seat: &Seat, turn: &Turn) -> Vec<String> {
    let Some(window) = Window::of(turn) else { return vec![] };
    let by = format!("the interrupt of turn {} of agent {}", turn.number, seat.id);
    let (mut stopped, commands) =
        tokio::join!(stop_kept(core, seat, window, by), stop_commands(core, seat, turn, window));
    stopped.extend(commands);
    stopped
}

/// Stops what it started through pinfold's tools.
async fn stop_kept(core: &Arc<Core>, seat: &Seat, window: Window, by: String) -> Vec<String> {
    let Some(session) = seat.view.borrow().agent.session.clone() else { return vec![] };
    let owner = seat.spec.kind.owner_in(&session);
    if !core.owners.sees(&seat.owner(), &owner) {
        return vec![];
    }
    let owners = core.owners.view_of(&owner);
    let is_of_turn =
        |history: &History| owners.iter().any(|owner| owner == history.owner()) && window.holds(history.intent.at);
    core.cancel_restarts(&by, is_of_turn).await;
    let mut stops = tokio::task::JoinSet::new();
    let mut stopped = Vec::new();
    let live = core.registry.live().into_iter();
    for entry in live.filter(|entry| is_of_turn(&entry.state.borrow().history)) {
        stopped.push(entry.id.to_string());
        let (core, cause) = (Arc::clone(core), Cause::StopRequested { by: by.clone() });
        let manner = entry.state.borrow().history.intent.spec.stop;
        stops.spawn(async move {
            if let Err(refusal) = core.stop_entry(&entry, cause, manner).await {
                tracing::warn!(process = %entry.id, error = %refusal.0, "what a turn left running cannot be stopped");
            }
        });
    }
    while stops.join_next().await.is_some() {}
    stopped
}

/// Stops commands in its own tree.
async fn stop_commands(core: &Arc<Core>, seat: &Seat, turn: &Turn, window: Window) -> Vec<String> {
    let id = turn.process.as_deref().and_then(|id| ProcessId::parse(id).ok());
    let Some(entry) = id.and_then(|id| core.registry.get(&id)) else { return vec![] };
    let history = entry.snapshot().history;
    if history.status() == Status::Finished {
        return vec![];
    }
    let variable = format!("{}=", seat.spec.kind.command_variable()).into_bytes();
    blocking(move || end_commands(&history, &variable, window)).await.unwrap_or_default()
}

/// TERM, a moment, KILL; only to those that the agent does not end itself.
fn end_commands(history: &History, variable: &[u8], window: Window) -> Vec<String> {
    let find = || commands_in(history, variable, window);
    let mut met: HashMap<(u32, u64), String> = HashMap::new();
    for (wait, signal) in [(OWN, Some(Signal::TERM)), (TERM, Some(Signal::KILL)), (KILL, None)] {
        let left = until_gone(find, wait);
        let Some(signal) = signal.filter(|_| !left.is_empty()) else { break };
        for member in &left {
            let command = || proc::command_line(member.pid).unwrap_or_else(|_| format!("[{}]", member.stat.comm));
            met.entry(member.stat.identity()).or_insert_with(command);
            let Some(target) = tree::target(member) else { continue };
            let _ = tree::signal(&target, signal.number());
            // A stopped process takes the signal when it is continued.
            tree::continue_if_stopped(target.pid, target.start_time);
        }
    }
    let mut stopped: Vec<_> = met.into_iter().collect();
    stopped.sort();
    stopped.into_iter().map(|(_, command)| command).collect()
}

/// Looks until there are none, or the time is over; gives those that are left.
fn until_gone(find: impl Fn() -> Vec<tree::Member>, within: Duration) -> Vec<tree::Member> {
    let deadline = Instant::now() + within;
    loop {
        let left = find();
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(LOOK);
    }
}

/// The commands of the turn that live, and what runs below them.
fn commands_in(history: &History, variable: &[u8], window: Window) -> Vec<tree::Member> {
    let keeper = &history.intent.keeper;
    if proc::start_time(keeper.pid).ok() != Some(keeper.start_time) {
        return vec![];
    }
    let value_of = |pid: u32| {
        let value = |entry: &[u8]| entry.strip_prefix(variable).map(<[u8]>::to_vec);
        proc::environ_find(pid, value).ok().flatten()
    };
    // The agent may itself run inside a command of another agent.
    let leader = history.start.as_ref().and_then(|start| value_of(start.pid));
    let mut found: Vec<tree::Member> = Vec::new();
    // Parents come before their children.
    for member in tree::descendants(keeper.pid) {
        let is_below = found.iter().any(|known| known.pid == member.stat.ppid);
        let is_command = || {
            window.holds_age(member.stat.age())
                && value_of(member.pid).is_some_and(|value| Some(&value) != leader.as_ref())
        };
        if is_below || is_command() {
            found.push(member);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_began_while_the_turn_ran_is_of_the_turn() {
        let at = |seconds: u64| Moment(now().0 - seconds * 1_000_000);
        let window = Window { began: at(20), ended: at(10) };
        let seconds = Duration::from_secs;
        assert!(window.holds_age(seconds(15)) && window.holds(at(15)));
        for age in [1, 9, 21, 3600] {
            assert!(!window.holds_age(seconds(age)) && !window.holds(at(age)), "{age}");
        }
    }

    #[test]
    fn a_turn_that_has_not_ended_has_no_window() {
        let turn = Turn { started_at: Some("2026-01-01T00:00:00.000000Z".into()), ..Turn::default() };
        assert!(Window::of(&turn).is_none());
        let turn = Turn { ended_at: Some("2026-01-01T00:00:09.500000Z".into()), ..turn };
        let window = Window::of(&turn).expect("a window");
        assert_eq!(window.ended.since(window.began), Duration::from_millis(9500));
    }
}
