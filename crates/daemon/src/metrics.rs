//! The daemon's counters. `diagnostics` renders them.

use std::sync::atomic::{AtomicU64, Ordering};

use pinfold_model::facts::{History, Status};
use pinfold_model::outcome::Outcome;
use pinfold_store::outbox::Target;

/// Counters since the daemon started.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) started: AtomicU64,
    pub(crate) exited_zero: AtomicU64,
    pub(crate) exited_other: AtomicU64,
    pub(crate) signaled: AtomicU64,
    pub(crate) failed_to_start: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
    /// By target and result.
    pub(crate) deliveries: [[AtomicU64; 3]; 2],
    pub(crate) requests: AtomicU64,
    /// Searches that run now.
    pub(crate) searches: AtomicU64,
    pub(crate) search_bytes: AtomicU64,
}

/// The result of one delivery attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeliveryResult {
    Done,
    Failed,
    GivenUp,
}

impl Metrics {
    pub(crate) fn note_delivery(&self, target: Target, result: DeliveryResult) {
        self.deliveries[target as usize][result as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_start(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_end(&self, history: &History) {
        let counter = match (history.status(), history.outcome()) {
            (Status::Lost, _) => &self.lost,
            (_, Some(Outcome::Exited { code: 0 })) => &self.exited_zero,
            (_, Some(Outcome::Exited { .. })) => &self.exited_other,
            (_, Some(Outcome::Signaled { .. })) => &self.signaled,
            (_, Some(Outcome::FailedToStart { .. })) => &self.failed_to_start,
            (_, Some(Outcome::Lost { .. }) | None) => &self.lost,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let bytes = history.finish.as_ref().map_or(0, |finish| finish.output_bytes);
        self.output_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
