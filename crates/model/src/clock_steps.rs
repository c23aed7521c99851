//! Ages that survive a step of the wall clock.
//!
//! Ends are stamped with the wall clock. When that is set forward, everything that ended before seems older than it is, and
//! retention would remove it. So steps that were seen are taken off again: an end ages by the time that really passed.

use std::time::Duration;

use crate::units::Moment;

/// Differences below this are drift, not a step.
const TOLERANCE: Duration = Duration::from_secs(60);
/// Steps that are remembered; beyond, the oldest is added to the next, which keeps things longer, never shorter.
const MAX_STEPS: usize = 64;

/// The forward steps that were seen, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockSteps {
    /// The wall clock before the step, and how far it was set forward.
    steps: Vec<(Moment, Duration)>,
}

impl ClockSteps {
    /// Compares two looks at the wall clock with the time that passed between them by a clock that cannot be set.
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

    /// How long ago something ended that was stamped with this time.
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
    fn a_step_forward_makes_nothing_older_that_ended_before_it() {
        let (ended, mut steps) = (Moment(1_000_000), ClockSteps::default());
        let before = ended.after(MINUTE);
        let stepped = before.after(YEAR);
        assert_eq!(steps.age(ended, stepped), YEAR + MINUTE, "a step that nobody saw");
        steps.note(before, stepped, Duration::from_secs(30));
        assert_eq!(steps.age(ended, stepped), MINUTE + Duration::from_secs(30));
        let later = stepped.after(MINUTE);
        assert_eq!(steps.age(stepped, later), MINUTE, "what ended after it ages as ever");
        steps.note(later, later.after(YEAR), Duration::ZERO);
        assert_eq!(steps.age(ended, later.after(YEAR)), 2 * MINUTE + Duration::from_secs(30), "steps add up");
        assert_eq!(steps.age(stepped, later.after(YEAR)), MINUTE);
    }

    #[test]
    fn drift_and_steps_back_are_no_steps_forward() {
        let (at, mut steps) = (Moment(1_000_000_000_000), ClockSteps::default());
        steps.note(at, at.after(MINUTE), MINUTE - Duration::from_secs(1));
        steps.note(at, Moment(1), MINUTE);
        assert_eq!(steps, ClockSteps::default());
        assert_eq!(steps.age(at, Moment(1)), Duration::ZERO);
    }

    #[test]
    fn however_many_steps_there_are_few_are_kept_and_nothing_gets_older() {
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
