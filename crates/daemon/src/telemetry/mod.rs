//! Traces and metrics by OTLP over HTTP, if `telemetry.endpoint` is set.
//!
//! Owns the bounded queue and what is sent: spans of processes ([`spans`]), their form on the wire ([`otlp`]), and a thread that sends them ([`export`]).
//! Without an endpoint there is no queue and no thread; the one cost is the check of an `Option`.
//!
//! Bounds: [`MAX_QUEUED`] spans wait to be sent; further ones are dropped and counted. Nothing waits for the collector.
//! No command line is sent unless `telemetry.commands` is set, and never an environment, a directory, output or a label.
//!
//! May use: registry.

pub(crate) mod export;
mod otlp;
mod spans;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::config;
use crate::mutex::lock;
use spans::Span;
pub(crate) use spans::run_context;

/// Maximum number of spans that wait to be sent.
const MAX_QUEUED: usize = 4096;

/// Spans that wait for the thread that sends them, and counts of what became of them.
#[derive(Debug)]
pub(crate) struct Telemetry {
    settings: config::Telemetry,
    queue: Mutex<VecDeque<Span>>,
    queued: Notify,
    /// Makes the ids of spans differ.
    number: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failed_exports: AtomicU64,
}

impl Telemetry {
    /// Collects spans if the configuration has an endpoint.
    pub(crate) fn new(settings: &config::Telemetry) -> Option<Self> {
        settings.endpoint.as_ref().map(|_| Self {
            settings: settings.clone(),
            queue: Mutex::default(),
            queued: Notify::new(),
            number: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failed_exports: AtomicU64::new(0),
        })
    }

    fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    fn push(&self, span: Span) {
        let mut queue = lock(&self.queue);
        if queue.len() >= MAX_QUEUED {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.push_back(span);
        drop(queue);
        self.queued.notify_one();
    }

    /// The oldest spans, at most this many. They stay queued until [`Telemetry::remove`].
    fn oldest(&self, most: usize) -> Vec<Span> {
        lock(&self.queue).iter().take(most).cloned().collect()
    }

    /// Removes the oldest spans, which were sent or refused.
    fn remove(&self, count: usize) {
        drop(lock(&self.queue).drain(..count));
    }

    fn is_empty(&self) -> bool {
        lock(&self.queue).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use pinfold_model::units::Moment;

    use super::*;

    #[test]
    fn a_full_queue_drops_new_spans_and_counts_them() {
        let settings = config::Telemetry::at("http://127.0.0.1:1");
        let telemetry = Telemetry::new(&settings).expect("an endpoint");
        let span = Span::new("run", ([1; 16], [2; 8]), None, (Moment(1), Moment(2)));
        (0..MAX_QUEUED + 3).for_each(|_| telemetry.push(span.clone()));
        assert_eq!(telemetry.dropped.load(Ordering::Relaxed), 3);
        assert_eq!(telemetry.oldest(10).len(), 10);
        telemetry.remove(MAX_QUEUED);
        assert!(telemetry.is_empty());
        assert!(Telemetry::new(&config::Telemetry::default()).is_none());
    }
}
