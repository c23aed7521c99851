//! When a child was born, without a look into `/proc`, which costs as much as several other system calls.
//!
//! The kernel notes the moment during the clone, by a clock that we can read too, and shows it in ticks. A tick is so long
//! that the moment before a clone and the child's own first are nearly always in the same one, and then it is the child's.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::proc;

/// How far two readings of the clock, in the kernel and here, may be apart by rounding.
const ROUNDING: Duration = Duration::from_micros(1);

/// The time since boot, as it is now. Neither allocates nor locks: a child may ask before exec.
pub(crate) fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Tells start times of children; for one process, which learns from its first child whether the clock can be relied on.
#[derive(Debug, Default)]
pub(crate) struct BirthClock {
    /// Whether `/proc` told the same once. A sandbox that imitates `/proc` may count otherwise.
    agrees: Option<bool>,
}

impl BirthClock {
    /// The start time of a living or unreaped child that was born in this span, in clock ticks since boot.
    pub(crate) fn start_time(&mut self, pid: u32, before: Duration, after: Duration) -> u64 {
        let look = || proc::start_time(pid).unwrap_or(0);
        match (only_tick(before, after), self.agrees) {
            (Some(tick), Some(true)) => tick,
            (Some(tick), None) => {
                let told = look();
                self.agrees = Some(told == tick);
                told
            }
            (Some(_), Some(false)) | (None, _) => look(),
        }
    }
}

/// The tick that a span lies in, if it is one.
fn only_tick(before: Duration, after: Duration) -> Option<u64> {
    let tick = |at: Duration| (at.as_nanos() * u128::from(proc::clock_ticks_per_second()) / 1_000_000_000) as u64;
    let first = tick(before.saturating_sub(ROUNDING));
    (first == tick(after.saturating_add(ROUNDING))).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_across_ticks_has_none() {
        let tick = Duration::from_secs(1) / proc::clock_ticks_per_second() as u32;
        let at = |ticks: u32, micros| tick * ticks + Duration::from_micros(micros);
        assert_eq!(only_tick(at(7, 10), at(7, 500)), Some(7));
        assert_eq!(only_tick(at(7, 10), at(8, 0)), None);
        assert_eq!(only_tick(at(7, 10), at(8, 0) - ROUNDING), None, "nor one that ends where rounding decides");
        assert_eq!(only_tick(at(7, 0), at(7, 500)), None, "or begins there");
    }

    #[test]
    fn a_clock_that_disagrees_is_not_relied_on() {
        let own = std::process::id();
        let told = proc::start_time(own).expect("this process");
        let tick = Duration::from_secs(1) / proc::clock_ticks_per_second() as u32;
        let elsewhen = tick * 3 + tick / 2;
        let mut clock = BirthClock::default();
        for _ in 0..2 {
            assert_eq!(clock.start_time(own, elsewhen, elsewhen), told);
        }
        assert_eq!(clock.agrees, Some(false));
    }
}
