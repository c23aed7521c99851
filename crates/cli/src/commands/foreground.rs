//! A process in the foreground: its output as it comes, our signals to it, its end to us.

use std::io;
use std::time::{Duration, Instant};

use pinfold_api::client::ClientError;
use pinfold_api::types::{Record, SignalRequest, StopRequest, Streams, WaitQuery, WaitReason};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::interrupts::{Interrupt, Interrupts};
use super::pump::{self, Reading, Tap};
use super::wait;
use crate::console::Screen;
use crate::failure::Failure;
use crate::session::Session;

/// Signals closer together than this are one press: `timeout` signals us and our group, which is us again.
const ONE_PRESS: Duration = Duration::from_millis(200);

/// After an interrupt, a daemon that says nothing for so long is not waited for.
const SILENCE: Duration = Duration::from_secs(2);

/// How it is shown.
#[derive(Clone, Debug)]
pub(super) struct Showing {
    /// Whether it is restarted after its end, so that a signal to it alone would not end it.
    pub(super) restarts: bool,
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
    Left(Interrupt),
    /// The daemon did not answer after an interrupt.
    Silent(Interrupt),
}

/// What happens next in the life of a command in the foreground.
enum Happened {
    Copied(Result<(), Failure>),
    Ended(Result<Option<Box<Record>>, Failure>),
    Interrupted(Interrupt),
    Sent(Result<Option<Box<Record>>, ClientError>),
    Silent,
}

/// Shows the process until its leader exited and its output is copied.
pub(super) async fn watch(
    session: &Session,
    id: &str,
    showing: &Showing,
    interrupts: &mut Interrupts,
    screen: &Screen,
) -> Result<Ending, Failure> {
    let (tell_end, end) = watch::channel(None);
    let copying = copy(session, id, showing.streams, end);
    let ending = exit_of(session, id, showing.timeout.as_deref());
    let silence = until_silent(session);
    tokio::pin!(copying, ending, silence);
    let mut sending = JoinSet::new();
    let mut presses = Presses::default();
    let mut copied = false;
    let mut record: Option<Box<Record>> = None;
    let mut last_interrupt = None;
    // A stop that was sent is waited for: what it says of the tree is the last word.
    while record.is_none() || !copied || !sending.is_empty() {
        let happened = tokio::select! {
            done = &mut copying, if !copied => Happened::Copied(done),
            ended = &mut ending, if record.is_none() => Happened::Ended(ended),
            interrupt = interrupts.next() => Happened::Interrupted(interrupt),
            Some(sent) = sending.join_next() => Happened::Sent(sent.unwrap_or(Ok(None))),
            () = &mut silence, if last_interrupt.is_some() => Happened::Silent,
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
            Happened::Copied(done) => {
                done?;
                copied = true;
            }
            Happened::Interrupted(interrupt) => {
                let Some(presses) = presses.count(Instant::now()) else { continue };
                let action = action_for(interrupt, presses, record.is_some(), showing.restarts);
                if action == Action::Leave {
                    return Ok(Ending::Left(interrupt));
                }
                last_interrupt = Some(interrupt);
                screen.hint(match action {
                    Action::Signal => "sent INT; Ctrl-C again stops the whole tree",
                    Action::Stop | Action::Leave => "stopping the whole tree; Ctrl-C again leaves it to the daemon",
                });
                sending.spawn(send(session.clone(), id.to_owned(), action));
            }
            Happened::Sent(Ok(latest)) => {
                if record.is_some() {
                    record = latest.or(record);
                }
            }
            Happened::Sent(Err(error)) => screen.note(&error.to_string()),
            Happened::Silent => return Ok(Ending::Silent(last_interrupt.unwrap_or(Interrupt::Term))),
        }
    }
    Ok(record.map_or(Ending::Left(Interrupt::Int), Ending::Exited))
}

/// Returns when the daemon has not answered for [`SILENCE`].
async fn until_silent(session: &Session) {
    while tokio::time::timeout(SILENCE, session.once().health()).await.is_ok() {
        tokio::time::sleep(SILENCE).await;
    }
}

/// Waits for an answer before which there is nothing to interrupt. An interrupt is kept for then. A second one leaves,
/// and so does the first if the daemon is silent; the error is the interrupt.
pub(super) async fn heeding<T>(
    session: &Session,
    interrupts: &mut Interrupts,
    answer: impl Future<Output = T>,
) -> Result<T, Interrupt> {
    let (mut presses, mut first) = (Presses::default(), None);
    let silence = until_silent(session);
    tokio::pin!(answer, silence);
    loop {
        tokio::select! {
            answer = &mut answer => {
                interrupts.keep(first);
                return Ok(answer);
            }
            interrupt = interrupts.next() => match presses.count(Instant::now()) {
                Some(1) => first = Some(interrupt),
                Some(_) => return Err(interrupt),
                None => {}
            },
            () = &mut silence, if first.is_some() => return Err(first.unwrap_or(Interrupt::Term)),
        }
    }
}

/// Shows the output of one that has exited.
pub(super) async fn show(
    session: &Session,
    id: &str,
    streams: Option<Streams>,
    output_bytes: u64,
) -> Result<(), Failure> {
    if output_bytes == 0 {
        return Ok(());
    }
    let (_told, end) = watch::channel(Some(output_bytes));
    copy(session, id, streams, end).await
}

/// How often the person asked.
#[derive(Debug, Default)]
struct Presses {
    count: u32,
    last: Option<Instant>,
}

impl Presses {
    /// The number of this press; `None` if it is an echo of the one before.
    fn count(&mut self, now: Instant) -> Option<u32> {
        if self.last.is_some_and(|last| now.duration_since(last) < ONE_PRESS) {
            return None;
        }
        self.last = Some(now);
        self.count += 1;
        Some(self.count)
    }
}

/// What an interrupt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Signal,
    Stop,
    Leave,
}

/// The first Ctrl-C is the command's own, the second ends it, the third is for us. A command that would be restarted is
/// ended by the first.
fn action_for(interrupt: Interrupt, presses: u32, exited: bool, restarts: bool) -> Action {
    match (interrupt, presses) {
        // A restart may follow this exit, and is what is to be stopped then.
        _ if exited && !restarts => Action::Leave,
        (Interrupt::Int, 1) if !restarts => Action::Signal,
        (_, 1 | 2) => Action::Stop,
        _ => Action::Leave,
    }
}

/// Sends it; a stop gives the record as it left it.
async fn send(session: Session, id: String, action: Action) -> Result<Option<Box<Record>>, ClientError> {
    let client = session.once();
    match action {
        Action::Signal => {
            let request = SignalRequest { signal: "INT".into(), by: Some("Ctrl-C".into()) };
            client.signal(&id, &request).await.map(|_| None)
        }
        Action::Stop | Action::Leave => {
            let request = StopRequest { by: Some("an interrupt of `pinfold run`".into()), ..Default::default() };
            client.stop(&id, &request).await.map(|answer| Some(Box::new(answer.record)))
        }
    }
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
    fn an_echo_of_a_press_is_no_second_press() {
        let (mut presses, now) = (Presses::default(), Instant::now());
        assert_eq!(presses.count(now), Some(1));
        assert_eq!(presses.count(now + ONE_PRESS / 2), None);
        assert_eq!(presses.count(now + ONE_PRESS), Some(2));
    }

    #[test]
    fn each_ctrl_c_goes_one_step_further() {
        let actions: Vec<_> = (1..=3).map(|press| action_for(Interrupt::Int, press, false, false)).collect();
        assert_eq!(actions, [Action::Signal, Action::Stop, Action::Leave]);
        assert_eq!(action_for(Interrupt::Term, 1, false, false), Action::Stop);
        assert_eq!(
            action_for(Interrupt::Int, 1, false, true),
            Action::Stop,
            "INT alone would be followed by a restart"
        );
        assert_eq!(action_for(Interrupt::Int, 1, true, false), Action::Leave);
        assert_eq!(action_for(Interrupt::Int, 1, true, true), Action::Stop, "its next life is to be stopped");
    }
}
