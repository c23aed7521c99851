//! A pool of threads for blocking work: files, the index, `/proc`.
//!
//! All threads are created before the daemon serves: at the user's process limit no thread can be created, and requests
//! must still be answered. Work that may never finish, such as touching a path named by a request, must not run here
//! (D8).

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use pinfold_api::error::ErrorCode;
use tokio::sync::oneshot;

use crate::mutex::lock;
use crate::request_error::RequestError;

/// Number of threads. Most jobs are short, and the index serves one query at a time.
const THREADS: usize = 8;
/// Maximum number of queued jobs; a request that would queue one more is refused.
const MAX_WAITING: usize = 10_000;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Pool {
    jobs: Mutex<VecDeque<Job>>,
    filled: Condvar,
}

static POOL: OnceLock<Arc<Pool>> = OnceLock::new();

/// Creates the threads. Fails if none can be created; with fewer than all, work takes longer.
pub(crate) fn start() -> io::Result<()> {
    let pool = Arc::<Pool>::default();
    for made in 0..THREADS {
        let own = Arc::clone(&pool);
        let thread = std::thread::Builder::new().name("work".into()).spawn(move || own.work());
        match thread {
            Ok(_) => {}
            Err(error) if made == 0 => return Err(error),
            Err(error) => {
                tracing::warn!(%error, made, "fewer worker threads than planned");
                break;
            }
        }
    }
    let _ = POOL.set(pool);
    Ok(())
}

/// Runs blocking work off the event loop. It runs to completion even if the caller is dropped.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, RequestError> {
    if POOL.get().is_none() {
        start().map_err(|error| RequestError::shortage("cannot create a thread", &error))?;
    }
    let (done, wait) = oneshot::channel();
    let job: Job = Box::new(move || drop(done.send(work())));
    let accepted = POOL.get().is_some_and(|pool| pool.accept(job));
    if !accepted {
        let message = format!("{MAX_WAITING} requests already wait for a thread: try again in a few seconds");
        return Err(RequestError::new(ErrorCode::ResourceShortage, message));
    }
    wait.await.map_err(|_| RequestError::internal("a worker thread panicked"))
}

impl Pool {
    fn accept(&self, job: Job) -> bool {
        let mut jobs = lock(&self.jobs);
        let has_room = jobs.len() < MAX_WAITING;
        if has_room {
            jobs.push_back(job);
            self.filled.notify_one();
        }
        has_room
    }

    fn work(&self) -> ! {
        loop {
            let job = self.next();
            // The panic is in the log; the request that waits for this job gets an internal error.
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
                let error = blocking(|| -> () { panic!("on purpose") }).await.expect_err("refused");
                assert_eq!(error.0.code, ErrorCode::Internal);
            }
            assert_eq!(blocking(|| 7).await, Ok(7));
        });
    }

    #[test]
    fn work_waits_for_a_thread_up_to_a_bound() {
        let pool = Pool::default();
        assert!((0..MAX_WAITING).all(|_| pool.accept(Box::new(|| {}))));
        assert!(!pool.accept(Box::new(|| {})));
    }
}
