//! Which processes had a fact or an event in the last moments, so that a start can say whether there is other news for
//! its owner. Asking the log for news instead commits to the index, which takes longer than a short command.

use std::collections::VecDeque;

use pinfold_model::id::ProcessId;

/// Changes that are remembered. About older ones the answer is that there may be news.
const MAX_REMEMBERED: usize = 256;

/// The latest changes, numbered.
#[derive(Debug)]
pub(super) struct RecentChanges {
    /// The number of the latest change.
    last: u64,
    /// Consecutive numbers; the latest is at the back.
    changes: VecDeque<(ProcessId, String)>,
}

impl RecentChanges {
    /// Starts after `last`, which must be larger than any number of an earlier daemon.
    pub(super) fn after(last: u64) -> Self {
        RecentChanges { last, changes: VecDeque::new() }
    }

    pub(super) fn note(&mut self, process: &ProcessId, owner: &str) {
        if self.changes.len() == MAX_REMEMBERED {
            self.changes.pop_front();
        }
        self.changes.push_back((process.clone(), owner.to_owned()));
        self.last += 1;
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Whether another process of this owner may have changed after the change with the number `after`. False only if
    /// none did.
    pub(super) fn may_include_others(&self, after: u64, process: &ProcessId, owner: &str) -> bool {
        let Some(new) = self.last.checked_sub(after) else { return true };
        match usize::try_from(new) {
            Ok(new) if new <= self.changes.len() => {
                self.changes.iter().rev().take(new).any(|(id, of)| id != process && of == owner)
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ProcessId {
        ProcessId::parse(text).expect("an id")
    }

    #[test]
    fn only_other_processes_of_the_owner_count() {
        let mut recent = RecentChanges::after(100);
        let (own, other) = (id("aaaaaa"), id("bbbbbb"));
        recent.note(&own, "chat");
        recent.note(&other, "another chat");
        assert!(!recent.may_include_others(100, &own, "chat"));
        recent.note(&other, "chat");
        assert_eq!(recent.last(), 103);
        assert!(recent.may_include_others(100, &own, "chat"));
        assert!(!recent.may_include_others(103, &own, "chat"));
    }

    #[test]
    fn numbers_that_are_not_remembered_may_hide_news() {
        let mut recent = RecentChanges::after(100);
        let own = id("aaaaaa");
        assert!(recent.may_include_others(99, &own, "chat"), "of an earlier daemon");
        assert!(recent.may_include_others(101, &own, "chat"), "in the future");
        (0..=MAX_REMEMBERED).for_each(|_| recent.note(&own, "chat"));
        assert!(recent.may_include_others(100, &own, "chat"), "forgotten");
        assert!(!recent.may_include_others(101, &own, "chat"));
    }
}
