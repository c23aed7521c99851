//! A process whose keeper died: its record tells the end, or it is lost. What proof that needs, what follows from what is found, and
//! what may be told.
//!
//! Nothing is swept, written or told without [`Proof`]; and a loss is told only when it is written, since it could be told otherwise
//! later.

use crate::facts::{Fact, History};

/// How it stands with the lock on a record, which a keeper holds from the moment it makes the record to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    Free,
    Held,
    /// There is no record that could be locked.
    Absent,
    /// It could not be looked at, for want of descriptors, say.
    Unknown,
}

/// What is known of the keeper of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The kernel knows it, or cannot be asked. Never so of a keeper of another boot.
    pub lives: bool,
    /// It has told that it keeps another process.
    pub disowned: bool,
    pub lock: Lock,
}

/// Why a keeper does not count as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDead {
    Lives,
    /// Its record is locked: it is not gone, or a child that it was starting.
    Locked,
    Unknown,
}

impl Proof {
    /// Without this nothing is swept and no loss is written. A keeper of before version 6 held no lock.
    pub fn check(self) -> Result<(), NotDead> {
        match self {
            Self { lives: true, disowned: false, .. } => Err(NotDead::Lives),
            Self { lock: Lock::Held, .. } => Err(NotDead::Locked),
            Self { lock: Lock::Unknown, .. } => Err(NotDead::Unknown),
            Self { lock: Lock::Free | Lock::Absent, .. } => Ok(()),
        }
    }
}

/// What reading a record gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordRead {
    Facts(Vec<Fact>),
    /// There is none, or not even its first line.
    Nothing,
    /// It is damaged, or of a newer pinfold.
    Unreadable,
}

/// What the record of a process says whose keeper died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedEnd {
    /// All: it is over. These facts are new.
    End(Vec<Fact>),
    /// These facts are new, and none of them is its end.
    NoEnd(Vec<Fact>),
    /// It has no record, and nothing was started: the intent is written before that.
    NeverBegan,
}

/// What a record adds to what is known of a process.
pub fn recorded_end(history: &History, read: RecordRead) -> RecordedEnd {
    let facts = match read {
        RecordRead::Facts(facts) => facts,
        RecordRead::Nothing if history.start.is_none() => return RecordedEnd::NeverBegan,
        RecordRead::Nothing | RecordRead::Unreadable => vec![],
    };
    let (news, after) = history.news(facts);
    if after.status().is_over() { RecordedEnd::End(news) } else { RecordedEnd::NoEnd(news) }
}

impl RecordedEnd {
    /// Whether what is left of the tree must be looked for: it was not before, as `has_evidence` says, and it may exist.
    pub fn needs_sweep(&self, has_evidence: bool) -> bool {
        match self {
            RecordedEnd::End(_) => false,
            RecordedEnd::NoEnd(_) => !has_evidence,
            RecordedEnd::NeverBegan => true,
        }
    }
}

/// What came of appending a loss to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    Written,
    /// The record holds an end.
    Over,
    /// The record is gone.
    Missing,
    /// Somebody holds its lock.
    Held,
    /// The disk refused it.
    Refused,
    /// The record is damaged, or of a newer pinfold: it takes nothing more.
    Unusable,
}

/// What follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterAppend {
    /// The loss is told.
    Tell,
    /// What stands there is what is told.
    ReadAgain,
    /// Its directory was deleted: what is told must be written somewhere.
    WriteAnew,
    /// Nothing is told yet; it is tried again.
    Again,
}

pub fn after_append(appended: Appended) -> AfterAppend {
    match appended {
        Appended::Written | Appended::Unusable => AfterAppend::Tell,
        Appended::Over => AfterAppend::ReadAgain,
        Appended::Missing => AfterAppend::WriteAnew,
        Appended::Held | Appended::Refused => AfterAppend::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proof, cell by cell: a living keeper, a held lock and a failed look each forbid it.
    #[test]
    fn a_keeper_counts_as_dead_only_with_proof() {
        for lives in [false, true] {
            for disowned in [false, true] {
                for lock in [Lock::Free, Lock::Held, Lock::Absent, Lock::Unknown] {
                    let dead = Proof { lives, disowned, lock }.check();
                    let expected = (!lives || disowned) && matches!(lock, Lock::Free | Lock::Absent);
                    assert_eq!(dead.is_ok(), expected, "{lives} {disowned} {lock:?}");
                }
            }
        }
    }

    #[test]
    fn a_loss_is_told_only_when_it_is_written_or_never_can_be() {
        assert_eq!(after_append(Appended::Refused), AfterAppend::Again);
        assert_eq!(after_append(Appended::Held), AfterAppend::Again);
        assert_eq!(after_append(Appended::Over), AfterAppend::ReadAgain);
        assert_eq!(after_append(Appended::Written), AfterAppend::Tell);
    }
}
