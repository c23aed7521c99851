//! What follows the end of a process that is restarted, for a command that shows it in the foreground.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pinfold_api::types::{LifeShown, Record, StopRequest, WaitQuery};

use super::interrupts::{Interrupt, Interrupts};
use super::wait;
use crate::console::Screen;
use crate::failure::Failure;
use crate::render::outcome::render_outcome;
use crate::render::quantity::render_duration;
use crate::session::Session;

/// How soon a restart that is due is looked for again.
const LOOK: Duration = Duration::from_millis(50);

/// What followed.
pub(super) enum Next {
    /// The process that is its next life.
    Life(String),
    /// Nothing more: the record says why.
    Over(Box<Record>),
    /// The person did not want to wait.
    Left(Interrupt),
}

/// Waits for the next life, or until none is to come. An interrupt stops the restarts; a second one leaves.
pub(super) async fn next_of(
    session: &Session,
    ended: &str,
    interrupts: &mut Interrupts,
    screen: &Screen,
) -> Result<Next, Failure> {
    let following = follow(session, ended, Announce::Restart, screen);
    tokio::pin!(following);
    let mut stopping = false;
    loop {
        tokio::select! {
            next = &mut following => return next,
            interrupt = interrupts.next() => {
                if stopping {
                    return Ok(Next::Left(interrupt));
                }
                stopping = true;
                screen.hint("stopping its restarts; Ctrl-C again leaves it to the daemon");
                let request = StopRequest { by: Some("an interrupt of `pinfold run`".into()), ..StopRequest::default() };
                session.ask(async |client| client.stop(ended, &request).await).await?;
                // It may be waiting for a restart that no longer comes.
                following.set(follow(session, ended, Announce::Nothing, screen));
            }
        }
    }
}

/// Whether the person is told of a restart that is due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Announce {
    Restart,
    Nothing,
}

async fn follow(session: &Session, id: &str, announce: Announce, screen: &Screen) -> Result<Next, Failure> {
    // What it left running is part of this life.
    let query = WaitQuery { until: Some("finished".into()), ..WaitQuery::default() };
    wait::patiently(session, id, &query).await?;
    let mut said = announce == Announce::Nothing;
    loop {
        let record = session.ask(async |client| client.show(id).await).await?;
        let Some(life) = record.life.clone() else { return Ok(Next::Over(Box::new(record))) };
        if let Some(next) = life.next {
            return Ok(Next::Life(next));
        }
        if life.awaits_turn {
            say(screen, &format!("{id} ended; its next life begins when it is asked for  (pinfold restart {id})"));
            return Ok(Next::Over(Box::new(record)));
        }
        if life.over {
            if let Some(reason) = &life.gave_up {
                say(screen, &format!("{id}: {reason}"));
            }
            return Ok(Next::Over(Box::new(record)));
        }
        let pause = due_in(&life);
        if let (Some(pause), false) = (pause, said) {
            said = true;
            say(screen, &format!("{id}: {}; restarts in {}", end_of(&record), render_duration(pause)));
        }
        tokio::time::sleep(pause.unwrap_or(LOOK).max(LOOK)).await;
    }
}

/// Says it, but not where stderr is for programs.
fn say(screen: &Screen, text: &str) {
    if !screen.json {
        screen.note(text);
    }
}

fn end_of(record: &Record) -> String {
    record.outcome.as_ref().map_or_else(|| "ended".to_owned(), |outcome| render_outcome(outcome, record.cause))
}

/// How long it is until its next life begins; none if that is not decided.
fn due_in(life: &LifeShown) -> Option<Duration> {
    let at: Timestamp = life.restarting_at.as_ref()?.parse().ok()?;
    Some(Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO))
}

/// What is left of a time limit. Text that this program cannot read stays as it is, for the daemon to judge.
pub(super) fn remaining(limit: &str, passed: Duration) -> String {
    let seconds = limit.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let span = || limit.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok());
    match seconds.or_else(span) {
        // At least a moment: no time at all would mean no wait at all.
        Some(limit) => format!("{}ms", limit.saturating_sub(passed).as_millis().max(1)),
        None => limit.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_limit_is_at_least_a_moment() {
        let passed = Duration::from_millis(1500);
        assert_eq!(remaining("5s", passed), "3500ms");
        assert_eq!(remaining("5", passed), "3500ms");
        assert_eq!(remaining("1m30s", passed), "88500ms");
        assert_eq!(remaining("1s", passed), "1ms");
        assert_eq!(remaining("soon", passed), "soon");
    }
}
