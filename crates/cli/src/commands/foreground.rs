//! A process in the foreground: its output as it comes, our signals to it, its end to us.

use std::io;

use pinfold_api::client::ClientError;
use pinfold_api::types::{Record, SignalRequest, StopRequest, Streams, WaitQuery, WaitReason};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::interrupts::{Interrupt, Interrupts};
use super::pump::{self, Reading, Tap};
use super::wait;
use crate::failure::Failure;
use crate::screen::Screen;
use crate::session::Session;

/// How it is shown.
#[derive(Clone, Debug)]
pub(super) struct Showing {
    /// One stream, or two apart; `None` shows nothing.
    pub(super) streams: Option<Streams>,
    /// Wait no longer than this.
    pub(super) timeout: Option<String>,
}

/// How the watching ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// The leader exited.
    Exited(Box<Record>),
    /// The time ran out; it lives on.
    TimedOut,
    /// The person pressed Ctrl-C once more than was needed.
    Left,
}

/// What happens next in the life of a command in the foreground.
enum Happened {
    Copied(Result<(), Failure>),
    Ended(Result<Option<Box<Record>>, Failure>),
    Interrupted(Interrupt),
    Sent(Option<ClientError>),
}

/// Shows the process until its leader exited and its output is copied.
pub(super) async fn watch(session: &Session, id: &str, showing: &Showing, screen: &Screen) -> Result<Ending, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let (tell_end, end) = watch::channel(None);
    let copying = copy(session, id, showing.streams, end);
    let ending = exit_of(session, id, showing.timeout.as_deref());
    tokio::pin!(copying, ending);
    let mut sending = JoinSet::new();
    let mut presses = 0;
    let mut record: Option<Box<Record>> = None;
    loop {
        let happened = tokio::select! {
            copied = &mut copying => Happened::Copied(copied),
            ended = &mut ending, if record.is_none() => Happened::Ended(ended),
            interrupt = interrupts.next() => Happened::Interrupted(interrupt),
            Some(sent) = sending.join_next() => Happened::Sent(sent.ok().flatten()),
        };
        match happened {
            Happened::Ended(ended) => match ended? {
                Some(ended) => {
                    tell_end.send_replace(Some(ended.output.bytes));
                    record = Some(ended);
                }
                None => return Ok(Ending::TimedOut),
            },
            Happened::Copied(Err(failure)) if failure.quiet => {
                // Like any command whose reader left: it is in the foreground, so it ends with its pipe.
                let request =
                    StopRequest { signal: Some("PIPE".into()), by: Some("its reader left".into()), grace: None };
                let _ = session.once().stop(id, &request).await;
                return Err(failure);
            }
            Happened::Copied(copied) => {
                copied?;
                if let Some(record) = record {
                    return Ok(Ending::Exited(record));
                }
            }
            Happened::Interrupted(interrupt) => {
                presses += 1;
                let action = action_for(interrupt, presses, record.is_some());
                if action == Action::Leave {
                    return Ok(Ending::Left);
                }
                screen.hint(match action {
                    Action::Signal => "sent INT; Ctrl-C again stops the whole tree",
                    Action::Stop | Action::Leave => "stopping the whole tree; Ctrl-C again leaves it to the daemon",
                });
                sending.spawn(send(session.clone(), id.to_owned(), action));
            }
            Happened::Sent(error) => {
                if let Some(error) = error {
                    screen.note(&error.to_string());
                }
            }
        }
    }
}

/// What an interrupt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Signal,
    Stop,
    Leave,
}

/// The first Ctrl-C is the command's own, the second ends it, the third is for us.
fn action_for(interrupt: Interrupt, presses: u32, exited: bool) -> Action {
    match (interrupt, presses) {
        _ if exited => Action::Leave,
        (Interrupt::Int, 1) => Action::Signal,
        (Interrupt::Int, 2) | (Interrupt::End, 1 | 2) => Action::Stop,
        (Interrupt::Int | Interrupt::End, _) => Action::Leave,
    }
}

async fn send(session: Session, id: String, action: Action) -> Option<ClientError> {
    let client = session.once();
    let sent = match action {
        Action::Signal => {
            let request = SignalRequest { signal: "INT".into(), by: Some("Ctrl-C".into()) };
            client.signal(&id, &request).await.map(drop)
        }
        Action::Stop | Action::Leave => {
            let request = StopRequest { by: Some("an interrupt of `pinfold run`".into()), ..Default::default() };
            client.stop(&id, &request).await.map(drop)
        }
    };
    sent.err()
}

async fn copy(
    session: &Session,
    id: &str,
    streams: Option<Streams>,
    mut end: watch::Receiver<Option<u64>>,
) -> Result<(), Failure> {
    let reading = Reading { id: id.to_owned(), ..Default::default() };
    match streams {
        None => end.wait_for(Option::is_some).await.map(drop).map_err(|error| io::Error::other(error).into()),
        Some(Streams::Merged) => pump::until_exit(session, reading, Tap::Merged, end).await,
        Some(Streams::Separate) => {
            let stdout = pump::until_exit(session, reading.clone(), Tap::Stdout, end.clone());
            let stderr = pump::until_exit(session, reading, Tap::Stderr, end);
            tokio::try_join!(stdout, stderr).map(drop)
        }
    }
}

/// The record after the leader's exit; `None` if the time ran out before.
async fn exit_of(session: &Session, id: &str, timeout: Option<&str>) -> Result<Option<Box<Record>>, Failure> {
    let query = WaitQuery { until: Some("exit".into()), timeout: timeout.map(str::to_owned), ..Default::default() };
    let answer = wait::patiently(session, id, &query).await?;
    Ok((answer.reason != WaitReason::Timeout).then(|| Box::new(answer.record)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ctrl_c_goes_one_step_further() {
        let actions: Vec<_> = (1..=3).map(|press| action_for(Interrupt::Int, press, false)).collect();
        assert_eq!(actions, [Action::Signal, Action::Stop, Action::Leave]);
        assert_eq!(action_for(Interrupt::End, 1, false), Action::Stop);
        assert_eq!(action_for(Interrupt::Int, 1, true), Action::Leave);
    }
}
