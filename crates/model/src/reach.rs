//! What the daemon does when a link to a keeper closed or could not be made: reconnect, or handle the keeper's death
//! ([`crate::loss`]).
//!
//! A closed link does not mean that the keeper is dead: a send may have failed, or a message was malformed. Only the
//! kernel knows. A running keeper is reconnected to, for as long as it runs.

use std::io;
use std::time::Duration;

use crate::facts::Status;
use crate::id::ProcessId;
use crate::link::KeeperIdentity;

/// Bounds of the delay between two attempts; it doubles each time.
const MIN_DELAY: Duration = Duration::from_millis(10);
const MAX_DELAY: Duration = Duration::from_secs(1);

/// The kernel's answer about a pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidState {
    /// No process has this pid.
    Gone,
    Process {
        start_time: u64,
        alive: bool,
    },
    /// It could not be looked up, for example because no descriptors are free.
    Unknown,
}

/// Whether this keeper is running. Another process may have its pid by now; a failed lookup does not prove that it is dead.
pub fn is_alive(keeper: &KeeperIdentity, state: PidState) -> bool {
    match state {
        PidState::Gone => false,
        PidState::Process { start_time, alive } => start_time == keeper.start_time && alive,
        PidState::Unknown => true,
    }
}

/// What to do if a new daemon cannot connect to a keeper's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterConnectError {
    /// No process listens: remove the socket.
    Remove,
    /// The socket no longer exists, so its keeper has ended.
    Forget,
    /// An error on our side, such as no free descriptors, says nothing about the keeper. Retry even if no record
    /// names this keeper: it may be starting a process.
    Retry,
}

pub fn after_connect_error(failure: io::ErrorKind) -> AfterConnectError {
    match failure {
        io::ErrorKind::ConnectionRefused => AfterConnectError::Remove,
        io::ErrorKind::NotFound => AfterConnectError::Forget,
        _ => AfterConnectError::Retry,
    }
}

/// What to do when the link to a process's keeper closed or could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterClose {
    /// The process is over.
    Nothing,
    KeeperDied,
    /// The keeper is running.
    Reconnect,
}

pub fn after_close(is_over: bool, is_alive: impl FnOnce() -> bool) -> AfterClose {
    match is_over {
        true => AfterClose::Nothing,
        false if is_alive() => AfterClose::Reconnect,
        false => AfterClose::KeeperDied,
    }
}

/// What a keeper sent on a new link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperReply<'a> {
    Hello {
        keeper: &'a KeeperIdentity,
        keeps: Option<&'a ProcessId>,
    },
    /// It speaks a newer protocol.
    Newer,
    Closed,
    /// Nothing in time; it may be stopped by a signal and reply later.
    Silent,
}

/// The result of an attempt to reconnect to the keeper of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnected {
    /// It runs the process.
    Linked,
    /// Connected, but without a hello; the text says what is wrong. It will say later what it runs.
    Waiting(&'static str),
    /// It runs nothing, and will end.
    KeepsNothing,
    /// It runs another process.
    KeepsAnother,
    Failed,
}

/// Evaluates the reply on a new link.
pub fn reconnected(keeper: &KeeperIdentity, process: &ProcessId, reply: KeeperReply<'_>) -> Reconnected {
    match reply {
        KeeperReply::Hello { keeper: actual, .. } if actual != keeper => Reconnected::Failed,
        KeeperReply::Hello { keeps: None, .. } => Reconnected::KeepsNothing,
        KeeperReply::Hello { keeps: Some(kept), .. } if kept == process => Reconnected::Linked,
        KeeperReply::Hello { .. } => Reconnected::KeepsAnother,
        KeeperReply::Newer => Reconnected::Waiting("is of a newer pinfold: upgrade this one"),
        KeeperReply::Closed => Reconnected::Failed,
        KeeperReply::Silent => Reconnected::Waiting("does not answer"),
    }
}

/// The delay between attempts to reconnect to one keeper.
#[derive(Debug)]
pub struct Backoff {
    delay: Duration,
}

/// What to do before an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeTry {
    /// The process is over, or its keeper is connected.
    Done,
    KeeperDied,
    Try,
}

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterTry {
    Done,
    /// The keeper runs another process.
    KeepsAnother,
    Retry,
    /// Retry, and note in lists that the keeper cannot be reached.
    RetryUnreachable,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { delay: MIN_DELAY }
    }
}

impl Backoff {
    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.delay;
        self.delay = (delay * 2).min(MAX_DELAY);
        delay
    }

    /// `is_over`: according to the keeper, or to the record, which may hold an end that the keeper could not send.
    pub fn before_try(
        &self,
        is_over: bool,
        is_alive: impl FnOnce() -> bool,
        is_linked: impl FnOnce() -> bool,
    ) -> BeforeTry {
        match is_over {
            true => BeforeTry::Done,
            false if !is_alive() => BeforeTry::KeeperDied,
            false if is_linked() => BeforeTry::Done,
            false => BeforeTry::Try,
        }
    }

    pub fn after_try(&self, reached: Reconnected) -> AfterTry {
        match reached {
            Reconnected::Linked | Reconnected::Waiting(_) => AfterTry::Done,
            Reconnected::KeepsNothing => AfterTry::Retry,
            Reconnected::KeepsAnother => AfterTry::KeepsAnother,
            Reconnected::Failed => AfterTry::RetryUnreachable,
        }
    }
}

/// Whether a process was bound to a keeper that did not reply, and its late hello names another keeper or process.
pub fn is_wrong_keeper(
    (process, keeper): (&ProcessId, &KeeperIdentity),
    actual: &KeeperIdentity,
    keeps: Option<&ProcessId>,
) -> bool {
    actual != keeper || keeps != Some(process)
}

/// Whether to accept what a keeper's hello says about a process, given the status known so far. The process may be
/// over already, if the hello was sent just after the end was written: if it is new to this daemon, it is adopted
/// with its end.
pub fn should_adopt(known: Option<Status>) -> bool {
    known.is_none_or(|status| !status.is_over())
}

/// The link to a process's keeper, when a new daemon adopts the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownLink {
    /// Could not be made.
    Absent,
    /// Connected, but no hello yet.
    Silent,
    Newer,
    /// Got a hello, or closed since.
    Other,
}

/// What a new daemon does about a process that is not over and that no keeper has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// It belongs to the keeper on this link; the text says what is wrong with the keeper.
    Bind(&'static str),
    /// Its keeper is running.
    Reconnect,
    /// Its keeper is dead, or (`disowned`) runs another process.
    KeeperDied { disowned: bool },
}

pub fn adopt(link: KnownLink, is_alive: bool, keeps_another: impl FnOnce() -> bool) -> Adoption {
    match link {
        KnownLink::Silent if is_alive => Adoption::Bind("does not answer"),
        KnownLink::Newer => Adoption::Bind("is of a newer pinfold: upgrade this one"),
        // Its socket was deleted, or the link closed.
        _ if is_alive && !keeps_another() => Adoption::Reconnect,
        link => Adoption::KeeperDied { disowned: link != KnownLink::Absent && is_alive },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper() -> KeeperIdentity {
        KeeperIdentity { pid: 7, start_time: 3, cgroup: None }
    }

    #[test]
    fn a_keeper_is_dead_only_if_the_kernel_says_so() {
        assert!(!is_alive(&keeper(), PidState::Gone));
        assert!(is_alive(&keeper(), PidState::Unknown), "a failed lookup proves nothing");
        assert!(is_alive(&keeper(), PidState::Process { start_time: 3, alive: true }));
        assert!(!is_alive(&keeper(), PidState::Process { start_time: 4, alive: true }), "another has its pid");
        assert!(!is_alive(&keeper(), PidState::Process { start_time: 3, alive: false }), "a zombie");
    }

    #[test]
    fn a_running_keeper_is_reconnected_to_after_its_link_closed() {
        assert_eq!(after_close(false, || true), AfterClose::Reconnect);
        assert_eq!(after_close(false, || false), AfterClose::KeeperDied);
        assert_eq!(after_close(true, || false), AfterClose::Nothing);
    }

    #[test]
    fn a_hello_says_which_process_the_keeper_runs() {
        let (ours, other) = (ProcessId::from_number(1, 1), ProcessId::from_number(2, 1));
        let hello = |keeps| KeeperReply::Hello { keeper: Box::leak(Box::new(keeper())), keeps };
        assert_eq!(reconnected(&keeper(), &ours, hello(Some(&ours))), Reconnected::Linked);
        assert_eq!(reconnected(&keeper(), &ours, hello(Some(&other))), Reconnected::KeepsAnother);
        assert_eq!(reconnected(&keeper(), &ours, hello(None)), Reconnected::KeepsNothing);
        let stranger = KeeperIdentity { start_time: 4, ..keeper() };
        let hello = KeeperReply::Hello { keeper: &stranger, keeps: Some(&ours) };
        assert_eq!(reconnected(&keeper(), &ours, hello), Reconnected::Failed, "another keeper has its pid");
        assert!(matches!(reconnected(&keeper(), &ours, KeeperReply::Silent), Reconnected::Waiting(_)));
    }

    #[test]
    fn only_a_refused_connection_removes_a_keepers_socket() {
        assert_eq!(after_connect_error(io::ErrorKind::ConnectionRefused), AfterConnectError::Remove);
        assert_eq!(after_connect_error(io::ErrorKind::NotFound), AfterConnectError::Forget);
        assert_eq!(after_connect_error(io::Error::from_raw_os_error(24).kind()), AfterConnectError::Retry);
    }

    #[test]
    fn an_end_is_adopted_from_a_hello_once() {
        assert!(should_adopt(None), "also if it is over");
        assert!(should_adopt(Some(Status::Running)));
        assert!(!should_adopt(Some(Status::Finished)) && !should_adopt(Some(Status::Lost)));
    }

    /// A silent keeper may be a new one with the pid of a dead one.
    #[test]
    fn a_late_hello_may_reveal_another_keeper() {
        let (ours, other) = (ProcessId::from_number(1, 1), ProcessId::from_number(2, 1));
        let stranger = KeeperIdentity { start_time: 4, ..keeper() };
        assert!(!is_wrong_keeper((&ours, &keeper()), &keeper(), Some(&ours)));
        assert!(is_wrong_keeper((&ours, &keeper()), &keeper(), Some(&other)));
        assert!(is_wrong_keeper((&ours, &keeper()), &keeper(), None));
        assert!(is_wrong_keeper((&ours, &keeper()), &stranger, Some(&ours)));
    }

    #[test]
    fn delays_grow_to_a_second() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..9).map(|_| backoff.next_delay().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }

    #[test]
    fn a_running_keeper_is_given_up_only_if_it_runs_another_process() {
        for link in [KnownLink::Absent, KnownLink::Silent, KnownLink::Newer, KnownLink::Other] {
            assert!(!matches!(adopt(link, true, || false), Adoption::KeeperDied { .. }), "{link:?}");
        }
        assert_eq!(adopt(KnownLink::Other, true, || true), Adoption::KeeperDied { disowned: true });
        assert_eq!(adopt(KnownLink::Absent, false, || false), Adoption::KeeperDied { disowned: false });
        assert_eq!(adopt(KnownLink::Silent, false, || false), Adoption::KeeperDied { disowned: false });
    }
}
