//! Threads for work that may block: files, the index, `/proc`.
//!
//! All of them are made before the daemon serves. At the process limit of its user no thread can be made any more, and
//! requests are to be answered all the same. What cannot end by itself, such as a path that a request names, is not for
//! them (D8).

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use pinfold_api::error::ErrorCode;
use tokio::sync::oneshot;

use crate::lock::lock;
use crate::refusal::Refusal;

/// How many there are. Most of the work is short, and the index answers one at a time.
const THREADS: usize = 8;
/// Jobs that may wait for a thread. A request whose job would be one more is refused.
const WAITING_MOST: usize = 10_000;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Pool {
    jobs: Mutex<VecDeque<Job>>,
    filled: Condvar,
}

static POOL: OnceLock<Arc<Pool>> = OnceLock::new();

/// Makes the threads. Fails if not one of them can be made; with fewer than all, work takes longer.
pub(crate) fn start() -> io::Result<()> {
    let pool = Arc::<Pool>::default();
    for made in 0..THREADS {
        let own = Arc::clone(&pool);
        let thread = std::thread::Builder::new().name("work".into()).spawn(move || own.work());
        match thread {
            Ok(_) => {}
            Err(error) if made == 0 => return Err(error),
            Err(error) => {
                tracing::warn!(%error, made, "not all threads could be made");
                break;
            }
        }
    }
    let _ = POOL.set(pool);
    Ok(())
}

/// Runs what may block off the event loop. It runs to its end even if the caller goes away.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    if POOL.get().is_none() {
        start().map_err(|error| Refusal::shortage("cannot make a thread", &error))?;
    }
    let (done, wait) = oneshot::channel();
    let job: Job = Box::new(move || drop(done.send(work())));
    let accepted = POOL.get().is_some_and(|pool| pool.accept(job));
    if !accepted {
        let message = format!("{WAITING_MOST} requests wait for a thread already: try again in a moment");
        return Err(Refusal::new(ErrorCode::ResourceShortage, message));
    }
    wait.await.map_err(|_| Refusal::internal("a request failed halfway"))
}

impl Pool {
    fn accept(&self, job: Job) -> bool {
        let mut jobs = lock(&self.jobs);
        let has_room = jobs.len() < WAITING_MOST;
        if has_room {
            jobs.push_back(job);
            self.filled.notify_one();
        }
        has_room
    }

    fn work(&self) -> ! {
        loop {
            let job = self.next();
            // The message of a panic is in the log; whoever waits for the job sees that nothing came of it.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn next(&self) -> Job {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(job) = jobs.pop_front() {
                return job;
            }
            jobs = self.filled.wait(jobs).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_costs_its_own_request_and_no_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            for _ in 0..THREADS * 2 {
                let refusal = blocking(|| -> () { panic!("on purpose") }).await.expect_err("refused");
                assert_eq!(refusal.0.code, ErrorCode::Internal);
            }
            assert_eq!(blocking(|| 7).await, Ok(7));
        });
    }

    #[test]
    fn work_waits_for_a_thread_up_to_a_bound() {
        let pool = Pool::default();
        assert!((0..WAITING_MOST).all(|_| pool.accept(Box::new(|| {}))));
        assert!(!pool.accept(Box::new(|| {})));
    }
}
