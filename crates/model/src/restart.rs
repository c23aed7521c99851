//! Whether and when a process is restarted after its end. One pure function, [`after_end`], decides from the history
//! alone, so that every daemon, before or after a crash, decides the same.
//!
//! Each run is a process of its own; together they form a chain. A run knows the previous and the first run, and the
//! [`ChainPosition::streak`]: the recent ends that count against the limit. The streak determines the delay before
//! the next restart and when to give up; a stable run clears it.
//!
//! Invariant L6, *what a client ended is not restarted*: a stop, a client's signal that ended the process, and the
//! end of its owner are final.
//!
//! Invariant L7, *restarts are bounded*: at most `limit` within `window`, unless a stable run is between them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::facts::History;
use crate::id::ProcessId;
use crate::outcome::{Cause, Outcome};
use crate::units::Moment;

/// The largest `limit`: each run stores this many timestamps at most.
pub const MAX_LIMIT: u32 = 100;
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);
const MAX_WINDOW: Duration = Duration::from_secs(30 * 24 * 3600);
/// The backoff factor in percent.
const FACTOR: std::ops::RangeInclusive<u32> = 100..=1000;

/// Which ends are followed by a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Any end except exit code 0 and a reached `time_limit`.
    OnFailure,
    Always,
    /// Only on request: hosted agents start the next run for the next turn.
    AfterTurn,
}

/// A restart policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    pub when: When,
    /// The delay before the first restart of a streak.
    pub initial: Duration,
    /// How much longer each further delay of the streak is, in percent.
    pub factor_percent: u32,
    /// The longest delay.
    pub max: Duration,
    /// Give up after this many restarts within the window.
    pub limit: u32,
    pub window: Duration,
    /// A run that lasts this long clears the streak.
    pub stable: Duration,
}

impl Restart {
    /// The defaults: delays of 1s, 2s, 4s … 1m; five restarts in ten minutes; a run of 30s is stable.
    pub fn new(when: When) -> Self {
        Self {
            when,
            initial: Duration::from_secs(1),
            factor_percent: 200,
            max: Duration::from_secs(60),
            limit: 5,
            window: Duration::from_secs(600),
            stable: Duration::from_secs(30),
        }
    }

    pub fn check(&self) -> Result<(), BadRestart> {
        if !FACTOR.contains(&self.factor_percent) {
            return Err(BadRestart::Factor);
        }
        if self.initial > self.max || self.max > MAX_WAIT {
            return Err(BadRestart::Backoff);
        }
        if !(1..=MAX_LIMIT).contains(&self.limit) {
            return Err(BadRestart::Limit { given: self.limit });
        }
        if self.window.is_zero() || self.window > MAX_WINDOW {
            return Err(BadRestart::Window);
        }
        if self.stable.is_zero() {
            return Err(BadRestart::Stable);
        }
        Ok(())
    }

    /// The delay before a restart, given the length of the streak.
    pub fn wait(&self, streak: usize) -> Duration {
        let mut wait = self.initial;
        for _ in 0..streak.min(MAX_LIMIT as usize) {
            wait = wait.saturating_mul(self.factor_percent) / 100;
            if wait >= self.max {
                break;
            }
        }
        wait.min(self.max)
    }
}

/// Why a restart policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRestart {
    #[error("restart.factor: give 1 to 10, such as 2")]
    Factor,
    #[error("restart: `initial` is longer than `max`, or `max` longer than a day: give initial ≤ max ≤ 24h")]
    Backoff,
    #[error("restart.limit {given}: give 1 to {MAX_LIMIT} restarts")]
    Limit { given: u32 },
    #[error("restart.window is zero or longer than 30 days: give a time such as 10m")]
    Window,
    #[error("restart.stable is zero: give a time such as 30s")]
    Stable,
}

/// The position of a process in its chain of runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainPosition {
    /// The number of this run, from 2.
    pub number: u32,
    pub previous: ProcessId,
    /// The first run of the chain.
    pub first: ProcessId,
    /// Recent ends that count against the limit, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streak: Vec<Moment>,
}

/// What to do after an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartDecision {
    /// No restart: no policy, the policy does not cover this end, or a client ended it.
    Over,
    /// Restart at this time.
    Restart { at: Moment, next: ChainPosition },
    /// Restart when the next turn is requested.
    AwaitTurn { next: ChainPosition },
    /// The limit of restarts is reached.
    GiveUp { restarts: u32 },
}

/// The first run of its chain.
pub fn first_run(history: &History) -> &ProcessId {
    let life = history.intent.spec.service.life.as_ref();
    life.map_or(&history.intent.id, |life| &life.first)
}

/// The number of the run in its chain, from 1.
pub fn run_number(history: &History) -> u32 {
    history.intent.spec.service.life.as_ref().map_or(1, |life| life.number)
}

/// The idempotency key of the next run: one for each process, so that it is never restarted twice.
pub fn restart_key(id: &ProcessId) -> String {
    format!("restart-of-{id}")
}

/// The position of the next run.
pub fn next_run(history: &History, streak: Vec<Moment>) -> ChainPosition {
    ChainPosition {
        number: run_number(history).saturating_add(1),
        previous: history.intent.id.clone(),
        first: first_run(history).clone(),
        streak,
    }
}

/// Decides whether a process is restarted after its end. `boot_id` is that of the running machine: a process that was
/// lost by a reboot is not restarted.
pub fn after_end(history: &History, boot_id: &str) -> RestartDecision {
    let (Some(restart), Some(ended)) = (&history.intent.spec.service.restart, history.ended_at()) else {
        return RestartDecision::Over;
    };
    if !is_restarted(history, restart.when, boot_id) {
        return RestartDecision::Over;
    }
    if restart.when == When::AfterTurn {
        return RestartDecision::AwaitTurn { next: next_run(history, vec![]) };
    }
    let mut streak = streak_before(history, restart, ended);
    if streak.len() >= restart.limit as usize {
        return RestartDecision::GiveUp { restarts: streak.len() as u32 };
    }
    let wait = restart.wait(streak.len());
    streak.push(ended);
    RestartDecision::Restart { at: ended.after(wait), next: next_run(history, streak) }
}

/// Whether the policy covers this end.
fn is_restarted(history: &History, when: When, boot_id: &str) -> bool {
    let cause = history.cause();
    if matches!(cause, Some(Cause::StopRequested { .. } | Cause::OwnerEnded)) {
        return false;
    }
    let failed = match history.outcome() {
        Some(Outcome::Exited { code: 0 }) => false,
        Some(Outcome::Exited { .. } | Outcome::Signaled { .. }) => true,
        // The client learns of a failed first start and can try again; a failed restart has no client, so it is
        // retried.
        Some(Outcome::FailedToStart { .. }) if run_number(history) == 1 => return false,
        Some(Outcome::FailedToStart { .. }) => true,
        Some(Outcome::Lost { .. }) | None => true,
    };
    if history.lost.is_some() && history.intent.boot_id != boot_id {
        return false;
    }
    match when {
        When::Always | When::AfterTurn => true,
        When::OnFailure => failed && cause != Some(Cause::TimeLimit),
    }
}

/// The ends that count, without this one; none if this run was stable.
fn streak_before(history: &History, restart: &Restart, ended: Moment) -> Vec<Moment> {
    let exited = history.exit.as_ref().map_or(ended, |exit| exit.at);
    let lasted = history.start.as_ref().map_or(Duration::ZERO, |start| exited.since(start.at));
    if lasted >= restart.stable {
        return vec![];
    }
    let streak = history.intent.spec.service.life.as_ref().map_or(&[][..], |life| &life.streak);
    streak.iter().copied().filter(|at| ended.since(*at) < restart.window).collect()
}

#[cfg(test)]
#[path = "restart_tests.rs"]
mod tests;
