//! `pinfold run` in the foreground: copies the output of the process, passes Ctrl-C and other signals on, waits for its exit.

use std::io;
use std::time::{Duration, Instant};

use pinfold_api::client::ClientError;
use pinfold_api::types::{Record, SignalRequest, StopRequest, Streams, WaitQuery, WaitReason};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::commands::interrupts::{Interrupt, Interrupts};
use crate::commands::output::copy_output::{self, ReadPosition, Stream};
use crate::commands::process::wait;
use crate::console::Console;
use crate::failure::Failure;
use crate::session::Session;

/// Signals closer together than this count as one: `timeout` signals both us and our process group.
const SAME_PRESS: Duration = Duration::from_millis(200);

/// After an interrupt, a daemon that does not answer for this long is not waited for.
const MAX_SILENCE: Duration = Duration::from_secs(2);

/// What to show, and for how long.
#[derive(Clone, Debug)]
pub(super) struct WatchOptions {
    /// The process has a restart policy, so after a signal alone it would be restarted.
    pub(super) restarts: bool,
    /// Merged or separate output; `None` shows nothing.
    pub(super) streams: Option<Streams>,
    /// Maximum wait.
    pub(super) timeout: Option<String>,
}

/// How it ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// The leader exited.
    Exited(Box<Record>),
    /// The timeout passed; the process still runs.
    TimedOut,
    /// The user left: with one more Ctrl-C while it is being stopped, or with Ctrl-\ while it runs.
    Left(Interrupt),
    /// The daemon did not answer after an interrupt.
    Silent(Interrupt),
}

/// What the loop of [`watch`] reacts to.
enum Happened {
    Copied(Result<(), Failure>),
    Ended(Result<Option<Box<Record>>, Failure>),
    Interrupted(Interrupt),
    Sent(Result<Option<Box<Record>>, ClientError>),
    Silent,
}

/// Shows the process until its leader has exited and its output is copied.
pub(super) async fn watch(
    session: &Session,
    id: &str,
    options: &WatchOptions,
    interrupts: &mut Interrupts,
    console: &Console,
) -> Result<Ending, Failure> {
    let (tell_end, end) = watch::channel(None);
    let copying = copy(session, id, options.streams, end);
    let ending = exit_of(session, id, options.timeout.as_deref());
    let silence = until_silent(session);
    tokio::pin!(copying, ending, silence);
    let mut sending = JoinSet::new();
    let mut presses = Presses::default();
    let mut copied = false;
    let mut record: Option<Box<Record>> = None;
    let mut last_interrupt = None;
    // Wait for the answer to a stop: its record shows what is left of the tree.
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
                // Our stdout was closed: stop the process with SIGPIPE, as a shell pipeline would.
                let request =
                    StopRequest { signal: Some("PIPE".into()), by: Some("closed output pipe".into()), grace: None };
                let _ = session.once().stop(id, &request).await;
                return Err(failure);
            }
            Happened::Copied(done) => {
                done?;
                copied = true;
            }
            Happened::Interrupted(Interrupt::Quit) => return Ok(Ending::Left(Interrupt::Quit)),
            Happened::Interrupted(interrupt) => {
                let Some(presses) = presses.count(Instant::now()) else { continue };
                let action = action_for(interrupt, presses, record.is_some(), options.restarts);
                if action == Action::Leave {
                    return Ok(Ending::Left(interrupt));
                }
                last_interrupt = Some(interrupt);
                console.hint(match action {
                    Action::Signal => "sent INT; press Ctrl-C again to stop the whole tree",
                    Action::Stop | Action::Leave => {
                        "stopping the whole tree; press Ctrl-C again to leave without waiting"
                    }
                });
                sending.spawn(send(session.clone(), id.to_owned(), action));
            }
            Happened::Sent(Ok(latest)) => {
                if record.is_some() {
                    record = latest.or(record);
                }
            }
            Happened::Sent(Err(error)) => console.note(&error.to_string()),
            Happened::Silent => return Ok(Ending::Silent(last_interrupt.unwrap_or(Interrupt::Term))),
        }
    }
    Ok(record.map_or(Ending::Left(Interrupt::Int), Ending::Exited))
}

/// Returns when the daemon has not answered for [`MAX_SILENCE`].
async fn until_silent(session: &Session) {
    while tokio::time::timeout(MAX_SILENCE, session.once().health()).await.is_ok() {
        tokio::time::sleep(MAX_SILENCE).await;
    }
}

/// Waits for the answer to a start, before which there is no process to interrupt. A first interrupt is kept for later.
/// Fails with the interrupt at the second one, or at the first one if the daemon does not answer.
pub(super) async fn with_interrupts<T>(
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

/// Shows the output of a process that has exited.
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

/// Counts interrupts.
#[derive(Debug, Default)]
struct Presses {
    count: u32,
    last: Option<Instant>,
}

impl Presses {
    /// The number of this interrupt; `None` if it belongs to the one before.
    fn count(&mut self, now: Instant) -> Option<u32> {
        if self.last.is_some_and(|last| now.duration_since(last) < SAME_PRESS) {
            return None;
        }
        self.last = Some(now);
        self.count += 1;
        Some(self.count)
    }
}

/// What to do about an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Signal,
    Stop,
    Leave,
}

/// The first Ctrl-C is passed on, the second stops the tree, the third leaves. With a restart policy the first one stops.
fn action_for(interrupt: Interrupt, presses: u32, exited: bool, restarts: bool) -> Action {
    match (interrupt, presses) {
        // With a restart policy the exit may be followed by a restart, which has to be stopped.
        _ if exited && !restarts => Action::Leave,
        (Interrupt::Int, 1) if !restarts => Action::Signal,
        (_, 1 | 2) => Action::Stop,
        _ => Action::Leave,
    }
}

/// Sends the signal or the stop; a stop returns the record after it.
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
    let position = ReadPosition { id: id.to_owned(), ..Default::default() };
    match streams {
        None => end.wait_for(Option::is_some).await.map(drop).map_err(|error| io::Error::other(error).into()),
        Some(Streams::Merged) => copy_output::until_exit(session, position, Stream::Merged, end).await,
        Some(Streams::Separate) => {
            let stdout = copy_output::until_exit(session, position.clone(), Stream::Stdout, end.clone());
            let stderr = copy_output::until_exit(session, position, Stream::Stderr, end);
            tokio::try_join!(stdout, stderr).map(drop)
        }
    }
}

/// The record after the leader's exit; `None` if the timeout passed before.
async fn exit_of(session: &Session, id: &str, timeout: Option<&str>) -> Result<Option<Box<Record>>, Failure> {
    let query = WaitQuery { until: Some("exit".into()), timeout: timeout.map(str::to_owned), ..Default::default() };
    let answer = wait::wait_for_one(session, id, &query).await?;
    Ok((answer.reason != WaitReason::Timeout).then(|| Box::new(answer.record)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_close_together_count_once() {
        let (mut presses, now) = (Presses::default(), Instant::now());
        assert_eq!(presses.count(now), Some(1));
        assert_eq!(presses.count(now + SAME_PRESS / 2), None);
        assert_eq!(presses.count(now + SAME_PRESS), Some(2));
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
        assert_eq!(action_for(Interrupt::Int, 1, true, true), Action::Stop, "the restart has to be stopped");
    }
}
