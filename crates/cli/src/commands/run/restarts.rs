//! `run --restart` in the foreground: finds the next process of the chain after one has ended.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pinfold_api::types::{LifeShown, Record, StopRequest, WaitQuery};

use crate::commands::interrupts::{Interrupt, Interrupts};
use crate::commands::process::wait;
use crate::console::Console;
use crate::failure::Failure;
use crate::render::outcome::render_outcome;
use crate::render::quantity::render_duration;
use crate::session::Session;

/// Interval at which the daemon is asked for the next run of a process that is due to be restarted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What follows the end of a process.
pub(super) enum Next {
    /// It was restarted: the id of the new process.
    Restarted(String),
    /// It will not be restarted; the record says why.
    Over(Box<Record>),
    /// The user did not want to wait.
    Left(Interrupt),
}

/// Waits until the process is restarted or will not be. An interrupt stops the restarts; a second one leaves.
pub(super) async fn next_of(
    session: &Session,
    ended: &str,
    interrupts: &mut Interrupts,
    console: &Console,
) -> Result<Next, Failure> {
    let following = follow(session, ended, Announce::Restart, console);
    tokio::pin!(following);
    let mut stopping = false;
    loop {
        tokio::select! {
            next = &mut following => return next,
            interrupt = interrupts.next() => {
                if stopping || interrupt == Interrupt::Quit {
                    return Ok(Next::Left(interrupt));
                }
                stopping = true;
                console.hint("stopping the restarts; press Ctrl-C again to leave without waiting");
                let request = StopRequest { by: Some("an interrupt of `pinfold run`".into()), ..StopRequest::default() };
                session.ask(async |client| client.stop(ended, &request).await).await?;
                // Start over: the old wait may be sleeping until a restart that no longer happens.
                following.set(follow(session, ended, Announce::Nothing, console));
            }
        }
    }
}

/// Whether to print a note about a restart that is due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Announce {
    Restart,
    Nothing,
}

async fn follow(session: &Session, id: &str, announce: Announce, console: &Console) -> Result<Next, Failure> {
    // Wait for descendants too: the restart happens after they have ended.
    let query = WaitQuery { until: Some("finished".into()), ..WaitQuery::default() };
    wait::wait_for_one(session, id, &query).await?;
    let mut said = announce == Announce::Nothing;
    loop {
        let record = session.ask(async |client| client.show(id).await).await?;
        let Some(life) = record.life.clone() else { return Ok(Next::Over(Box::new(record))) };
        if let Some(next) = life.next {
            return Ok(Next::Restarted(next));
        }
        if life.awaits_turn {
            say(console, &format!("{id} ended: run `pinfold restart {id}` to start it again"));
            return Ok(Next::Over(Box::new(record)));
        }
        if life.over {
            if let Some(reason) = &life.gave_up {
                say(console, &format!("{id}: {reason}"));
            }
            return Ok(Next::Over(Box::new(record)));
        }
        let pause = due_in(&life);
        if let (Some(pause), false) = (pause, said) {
            said = true;
            say(console, &format!("{id}: {}; restarts in {}", end_of(&record), render_duration(pause)));
        }
        tokio::time::sleep(pause.unwrap_or(POLL_INTERVAL).max(POLL_INTERVAL)).await;
    }
}

/// Prints a note, unless `--json` was given.
fn say(console: &Console, text: &str) {
    if !console.json {
        console.note(text);
    }
}

fn end_of(record: &Record) -> String {
    record.outcome.as_ref().map_or_else(|| "ended".to_owned(), |outcome| render_outcome(outcome, record.cause))
}

/// Time until the restart; `None` if that is not decided yet.
fn due_in(life: &LifeShown) -> Option<Duration> {
    let at: Timestamp = life.restarting_at.as_ref()?.parse().ok()?;
    Some(Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO))
}

/// What remains of a time limit. A limit that cannot be parsed is returned unchanged: the daemon reports the error.
pub(super) fn remaining(limit: &str, passed: Duration) -> String {
    let seconds = limit.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let span = || limit.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok());
    match seconds.or_else(span) {
        // At least 1 ms: 0 would mean not to wait at all.
        Some(limit) => format!("{}ms", limit.saturating_sub(passed).as_millis().max(1)),
        None => limit.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remains_of_a_limit_is_at_least_a_millisecond() {
        let passed = Duration::from_millis(1500);
        assert_eq!(remaining("5s", passed), "3500ms");
        assert_eq!(remaining("5", passed), "3500ms");
        assert_eq!(remaining("1m30s", passed), "88500ms");
        assert_eq!(remaining("1s", passed), "1ms");
        assert_eq!(remaining("soon", passed), "soon");
    }
}
