//! What the daemon concludes from a link that closed or could not be made: whether the keeper lives, whether to connect again,
//! and when what it kept must be settled without it ([`crate::loss`]).
//!
//! A closed link is no sign of the keeper's death: a send may have failed, or a message was not a message. The kernel says
//! whether it is dead; one that lives is connected to again, for as long as it lives.

use std::io;
use std::time::Duration;

use crate::facts::Status;
use crate::id::ProcessId;
use crate::link::KeeperIdentity;

/// The pauses between two tries grow from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// What the kernel says of a pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// No process has it.
    Gone,
    Process {
        start_time: u64,
        living: bool,
    },
    /// It could not be looked up, for want of descriptors, say.
    Unknown,
}

/// Whether this very keeper lives: its pid may be another's by now. Only the kernel's word that there is no such process
/// counts, not that we cannot look.
pub fn lives(keeper: &KeeperIdentity, sighting: Sighting) -> bool {
    match sighting {
        Sighting::Gone => false,
        Sighting::Process { start_time, living } => start_time == keeper.start_time && living,
        Sighting::Unknown => true,
    }
}

/// What follows when a new daemon cannot connect to the socket of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unconnected {
    /// Nobody listens there any more: the socket is removed.
    Remove,
    /// The socket is gone, and so is its keeper.
    Forget,
    /// A failure of ours, such as a lack of descriptors, says nothing of the keeper. It is tried again, also if no record
    /// tells of it: a start may be under way there.
    Again,
}

pub fn unconnected(failure: io::ErrorKind) -> Unconnected {
    match failure {
        io::ErrorKind::ConnectionRefused => Unconnected::Remove,
        io::ErrorKind::NotFound => Unconnected::Forget,
        _ => Unconnected::Again,
    }
}

/// What follows when the link to the keeper of a process closed, or could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterClose {
    /// The process is over: nothing.
    Nothing,
    /// The keeper is dead.
    Settle,
    /// It lives: it is connected to again.
    Reach,
}

pub fn after_close(is_over: bool, lives: impl FnOnce() -> bool) -> AfterClose {
    match is_over {
        true => AfterClose::Nothing,
        false if lives() => AfterClose::Reach,
        false => AfterClose::Settle,
    }
}

/// What was heard on a new link to a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    Hello {
        keeper: &'a KeeperIdentity,
        keeps: Option<&'a ProcessId>,
    },
    /// It speaks a newer protocol.
    Newer,
    Closed,
    /// Nothing in time: it may be stopped by a signal, and say hello when it goes on.
    Silent,
}

/// What came of a try to reach the keeper of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It has the process.
    Linked,
    /// It is connected, and will say what it keeps when it can; the text says what is wrong with it.
    Bound(&'static str),
    /// It keeps nothing: it ends.
    WithoutIt,
    /// It keeps another process.
    Disowned,
    Not,
}

/// What a new link to the keeper of this process amounts to.
pub fn reached(keeper: &KeeperIdentity, process: &ProcessId, heard: Heard<'_>) -> Reached {
    match heard {
        Heard::Hello { keeper: told, .. } if told != keeper => Reached::Not,
        Heard::Hello { keeps: None, .. } => Reached::WithoutIt,
        Heard::Hello { keeps: Some(kept), .. } if kept == process => Reached::Linked,
        Heard::Hello { .. } => Reached::Disowned,
        Heard::Newer => Reached::Bound("is of a newer pinfold: upgrade this one"),
        Heard::Closed => Reached::Not,
        Heard::Silent => Reached::Bound("does not answer"),
    }
}

/// Reaching one keeper, try after try, until its process is over, it is linked again, or it is dead.
#[derive(Debug)]
pub struct Reaching {
    pause: Duration,
}

/// What to do after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeTry {
    /// Nothing more: it is over, or linked.
    Done,
    /// The keeper is dead.
    Settle,
    Try,
}

/// What to do after a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterTry {
    Done,
    /// Its keeper said that it keeps another process.
    SettleDisowned,
    Again,
    /// The same, and its process is listed with a note.
    AgainUnreachable,
}

impl Default for Reaching {
    fn default() -> Self {
        Self { pause: FIRST_PAUSE }
    }
}

impl Reaching {
    /// How long to wait before the next try.
    pub fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LAST_PAUSE);
        pause
    }

    /// `is_over`: also by its record, which a keeper may have written and could not report.
    pub fn before_try(
        &self,
        is_over: bool,
        lives: impl FnOnce() -> bool,
        is_linked: impl FnOnce() -> bool,
    ) -> BeforeTry {
        match is_over {
            true => BeforeTry::Done,
            false if !lives() => BeforeTry::Settle,
            false if is_linked() => BeforeTry::Done,
            false => BeforeTry::Try,
        }
    }

    pub fn after_try(&self, reached: Reached) -> AfterTry {
        match reached {
            Reached::Linked | Reached::Bound(_) => AfterTry::Done,
            Reached::WithoutIt => AfterTry::Again,
            Reached::Disowned => AfterTry::SettleDisowned,
            Reached::Not => AfterTry::AgainUnreachable,
        }
    }
}

/// Whether a process was bound by mistake to a keeper that did not answer then, and now says who it is and what it keeps.
pub fn is_mistaken(
    (process, keeper): (&ProcessId, &KeeperIdentity),
    told: &KeeperIdentity,
    keeps: Option<&ProcessId>,
) -> bool {
    told != keeper || keeps != Some(process)
}

/// Whether the word of a keeper about what it keeps is taken up, given the status that is known of the process. A keeper may
/// say hello in the moment between writing the end and letting go: a process that is over, and new to this daemon, is taken up
/// with its end.
pub fn is_adopted(known: Option<Status>) -> bool {
    known.is_none_or(|status| !status.is_over())
}

/// How it stands with the link to a keeper, when a new daemon takes up what it kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownLink {
    /// None could be made.
    Absent,
    /// It is connected, and has not said hello.
    Silent,
    Newer,
    /// It has said hello, or the link closed.
    Other,
}

/// What a new daemon does about a process that is not over and that no keeper has said to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeUp {
    /// It belongs to the keeper at the other end of the link, about which the text says what is wrong.
    Bind(&'static str),
    /// Its keeper lives: connect again.
    Reach,
    /// Its keeper is dead, or (`disowned`) lives and keeps another process.
    Settle { disowned: bool },
}

pub fn take_up(link: KnownLink, lives: bool, keeps_another: impl FnOnce() -> bool) -> TakeUp {
    match link {
        KnownLink::Silent if lives => TakeUp::Bind("does not answer"),
        KnownLink::Newer => TakeUp::Bind("is of a newer pinfold: upgrade this one"),
        // Its socket is gone, say, or the link closed; its process is none the worse for it.
        _ if lives && !keeps_another() => TakeUp::Reach,
        link => TakeUp::Settle { disowned: link != KnownLink::Absent && lives },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper() -> KeeperIdentity {
        KeeperIdentity { pid: 7, start_time: 3, cgroup: None }
    }

    #[test]
    fn only_the_kernels_word_makes_a_keeper_dead() {
        assert!(!lives(&keeper(), Sighting::Gone));
        assert!(lives(&keeper(), Sighting::Unknown), "that we cannot look is no proof");
        assert!(lives(&keeper(), Sighting::Process { start_time: 3, living: true }));
        assert!(!lives(&keeper(), Sighting::Process { start_time: 4, living: true }), "another has its pid");
        assert!(!lives(&keeper(), Sighting::Process { start_time: 3, living: false }), "a zombie");
    }

    #[test]
    fn a_closed_link_to_a_living_keeper_is_made_again() {
        assert_eq!(after_close(false, || true), AfterClose::Reach);
        assert_eq!(after_close(false, || false), AfterClose::Settle);
        assert_eq!(after_close(true, || false), AfterClose::Nothing);
    }

    #[test]
    fn a_hello_says_whether_the_process_is_kept() {
        let (ours, other) = (ProcessId::from_number(1, 1), ProcessId::from_number(2, 1));
        let hello = |keeps| Heard::Hello { keeper: Box::leak(Box::new(keeper())), keeps };
        assert_eq!(reached(&keeper(), &ours, hello(Some(&ours))), Reached::Linked);
        assert_eq!(reached(&keeper(), &ours, hello(Some(&other))), Reached::Disowned);
        assert_eq!(reached(&keeper(), &ours, hello(None)), Reached::WithoutIt);
        let stranger = KeeperIdentity { start_time: 4, ..keeper() };
        let hello = Heard::Hello { keeper: &stranger, keeps: Some(&ours) };
        assert_eq!(reached(&keeper(), &ours, hello), Reached::Not, "another keeper has its pid");
        assert!(matches!(reached(&keeper(), &ours, Heard::Silent), Reached::Bound(_)));
    }

    #[test]
    fn only_a_refused_connection_removes_a_keepers_socket() {
        assert_eq!(unconnected(io::ErrorKind::ConnectionRefused), Unconnected::Remove);
        assert_eq!(unconnected(io::ErrorKind::NotFound), Unconnected::Forget);
        assert_eq!(unconnected(io::Error::from_raw_os_error(24).kind()), Unconnected::Again);
    }

    #[test]
    fn an_end_is_taken_up_from_a_hello_once() {
        assert!(is_adopted(None), "also if it is over");
        assert!(is_adopted(Some(Status::Running)));
        assert!(!is_adopted(Some(Status::Finished)) && !is_adopted(Some(Status::Lost)));
    }

    /// A keeper that does not answer may be another that was given the pid of a dead one.
    #[test]
    fn a_silent_keeper_may_turn_out_to_be_another() {
        let (ours, other) = (ProcessId::from_number(1, 1), ProcessId::from_number(2, 1));
        let stranger = KeeperIdentity { start_time: 4, ..keeper() };
        assert!(!is_mistaken((&ours, &keeper()), &keeper(), Some(&ours)));
        assert!(is_mistaken((&ours, &keeper()), &keeper(), Some(&other)));
        assert!(is_mistaken((&ours, &keeper()), &keeper(), None));
        assert!(is_mistaken((&ours, &keeper()), &stranger, Some(&ours)));
    }

    #[test]
    fn pauses_grow_to_a_second() {
        let mut reaching = Reaching::default();
        let pauses: Vec<_> = (0..9).map(|_| reaching.pause().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }

    #[test]
    fn a_living_keeper_is_taken_for_dead_only_if_it_says_so_itself() {
        for link in [KnownLink::Absent, KnownLink::Silent, KnownLink::Newer, KnownLink::Other] {
            assert!(!matches!(take_up(link, true, || false), TakeUp::Settle { .. }), "{link:?}");
        }
        assert_eq!(take_up(KnownLink::Other, true, || true), TakeUp::Settle { disowned: true });
        assert_eq!(take_up(KnownLink::Absent, false, || false), TakeUp::Settle { disowned: false });
        assert_eq!(take_up(KnownLink::Silent, false, || false), TakeUp::Settle { disowned: false });
    }
}
