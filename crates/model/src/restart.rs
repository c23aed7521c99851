//! Restarts: whether and when a process that ended lives again. One pure function, [`after_end`], decides from the
//! history alone, so that whoever asks, before a crash of the daemon or after, gets the same answer.
//!
//! Each life is a process of its own. It knows the one before ([`Life::previous`]), the first of the chain, and the
//! [`Life::streak`]: the ends of lives before it that count against the limit. The streak alone decides how long the
//! next restart waits and when it is given up; a life that was stable clears it.
//!
//! Invariant L6, *what was asked to end is not restarted*: a stop, a signal that a client sent and that ended it, and the
//! end of the owner are final.
//!
//! Invariant L7, *restarts are bounded*: at most `limit` within `window` without a stable life between.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::facts::History;
use crate::id::ProcessId;
use crate::outcome::{Cause, Outcome};
use crate::units::Moment;

/// The most restarts that a limit may allow: so many moments are kept with a life.
pub const LIMIT_MOST: u32 = 100;
const WAIT_MOST: Duration = Duration::from_secs(24 * 3600);
const WINDOW_MOST: Duration = Duration::from_secs(30 * 24 * 3600);
/// A factor is kept in hundredths.
const FACTOR: std::ops::RangeInclusive<u32> = 100..=1000;

/// Which ends are followed by another life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Any end but exit code 0 and a passed `time_limit`.
    OnFailure,
    Always,
    /// None by itself: the next life comes when it is asked for, by whoever drives its turns.
    AfterTurn,
}

/// How it is restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    pub when: When,
    /// The wait before the first restart of a streak.
    pub initial: Duration,
    /// By how much each further wait of the streak is longer, in hundredths.
    pub factor_percent: u32,
    /// No wait is longer.
    pub max: Duration,
    /// So many restarts within the window, and it is given up.
    pub limit: u32,
    pub window: Duration,
    /// A life that lasted so long clears the streak.
    pub stable: Duration,
}

impl Restart {
    /// The defaults: 1s, 2s, 4s … 1m between lives, five times in ten minutes, cleared by 30s of life.
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
        if self.initial > self.max || self.max > WAIT_MOST {
            return Err(BadRestart::Backoff);
        }
        if !(1..=LIMIT_MOST).contains(&self.limit) {
            return Err(BadRestart::Limit { given: self.limit });
        }
        if self.window.is_zero() || self.window > WINDOW_MOST {
            return Err(BadRestart::Window);
        }
        if self.stable.is_zero() {
            return Err(BadRestart::Stable);
        }
        Ok(())
    }

    /// How long the restart after so many others waits.
    pub fn wait(&self, streak: usize) -> Duration {
        let mut wait = self.initial;
        for _ in 0..streak.min(LIMIT_MOST as usize) {
            wait = wait.saturating_mul(self.factor_percent) / 100;
            if wait >= self.max {
                break;
            }
        }
        wait.min(self.max)
    }
}

/// Why a restart is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRestart {
    #[error("restart.factor: give 1 to 10, such as 2")]
    Factor,
    #[error("restart: `initial` is longer than `max`, or `max` longer than a day: give initial ≤ max ≤ 24h")]
    Backoff,
    #[error("restart.limit {given}: give 1 to {LIMIT_MOST} restarts")]
    Limit { given: u32 },
    #[error("restart.window is zero or longer than 30 days: give a time such as 10m")]
    Window,
    #[error("restart.stable is zero: give a time such as 30s")]
    Stable,
}

/// Which life of a chain a process is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Two or more.
    pub number: u32,
    pub previous: ProcessId,
    /// The first of the chain.
    pub first: ProcessId,
    /// The ends that count against the limit, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streak: Vec<Moment>,
}

/// What follows an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: it has no policy, its policy wants no other life, or it was asked to end.
    Over,
    /// Another life, then.
    Restart { at: Moment, next: Life },
    /// Another life when it is asked for.
    AwaitTurn { next: Life },
    /// It was restarted as often as allowed.
    GiveUp { restarts: u32 },
}

/// The first of its chain.
pub fn first_of(history: &History) -> &ProcessId {
    let life = history.intent.spec.service.life.as_ref();
    life.map_or(&history.intent.id, |life| &life.first)
}

/// Which life of its chain it is; the first is 1.
pub fn number_of(history: &History) -> u32 {
    history.intent.spec.service.life.as_ref().map_or(1, |life| life.number)
}

/// The key under which the next life is started: one for each process, so that no end has two successors.
pub fn key_after(id: &ProcessId) -> String {
    format!("restart-of-{id}")
}

/// The life after this one, with this streak.
pub fn next_life(history: &History, streak: Vec<Moment>) -> Life {
    Life {
        number: number_of(history).saturating_add(1),
        previous: history.intent.id.clone(),
        first: first_of(history).clone(),
        streak,
    }
}

/// Decides what follows the end of a process. `boot_id` is that of the running machine: what a reboot ended is not
/// restarted, since nobody is there who wants it.
pub fn after_end(history: &History, boot_id: &str) -> Verdict {
    let (Some(restart), Some(ended)) = (&history.intent.spec.service.restart, history.ended_at()) else {
        return Verdict::Over;
    };
    if !is_followed(history, restart.when, boot_id) {
        return Verdict::Over;
    }
    if restart.when == When::AfterTurn {
        return Verdict::AwaitTurn { next: next_life(history, vec![]) };
    }
    let mut streak = streak_before(history, restart, ended);
    if streak.len() >= restart.limit as usize {
        return Verdict::GiveUp { restarts: streak.len() as u32 };
    }
    let wait = restart.wait(streak.len());
    streak.push(ended);
    Verdict::Restart { at: ended.after(wait), next: next_life(history, streak) }
}

/// Whether this end is one that the policy follows with another life.
fn is_followed(history: &History, when: When, boot_id: &str) -> bool {
    let cause = history.cause();
    if matches!(cause, Some(Cause::StopRequested { .. } | Cause::OwnerEnded)) {
        return false;
    }
    let failed = match history.outcome() {
        Some(Outcome::Exited { code: 0 }) => false,
        Some(Outcome::Exited { .. } | Outcome::Signaled { .. }) => true,
        // What never ran was refused to whoever asked for it; a later life has nobody else to try again.
        Some(Outcome::FailedToStart { .. }) if number_of(history) == 1 => return false,
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

/// The ends that count, without this one: none if this life was stable.
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
