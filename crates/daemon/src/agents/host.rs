//! The one way from hosted agents to the rest of the daemon: what a client can do, and the few things around it that this
//! folder needs (ids, its own files, owners' contact, stopping the commands of a turn).
//!
//! [`Host`] is the interface, [`DaemonHost`] its implementation with the functions that the HTTP routes call, so that an
//! agent's process is validated, admitted, kept and stopped like any other. No other file of this folder names another
//! room or `Core`; `cargo xtask tidy` checks that. The work runs as a task of the daemon's own event loop, not on the
//! agents' thread, and no lock of the daemon is held while code of this folder runs.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Outcome as ApiOutcome, SandboxRequest, SignalRequest, StartRequest};
use pinfold_model::facts::History;
use pinfold_model::id::ProcessId;
use pinfold_model::input::Input;
use pinfold_model::outcome::{Cause, Outcome};
use pinfold_model::signal::Signal;
use pinfold_model::spec::StopManner;
use pinfold_model::units::Moment;
use pinfold_store::Durability;
use pinfold_store::layout::Home;
use pinfold_store::marks::Run;
use pinfold_store::reader::{OutputReader, Piece};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::handle::Agents;
use super::own_thread::on_own_thread;
use crate::access::caller::Principal;
use crate::core::Core;
use crate::mutex::lock;
use crate::processes::stop_commands::{CommandFilter, stop_commands};
use crate::registry::{Entry, FoundProcess};
use crate::request_error::RequestError;
use crate::threads::blocking;
use crate::waits::{has_exited, until_change, until_output};

pub(super) use crate::access::caller::Caller;
pub(super) use crate::events::log::SseStream;
pub(super) use crate::registry::Viewer;

/// The type of a router that the daemon can mount.
pub(super) type Routes = Router<Arc<Core>>;

/// A future that an implementation of [`Host`] returns.
pub(super) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How long the keeper may take to accept all bytes of an input.
const INPUT_TIMEOUT: Duration = Duration::from_secs(60);
/// How soon a wait that failed may be repeated.
const WAIT_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The longest single wait for output.
const MAX_OUTPUT_WAIT: Duration = Duration::from_secs(3600);

/// Everything that hosted agents ask of the daemon.
pub(super) trait Host: fmt::Debug + Send + Sync {
    /// Starts a process, as the operator. A request with the same idempotency key finds the one that it started before.
    fn start(&self, request: StartRequest) -> Pending<'_, Result<Process, RequestError>>;

    /// Whether this owner has a process that was started with this idempotency key.
    fn has_started(&self, owner: &str, key: &str) -> bool;

    /// Finds a process, live or ended.
    fn find<'a>(&'a self, id: &'a str) -> Pending<'a, Result<Process, RequestError>>;

    /// A process that is live or ended recently.
    fn recent(&self, id: &ProcessId) -> Option<Process>;

    /// Reads output from a cursor on, with the stream that each part came from.
    fn read(&self, process: &Process, cursor: u64, max: usize) -> Pending<'_, Result<Output, RequestError>>;

    /// Reads the last bytes of the output.
    fn read_end(&self, process: &Process, max: usize) -> Pending<'_, Result<Output, RequestError>>;

    /// Returns when there is output beyond the cursor, or the leader has exited.
    fn until_news(&self, process: &Process, cursor: u64) -> Pending<'static, ()>;

    /// Returns when the leader has exited.
    fn until_exit(&self, process: &Process) -> Pending<'static, ()>;

    /// Returns when the whole tree has ended.
    fn until_over(&self, process: &Process) -> Pending<'static, ()>;

    /// Writes to stdin. An input with a key that was used before is written only once.
    fn input(&self, process: &Process, input: Input) -> Pending<'_, Result<(), RequestError>>;

    /// Signals the whole tree.
    fn signal(&self, process: &Process, signal: Signal, by: String) -> Pending<'_, Result<(), RequestError>>;

    /// Stops the whole tree, as its own stop settings say unless `manner` does, and waits for that.
    fn stop(
        &self,
        process: &Process,
        cause: Cause,
        manner: Option<StopManner>,
    ) -> Pending<'static, Result<(), RequestError>>;

    /// Stops what this owner and its descendants started in a period, if `viewer` sees the owner; returns the ids.
    fn stop_started_in<'a>(
        &'a self,
        viewer: &'a str,
        owner: &'a str,
        period: RangeInclusive<Moment>,
        by: String,
    ) -> Pending<'a, Vec<String>>;

    /// Stops the commands in the tree of a process that have this variable and were started in a period, and everything
    /// below them; returns their command lines.
    fn stop_commands(
        &self,
        process: &Process,
        variable: &'static str,
        period: RangeInclusive<Moment>,
    ) -> Pending<'_, Vec<String>>;

    /// The owner that a request to host an agent makes the agent's.
    fn owner_of_start(
        &self,
        caller: &Caller,
        owner: Option<String>,
        parent: Option<String>,
    ) -> Result<String, RequestError>;

    /// The owner grace of a request that names none.
    fn default_owner_grace(&self, caller: &Caller, owner: &str) -> Option<Duration>;

    /// From now on the daemon checks for owners that have lost contact.
    fn watch_owner_contact(&self);

    /// How long an owner has been without contact.
    fn time_without_contact(&self, owner: &str) -> Duration;

    fn parent_of(&self, owner: &str) -> Option<String>;

    fn sees(&self, viewer: &Viewer, owner: &str) -> bool;

    /// An id that no process and no agent has.
    fn new_id(&self) -> Result<ProcessId, RequestError>;

    /// Where the agents' own files are, and how they are written.
    fn files(&self) -> (Home, Durability);

    /// The working directory of a process that names none.
    fn user_home(&self) -> String;

    /// How long ended agents are kept.
    fn retention(&self) -> Duration;

    /// True once the daemon shuts down.
    fn shutdown(&self) -> watch::Receiver<bool>;
}

/// A process of an agent. Its state is read here; nothing but the daemon changes it.
#[derive(Clone, Debug)]
pub(super) struct Process(Arc<Entry>);

/// A part of a process's output.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) piece: Piece,
    /// Which stream each byte came from.
    pub(super) runs: Vec<Run>,
}

impl Process {
    fn of(found: FoundProcess) -> Self {
        match found {
            FoundProcess::Here(entry) => Self(entry),
            FoundProcess::Ended(history) => Self(Entry::new(*history)),
        }
    }

    #[cfg(test)]
    pub(super) fn for_test() -> Self {
        Self(crate::registry::entry_of(|_| {}))
    }

    fn found(&self) -> FoundProcess {
        FoundProcess::Here(Arc::clone(&self.0))
    }

    pub(super) fn id(&self) -> &ProcessId {
        &self.0.id
    }

    /// Whether its leader has exited.
    pub(super) fn has_exited(&self) -> bool {
        has_exited(&self.0.state.borrow())
    }

    /// Whether its whole tree has ended.
    pub(super) fn is_over(&self) -> bool {
        self.0.status().is_over()
    }

    pub(super) fn cwd(&self) -> String {
        self.0.state.borrow().history.intent.spec.cwd.to_string_lossy().into_owned()
    }

    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        self.0.state.borrow().history.labels().clone()
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.0.state.borrow().history.outcome()
    }

    pub(super) fn api_outcome(&self) -> Option<ApiOutcome> {
        self.outcome().map(Into::into)
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        self.0.state.borrow().history.cause()
    }

    pub(super) fn stop_manner(&self) -> StopManner {
        self.0.state.borrow().history.intent.spec.stop
    }

    pub(super) fn history(&self) -> History {
        self.0.snapshot().history
    }
}

/// The daemon as hosted agents see it.
#[derive(Debug)]
struct DaemonHost {
    core: Arc<Core>,
    /// The daemon's event loop.
    daemon: Handle,
}

impl DaemonHost {
    /// Runs work of the daemon on its own event loop. Dropping the future cancels the work.
    async fn on_daemon<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, RequestError>> + Send + 'static,
    ) -> Result<T, RequestError> {
        on_loop(&self.daemon, work).await.unwrap_or_else(|| Err(RequestError::internal("a request failed halfway")))
    }

    fn read_output(
        &self,
        process: &Process,
        read: impl FnOnce(OutputReader) -> std::io::Result<(Piece, Vec<Run>)> + Send + 'static,
    ) -> Pending<'_, Result<Output, RequestError>> {
        let directory = self.core.home.process(process.id());
        let end = process.0.state.borrow().history.finish.as_ref().map(|finish| finish.output_bytes);
        Box::pin(async move {
            let read = blocking(move || read(OutputReader::open(&directory).with_known_end(end))).await?;
            read.map(|(piece, runs)| Output { piece, runs }).map_err(RequestError::internal)
        })
    }
}

/// Runs a task on an event loop and returns its result, or `None` if it panicked. Dropping the future cancels the task.
pub(super) async fn on_loop<T: Send + 'static>(
    event_loop: &Handle,
    task: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let mut tasks = JoinSet::new();
    tasks.spawn_on(task, event_loop);
    tasks.join_next().await?.ok()
}

impl Host for DaemonHost {
    fn start(&self, mut request: StartRequest) -> Pending<'_, Result<Process, RequestError>> {
        // Not the default of the configuration: agents sandbox their commands themselves, which fails inside a sandbox.
        // A floor refuses the start.
        request.sandbox = Some(SandboxRequest::Text("off".to_owned()));
        let core = Arc::clone(&self.core);
        Box::pin(self.on_daemon(async move {
            // As the operator: started as its owner, it would count as contact by the owner.
            let caller = core.caller(Principal::operator(), None, None).await?;
            let started = core.start(&caller, request).await?;
            core.find(&Viewer::Operator, &started.record.id).await.map(Process::of)
        }))
    }

    fn has_started(&self, owner: &str, key: &str) -> bool {
        self.core.registry.by_key(owner, key).is_some()
    }

    fn find<'a>(&'a self, id: &'a str) -> Pending<'a, Result<Process, RequestError>> {
        let (core, id) = (Arc::clone(&self.core), id.to_owned());
        Box::pin(self.on_daemon(async move { core.find(&Viewer::Operator, &id).await.map(Process::of) }))
    }

    fn recent(&self, id: &ProcessId) -> Option<Process> {
        self.core.registry.get(id).map(Process)
    }

    fn read(&self, process: &Process, cursor: u64, max: usize) -> Pending<'_, Result<Output, RequestError>> {
        self.read_output(process, move |reader| reader.read_runs(cursor, max))
    }

    fn read_end(&self, process: &Process, max: usize) -> Pending<'_, Result<Output, RequestError>> {
        self.read_output(process, move |reader| reader.read_runs(reader.tail_start(max as u64)?, max))
    }

    fn until_news(&self, process: &Process, cursor: u64) -> Pending<'static, ()> {
        let (daemon, entry) = (self.daemon.clone(), Arc::clone(&process.0));
        let news = async move {
            let output = async {
                // If no more output comes, only the exit is left to wait for.
                if !until_output(&entry, cursor, MAX_OUTPUT_WAIT).await {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = until_change(&entry, has_exited) => {}
                () = output => {}
            }
        };
        Box::pin(async move {
            if on_loop(&daemon, news).await.is_none() {
                // It panicked: the caller would otherwise repeat it in a tight loop.
                tokio::time::sleep(WAIT_RETRY_DELAY).await;
            }
        })
    }

    fn until_exit(&self, process: &Process) -> Pending<'static, ()> {
        let entry = Arc::clone(&process.0);
        Box::pin(async move { until_change(&entry, has_exited).await })
    }

    fn until_over(&self, process: &Process) -> Pending<'static, ()> {
        let entry = Arc::clone(&process.0);
        Box::pin(async move {
            until_change(&entry, |state| state.history.status().is_over() || state.refused.is_some()).await;
        })
    }

    fn input(&self, process: &Process, input: Input) -> Pending<'_, Result<(), RequestError>> {
        let (core, entry) = (Arc::clone(&self.core), Arc::clone(&process.0));
        Box::pin(self.on_daemon(async move {
            let taken = core.offer(&entry, &input, INPUT_TIMEOUT).await?;
            if taken.complete {
                return Ok(());
            }
            let message = format!("it does not read its stdin: {} bytes are waiting there", taken.queued);
            Err(RequestError::new(ErrorCode::LimitReached, message))
        }))
    }

    fn signal(&self, process: &Process, signal: Signal, by: String) -> Pending<'_, Result<(), RequestError>> {
        let (core, found) = (Arc::clone(&self.core), process.found());
        let request = SignalRequest { signal: signal.to_string(), by: Some(by) };
        Box::pin(self.on_daemon(async move { core.signal(found, request).await.map(drop) }))
    }

    fn stop(
        &self,
        process: &Process,
        cause: Cause,
        manner: Option<StopManner>,
    ) -> Pending<'static, Result<(), RequestError>> {
        let manner = manner.unwrap_or_else(|| process.stop_manner());
        let (core, entry) = (Arc::clone(&self.core), Arc::clone(&process.0));
        // Continues even if its caller is cancelled, like a stop by any other client.
        let stop = self.daemon.spawn(async move { core.stop_entry(&entry, cause, manner).await.map(drop) });
        Box::pin(async move { stop.await.map_err(RequestError::internal)? })
    }

    fn stop_started_in<'a>(
        &'a self,
        viewer: &'a str,
        owner: &'a str,
        period: RangeInclusive<Moment>,
        by: String,
    ) -> Pending<'a, Vec<String>> {
        if !self.core.owners.sees(viewer, owner) {
            return Box::pin(async { vec![] });
        }
        let (core, owners) = (Arc::clone(&self.core), self.core.owners.view_of(owner));
        let stop = async move {
            let is_meant = |history: &History| {
                owners.iter().any(|owner| owner == history.owner()) && period.contains(&history.intent.at)
            };
            core.cancel_restarts(&by, is_meant).await;
            let mut live = core.registry.live();
            live.retain(|entry| is_meant(&entry.state.borrow().history));
            let ids = live.iter().map(|entry| entry.id.to_string()).collect();
            let mut stops = JoinSet::new();
            for entry in live {
                let (core, cause) = (Arc::clone(&core), Cause::StopRequested { by: by.clone() });
                let manner = entry.state.borrow().history.intent.spec.stop;
                stops.spawn(async move {
                    if let Err(error) = core.stop_entry(&entry, cause, manner).await {
                        tracing::warn!(process = %entry.id, error = %error.0, "cannot stop a process of an interrupted turn");
                    }
                });
            }
            while stops.join_next().await.is_some() {}
            ids
        };
        Box::pin(async move { on_loop(&self.daemon, stop).await.unwrap_or_default() })
    }

    fn stop_commands(
        &self,
        process: &Process,
        variable: &'static str,
        period: RangeInclusive<Moment>,
    ) -> Pending<'_, Vec<String>> {
        let stop = stop_commands(process.history(), CommandFilter { variable, period });
        Box::pin(async move { on_loop(&self.daemon, stop).await.unwrap_or_default() })
    }

    fn owner_of_start(
        &self,
        caller: &Caller,
        owner: Option<String>,
        parent: Option<String>,
    ) -> Result<String, RequestError> {
        self.core.owner_of_start(caller, owner, parent).map(|(owner, _)| owner)
    }

    fn default_owner_grace(&self, caller: &Caller, owner: &str) -> Option<Duration> {
        self.core.grace_for(caller, owner)
    }

    fn watch_owner_contact(&self) {
        self.core.owners.note_grace();
    }

    fn time_without_contact(&self, owner: &str) -> Duration {
        self.core.owners.silence(owner)
    }

    fn parent_of(&self, owner: &str) -> Option<String> {
        self.core.owners.parent(owner)
    }

    fn sees(&self, viewer: &Viewer, owner: &str) -> bool {
        match viewer {
            Viewer::Operator => true,
            Viewer::Owner(viewer) => self.core.owners.sees(viewer, owner),
        }
    }

    fn new_id(&self) -> Result<ProcessId, RequestError> {
        lock(&self.core.ids).next().map_err(RequestError::internal)
    }

    fn files(&self) -> (Home, Durability) {
        (self.core.home.clone(), self.core.durability())
    }

    fn user_home(&self) -> String {
        self.core.user_home.clone()
    }

    fn retention(&self) -> Duration {
        self.core.config.limits.retention
    }

    fn shutdown(&self) -> watch::Receiver<bool> {
        self.core.shutdown.subscribe()
    }
}

/// All hosted agents, and the daemon that hosts them: what the routes and the rest of this folder work on.
#[derive(Clone, Debug)]
pub(crate) struct Hosting {
    pub(super) host: Arc<dyn Host>,
    pub(super) agents: Agents,
}

impl Hosting {
    pub(crate) fn of(core: &Arc<Core>) -> Self {
        let agents = core.agents.clone();
        let host = DaemonHost { core: Arc::clone(core), daemon: agents.daemon.clone() };
        Self { host: Arc::new(host), agents }
    }
}

/// The routes of hosted agents. Their handlers run on the agents' thread.
pub(crate) fn routes(core: &Arc<Core>) -> Routes {
    super::routes::routes().layer(from_fn_with_state(Arc::clone(core), on_own_thread))
}

impl FromRequestParts<Arc<Core>> for Hosting {
    type Rejection = RequestError;

    async fn from_request_parts(_: &mut Parts, core: &Arc<Core>) -> Result<Self, RequestError> {
        Ok(Self::of(core))
    }
}
