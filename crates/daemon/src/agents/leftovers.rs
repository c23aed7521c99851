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

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_api::types::Turn;
use pinfold_model::facts::{History, Status};
use pinfold_model::id::ProcessId;
use pinfold_model::signal::Signal;
use pinfold_model::units::Moment;
use pinfold_os::{proc, tree};

use super::handle::AgentHandle;
use super::host::Host;
use crate::clock::now;
use crate::threads::blocking;

/// How long the agent may take to end its commands itself, and how long they may take after TERM and after KILL.
const OWN_TIME: Duration = Duration::from_secs(1);
const TERM_TIME: Duration = Duration::from_secs(2);
const KILL_TIME: Duration = Duration::from_secs(2);
/// How often they are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The kernel rounds the start time of a process to at most this.
const TICK: Duration = Duration::from_millis(20);

/// The period in which a turn was running.
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

    fn period(self) -> RangeInclusive<Moment> {
        self.began..=self.ended
    }

    /// Whether a process of this age was started in it.
    fn holds_age(self, age: Duration) -> bool {
        let now = now();
        age <= now.since(self.began) + TICK && age + TICK >= now.since(self.ended)
    }
}

/// Stops what an interrupted turn left running; returns the ids and command lines.
pub(super) async fn stop(host: &Arc<dyn Host>, handle: &AgentHandle, turn: &Turn) -> Vec<String> {
    let Some(window) = Window::of(turn) else { return vec![] };
    let by = format!("the interrupt of turn {} of agent {}", turn.number, handle.id);
    let (mut stopped, commands) =
        tokio::join!(stop_processes(&**host, handle, window, by), stop_commands(&**host, handle, turn, window));
    stopped.extend(commands);
    stopped
}

/// Stops what it started through pinfold's tools.
async fn stop_processes(host: &dyn Host, handle: &AgentHandle, window: Window, by: String) -> Vec<String> {
    let Some(session) = handle.view.borrow().agent.session.clone() else { return vec![] };
    let owner = handle.spec.kind.owner_in(&session);
    host.stop_started_in(&handle.owner(), &owner, window.period(), by).await
}

/// Stops commands in its own tree: TERM, then KILL, and only those that the agent does not end itself.
async fn stop_commands(host: &dyn Host, handle: &AgentHandle, turn: &Turn, window: Window) -> Vec<String> {
    let id = turn.process.as_deref().and_then(|id| ProcessId::parse(id).ok());
    let Some(history) = id.and_then(|id| host.recent(&id)).map(|process| process.history()) else { return vec![] };
    if history.status() == Status::Finished {
        return vec![];
    }
    let tree = Arc::new(CommandTree {
        variable: format!("{}=", handle.spec.kind.command_variable()).into_bytes(),
        history,
        window,
    });
    let mut signalled: HashMap<(u32, u64), String> = HashMap::new();
    for (wait, signal) in [(OWN_TIME, Some(Signal::TERM)), (TERM_TIME, Some(Signal::KILL)), (KILL_TIME, None)] {
        let left = until_gone(&tree, wait).await;
        let Some(signal) = signal.filter(|_| !left.is_empty()) else { break };
        signalled.extend(blocking(move || signal_all(&left, signal)).await.unwrap_or_default());
    }
    let mut stopped: Vec<_> = signalled.into_iter().collect();
    stopped.sort();
    stopped.into_iter().map(|(_, command)| command).collect()
}

/// Signals processes; returns the command line of each.
fn signal_all(members: &[tree::Member], signal: Signal) -> HashMap<(u32, u64), String> {
    let mut signalled = HashMap::new();
    for member in members {
        let command = proc::command_line(member.pid).unwrap_or_else(|_| format!("[{}]", member.stat.comm));
        signalled.insert(member.stat.identity(), command);
        let Some(target) = tree::target(member) else { continue };
        let _ = tree::signal(&target, signal.number());
        // A stopped process handles the signal only after it is continued.
        tree::continue_if_stopped(target.pid, target.start_time);
    }
    signalled
}

/// Waits until no command is left, for a limited time; returns those that are left. Between two looks it holds no thread.
async fn until_gone(tree: &Arc<CommandTree>, within: Duration) -> Vec<tree::Member> {
    let deadline = Instant::now() + within;
    loop {
        let own = Arc::clone(tree);
        let left = blocking(move || own.commands()).await.unwrap_or_default();
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Where the commands of a turn are found.
#[derive(Debug)]
struct CommandTree {
    history: History,
    /// `NAME=` of the variable that the agent sets for commands.
    variable: Vec<u8>,
    window: Window,
}

impl CommandTree {
    /// The commands of the turn that are alive, and everything below them.
    fn commands(&self) -> Vec<tree::Member> {
        let keeper = &self.history.intent.keeper;
        if proc::start_time(keeper.pid).ok() != Some(keeper.start_time) {
            return vec![];
        }
        let value_of = |pid: u32| {
            let value = |entry: &[u8]| entry.strip_prefix(self.variable.as_slice()).map(<[u8]>::to_vec);
            proc::environ_find(pid, value).ok().flatten()
        };
        // The agent may itself have been started by a command of another agent.
        let leader = self.history.start.as_ref().and_then(|start| value_of(start.pid));
        let mut found: Vec<tree::Member> = Vec::new();
        // Parents come before their children.
        for member in tree::descendants(keeper.pid) {
            let is_below = found.iter().any(|known| known.pid == member.stat.ppid);
            let is_command = || {
                self.window.holds_age(member.stat.age())
                    && value_of(member.pid).is_some_and(|value| Some(&value) != leader.as_ref())
            };
            if is_below || is_command() {
                found.push(member);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_began_while_the_turn_ran_is_of_the_turn() {
        let at = |seconds: u64| Moment(now().0 - seconds * 1_000_000);
        let window = Window { began: at(20), ended: at(10) };
        let seconds = Duration::from_secs;
        assert!(window.holds_age(seconds(15)) && window.period().contains(&at(15)));
        for age in [1, 9, 21, 3600] {
            assert!(!window.holds_age(seconds(age)) && !window.period().contains(&at(age)), "{age}");
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
