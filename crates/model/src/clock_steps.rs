//! Ages of ended processes, corrected for steps of the wall clock.
//!
//! Ends are stamped with the wall clock. If it is set forward, everything that ended before seems older, and
//! retention would remove it too early. So observed steps are subtracted from ages.

use std::time::Duration;

use crate::units::Moment;

/// A smaller difference is drift, not a step.
const TOLERANCE: Duration = Duration::from_secs(60);
/// Above this, the two oldest steps are merged into one, which can only make ages smaller: things are kept longer.
const MAX_STEPS: usize = 64;

/// Observed forward steps, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockSteps {
    /// The wall clock before the step, and the size of the step.
    steps: Vec<(Moment, Duration)>,
}

impl ClockSteps {
    /// Compares two readings of the wall clock with the time that a monotonic clock measured between them.
    pub fn note(&mut self, before: Moment, now: Moment, elapsed: Duration) {
        let step = now.since(before).saturating_sub(elapsed);
        if step < TOLERANCE {
            return;
        }
        self.steps.push((before.after(elapsed), step));
        if self.steps.len() > MAX_STEPS {
            let (_, oldest) = self.steps.remove(0);
            self.steps[0].1 += oldest;
        }
    }

    /// Time since an end with this timestamp.
    pub fn age(&self, ended: Moment, now: Moment) -> Duration {
        let steps = self.steps.iter().filter(|(at, _)| ended <= *at).map(|(_, step)| *step);
        now.since(ended).saturating_sub(steps.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_forward_step_does_not_age_what_ended_before_it() {
        let (ended, mut steps) = (Moment(1_000_000), ClockSteps::default());
        let before = ended.after(MINUTE);
        let stepped = before.after(YEAR);
        assert_eq!(steps.age(ended, stepped), YEAR + MINUTE, "an unobserved step");
        steps.note(before, stepped, Duration::from_secs(30));
        assert_eq!(steps.age(ended, stepped), MINUTE + Duration::from_secs(30));
        let later = stepped.after(MINUTE);
        assert_eq!(steps.age(stepped, later), MINUTE, "an end after the step");
        steps.note(later, later.after(YEAR), Duration::ZERO);
        assert_eq!(steps.age(ended, later.after(YEAR)), 2 * MINUTE + Duration::from_secs(30), "steps add up");
        assert_eq!(steps.age(stepped, later.after(YEAR)), MINUTE);
    }

    #[test]
    fn drift_and_backward_steps_are_ignored() {
        let (at, mut steps) = (Moment(1_000_000_000_000), ClockSteps::default());
        steps.note(at, at.after(MINUTE), MINUTE - Duration::from_secs(1));
        steps.note(at, Moment(1), MINUTE);
        assert_eq!(steps, ClockSteps::default());
        assert_eq!(steps.age(at, Moment(1)), Duration::ZERO);
    }

    #[test]
    fn the_number_of_steps_is_bounded_and_merging_ages_nothing() {
        let (ended, mut at, mut steps) = (Moment(1_000_000), Moment(1_000_000), ClockSteps::default());
        for _ in 0..3 * MAX_STEPS {
            let next = at.after(YEAR);
            steps.note(at, next, MINUTE);
            at = next;
        }
        assert_eq!(steps.steps.len(), MAX_STEPS);
        assert_eq!(steps.age(ended, at), MINUTE * 3 * MAX_STEPS as u32);
    }
}
