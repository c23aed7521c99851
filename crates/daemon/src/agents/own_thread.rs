//! The thread of hosted agents: all code of this folder runs on an event loop of its own, so that an endless loop in it
//! blocks neither the keeping of processes nor any other request.
//!
//! The thread is started with the first agent. A request about agents is passed to it by [`on_own_thread`]; the part of
//! a request that needs the daemon goes back through [`Host`](super::host::Host).

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use pinfold_api::error::ErrorCode;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

use super::host::{Hosting, on_loop};
use crate::mutex::lock;
use crate::request_error::RequestError;

/// How long the thread may take to begin with a request before the client gets an error.
const MAX_BUSY: Duration = Duration::from_secs(10);

/// The event loop, once it was needed. Its thread ends when this is dropped.
#[derive(Debug, Default)]
pub(super) struct OwnThread {
    started: Mutex<Option<Started>>,
}

#[derive(Debug)]
struct Started {
    event_loop: Handle,
    /// Closed when the thread is to end.
    _keep: watch::Sender<()>,
}

impl OwnThread {
    pub(super) fn event_loop(&self) -> Result<Handle, RequestError> {
        let mut started = lock(&self.started);
        if started.is_none() {
            let new = start().map_err(|error| RequestError::shortage("cannot start the thread of agents", &error))?;
            *started = Some(new);
        }
        started.as_ref().map(|started| started.event_loop.clone()).ok_or_else(|| RequestError::internal("no thread"))
    }
}

fn start() -> std::io::Result<Started> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let event_loop = runtime.handle().clone();
    let (keep, mut kept) = watch::channel(());
    let (running, is_running) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("agents".into()).spawn(move || {
        let _ = running.send(());
        runtime.block_on(async { while kept.changed().await.is_ok() {} });
        runtime.shutdown_background();
    })?;
    let _ = is_running.recv();
    Ok(Started { event_loop, _keep: keep })
}

/// Passes a request to the agents' thread. If its handler panics, or the thread is blocked, the client gets an error.
pub(super) async fn on_own_thread(hosting: Hosting, request: Request, next: Next) -> Response {
    let event_loop = match hosting.agents.event_loop() {
        Ok(event_loop) => event_loop,
        Err(error) => return error.into_response(),
    };
    run(&event_loop, MAX_BUSY, next.run(request)).await.unwrap_or_else(IntoResponse::into_response)
}

async fn run<T: Send + 'static>(
    event_loop: &Handle,
    max_busy: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, RequestError> {
    let (signal_start, has_started) = oneshot::channel();
    let task = on_loop(event_loop, async move {
        let _ = signal_start.send(());
        work.await
    });
    tokio::pin!(task);
    let panicked = || RequestError::internal("the request failed: see the daemon's log");
    tokio::select! {
        done = &mut task => return done.ok_or_else(panicked),
        started = tokio::time::timeout(max_busy, has_started) => if started.is_err() {
            let message = "hosted agents do not respond; all processes and other requests are unaffected: try again, or \
                           restart the daemon (`pinfold daemon stop`, which leaves processes running)";
            return Err(RequestError::new(ErrorCode::ResourceShortage, message));
        },
    }
    task.await.ok_or_else(panicked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon() -> tokio::runtime::Runtime {
        Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    #[test]
    fn an_endless_loop_on_the_agents_thread_leaves_the_daemon_responsive() {
        let thread = OwnThread::default();
        let event_loop = thread.event_loop().expect("a thread");
        let (release, released) = mpsc::channel::<()>();
        // Blocks the agents' event loop until the end of this test, as an endless loop would.
        event_loop.spawn(async move {
            let _ = released.recv();
        });
        daemon().block_on(async {
            let refused =
                run(&event_loop, Duration::from_millis(50), async {}).await.expect_err("the thread is blocked");
            assert_eq!(refused.0.code, ErrorCode::ResourceShortage);
            assert!(refused.0.message.contains("do not respond"), "{}", refused.0.message);
            // The daemon's own loop still runs tasks.
            assert_eq!(tokio::spawn(async { 7 }).await.expect("a task"), 7);
            drop(release);
            let long = Duration::from_secs(60);
            assert_eq!(run(&event_loop, long, async { 8 }).await.expect("the thread is free again"), 8);
        });
    }

    #[test]
    fn a_panic_in_a_request_about_agents_is_an_error_for_its_client_only() {
        let thread = OwnThread::default();
        let event_loop = thread.event_loop().expect("a thread");
        daemon().block_on(async {
            let long = Duration::from_secs(60);
            let failed = run::<()>(&event_loop, long, async { panic!("on purpose") }).await.expect_err("a panic");
            assert_eq!(failed.0.code, ErrorCode::Internal);
            assert_eq!(run(&event_loop, long, async { 9 }).await.expect("an answer"), 9);
        });
    }
}
