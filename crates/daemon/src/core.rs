//! The state that all tasks of the daemon share. The rooms add methods to it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Record, Unreadable};
use pinfold_model::units::Moment;
use pinfold_os::cgroup::Base;
use pinfold_os::controllers::Place;
use pinfold_store::Durability;
use pinfold_store::ids::IdSource;
use pinfold_store::index::IndexError;
use pinfold_store::layout::Home;
use pinfold_store::queries::Queries;
use tokio::sync::{Semaphore, watch};

use crate::access::origin::Peers;
use crate::access::tokens::Tokens;
use crate::agents::Agents;
use crate::coder::Coder;
use crate::config::Config;
use crate::dashboard::sessions::Dashboard;
use crate::events::index_writer::IndexWriter;
use crate::events::webhook::Webhooks;
use crate::inbox::Failures;
use crate::keepers::pool::Keepers;
use crate::metrics::Metrics;
use crate::mutex::lock;
use crate::output::last_line::LastLines;
use crate::owners::sessions::SessionBook;
use crate::processes::retention::ClockWatch;
use crate::processes::samples::Sampler;
use crate::registry::records;
use crate::registry::recovery_progress::RecoveryProgress;
use crate::registry::{FoundProcess, OwnerBook, Registry};
use crate::request_error::RequestError;
use crate::services::ports::Leases;
use crate::services::restarts::Chains;
use crate::telemetry::Telemetry;
pub(crate) use crate::threads::blocking;

/// For how long queries are refused after the index was found locked.
const LOCKED_RETRY: Duration = Duration::from_secs(1);

/// The daemon's state, shared by all its tasks.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) home: Home,
    pub(crate) registry: Registry,
    pub(crate) keepers: Keepers,
    pub(crate) index_writer: IndexWriter,
    pub(crate) owners: OwnerBook,
    pub(crate) sessions: SessionBook,
    pub(crate) tokens: Tokens,
    pub(crate) peers: Peers,
    pub(crate) webhooks: Webhooks,
    /// Ports leased to processes.
    pub(crate) leases: Leases,
    /// Processes with a restart policy.
    pub(crate) chains: Chains,
    /// The TCP address, once it listens.
    pub(crate) tcp_address: OnceLock<SocketAddr>,
    /// Ids of new processes.
    pub(crate) ids: Mutex<IdSource>,
    /// The index, for reading; used from blocking threads only.
    pub(crate) queries: Mutex<Queries>,
    /// When a query last failed because another program had locked the index, and the error text.
    pub(crate) unreadable_index: Mutex<Option<(Instant, String)>>,
    pub(crate) metrics: Metrics,
    /// Traces, if they are sent anywhere.
    pub(crate) telemetry: Option<Telemetry>,
    /// The last lines of output that were read recently.
    pub(crate) last_lines: LastLines,
    pub(crate) sampler: Sampler,
    /// Limits how many searches run at once.
    pub(crate) searches: Semaphore,
    /// Failures for the inbox.
    pub(crate) failures: Failures,
    pub(crate) coder: Coder,
    /// Browsers that are signed in to the dashboard.
    pub(crate) dashboard: Dashboard,
    /// Hosted agents.
    pub(crate) agents: Agents,
    pub(crate) boot_id: String,
    pub(crate) user_home: String,
    /// The version of the program.
    pub(crate) version: &'static str,
    pub(crate) started_at: Moment,
    /// Where keepers create their cgroups, or why they cannot.
    pub(crate) cgroups: Result<Base, String>,
    /// The name prefix of every cgroup of this home.
    pub(crate) cgroup_name: String,
    /// The name of the cgroups that limit processes, and where they can be created (determined at first use).
    pub(crate) limit_name: String,
    pub(crate) limit_places: OnceLock<Vec<Place>>,
    /// Progress of recovery.
    pub(crate) recovery: RecoveryProgress,
    /// Forward steps of the wall clock while this daemon ran.
    pub(crate) clock_watch: Mutex<ClockWatch>,
    /// What happened to the home, if it was moved or removed.
    pub(crate) home_problem: Mutex<Option<String>>,
    /// Directories that recovery could not read.
    pub(crate) unreadable: Mutex<Vec<Unreadable>>,
    pub(crate) shutdown: watch::Sender<bool>,
}

impl Core {
    pub(crate) fn is_shutting_down(&self) -> bool {
        *self.shutdown.borrow()
    }

    pub(crate) fn durability(&self) -> Durability {
        self.config.durability
    }

    /// Runs a query on a blocking thread. Pending changes are committed first, if that does not take long; what is not
    /// committed yet is in the registry.
    pub(crate) async fn query<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(&Queries) -> Result<T, IndexError> + Send + 'static,
    ) -> Result<T, RequestError> {
        self.index_writer.flush().await;
        // While another program has locked the index, queries fail at once instead of each waiting for it.
        if let Some(why) = self.locked_index() {
            return Err(RequestError::new(ErrorCode::StoreUnwritable, why));
        }
        let core = Arc::clone(self);
        let answer = blocking(move || ask(&lock(&core.queries))).await?;
        let locked = answer.as_ref().err().filter(|error| error.is_locked()).map(|_| {
            let path = self.home.index();
            (Instant::now(), format!("another program has locked {}: close that program and try again", path.display()))
        });
        *lock(&self.unreadable_index) = locked.clone();
        match locked {
            Some((_, why)) => Err(RequestError::new(ErrorCode::StoreUnwritable, why)),
            None => answer.map_err(RequestError::from),
        }
    }

    /// Why the index cannot be read, if a recent query found it locked.
    pub(crate) fn locked_index(&self) -> Option<String> {
        lock(&self.unreadable_index).clone().filter(|(at, _)| at.elapsed() < LOCKED_RETRY).map(|(_, why)| why)
    }

    /// The record of a process, including its live tree.
    pub(crate) async fn record(self: &Arc<Self>, found: &FoundProcess) -> Result<Record, RequestError> {
        let (state, directory) = (found.snapshot(), self.home.process(found.id()));
        if state.history.status().is_over() {
            let record = records::record(&state, &directory, records::TreeDetail::Skip);
            return Ok(self.with_life(record, &state.history).await);
        }
        blocking(move || records::record(&state, &directory, records::TreeDetail::Read)).await
    }
}
