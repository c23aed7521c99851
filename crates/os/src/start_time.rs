//! The start time of a child without reading `/proc`, which costs as much as several other system calls.
//!
//! The kernel takes the start time during the clone from a clock that we can read too, and shows it in ticks. A tick is
//! long (10 ms at 100 Hz), so the time just before the clone and the time when the child first runs are nearly always in
//! the same tick. Then that tick is the child's start time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::proc;

/// Maximum rounding difference between the kernel's reading of the clock and ours.
const ROUNDING: Duration = Duration::from_micros(1);

/// The current time since boot. Neither allocates nor locks: a child calls it before exec.
pub(crate) fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Computes start times of children. Compares the first one with `/proc` to learn whether the method works here.
#[derive(Debug, Default)]
pub(crate) struct BirthClock {
    /// Whether `/proc` showed the same start time; `None` before the first child. A sandbox that emulates `/proc` may
    /// use another clock.
    agrees: Option<bool>,
}

impl BirthClock {
    /// The start time, in clock ticks since boot, of an unreaped child that was cloned between these two times.
    pub(crate) fn start_time(&mut self, pid: u32, before: Duration, after: Duration) -> u64 {
        let read_proc = || proc::start_time(pid).unwrap_or(0);
        match (only_tick(before, after), self.agrees) {
            (Some(tick), Some(true)) => tick,
            (Some(tick), None) => {
                let shown = read_proc();
                self.agrees = Some(shown == tick);
                shown
            }
            (Some(_), Some(false)) | (None, _) => read_proc(),
        }
    }
}

/// The tick that both times are in; `None` if they are in different ticks.
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
        let shown = proc::start_time(own).expect("this process");
        let tick = Duration::from_secs(1) / proc::clock_ticks_per_second() as u32;
        let elsewhen = tick * 3 + tick / 2;
        let mut clock = BirthClock::default();
        for _ in 0..2 {
            assert_eq!(clock.start_time(own, elsewhen, elsewhen), shown);
        }
        assert_eq!(clock.agrees, Some(false));
    }
}
