//! Samples of what live processes use, taken only while a client asks for them.
//!
//! The first request for a process takes a sample and starts one task for all processes that are watched; a process is watched until
//! [`WATCH_TIME`] after the last request for it, and the task ends with the last of them. Limits need no samples from
//! here: the kernel or the keeper enforces them. Bounds: [`MAX_SAMPLES`] per process, live processes only.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pinfold_api::types::{Record, Sample, Samples, SamplesQuery, Usage};
use pinfold_model::id::ProcessId;
use pinfold_model::units::Moment;
use pinfold_os::usage::{TreeLoad, measure_trees};
use tokio::time::MissedTickBehavior;

use crate::clock::{now, parse_moment, rfc3339};
use crate::core::{Core, blocking};
use crate::mutex::lock;
use crate::registry::{FoundProcess, State};
use crate::request_error::RequestError;

/// Time between samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a process is still sampled after the last request for its samples.
const WATCH_TIME: Duration = Duration::from_secs(10);
/// Samples kept for each process: five minutes.
const MAX_SAMPLES: usize = 300;

/// The samples of all processes that are watched.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    rings: HashMap<ProcessId, Ring>,
    /// Whether the task runs.
    is_running: bool,
}

/// The samples of one process.
#[derive(Debug)]
struct Ring {
    /// Its keeper: pid and start time.
    root: (u32, u64),
    last_request: Instant,
    /// The latest measurement.
    latest: Option<(Instant, TreeLoad)>,
    samples: VecDeque<Point>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    at: Moment,
    millicpus: Option<u64>,
    memory_bytes: u64,
    processes: u32,
}

impl Ring {
    fn add(&mut self, load: TreeLoad, moment: Instant) {
        let millicpus = self.latest.as_ref().and_then(|(then, before)| {
            let elapsed = moment.saturating_duration_since(*then).as_micros();
            let used = load.cpu_total.saturating_sub(before.cpu_total).as_micros();
            u64::try_from((used * 1000).checked_div(elapsed)?).ok()
        });
        let (memory_bytes, processes) = (load.rss_bytes, load.processes);
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Point { at: now(), millicpus, memory_bytes, processes });
        self.latest = Some((moment, load));
    }
}

impl Point {
    fn show(&self) -> Sample {
        let Point { at, millicpus, memory_bytes, processes } = *self;
        Sample { at: rfc3339(at), millicpus, memory_bytes, processes }
    }
}

impl Sampler {
    /// Notes requests for these processes; returns those that are new.
    fn request(&self, states: &[State]) -> Vec<(ProcessId, (u32, u64))> {
        let mut inner = lock(&self.inner);
        let mut new = Vec::new();
        for history in states.iter().map(|state| &state.history).filter(|history| !history.status().is_over()) {
            let (id, keeper) = (&history.intent.id, &history.intent.keeper);
            let (root, last_request) = ((keeper.pid, keeper.start_time), Instant::now());
            match inner.rings.get_mut(id) {
                Some(ring) => ring.last_request = last_request,
                None => {
                    inner.rings.insert(id.clone(), Ring { root, last_request, latest: None, samples: VecDeque::new() });
                    new.push((id.clone(), root));
                }
            }
        }
        new
    }

    /// Measures these trees and adds a sample to each. Reads `/proc`: not for the event loop.
    fn sample(&self, trees: &[(ProcessId, (u32, u64))]) {
        let roots: Vec<_> = trees.iter().map(|(_, root)| *root).collect();
        let loads = measure_trees(&roots);
        let moment = Instant::now();
        let mut inner = lock(&self.inner);
        for ((id, _), load) in trees.iter().zip(loads) {
            if let (Some(ring), Some(load)) = (inner.rings.get_mut(id), load) {
                ring.add(load, moment);
            }
        }
    }

    /// Forgets what is no longer watched or has ended, and returns the rest; the task is over if nothing is left.
    fn watched(&self, is_live: impl Fn(&ProcessId) -> bool) -> Vec<(ProcessId, (u32, u64))> {
        let mut inner = lock(&self.inner);
        inner.rings.retain(|id, ring| ring.last_request.elapsed() < WATCH_TIME && is_live(id));
        inner.is_running = !inner.rings.is_empty();
        inner.rings.iter().map(|(id, ring)| (id.clone(), ring.root)).collect()
    }
}

impl Core {
    /// The samples of one process. Asking for them keeps them coming.
    pub(crate) async fn samples(
        self: &Arc<Self>,
        found: &FoundProcess,
        query: &SamplesQuery,
    ) -> Result<Samples, RequestError> {
        let after = query.after.as_deref().map(|text| parse_moment("after", text)).transpose()?;
        let state = found.snapshot();
        let is_live = !state.history.status().is_over();
        self.watch_usage(vec![state]).await?;
        let inner = lock(&self.sampler.inner);
        let ring = inner.rings.get(found.id()).filter(|_| is_live);
        let points = ring.into_iter().flat_map(|ring| &ring.samples);
        let samples = points.filter(|point| after.is_none_or(|after| point.at > after)).map(Point::show).collect();
        Ok(Samples { id: found.id().to_string(), interval_ms: INTERVAL.as_millis() as u64, samples })
    }

    /// Samples these processes, as long as this is called again soon. When it returns, each has a sample.
    pub(super) async fn watch_usage(self: &Arc<Self>, states: Vec<State>) -> Result<(), RequestError> {
        let new = self.sampler.request(&states);
        if !new.is_empty() {
            let core = Arc::clone(self);
            blocking(move || core.sampler.sample(&new)).await?;
        }
        let mut inner = lock(&self.sampler.inner);
        if !inner.rings.is_empty() && !std::mem::replace(&mut inner.is_running, true) {
            tokio::spawn(run(Arc::clone(self)));
        }
        Ok(())
    }

    /// Adds what a live process uses now to its record.
    pub(super) fn add_usage(&self, record: &mut Record, id: &ProcessId) {
        let inner = lock(&self.sampler.inner);
        let Some(ring) = inner.rings.get(id) else { return };
        record.sample = ring.samples.back().map(Point::show);
        if let Some((_, load)) = &ring.latest {
            record.usage = Usage {
                cpu_ms: load.cpu_living.as_millis() as u64,
                max_rss_bytes: load.max_rss_bytes,
                processes: load.processes,
            };
        }
    }
}

/// Takes samples until no process is watched.
async fn run(core: Arc<Core>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let is_live = |id: &ProcessId| core.registry.get(id).is_some_and(|entry| !entry.status().is_over());
        let trees = core.sampler.watched(is_live);
        if trees.is_empty() {
            return;
        }
        let own = Arc::clone(&core);
        // Without a free thread this sample is left out.
        let _ = blocking(move || own.sampler.sample(&trees)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::entry_of;

    #[test]
    fn d4_a_ring_keeps_the_latest_samples_and_tells_the_rate_between_two() {
        let mut ring = Ring { root: (1, 1), last_request: Instant::now(), latest: None, samples: VecDeque::new() };
        let begin = Instant::now();
        for second in 0..MAX_SAMPLES as u64 + 50 {
            let load =
                TreeLoad { cpu_total: Duration::from_millis(second * 1500), processes: 2, ..TreeLoad::default() };
            ring.add(load, begin + Duration::from_secs(second));
        }
        assert_eq!(ring.samples.len(), MAX_SAMPLES);
        assert!(ring.samples.iter().all(|point| point.millicpus == Some(1500)), "one and a half cores");
    }

    #[test]
    fn a_process_that_is_not_asked_for_is_forgotten() {
        let sampler = Sampler::default();
        let entry = entry_of(|_| {});
        let states = [entry.snapshot()];
        assert_eq!(sampler.request(&states).len(), 1);
        assert_eq!(sampler.request(&states).len(), 0, "it is watched already");
        assert_eq!(sampler.watched(|_| true).len(), 1);
        assert!(sampler.watched(|_| false).is_empty() && !lock(&sampler.inner).is_running);
        assert_eq!(sampler.request(&states).len(), 1);
        let long_ago = Instant::now().checked_sub(WATCH_TIME);
        if let (Some(long_ago), Some(ring)) = (long_ago, lock(&sampler.inner).rings.get_mut(&entry.id)) {
            ring.last_request = long_ago;
        }
        assert!(sampler.watched(|_| true).is_empty());
    }
}
