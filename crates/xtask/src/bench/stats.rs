//! Samples and their statistics.

use std::time::{Duration, Instant};

/// Whether less or more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Less,
    More,
}

/// The median, and the value that 19 of 20 samples are not worse than.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) count: usize,
}

/// Samples of one measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    pub(super) const fn new() -> Self {
        Samples(Vec::new())
    }

    pub(super) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds a duration in milliseconds.
    pub(super) fn push_ms(&mut self, duration: Duration) {
        self.push(duration.as_secs_f64() * 1e3);
    }

    /// Runs it and adds how long it took, in milliseconds.
    pub(super) fn time<T>(&mut self, act: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = act();
        self.push_ms(started.elapsed());
        result
    }

    /// NaN without samples.
    pub(super) fn summary(&self, better: Better) -> Summary {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        if better == Better::More {
            sorted.reverse();
        }
        Summary { p50: quantile(&sorted, 0.50), p95: quantile(&sorted, 0.95), count: sorted.len() }
    }
}

impl Summary {
    /// Of one measurement.
    pub(super) fn of_one(value: f64) -> Self {
        Self { p50: value, p95: value, count: 1 }
    }

    pub(super) fn over(&self, other: &Summary) -> (f64, f64) {
        (self.p50 / other.p50, self.p95 / other.p95)
    }
}

/// By nearest rank.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_and_p95_is_the_worse_side() {
        let mut samples = Samples::default();
        (1..=100).for_each(|value| samples.push(f64::from(value)));
        assert_eq!(samples.summary(Better::Less), Summary { p50: 50.0, p95: 95.0, count: 100 });
        assert_eq!(samples.summary(Better::More), Summary { p50: 51.0, p95: 6.0, count: 100 });
        assert!(Samples::default().summary(Better::Less).p50.is_nan());
    }
}
