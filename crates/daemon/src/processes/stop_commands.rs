//! Stopping a part of a live tree: commands that were started in a period with a certain variable in their environment, and
//! everything below them. The rest of the tree runs on.
//!
//! Members are found below the keeper and signalled through pidfds that were checked after opening.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_model::facts::{History, Status};
use pinfold_model::signal::Signal;
use pinfold_model::units::Moment;
use pinfold_os::{proc, tree};

use crate::clock::now;
use crate::threads::blocking;

/// How long the program that started the commands may take to end them itself, and how long they may take after TERM and
/// after KILL.
const OWN_TIME: Duration = Duration::from_secs(1);
const TERM_TIME: Duration = Duration::from_secs(2);
const KILL_TIME: Duration = Duration::from_secs(2);
/// How often they are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The kernel rounds the start time of a process to at most this.
const TICK: Duration = Duration::from_millis(20);

/// Which commands of a tree are meant.
#[derive(Debug)]
pub(crate) struct CommandFilter {
    /// The variable that they have, with another value than the leader, if that has it too.
    pub(crate) variable: &'static str,
    /// When they were started.
    pub(crate) period: RangeInclusive<Moment>,
}

impl CommandFilter {
    /// Whether a process of this age was started in the period.
    fn holds_age(&self, age: Duration) -> bool {
        let now = now();
        age <= now.since(*self.period.start()) + TICK && age + TICK >= now.since(*self.period.end())
    }
}

/// Stops the commands: TERM, then KILL, and only those that are not ended by the program that started them. Returns their
/// command lines.
pub(crate) async fn stop_commands(history: History, filter: CommandFilter) -> Vec<String> {
    if history.status() == Status::Finished {
        return vec![];
    }
    let tree = Arc::new(CommandTree { history, filter });
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

/// Where the commands are found.
#[derive(Debug)]
struct CommandTree {
    history: History,
    filter: CommandFilter,
}

impl CommandTree {
    /// The commands that are alive, and everything below them.
    fn commands(&self) -> Vec<tree::Member> {
        let keeper = &self.history.intent.keeper;
        if proc::start_time(keeper.pid).ok() != Some(keeper.start_time) {
            return vec![];
        }
        let prefix = format!("{}=", self.filter.variable).into_bytes();
        let value_of = |pid: u32| {
            let value = |entry: &[u8]| entry.strip_prefix(prefix.as_slice()).map(<[u8]>::to_vec);
            proc::environ_find(pid, value).ok().flatten()
        };
        // The leader may itself have been started by such a command.
        let leader = self.history.start.as_ref().and_then(|start| value_of(start.pid));
        let mut found: Vec<tree::Member> = Vec::new();
        // Parents come before their children.
        for member in tree::descendants(keeper.pid) {
            let is_below = found.iter().any(|known| known.pid == member.stat.ppid);
            let is_command = || {
                self.filter.holds_age(member.stat.age())
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
    fn only_what_began_in_the_period_is_meant() {
        let at = |seconds: u64| Moment(now().0 - seconds * 1_000_000);
        let filter = CommandFilter { variable: "X", period: at(20)..=at(10) };
        let seconds = Duration::from_secs;
        assert!(filter.holds_age(seconds(15)) && filter.period.contains(&at(15)));
        for age in [1, 9, 21, 3600] {
            assert!(!filter.holds_age(seconds(age)) && !filter.period.contains(&at(age)), "{age}");
        }
    }
}
