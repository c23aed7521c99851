//! What follows when a keeper died: its record holds the end, or the process is lost.
//!
//! Without proof of death ([`DeathEvidence`]) nothing is killed, written or reported. A loss is reported only after
//! it is written: otherwise a later daemon might conclude something else.

use crate::facts::{Fact, History};

/// The lock on a record. A keeper holds it from creating the record until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    Free,
    Held,
    /// There is no record.
    Absent,
    /// It could not be checked, for example because no descriptors are free.
    Unknown,
}

/// What is known of the keeper of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeathEvidence {
    /// The kernel reports it running, or cannot be asked. Always false for a keeper of an earlier boot.
    pub alive: bool,
    /// It has reported that it runs another process.
    pub disowned: bool,
    pub lock: LockState,
}

/// Why a keeper is not proven dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotProvenDead {
    Alive,
    /// Its record is locked: it has not ended, or a child it was starting has not.
    Locked,
    Unknown,
}

impl DeathEvidence {
    /// Whether the remains may be killed and a loss be written. Keepers before protocol version 6 hold no lock.
    pub fn check(self) -> Result<(), NotProvenDead> {
        match self {
            Self { alive: true, disowned: false, .. } => Err(NotProvenDead::Alive),
            Self { lock: LockState::Held, .. } => Err(NotProvenDead::Locked),
            Self { lock: LockState::Unknown, .. } => Err(NotProvenDead::Unknown),
            Self { lock: LockState::Free | LockState::Absent, .. } => Ok(()),
        }
    }
}

/// The result of reading a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordRead {
    Facts(Vec<Fact>),
    /// It does not exist, or not even its first line is complete.
    Nothing,
    /// It is damaged, or was written by a newer pinfold.
    Unreadable,
}

/// What the record of a dead keeper's process says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedEnd {
    /// It is over; these facts are new.
    End(Vec<Fact>),
    /// These facts are new; none of them is an end.
    NoEnd(Vec<Fact>),
    /// It has no record, so nothing was started: the intent is written first.
    NeverStarted,
}

/// Compares the record with what is known of the process.
pub fn recorded_end(history: &History, read: RecordRead) -> RecordedEnd {
    let facts = match read {
        RecordRead::Facts(facts) => facts,
        RecordRead::Nothing if history.start.is_none() => return RecordedEnd::NeverStarted,
        RecordRead::Nothing | RecordRead::Unreadable => vec![],
    };
    let (news, after) = history.news(facts);
    if after.status().is_over() { RecordedEnd::End(news) } else { RecordedEnd::NoEnd(news) }
}

impl RecordedEnd {
    /// Whether remains of the tree must be looked for: they may exist, and there is no evidence of an earlier search.
    pub fn needs_sweep(&self, has_evidence: bool) -> bool {
        match self {
            RecordedEnd::End(_) => false,
            RecordedEnd::NoEnd(_) => !has_evidence,
            RecordedEnd::NeverStarted => true,
        }
    }
}

/// The result of appending a loss to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossAppend {
    Written,
    /// The record already holds an end.
    Over,
    /// The record was deleted.
    Missing,
    /// The record is locked.
    Locked,
    /// The write failed.
    Refused,
    /// The record is damaged or was written by a newer pinfold: nothing can be appended.
    Unusable,
}

/// What to do after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterAppend {
    /// Report the loss.
    Report,
    /// Report what the record says.
    ReadAgain,
    /// Its directory was deleted: write a new record first.
    Recreate,
    /// Report nothing yet; try again.
    Retry,
}

pub fn after_append(appended: LossAppend) -> AfterAppend {
    match appended {
        LossAppend::Written | LossAppend::Unusable => AfterAppend::Report,
        LossAppend::Over => AfterAppend::ReadAgain,
        LossAppend::Missing => AfterAppend::Recreate,
        LossAppend::Locked | LossAppend::Refused => AfterAppend::Retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each combination: a running keeper, a held lock and a failed check each rule it out.
    #[test]
    fn a_keeper_is_dead_only_with_proof() {
        for alive in [false, true] {
            for disowned in [false, true] {
                for lock in [LockState::Free, LockState::Held, LockState::Absent, LockState::Unknown] {
                    let dead = DeathEvidence { alive, disowned, lock }.check();
                    let expected = (!alive || disowned) && matches!(lock, LockState::Free | LockState::Absent);
                    assert_eq!(dead.is_ok(), expected, "{alive} {disowned} {lock:?}");
                }
            }
        }
    }

    #[test]
    fn a_loss_is_reported_only_after_it_is_written_or_never_can_be() {
        assert_eq!(after_append(LossAppend::Refused), AfterAppend::Retry);
        assert_eq!(after_append(LossAppend::Locked), AfterAppend::Retry);
        assert_eq!(after_append(LossAppend::Over), AfterAppend::ReadAgain);
        assert_eq!(after_append(LossAppend::Written), AfterAppend::Report);
    }
}
